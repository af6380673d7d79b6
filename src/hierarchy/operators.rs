//! Reductions over several nodes by operators of the caller's, which no plan is kept for, since an operator is only lent.
//!
//! Each node reduces to its leader, leaders exchange what they have and fold it in the order of nodes: a short segment whole,
//! every leader folding all of it; of a long one each leader gets and folds a part, and gives that to the others. One round and
//! N - 1 vectors, or two rounds and 2(N - 1)/N of a vector: each element is folded in one order, and by the same tree everywhere.
//!
//! Where the ranks of nodes are not in order and the operator is not commutative, and for elements too large for any node's
//! smallest window, leaders exchange what the ranks gave and fold that, in rank order.

use super::callers::CallersOp;
use super::choice::FEW_BYTES;
use super::packing::part_of;
use super::reductions::{SEGMENT_BYTES, give};
use super::{Call, Hierarchy, Phases, Topology};
use crate::Error;
use bytemuck::{Pod, cast_slice, cast_slice_mut};
use earlybird_hier::exec::Parts;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Larger elements are more than the smallest window of a node, a page.
const LARGEST_ELEMENT: usize = 4096;

/// What runs between leaders.
pub(super) const RUNS: &str = "direct";

/// Items of a segment.
fn segment(op: &impl CallersOp) -> usize {
    (SEGMENT_BYTES / op.bytes()).max(1) * op.items()
}

impl Hierarchy {
    /// Reduces `send` of all ranks, or `recv` in place, into `recv` of every rank.
    pub(crate) fn all_reduce_with<O: CallersOp>(
        &self,
        call: &Call<'_>,
        send: Option<&[O::Item]>,
        recv: &mut [O::Item],
        op: &O,
    ) -> Result<(), Error> {
        self.carry_out(call, RUNS, None, |phases| {
            let length = segment(op);
            for first in (0..recv.len().max(1)).step_by(length) {
                let until = (first + length).min(recv.len());
                let recv = &mut recv[first..until];
                if phases.folds_by_rank(op) {
                    let given = give(send, recv, first).to_vec();
                    recv.copy_from_slice(&phases.fold_by_rank(&given, op)?);
                    continue;
                }
                phases.reduce_to_leader_with(send, recv, first, op)?;
                if phases.topology.leads() {
                    phases.fold_nodes(recv, op)?;
                }
                phases.node.broadcast_into::<u8>(cast_slice_mut(recv), 0, phases.how)?;
            }
            Ok(())
        })
    }

    /// Reduces `send` of all ranks into `recv` of `root`, empty elsewhere.
    pub(crate) fn reduce_with<O: CallersOp>(
        &self,
        call: &Call<'_>,
        root: usize,
        send: &[O::Item],
        recv: &mut [O::Item],
        op: &O,
    ) -> Result<(), Error> {
        self.carry_out(call, RUNS, None, |phases| {
            let length = segment(op);
            for first in (0..send.len().max(1)).step_by(length) {
                let until = (first + length).min(send.len());
                let recv = if recv.is_empty() { &mut [] } else { &mut recv[first..until] };
                phases.reduce_with(root, &send[first..until], recv, op)?;
            }
            Ok(())
        })
    }

    /// Reduces `send` of all ranks and gives every rank its block in `recv`; all blocks are of one length.
    pub(crate) fn reduce_scatter_with<O: CallersOp>(
        &self,
        call: &Call<'_>,
        send: &[O::Item],
        recv: &mut [O::Item],
        op: &O,
    ) -> Result<(), Error> {
        self.carry_out(call, RUNS, None, |phases| {
            if phases.folds_by_rank(op) {
                let all = phases.fold_by_rank(send, op)?;
                let mine = phases.topology.rank() * recv.len();
                recv.copy_from_slice(&all[mine..mine + recv.len()]);
                return Ok(());
            }
            let fold = |phases: &Phases<'_>, mine: &mut [u8], theirs: &[u8]| phases.fold_bytes(mine, theirs, op);
            let to_leader = |phases: &Phases<'_>, partial: &mut [O::Item]| match phases.topology.leads() {
                true => op.get(phases.node, None, partial, phases.how),
                false => op.give(phases.node, partial, phases.how),
            };
            let counts = vec![size_of_val(recv); phases.topology.size()];
            phases.reduce_scatter((send.to_vec(), cast_slice), &counts, to_leader, fold, cast_slice_mut(recv))
        })
    }
}

impl Phases<'_> {
    /// Whether what the nodes have folded cannot be folded on: the same on all ranks.
    fn folds_by_rank<O: CallersOp>(&self, op: &O) -> bool {
        folds_by_rank(op, self.topology)
    }

    fn reduce_to_leader_with<O: CallersOp>(
        &self,
        send: Option<&[O::Item]>,
        recv: &mut [O::Item],
        first: usize,
        op: &O,
    ) -> Result<(), Error> {
        match (self.topology.leads(), send) {
            (false, _) => op.give(self.node, give(send, recv, first), self.how),
            (true, None) => op.get(self.node, None, recv, self.how),
            (true, Some(send)) => op.get(self.node, Some(&send[first..first + recv.len()]), recv, self.how),
        }
    }

    /// Folds a segment.
    fn reduce_with<O: CallersOp>(
        &mut self,
        root: usize,
        send: &[O::Item],
        recv: &mut [O::Item],
        op: &O,
    ) -> Result<(), Error> {
        let (home, local) = self.topology.place(root);
        let is_root = self.topology.rank() == root;
        if self.folds_by_rank(op) {
            let all = self.fold_by_rank(send, op)?;
            if is_root {
                recv.copy_from_slice(&all);
            }
            return Ok(());
        }
        let at_home = self.topology.node() == home;
        let mut partial = send.to_vec();
        if self.topology.leads() {
            op.get(self.node, None, &mut partial, self.how)?;
            let mut theirs = vec![partial.clone(); self.topology.nodes()];
            let mut parts: Vec<Parts<'_>> = theirs.iter_mut().map(|_| Parts::default()).collect();
            match at_home {
                true => {
                    let rooms = parts.iter_mut().zip(&mut theirs);
                    rooms.for_each(|(part, room)| part.receive = cast_slice_mut(room));
                }
                false => parts[home].send = cast_slice(&partial),
            }
            parts[self.topology.node()] = Parts::default();
            self.plans.exchange(self.call, &mut parts)?;
            if at_home {
                partial = self.fold_all(theirs.iter().map(Vec::as_slice), op)?;
            }
        } else {
            op.give(self.node, send, self.how)?;
        }
        match at_home {
            true if local != 0 => {
                let bytes = size_of_val(send);
                self.hand_over_of(bytes, cast_slice(&partial), cast_slice_mut(recv), 0, local)
            }
            true if is_root => {
                recv.copy_from_slice(&partial);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Between leaders: `mine` of every node, folded in the order of nodes, becomes `mine` of every node.
    fn fold_nodes<O: CallersOp>(&mut self, mine: &mut [O::Item], op: &O) -> Result<(), Error> {
        let (nodes, me, elements) = (self.topology.nodes(), self.topology.node(), mine.len() / op.items());
        if size_of_val(mine) <= FEW_BYTES || elements < nodes {
            let theirs = self.every_vector(mine)?;
            mine.copy_from_slice(&self.fold_all(theirs.iter().map(Vec::as_slice), op)?);
            return Ok(());
        }
        // Node n folds part n.
        let starts: Vec<usize> = (0..=nodes).map(|n| n * elements / nodes * op.items()).collect();
        let part = |n: usize| starts[n]..starts[n + 1];
        let mut theirs = vec![mine[part(me)].to_vec(); nodes];
        let rooms = theirs.iter_mut().enumerate();
        let mut parts: Vec<Parts<'_>> =
            rooms.map(|(n, room)| Parts { send: cast_slice(&mine[part(n)]), receive: cast_slice_mut(room) }).collect();
        parts[me] = Parts::default();
        self.plans.exchange(self.call, &mut parts)?;
        let folded = self.fold_all(theirs.iter().map(Vec::as_slice), op)?;
        let mut rest = &mut *mine;
        let mut parts = Vec::new();
        for n in 0..nodes {
            let (room, after) = rest.split_at_mut(starts[n + 1] - starts[n]);
            rest = after;
            parts.push(match n == me {
                true => {
                    room.copy_from_slice(&folded);
                    Parts::default()
                }
                false => Parts { send: cast_slice(&folded), receive: cast_slice_mut(room) },
            });
        }
        self.plans.exchange(self.call, &mut parts)
    }

    /// Between leaders: the vectors of all nodes.
    fn every_vector<T: Pod>(&mut self, mine: &[T]) -> Result<Vec<Vec<T>>, Error> {
        let mut theirs = vec![mine.to_vec(); self.topology.nodes()];
        let rooms = theirs.iter_mut();
        let mut parts: Vec<Parts<'_>> =
            rooms.map(|room| Parts { send: cast_slice(mine), receive: cast_slice_mut(room) }).collect();
        parts[self.topology.node()] = Parts::default();
        self.plans.exchange(self.call, &mut parts)?;
        Ok(theirs)
    }

    /// The fold of what all ranks give, in rank order, on every rank. Leaders hold a vector per rank.
    fn fold_by_rank<O: CallersOp>(&mut self, send: &[O::Item], op: &O) -> Result<Vec<O::Item>, Error> {
        let lens = vec![size_of_val(send); self.topology.size()];
        let mine = self.collect(cast_slice(send), &lens)?;
        let mut folded = send.to_vec();
        if self.topology.leads() {
            let mut all = vec![0u8; lens.iter().sum()];
            let nodes: Vec<usize> = (0..self.topology.nodes()).collect();
            self.swap(&mine, &mut all, &lens, &nodes, &nodes)?;
            cast_slice_mut::<_, u8>(&mut folded).copy_from_slice(&all[part_of(&lens, 0)]);
            for rank in 1..lens.len() {
                self.fold_bytes(cast_slice_mut(&mut folded), &all[part_of(&lens, rank)], op)?;
            }
        }
        self.node.broadcast_into::<u8>(cast_slice_mut(&mut folded), 0, self.how)?;
        Ok(folded)
    }

    /// The fold of these vectors, the first one on the left.
    fn fold_all<'v, O: CallersOp>(
        &self,
        mut vectors: impl Iterator<Item = &'v [O::Item]>,
        op: &O,
    ) -> Result<Vec<O::Item>, Error> {
        let mut folded = vectors.next().unwrap_or_default().to_vec();
        vectors.try_for_each(|vector| self.fold_bytes(cast_slice_mut(&mut folded), cast_slice(vector), op))?;
        Ok(folded)
    }

    /// `left = left op right`, of elements at any address.
    fn fold_bytes<O: CallersOp>(&self, left: &mut [u8], right: &[u8], op: &O) -> Result<(), Error> {
        fold_bytes(op, self.topology, left, right)
    }
}

/// Whether what the nodes have folded cannot be folded on: the same on all ranks.
pub(super) fn folds_by_rank(op: &impl CallersOp, topology: &Topology) -> bool {
    op.bytes() > LARGEST_ELEMENT || op.is_ordered() && !topology.is_in_order()
}

/// `left = left op right`, of elements at any address.
pub(super) fn fold_bytes(op: &impl CallersOp, topology: &Topology, left: &mut [u8], right: &[u8]) -> Result<(), Error> {
    catch_unwind(AssertUnwindSafe(|| op.fold(left, right))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
        let message = text.unwrap_or("no message").to_owned();
        Err(Error::OperatorPanicked { rank: topology.local(), during: "the exchange between nodes".into(), message })
    })
}
