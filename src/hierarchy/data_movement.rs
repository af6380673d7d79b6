//! Data movement over several nodes: from the ranks of a node to its leader, from leader to leader, and from there to the ranks
//! that receive.
//!
//! Leaders exchange plain packets, each block straight to the node that needs it; only a broadcast is a tree. A leader holds what
//! its node sends or receives once more than its caller. Everything here is bytes: each rank has a block, and `lens` are the
//! lengths of all ranks' blocks.

use super::operation::{Buf, Bytes, NodePhase, Operation};
use super::packing::PairTable;
use super::phases::Phases;
use crate::Error;
use crate::plans::Shape;
use earlybird_hier::exec::Parts;
use earlybird_shm::Collective;
use std::borrow::Cow;

impl Phases<'_> {
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
        let lens = &self.call.lens;
        let of_node = self.collect(send, lens).await?;
        if self.topology.leads() {
            self.gather_from_leaders(&of_node, lens, None, recv).await?;
        }
        self.on_node(NodePhase::Deliver, Operation::broadcast(0), None, recv).await
    }

    /// Copies `send` of every rank, in rank order, to `recv` of the root.
    pub(super) async fn gather(&mut self, send: Bytes<'_>, recv: &mut Buf<'_>) -> Result<(), Error> {
        let (topology, lens) = (self.topology, &self.call.lens);
        let (root_node, local_root) = topology.place(self.call.root);
        let total = lens.iter().sum();
        let of_node = self.collect(send, lens).await?;
        let mut all = Buf::default();
        if topology.leads() {
            if topology.node() == root_node && local_root != 0 {
                all = Buf::zeros(total);
                self.gather_from_leaders(&of_node, lens, Some(root_node), &mut all).await?;
            } else {
                self.gather_from_leaders(&of_node, lens, Some(root_node), recv).await?;
            }
        }
        self.pass_to_root(total, all, recv).await
    }

    /// Copies `send` of the root, a block to each rank in rank order, to `recv`.
    pub(super) async fn scatter(&mut self, send: Bytes<'_>, recv: &mut Buf<'_>) -> Result<(), Error> {
        let (topology, lens) = (self.topology, &self.call.lens);
        let (root_node, local_root) = topology.place(self.call.root);
        let on_root_node = topology.node() == root_node;
        let mut all = send;
        if on_root_node && local_root != 0 {
            let total = lens.iter().sum();
            let mut room = Buf::zeros(if topology.leads() { total } else { 0 });
            self.copy_on_node(NodePhase::Collect, (local_root, 0), total, all, &mut room).await?;
            all = Cow::Owned(room.take());
        }
        let local_lens = topology.local_lens(lens);
        let mut of_node = Vec::new();
        if topology.leads() {
            let pick = |node| if on_root_node { topology.pick(&all, lens, node) } else { Vec::new() };
            let ours = (0..topology.nodes()).map(pick).collect();
            let bytes = |node| if node == root_node { local_lens.iter().sum() } else { 0 };
            of_node = self.exchange_vectors(ours, bytes).await?.swap_remove(root_node);
        }
        self.deliver_blocks(&local_lens, of_node, recv).await
    }

    /// Copies block `r` of `send` to rank `r`, and to block `r` of `recv` what rank `r` sent here; all blocks are of one length.
    pub(super) async fn all_to_all(&mut self, send: Bytes<'_>, recv: &mut Buf<'_>) -> Result<(), Error> {
        let (topology, block) = (self.topology, send.len() / self.topology.size());
        // The whole send buffers of all ranks of the node.
        let mut sent = Buf::zeros(if topology.leads() { send.len() * topology.here().len() } else { 0 });
        let gather = Operation::moving(Collective::Gather, 0);
        self.on_node(NodePhase::Collect, gather, Some(send), &mut sent).await?;
        let mut received = Vec::new();
        if topology.leads() {
            received = self.exchange_pairs(&PairTable::uniform(topology, block), sent).await?;
        }
        let scatter = Operation::moving(Collective::Scatter, 0);
        self.on_node(NodePhase::Deliver, scatter, Some(Cow::Owned(received)), recv).await
    }

    /// Between leaders: exchanges the blocks of all pairs of ranks, as the last exchange of the call. `of_node` are the send buffers of the
    /// node's ranks, one after the other; returns their receive buffers.
    pub(super) async fn exchange_pairs(&mut self, pairs: &PairTable<'_>, of_node: Buf<'_>) -> Result<Vec<u8>, Error> {
        let ours = pairs.pack(&of_node);
        drop(of_node);
        Ok(pairs.unpack(&self.exchange_vectors(ours, |node| pairs.bytes_from(node)).await?))
    }

    /// Between leaders: sends a vector to each node, as the last exchange of the call. Returns those from there, which have so many bytes
    /// by node, and in their midst the own one.
    pub(super) async fn exchange_vectors(
        &mut self,
        mut ours: Vec<Vec<u8>>,
        bytes: impl Fn(usize) -> usize,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let me = self.topology.node();
        let room = |node| vec![0; if node == me { 0 } else { bytes(node) }];
        let mut theirs: Vec<Vec<u8>> = (0..ours.len()).map(room).collect();
        let parts = ours.iter().zip(&mut theirs).map(|(send, receive)| Parts { send, receive });
        self.exchange(&mut parts.collect::<Vec<_>>(), true).await?;
        theirs[me] = std::mem::take(&mut ours[me]);
        Ok(theirs)
    }

    /// Collects the blocks of the node's ranks, in their order there, on its leader; returns nothing on the others.
    pub(super) async fn collect(&mut self, send: Bytes<'_>, lens: &[usize]) -> Result<Vec<u8>, Error> {
        let lens = self.topology.local_lens(lens);
        let mut of_node = Buf::zeros(if self.topology.leads() { lens.iter().sum() } else { 0 });
        self.on_node(NodePhase::Collect, Operation::gather(0, &lens), Some(send), &mut of_node).await?;
        Ok(of_node.take())
    }

    /// Between leaders: copies the blocks of each node to their places in `all`, on the leader of node `target` or on every leader.
    pub(super) async fn gather_from_leaders(
        &mut self,
        of_node: &[u8],
        lens: &[usize],
        target: Option<usize>,
        all: &mut [u8],
    ) -> Result<(), Error> {
        let (topology, me) = (self.topology, self.topology.node());
        let bytes = |node: usize| topology.members(node).iter().map(|&rank| lens[rank]).sum();
        let bytes: Vec<usize> = (0..topology.nodes()).map(bytes).collect();
        let theirs = self.send_to_leaders(of_node, &bytes, target).await?;
        if target.is_none_or(|target| target == me) {
            for (node, theirs) in theirs.iter().enumerate() {
                topology.put(all, lens, node, if node == me { of_node } else { theirs });
            }
        }
        Ok(())
    }

    /// Between leaders: sends the bytes of each node, so many by node, to the leader of node `target` or to every leader, as the
    /// last exchange of the call. Returns what came from each node; for the own one nothing.
    pub(super) async fn send_to_leaders(
        &mut self,
        of_node: &[u8],
        bytes: &[usize],
        target: Option<usize>,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let me = self.topology.node();
        let receives = |node: usize| target.is_none_or(|target| target == node);
        let room = |node: usize| vec![0; if receives(me) && node != me { bytes[node] } else { 0 }];
        let mut theirs: Vec<Vec<u8>> = (0..bytes.len()).map(room).collect();
        let send = |node: usize| if receives(node) && node != me { of_node } else { &[] };
        let rooms = theirs.iter_mut().enumerate();
        let mut parts: Vec<Parts<'_>> = rooms.map(|(node, receive)| Parts { send: send(node), receive }).collect();
        self.exchange(&mut parts, true).await?;
        Ok(theirs)
    }

    /// Copies each block of `of_node`, which the leader has, to its rank of the node.
    pub(super) async fn deliver_blocks(
        &mut self,
        local_lens: &[usize],
        of_node: Vec<u8>,
        recv: &mut Buf<'_>,
    ) -> Result<(), Error> {
        self.on_node(NodePhase::Deliver, Operation::scatter(local_lens), Some(Cow::Owned(of_node)), recv).await
    }

    /// Copies `all`, of so many bytes, from the leader of the root's node to `recv` of the root, unless they are one rank.
    pub(super) async fn pass_to_root(&mut self, bytes: usize, all: Buf<'_>, recv: &mut Buf<'_>) -> Result<(), Error> {
        let (root_node, local_root) = self.topology.place(self.call.root);
        if self.topology.node() == root_node && local_root != 0 {
            return self.copy_on_node(NodePhase::Deliver, (0, local_root), bytes, all.into_bytes(), recv).await;
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
