//! Data moved as it is over several nodes: to the leader of its node, from leader to leader, from there to its ranks.
//!
//! Leaders exchange by plain packets, every part straight to the node it is for; only a broadcast is a tree. A leader
//! holds what its node sends or gets, once more than its caller. Everything here is bytes: a part is a rank's, `lens` are
//! all ranks' lengths.

use super::{Call, Hierarchy, Phases};
use crate::Error;
use crate::plans::{Shape, Work};
use earlybird_hier::exec::Parts;
use earlybird_hier::plan;
use earlybird_shm::{CollectiveArgs, Counts};

impl Hierarchy {
    /// Copies `buf` of `root` to `buf` of every rank.
    pub(crate) fn broadcast(&self, call: &Call<'_>, root: usize, buf: &mut [u8]) -> Result<(), Error> {
        let (home, _) = self.topology.place(root);
        let (name, collective, elements) = ("binomial", plan::Collective::Broadcast, buf.len());
        let shape =
            Shape { name, collective, root: home, elements, work: Work::Move, call: call.signature.hash(), turn: 0 };
        self.carry_out(call, name, Some(shape), |phases| phases.broadcast(shape, root, buf))
    }

    /// Copies `send` of every rank, in rank order, to `recv` of every rank.
    pub(crate) fn all_gather(
        &self,
        call: &Call<'_>,
        send: &[u8],
        recv: &mut [u8],
        lens: &[usize],
    ) -> Result<(), Error> {
        self.carry_out(call, "direct", None, |phases| {
            let mine = phases.collect(send, lens)?;
            if phases.topology.leads() {
                let nodes: Vec<usize> = (0..phases.topology.nodes()).collect();
                phases.swap(&mine, recv, lens, &nodes, &nodes)?;
            }
            phases.broadcast_on_node(recv, 0)
        })
    }

    /// Copies `send` of every rank, in rank order, to `recv` of `root`.
    pub(crate) fn gather(
        &self,
        call: &Call<'_>,
        root: usize,
        send: &[u8],
        recv: &mut [u8],
        lens: &[usize],
    ) -> Result<(), Error> {
        self.carry_out(call, "direct", None, |phases| {
            let (home, local) = phases.topology.place(root);
            let mine = phases.collect(send, lens)?;
            let mut all = Vec::new();
            if phases.topology.leads() {
                let (here, nodes) = (phases.topology.node(), 0..phases.topology.nodes());
                let from: Vec<usize> = if here == home { nodes.collect() } else { Vec::new() };
                if here == home && local != 0 {
                    all = vec![0; lens.iter().sum()];
                }
                let room = if local == 0 { &mut *recv } else { &mut all };
                phases.swap(&mine, room, lens, &[home], &from)?;
            }
            match phases.topology.node() == home && local != 0 {
                true => phases.hand_over_of(lens.iter().sum(), &all, recv, 0, local),
                false => Ok(()),
            }
        })
    }

    /// Copies `send` of `root`, a block to each rank in rank order, to `recv`.
    pub(crate) fn scatter(
        &self,
        call: &Call<'_>,
        root: usize,
        send: &[u8],
        recv: &mut [u8],
        lens: &[usize],
    ) -> Result<(), Error> {
        self.carry_out(call, "direct", None, |phases| {
            let (home, local) = phases.topology.place(root);
            let (here, total) = (phases.topology.node(), lens.iter().sum());
            let of_ranks: Vec<usize> = phases.topology.here().iter().map(|&rank| lens[rank]).collect();
            let mut all = Vec::new();
            if here == home && local != 0 {
                all = vec![0; if phases.topology.leads() { total } else { 0 }];
                phases.hand_over_of(total, send, &mut all, local, 0)?;
            }
            let given = if local == 0 { send } else { &all };
            let mut mine = vec![0; of_ranks.iter().sum()];
            if phases.topology.leads() {
                let packed: Vec<Vec<u8>> = (0..phases.topology.nodes())
                    .map(|node| match here == home {
                        true => phases.topology.pick(given, lens, node),
                        false => Vec::new(),
                    })
                    .collect();
                let mut rooms: Vec<&mut [u8]> = (0..packed.len()).map(|_| Default::default()).collect();
                match here == home {
                    true => mine.copy_from_slice(&packed[here]),
                    false => rooms[home] = &mut mine,
                }
                let parts = packed.iter().zip(rooms);
                let mut parts: Vec<Parts<'_>> = parts.map(|(send, receive)| Parts { send, receive }).collect();
                phases.plans.exchange(phases.call, &mut parts)?;
            }
            phases.deal(&of_ranks, &mine, recv)
        })
    }

    /// Copies block `r` of `send` to rank `r`, and to block `r` of `recv` what rank `r` sent here; all blocks are of one
    /// length.
    pub(crate) fn all_to_all(&self, call: &Call<'_>, send: &[u8], recv: &mut [u8]) -> Result<(), Error> {
        self.carry_out(call, "direct", None, |phases| phases.all_to_all(send, recv))
    }
}

impl Phases<'_> {
    fn broadcast(&mut self, shape: Shape, root: usize, buf: &mut [u8]) -> Result<(), Error> {
        let (home, local) = self.topology.place(root);
        let at_home = self.topology.node() == home;
        if at_home {
            // The root's node has it first, and goes.
            self.broadcast_on_node(buf, local)?;
        }
        if self.topology.leads() {
            self.plans.run(shape, buf)?;
        }
        if at_home { Ok(()) } else { self.broadcast_on_node(buf, 0) }
    }

    /// What the node's ranks give, in the order of their numbers, on its leader; nothing on the others.
    pub(super) fn collect(&self, send: &[u8], lens: &[usize]) -> Result<Vec<u8>, Error> {
        let here: Vec<usize> = self.topology.here().iter().map(|&rank| lens[rank]).collect();
        if !self.topology.leads() {
            self.gather_on_node(send, &mut [], &here, 0)?;
            return Ok(Vec::new());
        }
        let mut mine = vec![0; here.iter().sum()];
        self.gather_on_node(send, &mut mine, &here, 0)?;
        Ok(mine)
    }

    /// Between leaders: this node's parts, `mine`, go to the nodes `to`; those of the nodes `from` come to their places in
    /// `all`, which holds every rank's.
    pub(super) fn swap(
        &mut self,
        mine: &[u8],
        all: &mut [u8],
        lens: &[usize],
        to: &[usize],
        from: &[usize],
    ) -> Result<(), Error> {
        let (nodes, me) = (0..self.topology.nodes(), self.topology.node());
        let bytes = |node: usize| self.topology.members(node).iter().map(|&rank| lens[rank]).sum::<usize>();
        let mut rooms: Vec<Vec<u8>> =
            nodes.map(|node| vec![0; if from.contains(&node) { bytes(node) } else { 0 }]).collect();
        let parts = rooms.iter_mut().enumerate();
        let mut parts: Vec<Parts<'_>> =
            parts.map(|(node, receive)| Parts { send: if to.contains(&node) { mine } else { &[] }, receive }).collect();
        parts[me] = Parts::default();
        self.plans.exchange(self.call, &mut parts)?;
        for &node in from {
            self.topology.put(all, lens, node, if node == me { mine } else { &rooms[node] });
        }
        Ok(())
    }

    /// Gives each rank of the node its part of what the leader has.
    pub(super) fn deal(&self, here: &[usize], mine: &[u8], recv: &mut [u8]) -> Result<(), Error> {
        let mine = if self.topology.leads() { mine } else { &[] };
        self.on_node(CollectiveArgs::scatter(0, (mine, recv)).counts(Counts::PerRank(here)))
    }

    /// Copies `send` of one rank of the node to `recv` of another. Every rank of the node calls it.
    pub(super) fn hand_over(&self, send: &[u8], recv: &mut [u8], from: usize, to: usize) -> Result<(), Error> {
        self.hand_over_of(send.len().max(recv.len()), send, recv, from, to)
    }

    /// The same for ranks that have neither.
    pub(super) fn hand_over_of(
        &self,
        bytes: usize,
        send: &[u8],
        recv: &mut [u8],
        from: usize,
        to: usize,
    ) -> Result<(), Error> {
        let mut lens = vec![0; self.topology.here().len()];
        lens[from] = bytes;
        let send = if self.topology.local() == from { send } else { &[] };
        let recv = if self.topology.local() == to { recv } else { &mut [] };
        self.gather_on_node(send, recv, &lens, to)
    }

    fn all_to_all(&mut self, send: &[u8], recv: &mut [u8]) -> Result<(), Error> {
        let topology = self.topology;
        let (here, block) = (topology.here(), send.len() / topology.size());
        let leads = topology.leads();
        // All that the node's ranks send, a whole vector each.
        let mut given = vec![0; if leads { send.len() * here.len() } else { 0 }];
        self.on_node(CollectiveArgs::gather(0, (send, &mut given[..])))?;
        let mut got = Vec::new();
        if leads {
            let packed = topology.pack_pairs(&given, block);
            let mut rooms: Vec<Vec<u8>> = packed.iter().map(|part| vec![0; part.len()]).collect();
            rooms[topology.node()].copy_from_slice(&packed[topology.node()]);
            let parts = packed.iter().zip(&mut rooms);
            let mut parts: Vec<Parts<'_>> = parts.map(|(send, receive)| Parts { send, receive }).collect();
            self.plans.exchange(self.call, &mut parts)?;
            got = topology.unpack_pairs(&rooms, block);
        }
        self.on_node(CollectiveArgs::scatter(0, (&got[..], recv)))
    }
}
