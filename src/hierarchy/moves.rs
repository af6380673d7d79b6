//! Data moved as it is over several nodes: to the leader of its node, from leader to leader, from there to its ranks.
//!
//! Leaders exchange by plain packets, every part straight to the node it is for; only a broadcast is a tree. A leader
//! holds what its node sends or gets, once more than its caller. Everything here is bytes: a part is a rank's, `lens` are
//! all ranks' lengths.

use super::operation::{Buf, Operation, When};
use super::phases::Phases;
use super::topology::Topology;
use crate::Error;
use crate::plans::Shape;
use earlybird_hier::exec::Parts;
use earlybird_shm::Collective;
use std::borrow::Cow;

/// Returns when every rank has called it.
pub(super) async fn barrier(phases: &mut Phases<'_>, shape: Shape) -> Result<(), Error> {
    phases.on_node(When::Give, Operation::barrier(), None, &mut Buf::default()).await?;
    phases.plan(shape, &mut [0]).await?;
    phases.on_node(When::Take, Operation::barrier(), None, &mut Buf::default()).await
}

/// Copies `buf` of `root` to `buf` of every rank.
pub(super) async fn broadcast(
    phases: &mut Phases<'_>,
    shape: Shape,
    root: usize,
    buf: &mut Buf<'_>,
) -> Result<(), Error> {
    let topology = phases.topology;
    let (home, local) = topology.place(root);
    if topology.node() != home {
        phases.plan(shape, buf).await?;
        return phases.on_node(When::Take, Operation::broadcast(0), None, buf).await;
    }
    // The root's node has it first, and goes.
    phases.on_node(When::Give, Operation::broadcast(local), None, buf).await?;
    phases.plan(shape, buf).await?;
    phases.nothing_to_take().await;
    Ok(())
}

/// Copies `send` of every rank, in rank order, to `recv` of every rank.
pub(super) async fn all_gather(
    phases: &mut Phases<'_>,
    send: Cow<'_, [u8]>,
    recv: &mut Buf<'_>,
    lens: &[usize],
) -> Result<(), Error> {
    let mine = collect(phases, send, lens).await?;
    if phases.topology.leads() {
        bring(phases, &mine, lens, None, recv).await?;
    }
    phases.on_node(When::Take, Operation::broadcast(0), None, recv).await
}

/// Copies `send` of every rank, in rank order, to `recv` of `root`.
pub(super) async fn gather(
    phases: &mut Phases<'_>,
    root: usize,
    send: Cow<'_, [u8]>,
    recv: &mut Buf<'_>,
    lens: &[usize],
) -> Result<(), Error> {
    let topology = phases.topology;
    let (home, local) = topology.place(root);
    let total = lens.iter().sum();
    let mine = collect(phases, send, lens).await?;
    let mut all = Buf::default();
    if topology.leads() {
        let passes_on = topology.node() == home && local != 0;
        let room = match passes_on {
            true => {
                all = Buf::zeros(total);
                &mut all
            }
            false => &mut *recv,
        };
        bring(phases, &mine, lens, Some(home), room).await?;
    }
    to_root(phases, root, total, all, recv).await
}

/// Copies `send` of `root`, a block to each rank in rank order, to `recv`.
pub(super) async fn scatter(
    phases: &mut Phases<'_>,
    root: usize,
    send: Cow<'_, [u8]>,
    recv: &mut Buf<'_>,
    lens: &[usize],
) -> Result<(), Error> {
    let topology = phases.topology;
    let (home, local) = topology.place(root);
    let at_home = topology.node() == home;
    let mut given = send;
    if at_home && local != 0 {
        let total = lens.iter().sum();
        let mut all = Buf::zeros(if topology.leads() { total } else { 0 });
        hand_over(phases, When::Give, (local, 0), total, given, &mut all).await?;
        given = Cow::Owned(all.take());
    }
    let here = here(topology, lens);
    let mut mine = Vec::new();
    if topology.leads() {
        let pick = |node| if at_home { topology.pick(&given, lens, node) } else { Vec::new() };
        let mut ours: Vec<Vec<u8>> = (0..topology.nodes()).map(pick).collect();
        let mut theirs = vec![Vec::new(); ours.len()];
        if !at_home {
            theirs[home] = vec![0; here.iter().sum()];
        }
        phases.exchange(&mut parts_of(&ours, &mut theirs), true).await?;
        mine = std::mem::take(if at_home { &mut ours[home] } else { &mut theirs[home] });
    }
    deal(phases, &here, mine, recv).await
}

/// Copies block `r` of `send` to rank `r`, and to block `r` of `recv` what rank `r` sent here; all blocks are of one
/// length.
pub(super) async fn all_to_all(phases: &mut Phases<'_>, send: Cow<'_, [u8]>, recv: &mut Buf<'_>) -> Result<(), Error> {
    let topology = phases.topology;
    let (me, block) = (topology.node(), send.len() / topology.size());
    // All that the node's ranks send, a whole vector each.
    let mut given = Buf::zeros(if topology.leads() { send.len() * topology.here().len() } else { 0 });
    phases.on_node(When::Give, Operation::moving(Collective::Gather, 0), Some(send), &mut given).await?;
    let mut got = Vec::new();
    if topology.leads() {
        let mut ours = topology.pack_pairs(&given, block);
        let mut theirs: Vec<Vec<u8>> = ours.iter().map(|part| vec![0; part.len()]).collect();
        phases.exchange(&mut parts_of(&ours, &mut theirs), true).await?;
        std::mem::swap(&mut ours[me], &mut theirs[me]);
        got = topology.unpack_pairs(&theirs, block);
    }
    phases.on_node(When::Take, Operation::moving(Collective::Scatter, 0), Some(Cow::Owned(got)), recv).await
}

/// The lengths of the parts of this node's ranks.
pub(super) fn here(topology: &Topology, lens: &[usize]) -> Vec<usize> {
    topology.here().iter().map(|&rank| lens[rank]).collect()
}

/// Collects the contributions of the node's ranks, in the order of their numbers, on its leader; nothing on the others.
pub(super) async fn collect(phases: &mut Phases<'_>, send: Cow<'_, [u8]>, lens: &[usize]) -> Result<Vec<u8>, Error> {
    let here = here(phases.topology, lens);
    let mut mine = Buf::zeros(if phases.topology.leads() { here.iter().sum() } else { 0 });
    phases.on_node(When::Give, Operation::gather(0, &here), Some(send), &mut mine).await?;
    Ok(mine.take())
}

/// Between leaders: what each node's ranks gave comes to its place in `all` of node `home`, or of every node.
pub(super) async fn bring(
    phases: &mut Phases<'_>,
    mine: &[u8],
    lens: &[usize],
    home: Option<usize>,
    all: &mut [u8],
) -> Result<(), Error> {
    let topology = phases.topology;
    let bytes = |node: usize| topology.members(node).iter().map(|&rank| lens[rank]).sum();
    let bytes: Vec<usize> = (0..topology.nodes()).map(bytes).collect();
    let theirs = send_to(phases, mine, &bytes, home).await?;
    let me = topology.node();
    if home.is_none_or(|home| home == me) {
        for (node, theirs) in theirs.iter().enumerate() {
            topology.put(all, lens, node, if node == me { mine } else { theirs });
        }
    }
    Ok(())
}

/// Between leaders: `mine` of every node, of `bytes` by node, to node `home`, or to every node, as the last exchange of the call;
/// what came by node, without this one's.
pub(super) async fn send_to(
    phases: &mut Phases<'_>,
    mine: &[u8],
    bytes: &[usize],
    home: Option<usize>,
) -> Result<Vec<Vec<u8>>, Error> {
    let me = phases.topology.node();
    let wants = |node: usize| home.is_none_or(|home| home == node);
    let room = |node: usize| vec![0; if wants(me) && node != me { bytes[node] } else { 0 }];
    let mut theirs: Vec<Vec<u8>> = (0..bytes.len()).map(room).collect();
    let send = |node: usize| if wants(node) && node != me { mine } else { &[] };
    let rooms = theirs.iter_mut().enumerate();
    let mut parts: Vec<Parts<'_>> = rooms.map(|(node, receive)| Parts { send: send(node), receive }).collect();
    phases.exchange(&mut parts, true).await?;
    Ok(theirs)
}

/// The parts of an exchange: a vector for each node, and room for the one from there.
pub(super) fn parts_of<'p>(send: &'p [Vec<u8>], receive: &'p mut [Vec<u8>]) -> Vec<Parts<'p>> {
    send.iter().zip(receive).map(|(send, receive)| Parts { send, receive }).collect()
}

/// Gives each rank of the node its part of what the leader has.
pub(super) async fn deal(
    phases: &mut Phases<'_>,
    here: &[usize],
    mine: Vec<u8>,
    recv: &mut Buf<'_>,
) -> Result<(), Error> {
    phases.on_node(When::Take, Operation::scatter(here), Some(Cow::Owned(mine)), recv).await
}

/// Copies `all`, of so many bytes, of the leader of the root's node to `recv` of the root, unless they are one rank.
pub(super) async fn to_root(
    phases: &mut Phases<'_>,
    root: usize,
    bytes: usize,
    mut all: Buf<'_>,
    recv: &mut Buf<'_>,
) -> Result<(), Error> {
    let (home, local) = phases.topology.place(root);
    if phases.topology.node() == home && local != 0 {
        return hand_over(phases, When::Take, (0, local), bytes, Cow::Owned(all.take()), recv).await;
    }
    phases.nothing_to_take().await;
    Ok(())
}

/// Copies `send` of one rank of the node, of so many bytes, to `recv` of another. Every rank of the node calls it.
async fn hand_over(
    phases: &mut Phases<'_>,
    when: When,
    (from, to): (usize, usize),
    bytes: usize,
    send: Cow<'_, [u8]>,
    recv: &mut Buf<'_>,
) -> Result<(), Error> {
    let (me, mut none) = (phases.topology.local(), Buf::default());
    let mut lens = vec![0; phases.topology.here().len()];
    lens[from] = bytes;
    let send = if me == from { send } else { Cow::Borrowed(&[][..]) };
    let recv = if me == to { recv } else { &mut none };
    phases.on_node(when, Operation::gather(to, &lens), Some(send), recv).await
}
