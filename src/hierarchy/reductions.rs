//! Reductions over several nodes: the three phases, segment by segment.
//!
//! ```text
//! leader     reduce 0 | start 0 | reduce 1 | start 1 | finish 0 | broadcast 0 | reduce 2 | start 2 | finish 1 | ...
//! network              ~~~~~~~~~~~~~~~~ 0 ~~~~~~~~~~~~~~~~       ~~~~~~~~~~~~~ 1 ~~~~~~~~~~~~~~~~
//! others     give 0   | give 1  | ............................. | take 0      | give 2  | ...      | take 1 | ...
//! ```
//!
//! *reduce s* folds segment s of the node's ranks into the leader's buffer, *start s* and *finish s* run the plan between
//! leaders on it, *broadcast s* gives it to the node. A rank that gives leaves as soon as its data is stored, so the
//! others fold and wait for the last of them while the exchange of the segment before is under way. Short messages are one
//! segment: the three phases one after the other.
//!
//! With several endpoints per node, here two, each has every second segment, and exchanges it while the others exchange theirs:
//!
//! ```text
//! leader     reduce 0 | start 0 | give 1             | reduce 2 | ... | finish 0 | broadcast 0 | take 1      | ...
//! second     give 0             | reduce 1 | start 1 | give 2   | ... | finish 1 | take 0      | broadcast 1 | ...
//! ```
//!
//! A started call is one segment of one endpoint: its operations are under way at the same time as those of other calls.

use super::call::Call;
use super::moves::{deal, here, parts_of, to_root};
use super::operation::{Buf, Operation, When, contribution, part};
use super::operators;
use super::phases::Phases;
use crate::Error;
use crate::plans::Shape;
use earlybird_shm::op::Datatype;
use earlybird_shm::user_op::ReduceFn;
use earlybird_shm::{Collective, ReduceOp};
use std::borrow::Cow;

/// Reduces `send` of all ranks, or `recv` in place, into `recv` of every rank, by a plan.
pub(super) async fn all_reduce(
    phases: &mut Phases<'_>,
    (shape, datatype): (Shape, Datatype),
    send: Option<Cow<'_, [u8]>>,
    recv: &mut Buf<'_>,
) -> Result<(), Error> {
    let (length, endpoints) = phases.segments(recv.len() / datatype.size(), datatype.size());
    if recv.len() <= length {
        // No rank waits for another where there is nothing to reduce; a different call shows all the same.
        return pipelined(phases, (shape, datatype), endpoints, send, std::slice::from_mut(recv)).await;
    }
    let mut segments: Vec<Buf<'_>> = recv.chunks_mut(length).map(Buf::Borrowed).collect();
    pipelined(phases, (shape, datatype), endpoints, send, &mut segments).await
}

async fn pipelined(
    phases: &mut Phases<'_>,
    (shape, datatype): (Shape, Datatype),
    endpoints: usize,
    mut send: Option<Cow<'_, [u8]>>,
    segments: &mut [Buf<'_>],
) -> Result<(), Error> {
    let (mine, count, length) = (phases.topology.local(), segments.len(), segments[0].len());
    let of_round = |round: usize| (round * endpoints).min(count)..((round + 1) * endpoints).min(count);
    let shape_of = |s: usize, data: &[u8]| {
        let (elements, turn) = (data.len() / datatype.size(), (s / endpoints) as u8 % 2);
        Shape { elements, turn, ..shape }
    };
    if mine < endpoints {
        let mut mine = (mine..count).step_by(endpoints);
        mine.try_for_each(|s| phases.prepare(shape_of(s, &segments[s])))?;
    }
    for round in 0..=count.div_ceil(endpoints) {
        for s in of_round(round) {
            let (root, recv) = (s % endpoints, &mut segments[s]);
            let send = part(&mut send, s * length..s * length + recv.len());
            phases.on_node(When::Give, Operation::reduce(root, datatype), send, recv).await?;
            if root == mine {
                phases.start(shape_of(s, recv), recv)?;
            }
        }
        let Some(done) = round.checked_sub(1) else { continue };
        if let Some(s) = of_round(done).find(|s| s % endpoints == mine) {
            let (first, rest) = segments[s..].split_at_mut(1);
            let next = rest.get_mut(endpoints - 1).map(|data| (shape_of(s + endpoints, data), &mut **data));
            phases.finish(shape_of(s, &first[0]), &mut first[0], next).await?;
        }
        for s in of_round(done) {
            phases.on_node(When::Take, Operation::broadcast(s % endpoints), None, &mut segments[s]).await?;
        }
    }
    Ok(())
}

/// An allreduce or a reduce by an operator of a user's, segment by segment.
pub(super) async fn by_user(
    phases: &mut Phases<'_>,
    call: &Call,
    op: &dyn ReduceFn,
    mut send: Option<Cow<'_, [u8]>>,
    recv: &mut Buf<'_>,
) -> Result<(), Error> {
    let bytes = send.as_ref().map_or(recv.len(), |send| send.len());
    let length = phases.segment_of_user(op.element_bytes());
    if bytes <= length {
        return segment_by_user(phases, call, op, send, recv).await;
    }
    for first in (0..bytes).step_by(length) {
        let range = first..(first + length).min(bytes);
        let mut recv = match recv.is_empty() {
            true => Buf::default(),
            false => Buf::Borrowed(&mut recv[range.clone()]),
        };
        segment_by_user(phases, call, op, part(&mut send, range), &mut recv).await?;
    }
    Ok(())
}

async fn segment_by_user(
    phases: &mut Phases<'_>,
    call: &Call,
    op: &dyn ReduceFn,
    send: Option<Cow<'_, [u8]>>,
    recv: &mut Buf<'_>,
) -> Result<(), Error> {
    if call.collective != Collective::AllReduce {
        return reduce(phases, call, None, send, recv).await;
    }
    if operators::folds_by_rank(op, phases.topology) {
        operators::fold_by_rank(phases, op, send, recv, None).await?;
    } else {
        phases.on_node(When::Give, Operation::reduce(0, call.lowering.datatype()), send, recv).await?;
        if phases.topology.leads() {
            operators::fold_nodes(phases, op, recv).await?;
        }
    }
    phases.on_node(When::Take, Operation::broadcast(0), None, recv).await
}

/// Reduces `send` of all ranks, or `recv` of the root in place, into `recv` of the root, which is empty elsewhere: by a plan, or
/// by an operator of a user's.
pub(super) async fn reduce(
    phases: &mut Phases<'_>,
    call: &Call,
    shape: Option<Shape>,
    send: Option<Cow<'_, [u8]>>,
    recv: &mut Buf<'_>,
) -> Result<(), Error> {
    let topology = phases.topology;
    let (home, _) = topology.place(call.root);
    let bytes = send.as_ref().map_or(recv.len(), |send| send.len());
    let mut partial = Buf::default();
    let passes_on = topology.leads() && topology.rank() != call.root;
    let (send, room) = match passes_on {
        // The caller's buffer stays as it is.
        true => {
            partial = Buf::Owned(contribution(send, recv).into_owned());
            (None, &mut partial)
        }
        false => (send, &mut *recv),
    };
    match (phases.op, shape) {
        (ReduceOp::User(op), _) if operators::folds_by_rank(op, topology) => {
            operators::fold_by_rank(phases, op, send, room, Some(home)).await?;
        }
        (op, shape) => {
            phases.on_node(When::Give, Operation::reduce(0, call.lowering.datatype()), send, room).await?;
            match (op, shape) {
                (_, Some(shape)) => phases.plan(shape, room).await?,
                (ReduceOp::User(op), None) if topology.leads() => {
                    operators::fold_nodes_at(phases, op, room, Some(home)).await?;
                }
                _ => {}
            }
        }
    }
    to_root(phases, call.root, bytes, partial, recv).await
}

/// Reduces `send` of all ranks and gives each rank its block in `recv`.
pub(super) async fn reduce_scatter(
    phases: &mut Phases<'_>,
    call: &Call,
    send: Cow<'_, [u8]>,
    recv: &mut Buf<'_>,
) -> Result<(), Error> {
    let (topology, op, lens) = (phases.topology, phases.op, &call.lens[..]);
    let me = topology.node();
    let mut partial = Buf::default();
    let send = match topology.leads() {
        true => {
            partial = Buf::Owned(send.into_owned());
            None
        }
        false => Some(send),
    };
    let mut mine = Vec::new();
    match op {
        ReduceOp::User(op) if operators::folds_by_rank(op, topology) => {
            operators::fold_by_rank(phases, op, send, &mut partial, None).await?;
            if topology.leads() {
                mine = topology.pick(&partial, lens, me);
            }
        }
        _ => {
            let datatype = call.lowering.datatype();
            phases.on_node(When::Give, Operation::reduce(0, datatype), send, &mut partial).await?;
            if topology.leads() {
                // Each node's part of the vector, in the order of its ranks.
                let ours: Vec<Vec<u8>> =
                    (0..topology.nodes()).map(|node| topology.pick(&partial, lens, node)).collect();
                let mut theirs = vec![ours[me].clone(); ours.len()];
                phases.exchange(&mut parts_of(&ours, &mut theirs), true).await?;
                mine = operators::fold_all(op, datatype, topology, theirs.iter().map(Vec::as_slice))?;
            }
        }
    }
    deal(phases, &here(topology, lens), mine, recv).await
}
