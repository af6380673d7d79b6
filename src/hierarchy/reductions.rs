//! Reductions over several nodes: the three phases, segment by segment.
//!
//! ```text
//! leader     reduce 0 | start 0 | reduce 1 | start 1 | finish 0 | broadcast 0 | reduce 2 | start 2 | finish 1 | ...
//! network              ~~~~~~~~~~~~~~~~ 0 ~~~~~~~~~~~~~~~~       ~~~~~~~~~~~~~ 1 ~~~~~~~~~~~~~~~~
//! others     send 0   | send 1  | ............................. | receive 0   | send 2  | ...      | receive 1 | ...
//! ```
//!
//! *reduce s* folds segment s of the node's ranks into the leader's buffer, *start s* and *finish s* run the plan between
//! leaders on it, *broadcast s* delivers it to the node. A rank that only sends leaves as soon as its data is stored, so the
//! others fold and wait for the last of them while the exchange of the segment before is under way. Short messages are one
//! segment: the three phases one after the other.
//!
//! With several endpoints per node, here two, each has every second segment, and exchanges it while the others exchange theirs:
//!
//! ```text
//! leader     reduce 0 | start 0 | send 1             | reduce 2 | ... | finish 0 | broadcast 0 | receive 1   | ...
//! second     send 0             | reduce 1 | start 1 | send 2   | ... | finish 1 | receive 0   | broadcast 1 | ...
//! ```
//!
//! A started call is one segment of one endpoint: its operations are under way at the same time as those of other calls.

use super::operation::{Buf, Bytes, NodePhase, Operation, part};
use super::packing::{Places, joined, slices};
use super::phases::Phases;
use crate::Error;
use crate::plans::Shape;
use earlybird_hier::exec::{Parts, SliceList};
use earlybird_shm::Collective;
use earlybird_shm::user_op::ReduceFn;
use std::borrow::Cow;

impl Phases<'_> {
    /// Reduces `send` of all ranks, or `recv` in place, into `recv` of every rank, by a plan.
    pub(super) async fn all_reduce(
        &mut self,
        shape: Shape,
        send: Option<Bytes<'_>>,
        recv: &mut Buf<'_>,
    ) -> Result<(), Error> {
        let element_bytes = self.call.lowering.datatype().size();
        let (length, endpoints) = self.segments(recv.len() / element_bytes, element_bytes);
        if recv.len() <= length {
            // No rank waits for another where there is nothing to reduce; a different call shows all the same.
            return self.all_reduce_segments(shape, endpoints, send, std::slice::from_mut(recv)).await;
        }
        let mut segments: Vec<Buf<'_>> = recv.chunks_mut(length).map(Buf::Borrowed).collect();
        self.all_reduce_segments(shape, endpoints, send, &mut segments).await
    }

    async fn all_reduce_segments(
        &mut self,
        shape: Shape,
        endpoints: usize,
        mut send: Option<Bytes<'_>>,
        segments: &mut [Buf<'_>],
    ) -> Result<(), Error> {
        let datatype = self.call.lowering.datatype();
        let (me, count, length) = (self.topology.local(), segments.len(), segments[0].len());
        let of_round = |round: usize| (round * endpoints).min(count)..((round + 1) * endpoints).min(count);
        let shape_of = |s: usize, data: &[u8]| {
            let (elements, turn) = (data.len() / datatype.size(), (s / endpoints) as u8 % 2);
            Shape { elements, turn, ..shape }
        };
        if me < endpoints {
            let mut own = (me..count).step_by(endpoints);
            own.try_for_each(|s| self.prepare(shape_of(s, &segments[s])))?;
        }
        for round in 0..=count.div_ceil(endpoints) {
            for s in of_round(round) {
                let (root, recv) = (s % endpoints, &mut segments[s]);
                let send = part(&mut send, s * length..s * length + recv.len());
                self.on_node(NodePhase::Collect, Operation::reduce(root, datatype), send, recv).await?;
                if root == me {
                    self.start(shape_of(s, recv), recv)?;
                }
            }
            let Some(done) = round.checked_sub(1) else { continue };
            if let Some(s) = of_round(done).find(|s| s % endpoints == me) {
                let (first, rest) = segments[s..].split_at_mut(1);
                let next = rest.get_mut(endpoints - 1).map(|data| (shape_of(s + endpoints, data), &mut **data));
                self.finish(shape_of(s, &first[0]), &mut first[0], next).await?;
            }
            for s in of_round(done) {
                let broadcast = Operation::broadcast(s % endpoints);
                self.on_node(NodePhase::Deliver, broadcast, None, &mut segments[s]).await?;
            }
        }
        Ok(())
    }

    /// An allreduce or a reduce by a user's operator, segment by segment.
    pub(super) async fn reduce_by_user(
        &mut self,
        op: &dyn ReduceFn,
        mut send: Option<Bytes<'_>>,
        recv: &mut Buf<'_>,
    ) -> Result<(), Error> {
        let bytes = send.as_ref().map_or(recv.len(), |send| send.len());
        let length = self.segment_of_user(op.element_bytes());
        if bytes <= length {
            return self.reduce_segment_by_user(op, send, recv).await;
        }
        for first in (0..bytes).step_by(length) {
            let range = first..(first + length).min(bytes);
            let mut recv = if recv.is_empty() { Buf::default() } else { Buf::Borrowed(&mut recv[range.clone()]) };
            self.reduce_segment_by_user(op, part(&mut send, range), &mut recv).await?;
        }
        Ok(())
    }

    async fn reduce_segment_by_user(
        &mut self,
        op: &dyn ReduceFn,
        send: Option<Bytes<'_>>,
        recv: &mut Buf<'_>,
    ) -> Result<(), Error> {
        if self.call.collective != Collective::AllReduce {
            return self.reduce(send, recv).await;
        }
        if self.folds_in_rank_order() {
            self.fold_by_rank(send, recv, None).await?;
        } else {
            let reduce = Operation::reduce(0, self.call.lowering.datatype());
            self.on_node(NodePhase::Collect, reduce, send, recv).await?;
            if self.topology.leads() {
                self.fold_nodes(op.element_bytes(), recv).await?;
            }
        }
        self.on_node(NodePhase::Deliver, Operation::broadcast(0), None, recv).await
    }

    /// Reduces `send` of all ranks, or `recv` of the root in place, into `recv` of the root, which is empty elsewhere: by a plan,
    /// or by a user's operator.
    pub(super) async fn reduce(&mut self, send: Option<Bytes<'_>>, recv: &mut Buf<'_>) -> Result<(), Error> {
        let (topology, root) = (self.topology, self.call.root);
        let (root_node, _) = topology.place(root);
        let bytes = send.as_ref().map_or(recv.len(), |send| send.len());
        let mut partial = Buf::default();
        if topology.leads() && topology.rank() != root {
            // The caller's buffer stays as it is.
            partial = self.vector(bytes);
            self.reduce_to_leader(Some(send.unwrap_or(Cow::Borrowed(recv))), &mut partial, root_node).await?;
        } else {
            self.reduce_to_leader(send, recv, root_node).await?;
        }
        self.pass_to_root(bytes, partial, recv).await
    }

    /// Reduces `send` of all ranks, or `room` in place, into `room` of the leader of the root's node.
    async fn reduce_to_leader(
        &mut self,
        send: Option<Bytes<'_>>,
        room: &mut Buf<'_>,
        root_node: usize,
    ) -> Result<(), Error> {
        if self.folds_in_rank_order() {
            self.fold_by_rank(send, room, Some(root_node)).await?;
        } else {
            let reduce = Operation::reduce(0, self.call.lowering.datatype());
            self.on_node(NodePhase::Collect, reduce, send, room).await?;
            match self.shape {
                Some(shape) => self.plan(shape, room).await?,
                None if self.topology.leads() => self.fold_nodes_at(room, Some(root_node)).await?,
                None => {}
            }
        }
        Ok(())
    }

    /// Reduces `send` of all ranks and copies each rank's block of the result to its `recv`.
    pub(super) async fn reduce_scatter(&mut self, send: Bytes<'_>, recv: &mut Buf<'_>) -> Result<(), Error> {
        let (topology, lens) = (self.topology, &self.call.lens);
        let (local_lens, places) = (topology.local_lens(lens), topology.places(lens));
        let mut room = self.room(local_lens.iter().sum());
        if self.folds_in_rank_order() {
            let mut all = Buf::default();
            self.fold_by_rank(Some(send), &mut all, None).await?;
            if topology.leads() {
                self.of_node(recv, &mut room).copy_from_slice(&joined(&all, &places[topology.node()]));
            }
        } else {
            let reduce = Operation::reduce(0, self.call.lowering.datatype());
            let (bytes, mut of_node) = (send.len(), Buf::default());
            let partial = self.collect(NodePhase::Collect, reduce, bytes, send, &mut of_node).await?;
            if topology.leads() {
                self.fold_parts(&partial, &places, self.of_node(recv, &mut room)).await?;
            }
        }
        self.deliver(Operation::scatter(&local_lens), room, recv).await
    }

    /// Between leaders: folds the parts that all nodes have of this node's blocks into `folded`, in the order of nodes. `places` are
    /// those of all nodes' blocks in `partial`, what this node has reduced.
    async fn fold_parts(&mut self, partial: &[u8], places: &[Places], folded: &mut [u8]) -> Result<(), Error> {
        let (nodes, me) = (self.topology.nodes(), self.topology.node());
        let own = joined(partial, &places[me]);
        // The part of the first node comes straight to the place of the result.
        let room = |node| self.vector(if node == 0 || node == me { 0 } else { folded.len() });
        let mut theirs: Vec<Buf<'_>> = (0..nodes).map(room).collect();
        let send = |node| if node == me { SliceList::default() } else { slices(partial, &places[node]) };
        let receives = theirs.iter_mut().enumerate();
        let mut parts: Vec<Parts<'_>> =
            receives.map(|(node, room)| Parts { send: send(node), receive: (&mut **room).into() }).collect();
        if me != 0 {
            parts[0].receive = (&mut *folded).into();
        }
        self.exchange(&mut parts, true).await?;
        if me == 0 {
            folded.copy_from_slice(&own);
        }
        self.fold_into(folded, (1..nodes).map(|node| if node == me { &*own } else { &theirs[node] }))
    }
}
