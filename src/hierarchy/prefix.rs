//! Scans over several nodes.
//!
//! On nodes of consecutive ranks, each node reduces to its leader, leaders send that to those after them, and a
//! scan of the node follows in which the leader puts the nodes before it in front of its own contribution: one reduction and one
//! scan of a node, one round and at most N - 1 vectors between leaders.
//!
//! Elsewhere a rank's result has contributions from everywhere, of which no node has a part by itself: every leader receives the
//! contributions of all ranks, makes the results of its ranks one after the other, and delivers them.

use super::operation::{Buf, Bytes, NodePhase, Operation};
use super::phases::Phases;
use crate::Error;
use earlybird_hier::exec::Parts;
use earlybird_shm::Prefix;
use std::borrow::Cow;

impl<'a> Phases<'a> {
    /// Reduces `send` of the ranks up to each one, or before it, into its `recv`.
    pub(super) async fn scan(&mut self, send: Bytes<'_>, recv: &mut Buf<'_>) -> Result<(), Error> {
        let (topology, datatype) = (self.topology, self.call.lowering.datatype());
        if !topology.is_in_order() || self.folds_in_rank_order() {
            return self.scan_on_leaders(send, recv).await;
        }
        let on_node = Operation::reduce(0, datatype);
        let mut sum = self.vector(if topology.leads() { send.len() } else { 0 });
        self.on_node(NodePhase::Collect, on_node, Some(send.clone()), &mut sum).await?;
        let (mut before, mut contribution) = (Vec::new(), send);
        if topology.leads() {
            before = self.send_to_later_leaders(&sum).await?;
        }
        if let Some((folded, others)) = before.split_first_mut() {
            self.fold_into(folded, others.iter().map(|vector| &**vector))?;
            if self.call.collective.traits().prefix == Some(Prefix::Exclusive) {
                recv.copy_from_slice(folded);
            }
            self.fold_into(folded, [&*contribution].into_iter())?;
            contribution = self.bytes_of(folded);
        }
        let on_node = Operation { collective: self.call.collective, root: None, ..on_node };
        self.on_node(NodePhase::Deliver, on_node, Some(contribution), recv).await
    }

    /// Between leaders: sends the vector of each node to the nodes after it. Returns those of the nodes before this one, in order.
    async fn send_to_later_leaders(&mut self, of_node: &[u8]) -> Result<Vec<Buf<'a>>, Error> {
        let (me, nodes) = (self.topology.node(), self.topology.nodes());
        let mut before: Vec<Buf<'_>> = (0..me).map(|_| self.vector(of_node.len())).collect();
        let earlier = before.iter_mut().map(|receive| Parts::new(&[], receive));
        let later = (me + 1..nodes).map(|_| Parts::new(of_node, &mut []));
        let mut parts: Vec<Parts<'_>> = earlier.chain([Parts::default()]).chain(later).collect();
        self.exchange(&mut parts, true).await?;
        Ok(before)
    }

    /// The scan by leaders that have the contributions of all ranks.
    async fn scan_on_leaders(&mut self, send: Bytes<'_>, recv: &mut Buf<'_>) -> Result<(), Error> {
        let (topology, traits, bytes) = (self.topology, self.call.collective.traits(), send.len());
        let lens = vec![bytes; topology.size()];
        let mut all = vec![0; if topology.leads() { bytes * lens.len() } else { 0 }];
        self.gather_to_leaders(send, &lens, None, &mut all).await?;
        let mut results = Vec::new();
        if topology.leads() {
            let mut ascending = topology.here().to_vec();
            ascending.sort_unstable();
            // The reduction of the contributions up to some rank, to which those up to the next of this node's ranks are added.
            let (mut sum, mut summed, mut of_ranks) = (Vec::new(), 0, vec![Vec::new(); ascending.len()]);
            for rank in ascending {
                let sources = traits.sources(rank, topology.size());
                let more = (summed..sources.end).map(|source| &all[source * bytes..][..bytes]);
                let so_far = (summed > 0).then_some(&sum[..]);
                sum = self.fold(so_far.into_iter().chain(more))?;
                summed = sources.end;
                of_ranks[topology.place(rank).1] = sum.clone();
            }
            results = of_ranks.concat();
        }
        // The first rank of an exclusive scan has no result.
        let has_result = |rank: usize| !traits.sources(rank, topology.size()).is_empty();
        let lens: Vec<usize> = (0..topology.size()).map(|rank| if has_result(rank) { bytes } else { 0 }).collect();
        let mut unused = Buf::default();
        let recv = if has_result(topology.rank()) { recv } else { &mut unused };
        let local_lens = topology.local_lens(&lens);
        self.on_node(NodePhase::Deliver, Operation::scatter(&local_lens), Some(Cow::Owned(results)), recv).await
    }
}
