//! Reductions over several nodes by operators of users, which no plan is kept for, since an operator is only borrowed.
//!
//! Each node reduces to its leader, leaders exchange what they have and fold it in the order of nodes: a short segment whole,
//! every leader folding all of it; of a long one each leader gets and folds a part, and gives that to the others. One round and
//! N - 1 vectors, or two rounds and 2(N - 1)/N of a vector: each element is folded in one order, and by the same tree everywhere.
//!
//! Where the ranks of nodes are not in order and the operator is not commutative, and for elements too large for any node's
//! smallest window, leaders exchange what the ranks gave and fold that, in rank order.

use super::choice::FEW_BYTES;
use super::moves::{bring, collect, send_to};
use super::operation::{Buf, contribution};
use super::phases::Phases;
use super::topology::Topology;
use crate::Error;
use earlybird_hier::exec::Parts;
use earlybird_shm::ReduceOp;
use earlybird_shm::bytes::ByteFold;
use earlybird_shm::op::Datatype;
use earlybird_shm::user_op::ReduceFn;
use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Larger elements are more than the smallest window of a node, a page.
const LARGEST_ELEMENT: usize = 4096;

/// Returns whether what the nodes have folded cannot be folded on: the same on all ranks.
pub(super) fn folds_by_rank(op: &dyn ReduceFn, topology: &Topology) -> bool {
    op.element_bytes() > LARGEST_ELEMENT || op.is_ordered() && !topology.is_in_order()
}

/// Reduces the contributions of all ranks in rank order to `room` of the leader of node `home`, or of every leader, which holds a
/// vector per rank meanwhile.
pub(super) async fn fold_by_rank(
    phases: &mut Phases<'_>,
    op: &dyn ReduceFn,
    send: Option<Cow<'_, [u8]>>,
    room: &mut Buf<'_>,
    home: Option<usize>,
) -> Result<(), Error> {
    let (topology, send) = (phases.topology, contribution(send, room));
    let bytes = send.len();
    let lens = vec![bytes; topology.size()];
    let mine = collect(phases, send, &lens).await?;
    if !topology.leads() {
        return Ok(());
    }
    let wants = home.is_none_or(|home| home == topology.node());
    let mut all = vec![0; if wants { bytes * lens.len() } else { 0 }];
    bring(phases, &mine, &lens, home, &mut all).await?;
    if wants {
        room.put(fold_vectors(op, topology, all.chunks(bytes.max(1)))?);
    }
    Ok(())
}

/// Between leaders: `mine` of every node, folded in the order of nodes, becomes `mine` of every node.
pub(super) async fn fold_nodes(phases: &mut Phases<'_>, op: &dyn ReduceFn, mine: &mut Buf<'_>) -> Result<(), Error> {
    let topology = phases.topology;
    let (nodes, me, size) = (topology.nodes(), topology.node(), op.element_bytes());
    let elements = mine.len() / size;
    if mine.len() <= FEW_BYTES || elements < nodes {
        return fold_nodes_at(phases, op, mine, None).await;
    }
    // Node n folds part n.
    let starts: Vec<usize> = (0..=nodes).map(|n| n * elements / nodes * size).collect();
    let part = |n: usize| starts[n]..starts[n + 1];
    let mut theirs = vec![mine[part(me)].to_vec(); nodes];
    let rooms = theirs.iter_mut().enumerate();
    let mut parts: Vec<Parts<'_>> = rooms.map(|(n, room)| Parts { send: &mine[part(n)], receive: room }).collect();
    parts[me] = Parts::default();
    phases.exchange(&mut parts, false).await?;
    let folded = fold_vectors(op, topology, theirs.iter().map(Vec::as_slice))?;
    let mut rest = &mut **mine;
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
    phases.exchange(&mut parts, true).await
}

/// Between leaders: `mine` of every node, folded in the order of nodes, becomes `mine` of node `home`, or of every node. Whole
/// vectors in one round.
pub(super) async fn fold_nodes_at(
    phases: &mut Phases<'_>,
    op: &dyn ReduceFn,
    mine: &mut Buf<'_>,
    home: Option<usize>,
) -> Result<(), Error> {
    let (topology, me) = (phases.topology, phases.topology.node());
    let theirs = send_to(phases, mine, &vec![mine.len(); topology.nodes()], home).await?;
    if home.is_none_or(|home| home == me) {
        let vectors = theirs.iter().enumerate().map(|(node, theirs)| if node == me { &mine[..] } else { theirs });
        let folded = fold_vectors(op, topology, vectors)?;
        mine.put(folded);
    }
    Ok(())
}

/// The fold of these vectors by an operator of either kind, the first one on the left.
pub(super) fn fold_all<'v>(
    op: ReduceOp<'_>,
    datatype: Datatype,
    topology: &Topology,
    mut vectors: impl Iterator<Item = &'v [u8]>,
) -> Result<Vec<u8>, Error> {
    match (op, datatype) {
        (ReduceOp::Builtin(op), Datatype::Builtin(dtype)) => {
            let kernel = ByteFold::new(dtype, op)?;
            let mut folded = vectors.next().unwrap_or_default().to_vec();
            vectors.for_each(|vector| kernel.fold(&mut folded, vector, false));
            Ok(folded)
        }
        (ReduceOp::User(op), _) => fold_vectors(op, topology, vectors),
        (ReduceOp::Builtin(_), Datatype::Opaque(_)) => {
            Err(Error::usage("a built-in operator on elements of a user's type"))
        }
    }
}

/// The fold of these vectors, of elements at any address, the first one on the left.
fn fold_vectors<'v>(
    op: &dyn ReduceFn,
    topology: &Topology,
    mut vectors: impl Iterator<Item = &'v [u8]>,
) -> Result<Vec<u8>, Error> {
    let mut folded = vectors.next().unwrap_or_default().to_vec();
    let fold = || vectors.try_for_each(|vector| op.fold_left(&mut folded, vector));
    catch_unwind(AssertUnwindSafe(fold)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
        let message = text.unwrap_or("no message").to_owned();
        Err(Error::OperatorPanicked { rank: topology.local(), during: "the exchange between nodes".into(), message })
    })?;
    Ok(folded)
}
