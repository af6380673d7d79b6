//! Scans over several nodes.
//!
//! On nodes whose ranks follow one another, each node reduces to its leader, leaders give what they have to those after
//! them, and a scan of the node follows in which the leader puts the nodes before it in front of its own contribution: one
//! reduction and one scan of a node, one round and at most N - 1 vectors between leaders.
//!
//! Elsewhere a rank's result has contributions from everywhere, of which no node has a part by itself: every leader gets the
//! contributions of all ranks, makes the results of its ranks one after the other, and gives each its own.

use super::call::Call;
use super::moves::{bring, collect, deal, here};
use super::operation::{Buf, Operation, When};
use super::operators::{fold_all, folds_by_rank};
use super::phases::Phases;
use crate::Error;
use earlybird_hier::exec::Parts;
use earlybird_shm::{Prefix, ReduceOp};
use std::borrow::Cow;

/// Reduces `send` of the ranks up to each one, or before it, into its `recv`.
pub(super) async fn scan(
    phases: &mut Phases<'_>,
    call: &Call,
    send: Cow<'_, [u8]>,
    recv: &mut Buf<'_>,
) -> Result<(), Error> {
    let (topology, op, datatype) = (phases.topology, phases.op, call.lowering.datatype());
    if !topology.is_in_order() || matches!(op, ReduceOp::User(op) if folds_by_rank(op, topology)) {
        return scan_on_leaders(phases, call, send, recv).await;
    }
    let mut given = send;
    if topology.leads() {
        let mut sum = Buf::Owned(given.to_vec());
        phases.on_node(When::Give, Operation::reduce(0, datatype), None, &mut sum).await?;
        let before = give_to_later_nodes(phases, &sum).await?;
        if topology.node() > 0 {
            let before = fold_all(op, datatype, topology, before.iter().map(Vec::as_slice))?;
            given = Cow::Owned(fold_all(op, datatype, topology, [&before[..], &given].into_iter())?);
            if call.collective.traits().prefix == Some(Prefix::Exclusive) {
                recv.copy_from_slice(&before);
            }
        }
    } else {
        phases.on_node(When::Give, Operation::reduce(0, datatype), Some(given.clone()), &mut Buf::default()).await?;
    }
    let on_node = Operation { collective: call.collective, root: None, ..Operation::reduce(0, datatype) };
    phases.on_node(When::Take, on_node, Some(given), recv).await
}

/// Between leaders: `mine` of every node comes to the nodes after it; what came from those before this one, in their order.
async fn give_to_later_nodes(phases: &mut Phases<'_>, mine: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
    let (me, nodes) = (phases.topology.node(), phases.topology.nodes());
    let mut before = vec![vec![0; mine.len()]; me];
    let earlier = before.iter_mut().map(|receive| Parts { send: &[], receive });
    let later = (me + 1..nodes).map(|_| Parts { send: mine, receive: &mut [] });
    let mut parts: Vec<Parts<'_>> = earlier.chain([Parts::default()]).chain(later).collect();
    phases.exchange(&mut parts, true).await?;
    Ok(before)
}

/// The same by leaders that have the contributions of all ranks.
async fn scan_on_leaders(
    phases: &mut Phases<'_>,
    call: &Call,
    send: Cow<'_, [u8]>,
    recv: &mut Buf<'_>,
) -> Result<(), Error> {
    let (topology, op, datatype) = (phases.topology, phases.op, call.lowering.datatype());
    let (bytes, traits) = (send.len(), call.collective.traits());
    let lens = vec![bytes; topology.size()];
    let mine = collect(phases, send, &lens).await?;
    let mut results = Vec::new();
    if topology.leads() {
        let mut all = vec![0; bytes * lens.len()];
        bring(phases, &mine, &lens, None, &mut all).await?;
        let mut ascending = topology.here().to_vec();
        ascending.sort_unstable();
        // The reduction of the contributions up to some rank, to which those up to the next of this node's ranks are added.
        let (mut sum, mut summed, mut of_ranks) = (Vec::new(), 0, vec![Vec::new(); ascending.len()]);
        for rank in ascending {
            let sources = traits.sources(rank, topology.size());
            let more = (summed..sources.end).map(|source| &all[source * bytes..][..bytes]);
            let so_far = (summed > 0).then_some(&sum[..]);
            sum = fold_all(op, datatype, topology, so_far.into_iter().chain(more))?;
            summed = sources.end;
            of_ranks[topology.place(rank).1] = sum.clone();
        }
        results = of_ranks.concat();
    }
    // A rank without a result: the first one, where its own contribution does not count.
    let has_result = |rank: usize| !traits.sources(rank, topology.size()).is_empty();
    let lens: Vec<usize> = (0..topology.size()).map(|rank| if has_result(rank) { bytes } else { 0 }).collect();
    let mut nothing = Buf::default();
    let recv = if has_result(topology.rank()) { recv } else { &mut nothing };
    deal(phases, &here(topology, &lens), results, recv).await
}
