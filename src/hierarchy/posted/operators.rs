//! Posted reductions by operators of callers: as the blocking ones in `../operators.rs`, each vector in one piece.

use super::calls::{bring, collect, deal, from_leader, gets, in_place, parts_of, to_root};
use super::steps::Steps;
use super::{Begun, Outcome};
use crate::Error;
use crate::hierarchy::Topology;
use crate::hierarchy::choice::FEW_BYTES;
use crate::hierarchy::operators::{RUNS, fold_bytes, folds_by_rank};
use crate::hierarchy::user_ops::OwnedUserOp;
use bytemuck::cast_slice;
use earlybird_shm::Collective;
use std::sync::Arc;

/// What to do for a reduction of `given`.
pub(super) fn begin<O: OwnedUserOp>(
    (collective, root): (Collective, usize),
    op: &Arc<O>,
    given: &[O::Item],
    steps: Steps,
) -> Begun {
    let (op, given) = (op.clone(), given.to_vec());
    let work = Box::pin(async move {
        let outcome = reduce(&steps, (collective, root), &op, given).await;
        steps.end(outcome)
    });
    (work, RUNS)
}

async fn reduce<O: OwnedUserOp>(
    steps: &Steps,
    (collective, root): (Collective, usize),
    op: &Arc<O>,
    given: Vec<O::Item>,
) -> Outcome {
    let (topology, bytes) = (steps.topology(), size_of_val(&given[..]));
    let (leads, me, (home, _)) = (topology.leads(), topology.node(), topology.place(root));
    // The nodes whose leaders need what is folded, and the parts of it that ranks get.
    let wants = |node: usize| collective != Collective::Reduce || node == home;
    let blocks = vec![bytes / topology.size(); topology.size()];
    let folded = if folds_by_rank(op.reduce_fn(), topology) {
        let whole = vec![bytes; topology.size()];
        let mine = collect(steps, cast_slice(&given).to_vec(), &whole).await?;
        let all = bring(steps, mine, &whole, wants).await?;
        let folded = fold_all(topology, &**op, all.chunks(bytes.max(1)))?;
        match collective {
            Collective::ReduceScatter if leads => topology.pick(&folded, &blocks, me),
            _ => folded,
        }
    } else {
        let owned = if leads { op.in_place(given)? } else { op.apart(given, Vec::new())? };
        let partial = steps.give_ready::<O::Item>(O::ready(op, steps.node(), owned)?).await?;
        let partial = cast_slice::<O::Item, u8>(&partial);
        match (leads, collective) {
            (false, _) => Vec::new(),
            (true, Collective::AllReduce) if bytes > FEW_BYTES && bytes / op.bytes() >= topology.nodes() => {
                in_two_rounds(steps, &**op, partial).await?
            }
            (true, _) => {
                let of_node = |node: usize| match collective {
                    Collective::ReduceScatter => topology.pick(partial, &blocks, node),
                    _ if wants(node) => partial.to_vec(),
                    _ => Vec::new(),
                };
                let ours: Vec<Vec<u8>> = (0..topology.nodes()).map(of_node).collect();
                let mut theirs = vec![ours[me].clone(); ours.len()];
                steps.swap(&mut parts_of(&ours, &mut theirs)).await?;
                fold_all(topology, &**op, theirs.iter().map(Vec::as_slice))?
            }
        }
    };
    match collective {
        Collective::ReduceScatter => deal(steps, folded, &blocks).await.map(Some),
        Collective::Reduce => to_root(steps, root, folded, bytes).await,
        _ => {
            let result = if leads { in_place(folded) } else { gets(vec![0; bytes]) };
            steps.take(Some((from_leader(), result))).await.map(Some)
        }
    }
}

/// Between leaders: each folds a part of the vectors of all, and gives it to all.
async fn in_two_rounds(steps: &Steps, op: &impl OwnedUserOp, partial: &[u8]) -> Result<Vec<u8>, Error> {
    let (topology, nodes) = (steps.topology(), steps.topology().nodes());
    let (me, elements) = (topology.node(), partial.len() / op.bytes());
    let start = |node: usize| node * elements / nodes * op.bytes();
    let ours: Vec<Vec<u8>> = (0..nodes).map(|node| partial[start(node)..start(node + 1)].to_vec()).collect();
    let mut theirs = vec![ours[me].clone(); nodes];
    steps.swap_first(&mut parts_of(&ours, &mut theirs)).await?;
    let mine = fold_all(topology, op, theirs.iter().map(Vec::as_slice))?;
    let (folded, mut rooms) = (vec![mine; nodes], ours);
    steps.swap(&mut parts_of(&folded, &mut rooms)).await?;
    rooms[me].copy_from_slice(&folded[me]);
    Ok(rooms.concat())
}

/// The fold of these vectors, the first one on the left; empty where there is none.
fn fold_all<'v>(
    topology: &Topology,
    op: &impl OwnedUserOp,
    mut vectors: impl Iterator<Item = &'v [u8]>,
) -> Result<Vec<u8>, Error> {
    let mut folded = vectors.next().unwrap_or_default().to_vec();
    vectors.try_for_each(|vector| fold_bytes(op.reduce_fn(), topology, &mut folded, vector))?;
    Ok(folded)
}
