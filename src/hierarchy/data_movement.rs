//! Data movement over several nodes: from the ranks of a node to its leader, from leader to leader, and from there to the ranks
//! that receive.
//!
//! Leaders exchange plain packets, each block straight to the node that needs it; only a broadcast is a tree. Blocks are sent and
//! received where they lie: a rank that is alone on its node moves no byte but between its caller's buffers and packets, others hold
//! what their node's ranks send or receive in a vector, unless it lies in the caller's buffer. Everything here is bytes: each
//! rank has a block, and `lens` are the lengths of all ranks' blocks.

use super::operation::{Buf, Bytes, NodePhase, Operation};
use super::packing::{PairTable, cut, joined, slices};
use super::phases::Phases;
use crate::Error;
use crate::plans::Shape;
use earlybird_hier::exec::{Parts, SliceList};
use earlybird_shm::Collective;
use std::borrow::Cow;

impl<'a> Phases<'a> {
    /// Returns when every rank has called it.
    pub(super) async fn barrier(&mut self, shape: Shape) -> Result<(), Error> {
        self.on_node(NodePhase::Collect, Operation::barrier(), None, &mut Buf::default()).await?;
        self.plan(shape, &mut [0]).await?;
        self.on_node(NodePhase::Deliver, Operation::barrier(), None, &mut Buf::default()).await
    }

    /// Copies `buf` of the root to `buf` of every rank.
    pub(super) async fn broadcast(&mut self, shape: Shape, buf: &mut Buf<'_>) -> Result<(), Error> {
        let (root_node, local_root) = self.topology.place(self.call.root);
        if self.topology.node() != root_node {
            self.plan(shape, buf).await?;
            return self.on_node(NodePhase::Deliver, Operation::broadcast(0), None, buf).await;
        }
        // The root's node has the data first, so that the root can leave.
        self.on_node(NodePhase::Collect, Operation::broadcast(local_root), None, buf).await?;
        self.plan(shape, buf).await?;
        self.skip_delivery().await;
        Ok(())
    }

    /// Copies `send` of every rank, in rank order, to `recv` of every rank.
    pub(super) async fn all_gather(&mut self, send: Bytes<'_>, recv: &mut Buf<'_>) -> Result<(), Error> {
        self.gather_to_leaders(send, &self.call.lens, None, recv).await?;
        self.on_node(NodePhase::Deliver, Operation::broadcast(0), None, recv).await
    }

    /// Copies `send` of every rank, in rank order, to `recv` of the root.
    pub(super) async fn gather(&mut self, send: Bytes<'_>, recv: &mut Buf<'_>) -> Result<(), Error> {
        let (topology, lens) = (self.topology, &self.call.lens);
        let (root_node, local_root) = topology.place(self.call.root);
        let total = lens.iter().sum();
        let mut all = Buf::default();
        let mut room: &mut [u8] = recv;
        if topology.leads() && topology.node() == root_node && local_root != 0 {
            all = self.vector(total);
            room = &mut all;
        }
        self.gather_to_leaders(send, lens, Some(root_node), room).await?;
        self.pass_to_root(total, all, recv).await
    }

    /// Copies `send` of the root, a block to each rank in rank order, to `recv`.
    pub(super) async fn scatter(&mut self, send: Bytes<'_>, recv: &mut Buf<'_>) -> Result<(), Error> {
        let (topology, lens, me) = (self.topology, &self.call.lens, self.topology.node());
        let (root_node, local_root) = topology.place(self.call.root);
        let (local_lens, mut all) = (topology.local_lens(lens), send);
        let scatter = Operation::scatter(&local_lens);
        if me != root_node {
            let mut room = self.room(local_lens.iter().sum());
            if topology.leads() {
                let mut parts = self.no_parts();
                parts[root_node].receive = self.of_node(recv, &mut room).into();
                self.exchange(&mut parts, true).await?;
            }
            return self.deliver(scatter, room, recv).await;
        }
        let mut room;
        if local_root != 0 {
            let total = lens.iter().sum();
            room = self.vector(if topology.leads() { total } else { 0 });
            self.copy_on_node(NodePhase::Collect, (local_root, 0), total, all, &mut room).await?;
            all = Cow::Borrowed(&room);
        }
        let mut of_node = Cow::Borrowed(&[][..]);
        if topology.leads() {
            let places = topology.places(lens);
            let part = |(node, places)| Parts {
                send: if node == me { Default::default() } else { slices(&all, places) },
                ..Parts::default()
            };
            let mut parts: Vec<Parts<'_>> = places.iter().enumerate().map(part).collect();
            self.exchange(&mut parts, true).await?;
            of_node = joined(&all, &places[me]);
        }
        self.on_node(NodePhase::Deliver, scatter, Some(of_node), recv).await
    }

    /// Copies block `r` of `send` to rank `r`, and to block `r` of `recv` what rank `r` sent here; all blocks are of one length.
    pub(super) async fn all_to_all(&mut self, send: Bytes<'_>, recv: &mut Buf<'_>) -> Result<(), Error> {
        let (topology, block) = (self.topology, send.len() / self.topology.size());
        let bytes = send.len() * topology.here().len();
        let (gather, mut of_node) = (Operation::moving(Collective::Gather, 0), Buf::default());
        let sent = self.collect(NodePhase::Collect, gather, bytes, send, &mut of_node).await?;
        let mut received = self.room(bytes);
        if topology.leads() {
            let pairs = PairTable::uniform(topology, block);
            self.exchange_pairs(&pairs, &sent, self.of_node(recv, &mut received)).await?;
        }
        self.deliver(Operation::moving(Collective::Scatter, 0), received, recv).await
    }

    /// Between leaders: exchanges the blocks of all pairs of ranks, as the last exchange of the call: from `sent`, the send buffers of
    /// the node's ranks one after the other, to `received`, their receive buffers.
    pub(super) async fn exchange_pairs(
        &mut self,
        pairs: &PairTable<'_>,
        sent: &[u8],
        received: &mut [u8],
    ) -> Result<(), Error> {
        let me = self.topology.node();
        let sends = pairs.sent().into_iter().map(|places| slices(sent, &places));
        let receives = cut(received, &pairs.received()).into_iter().map(|slices| slices.into_iter().collect());
        let mut parts: Vec<Parts<'_>> = sends.zip(receives).map(|(send, receive)| Parts { send, receive }).collect();
        let mut own = std::mem::take(&mut parts[me]);
        self.exchange(&mut parts, true).await?;
        own.receive.write_all(&own.send);
        Ok(())
    }

    /// Copies `send` of every rank, in rank order, to `all` of the leader of node `target` or of every leader: the last exchange of
    /// the call. Other ranks receive nothing.
    pub(super) async fn gather_to_leaders(
        &mut self,
        send: Bytes<'_>,
        lens: &[usize],
        target: Option<usize>,
        all: &mut [u8],
    ) -> Result<(), Error> {
        let (topology, me) = (self.topology, self.topology.node());
        let local_lens = topology.local_lens(lens);
        let (gather, bytes) = (Operation::gather(0, &local_lens), local_lens.iter().sum());
        let receives = |node: usize| target.is_none_or(|target| target == node);
        let mut receive: Vec<Vec<&mut [u8]>> = vec![];
        if topology.leads() && receives(me) {
            receive = cut(all, &topology.places(lens));
        }
        receive.resize_with(topology.nodes(), Vec::new);
        let mut own = std::mem::take(&mut receive[me]);
        let mut vector = Buf::default();
        let collected;
        let of_node = match own.as_mut_slice() {
            // The node's blocks are neighbours in `all`.
            [place] if !topology.is_alone() => {
                self.on_node(NodePhase::Collect, gather, Some(send), &mut Buf::Borrowed(place)).await?;
                &**place
            }
            places => {
                collected = self.collect(NodePhase::Collect, gather, bytes, send, &mut vector).await?;
                if receives(me) {
                    places.iter_mut().map(|place| &mut **place).collect::<SliceList<_>>().write(&collected);
                }
                &*collected
            }
        };
        if !topology.leads() {
            return Ok(());
        }
        let part = |(node, receive): (usize, Vec<_>)| {
            let send = if receives(node) && node != me { of_node.into() } else { SliceList::default() };
            Parts { send, receive: receive.into_iter().collect() }
        };
        self.exchange(&mut receive.into_iter().enumerate().map(part).collect::<Vec<_>>(), true).await
    }

    /// Between leaders: sends the vector of each node, of so many bytes, to the leader of node `target` or to every leader, as the
    /// last exchange of the call. Returns what came from each node; for the own one nothing.
    pub(super) async fn send_to_leaders(
        &mut self,
        of_node: &[u8],
        target: Option<usize>,
    ) -> Result<Vec<Buf<'a>>, Error> {
        let me = self.topology.node();
        let receives = |node: usize| target.is_none_or(|target| target == node);
        let room = |node: usize| self.vector(if receives(me) && node != me { of_node.len() } else { 0 });
        let mut theirs: Vec<Buf<'_>> = (0..self.topology.nodes()).map(room).collect();
        let send = |node: usize| if receives(node) && node != me { of_node } else { &[] };
        let rooms = theirs.iter_mut().enumerate();
        let mut parts: Vec<Parts<'_>> = rooms.map(|(node, receive)| Parts::new(send(node), receive)).collect();
        self.exchange(&mut parts, true).await?;
        Ok(theirs)
    }

    /// Parts that send and receive nothing, one for each node.
    pub(super) fn no_parts<'p>(&self) -> Vec<Parts<'p>> {
        (0..self.topology.nodes()).map(|_| Parts::default()).collect()
    }

    /// Collects the send buffers of the node's ranks on its leader, of so many bytes in all, in a vector that is put to `of_node`;
    /// returns nothing on the others. A rank that is alone on its node has them.
    pub(super) async fn collect<'d>(
        &mut self,
        phase: NodePhase,
        gather: Operation<'_>,
        bytes: usize,
        send: Bytes<'d>,
        of_node: &'d mut Buf<'a>,
    ) -> Result<Bytes<'d>, Error> {
        if self.topology.is_alone() {
            // Nothing moves, but a group that has failed is found before other nodes are sent anything.
            self.on_node(phase, Operation::barrier(), None, &mut Buf::default()).await?;
            return Ok(send);
        }
        *of_node = self.vector(if self.topology.leads() { bytes } else { 0 });
        self.on_node(phase, gather, Some(send), of_node).await?;
        Ok(Cow::Borrowed(of_node))
    }

    /// Room for what the node's ranks receive, so many bytes, until [`Phases::deliver`]: on a leader with other ranks.
    pub(super) fn room(&self, bytes: usize) -> Buf<'a> {
        self.vector(if self.topology.leads() && !self.topology.is_alone() { bytes } else { 0 })
    }

    /// The place on the leader of what the node's ranks receive: `recv` of a rank alone, [`Phases::room`] of others.
    pub(super) fn of_node<'r>(&self, recv: &'r mut Buf<'_>, room: &'r mut Buf<'_>) -> &'r mut [u8] {
        if self.topology.is_alone() { recv } else { room }
    }

    /// Copies what the leader has in `room` to the node's ranks.
    pub(super) async fn deliver(
        &mut self,
        scatter: Operation<'_>,
        mut room: Buf<'_>,
        recv: &mut Buf<'_>,
    ) -> Result<(), Error> {
        if self.topology.is_alone() {
            self.skip_delivery().await;
            return Ok(());
        }
        let send = self.bytes_of(&mut room);
        self.on_node(NodePhase::Deliver, scatter, Some(send), recv).await
    }

    /// Copies `all`, of so many bytes, from the leader of the root's node to `recv` of the root, unless they are one rank.
    pub(super) async fn pass_to_root(
        &mut self,
        bytes: usize,
        mut all: Buf<'_>,
        recv: &mut Buf<'_>,
    ) -> Result<(), Error> {
        let (root_node, local_root) = self.topology.place(self.call.root);
        if self.topology.node() == root_node && local_root != 0 {
            let all = self.bytes_of(&mut all);
            return self.copy_on_node(NodePhase::Deliver, (0, local_root), bytes, all, recv).await;
        }
        self.skip_delivery().await;
        Ok(())
    }

    /// Copies `send` of one rank of the node, of so many bytes, to `recv` of another. Every rank of the node calls it.
    async fn copy_on_node(
        &mut self,
        phase: NodePhase,
        (from, to): (usize, usize),
        bytes: usize,
        send: Bytes<'_>,
        recv: &mut Buf<'_>,
    ) -> Result<(), Error> {
        let (me, mut unused) = (self.topology.local(), Buf::default());
        let mut lens = vec![0; self.topology.here().len()];
        lens[from] = bytes;
        let send = if me == from { send } else { Cow::Borrowed(&[][..]) };
        let recv = if me == to { recv } else { &mut unused };
        self.on_node(phase, Operation::gather(to, &lens), Some(send), recv).await
    }
}
