//! Reductions over several nodes by operators of users, which no plan is kept for, since an operator is only borrowed.
//!
//! Each node reduces to its leader; the leaders exchange these vectors and fold them in the order of nodes. A short segment is
//! exchanged whole and folded by every leader; of a long one each leader folds a part, which it sends to the others. That is one
//! round and N - 1 vectors, or two rounds and 2(N - 1)/N of a vector: each element is folded in one order, and by the same tree
//! everywhere.
//!
//! Where the ranks of nodes are not in order and the operator is not commutative, and for elements too large for any node's
//! smallest window, leaders exchange the contributions of all ranks and fold those, in rank order.

use super::choice::FEW_BYTES;
use super::operation::{Buf, Bytes, contribution};
use super::phases::Phases;
use crate::Error;
use earlybird_hier::exec::Parts;
use earlybird_shm::ReduceOp;
use earlybird_shm::bytes::ByteFold;
use earlybird_shm::op::Datatype;
use earlybird_shm::text::panic_text;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Bytes of the largest element that fits into the smallest window of a node, a page.
const LARGEST_ELEMENT: usize = 4096;

impl Phases<'_> {
    /// Returns whether vectors that nodes have folded cannot be folded further: the same on all ranks.
    pub(super) fn folds_in_rank_order(&self) -> bool {
        let ReduceOp::User(op) = self.op else { return false };
        op.element_bytes() > LARGEST_ELEMENT || op.is_ordered() && !self.topology.is_in_order()
    }

    /// Reduces the contributions of all ranks in rank order to `room` of the leader of node `target`, or of every leader, which
    /// holds a vector per rank meanwhile.
    pub(super) async fn fold_by_rank(
        &mut self,
        send: Option<Bytes<'_>>,
        room: &mut Buf<'_>,
        target: Option<usize>,
    ) -> Result<(), Error> {
        let (topology, send) = (self.topology, contribution(send, room));
        let bytes = send.len();
        let lens = vec![bytes; topology.size()];
        let receives = topology.leads() && target.is_none_or(|target| target == topology.node());
        let mut all = vec![0; if receives { bytes * lens.len() } else { 0 }];
        self.gather_to_leaders(send, &lens, target, &mut all).await?;
        if receives {
            room.put(self.fold(all.chunks(bytes.max(1)))?);
        }
        Ok(())
    }

    /// Between leaders: folds the vectors of all nodes in their order into `vector` of every leader.
    pub(super) async fn fold_nodes(&mut self, element_bytes: usize, vector: &mut Buf<'_>) -> Result<(), Error> {
        let (nodes, me) = (self.topology.nodes(), self.topology.node());
        let elements = vector.len() / element_bytes;
        if vector.len() <= FEW_BYTES || elements < nodes {
            return self.fold_nodes_at(vector, None).await;
        }
        // Node n folds part n.
        let starts: Vec<usize> = (0..=nodes).map(|n| n * elements / nodes * element_bytes).collect();
        let part = |n: usize| starts[n]..starts[n + 1];
        let mut theirs = vec![vector[part(me)].to_vec(); nodes];
        let rooms = theirs.iter_mut().enumerate();
        let mut parts: Vec<Parts<'_>> = rooms.map(|(n, room)| Parts::new(&vector[part(n)], room)).collect();
        parts[me] = Parts::default();
        self.exchange(&mut parts, false).await?;
        let folded = self.fold(theirs.iter().map(Vec::as_slice))?;
        vector[part(me)].copy_from_slice(&folded);
        let mut rest = &mut **vector;
        let mut parts = Vec::new();
        for n in 0..nodes {
            let (receive, after) = rest.split_at_mut(part(n).len());
            rest = after;
            parts.push(if n == me { Parts::default() } else { Parts::new(&folded, receive) });
        }
        self.exchange(&mut parts, true).await
    }

    /// Between leaders: folds the vectors of all nodes in their order into `vector` of the leader of node `target`, or of every
    /// leader. Whole vectors in one round.
    pub(super) async fn fold_nodes_at(&mut self, vector: &mut Buf<'_>, target: Option<usize>) -> Result<(), Error> {
        let me = self.topology.node();
        let theirs = self.send_to_leaders(vector, target).await?;
        if target.is_none_or(|target| target == me) {
            let vectors = theirs.iter().enumerate().map(|(node, theirs)| if node == me { &vector[..] } else { theirs });
            let folded = self.fold(vectors)?;
            vector.put(folded);
        }
        Ok(())
    }

    /// Folds these vectors, whose elements lie at any address, by the operator of the call, the first one on the left.
    pub(super) fn fold<'v>(&self, mut vectors: impl Iterator<Item = &'v [u8]>) -> Result<Vec<u8>, Error> {
        let mut folded = vectors.next().unwrap_or_default().to_vec();
        self.fold_into(&mut folded, vectors).map(|()| folded)
    }

    /// Folds these vectors into `folded`, which is the first one, as [`Phases::fold`].
    pub(super) fn fold_into<'v>(
        &self,
        folded: &mut [u8],
        mut vectors: impl Iterator<Item = &'v [u8]>,
    ) -> Result<(), Error> {
        match (self.op, self.call.lowering.datatype()) {
            (ReduceOp::Builtin(op), Datatype::Builtin(dtype)) => {
                let kernel = ByteFold::new(dtype, op)?;
                vectors.for_each(|vector| kernel.fold(folded, vector, false));
            }
            (ReduceOp::Builtin(_), Datatype::Opaque(_)) => {
                return Err(Error::usage("a built-in operator on elements of a user's type"));
            }
            (ReduceOp::User(op), _) => {
                let fold = || vectors.try_for_each(|vector| op.fold_left(folded, vector));
                catch_unwind(AssertUnwindSafe(fold)).unwrap_or_else(|panic| {
                    Err(Error::OperatorPanicked {
                        rank: self.topology.local(),
                        during: "the exchange between nodes".into(),
                        message: panic_text(&*panic).unwrap_or("no message").to_owned(),
                    })
                })?;
            }
        }
        Ok(())
    }
}
