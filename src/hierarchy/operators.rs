//! Reductions over several nodes by operators of the caller's, which no plan is kept for, since an operator is only lent.
//!
//! Each node reduces to its leader, leaders exchange what they have and fold it in the order of nodes: a short segment whole,
//! every leader folding all of it; of a long one each leader gets and folds a part, and gives that to the others. One round and
//! N - 1 vectors, or two rounds and 2(N - 1)/N of a vector: each element is folded in one order, and by the same tree everywhere.
//!
//! Where the ranks of nodes are not in order and the operator is not commutative, and for elements too large for any node's
//! smallest window, leaders exchange what the ranks gave and fold that, in rank order.

use super::choice::FEW_BYTES;
use super::packing::part_of;
use super::reductions::{SEGMENT_BYTES, part};
use super::{Call, Fold, Hierarchy, Phases, Topology};
use crate::Error;
use earlybird_hier::exec::Parts;
use earlybird_shm::ReduceOp;
use earlybird_shm::op::Datatype;
use earlybird_shm::user_op::ReduceFn;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Larger elements are more than the smallest window of a node, a page.
const LARGEST_ELEMENT: usize = 4096;

/// The name of what runs between leaders.
pub(super) const RUNS: &str = "direct";

/// Bytes of a segment: whole elements.
fn segment(op: &dyn ReduceFn) -> usize {
    (SEGMENT_BYTES / op.element_bytes()).max(1) * op.element_bytes()
}

fn by_user<'a>(datatype: Datatype, op: &'a dyn ReduceFn) -> Fold<'a> {
    Fold { datatype, op: ReduceOp::User(op) }
}

impl Hierarchy {
    /// Reduces `send` of all ranks, or `recv` in place, into `recv` of every rank.
    pub(crate) fn all_reduce_by_user(
        &self,
        call: &Call<'_>,
        (datatype, op): (Datatype, &dyn ReduceFn),
        send: Option<&[u8]>,
        recv: &mut [u8],
    ) -> Result<(), Error> {
        self.carry_out(call, RUNS, None, |phases| {
            let length = segment(op);
            for first in (0..recv.len().max(1)).step_by(length) {
                let until = (first + length).min(recv.len());
                let recv = &mut recv[first..until];
                if phases.folds_by_rank(op) {
                    let contribution = part(send, recv, first).to_vec();
                    recv.copy_from_slice(&phases.fold_by_rank(&contribution, op)?);
                    continue;
                }
                phases.reduce_on_node(0, send.map(|send| &send[first..until]), recv, by_user(datatype, op))?;
                if phases.topology.leads() {
                    phases.fold_nodes(recv, op)?;
                }
                phases.broadcast_on_node(recv, 0)?;
            }
            Ok(())
        })
    }

    /// Reduces `send` of all ranks into `recv` of `root`, empty elsewhere.
    pub(crate) fn reduce_by_user(
        &self,
        call: &Call<'_>,
        root: usize,
        (datatype, op): (Datatype, &dyn ReduceFn),
        send: &[u8],
        recv: &mut [u8],
    ) -> Result<(), Error> {
        self.carry_out(call, RUNS, None, |phases| {
            let length = segment(op);
            for first in (0..send.len().max(1)).step_by(length) {
                let until = (first + length).min(send.len());
                let recv = if recv.is_empty() { &mut [] } else { &mut recv[first..until] };
                phases.reduce_by_user(root, &send[first..until], recv, by_user(datatype, op), op)?;
            }
            Ok(())
        })
    }

    /// Reduces `send` of all ranks and gives rank `r` its `lens[r]` bytes in `recv`.
    pub(crate) fn reduce_scatter_by_user(
        &self,
        call: &Call<'_>,
        (datatype, op): (Datatype, &dyn ReduceFn),
        send: &[u8],
        recv: &mut [u8],
        lens: &[usize],
    ) -> Result<(), Error> {
        self.carry_out(call, RUNS, None, |phases| {
            if phases.folds_by_rank(op) {
                let all = phases.fold_by_rank(send, op)?;
                recv.copy_from_slice(&all[part_of(lens, phases.topology.rank())]);
                return Ok(());
            }
            let combine = |phases: &Phases<'_>, mine: &mut [u8], theirs: &[u8]| phases.fold_bytes(mine, theirs, op);
            phases.reduce_scatter(send.to_vec(), lens, by_user(datatype, op), combine, recv)
        })
    }
}

impl Phases<'_> {
    /// Whether what the nodes have folded cannot be folded on: the same on all ranks.
    fn folds_by_rank(&self, op: &dyn ReduceFn) -> bool {
        folds_by_rank(op, self.topology)
    }

    /// Reduces a segment.
    fn reduce_by_user(
        &mut self,
        root: usize,
        send: &[u8],
        recv: &mut [u8],
        fold: Fold<'_>,
        op: &dyn ReduceFn,
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
        self.reduce_on_node(0, None, &mut partial, fold)?;
        if self.topology.leads() {
            let mut theirs = vec![partial.clone(); self.topology.nodes()];
            let mut parts: Vec<Parts<'_>> = theirs.iter_mut().map(|_| Parts::default()).collect();
            match at_home {
                true => {
                    let rooms = parts.iter_mut().zip(&mut theirs);
                    rooms.for_each(|(part, room)| part.receive = room);
                }
                false => parts[home].send = &partial,
            }
            parts[self.topology.node()] = Parts::default();
            self.plans.exchange(self.call, &mut parts)?;
            if at_home {
                partial = self.fold_all(theirs.iter().map(Vec::as_slice), op)?;
            }
        }
        match at_home {
            true if local != 0 => self.hand_over_of(send.len(), &partial, recv, 0, local),
            true if is_root => {
                recv.copy_from_slice(&partial);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Between leaders: `mine` of every node, folded in the order of nodes, becomes `mine` of every node.
    fn fold_nodes(&mut self, mine: &mut [u8], op: &dyn ReduceFn) -> Result<(), Error> {
        let (nodes, me, size) = (self.topology.nodes(), self.topology.node(), op.element_bytes());
        let elements = mine.len() / size;
        if mine.len() <= FEW_BYTES || elements < nodes {
            let theirs = self.every_vector(mine)?;
            mine.copy_from_slice(&self.fold_all(theirs.iter().map(Vec::as_slice), op)?);
            return Ok(());
        }
        // Node n folds part n.
        let starts: Vec<usize> = (0..=nodes).map(|n| n * elements / nodes * size).collect();
        let part = |n: usize| starts[n]..starts[n + 1];
        let mut theirs = vec![mine[part(me)].to_vec(); nodes];
        let rooms = theirs.iter_mut().enumerate();
        let mut parts: Vec<Parts<'_>> = rooms.map(|(n, room)| Parts { send: &mine[part(n)], receive: room }).collect();
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
                false => Parts { send: &folded, receive: room },
            });
        }
        self.plans.exchange(self.call, &mut parts)
    }

    /// Between leaders: the vectors of all nodes.
    fn every_vector(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        let mut theirs = vec![mine.to_vec(); self.topology.nodes()];
        let mut parts: Vec<Parts<'_>> = theirs.iter_mut().map(|room| Parts { send: mine, receive: room }).collect();
        parts[self.topology.node()] = Parts::default();
        self.plans.exchange(self.call, &mut parts)?;
        Ok(theirs)
    }

    /// The fold of the contributions of all ranks, in rank order, on every rank. Leaders hold a vector per rank.
    fn fold_by_rank(&mut self, send: &[u8], op: &dyn ReduceFn) -> Result<Vec<u8>, Error> {
        let lens = vec![send.len(); self.topology.size()];
        let mine = self.collect(send, &lens)?;
        let mut folded = send.to_vec();
        if self.topology.leads() {
            let mut all = vec![0u8; lens.iter().sum()];
            let nodes: Vec<usize> = (0..self.topology.nodes()).collect();
            self.swap(&mine, &mut all, &lens, &nodes, &nodes)?;
            folded.copy_from_slice(&all[part_of(&lens, 0)]);
            for rank in 1..lens.len() {
                self.fold_bytes(&mut folded, &all[part_of(&lens, rank)], op)?;
            }
        }
        self.broadcast_on_node(&mut folded, 0)?;
        Ok(folded)
    }

    /// The fold of these vectors, the first one on the left.
    fn fold_all<'v>(&self, mut vectors: impl Iterator<Item = &'v [u8]>, op: &dyn ReduceFn) -> Result<Vec<u8>, Error> {
        let mut folded = vectors.next().unwrap_or_default().to_vec();
        vectors.try_for_each(|vector| self.fold_bytes(&mut folded, vector, op))?;
        Ok(folded)
    }

    /// `left = left op right`, of elements at any address.
    fn fold_bytes(&self, left: &mut [u8], right: &[u8], op: &dyn ReduceFn) -> Result<(), Error> {
        fold_bytes(op, self.topology, left, right)
    }
}

/// Whether what the nodes have folded cannot be folded on: the same on all ranks.
pub(super) fn folds_by_rank(op: &dyn ReduceFn, topology: &Topology) -> bool {
    op.element_bytes() > LARGEST_ELEMENT || op.is_ordered() && !topology.is_in_order()
}

/// `left = left op right`, of elements at any address.
pub(super) fn fold_bytes(op: &dyn ReduceFn, topology: &Topology, left: &mut [u8], right: &[u8]) -> Result<(), Error> {
    catch_unwind(AssertUnwindSafe(|| op.fold_left(left, right))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
        let message = text.unwrap_or("no message").to_owned();
        Err(Error::OperatorPanicked { rank: topology.local(), during: "the exchange between nodes".into(), message })
    })
}
