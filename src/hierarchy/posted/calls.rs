//! Each posted call as its steps: as the blocking one in `moves.rs` and `reductions.rs`.

use super::steps::{Operation, Steps};
use super::{Begun, Outcome, Work};
use crate::hierarchy::Topology;
use crate::plans::{self, Shape};
use crate::{DType, Element, Error, Op};
use earlybird_hier::exec::Parts;
use earlybird_hier::plan;
use earlybird_hier::{OpTraits, exec};
use earlybird_shm::bytes::{self, ByteFold};
use earlybird_shm::{Collective, OwnedBuffers};
use plans::Work as Does;

pub(super) fn gets<T: Element>(recv: Vec<T>) -> OwnedBuffers<T> {
    OwnedBuffers::apart(Vec::new(), recv)
}

pub(super) fn gives<T: Element>(send: Vec<T>) -> OwnedBuffers<T> {
    OwnedBuffers::apart(send, Vec::new())
}

pub(super) fn both<T: Element>(send: Vec<T>, recv: Vec<T>) -> OwnedBuffers<T> {
    OwnedBuffers::apart(send, recv)
}

pub(super) fn in_place<T: Element>(recv: Vec<T>) -> OwnedBuffers<T> {
    OwnedBuffers::in_place(recv)
}

const MOVES: Op = Op::Sum;

/// What is posted.
#[derive(Debug, Clone)]
pub(crate) struct StartedArgs {
    pub collective: Collective,
    pub op: Op,
    pub root: Option<usize>,
    /// Elements of the blocks, where they are not all of one length.
    pub counts: Option<Vec<usize>>,
    /// The plan between leaders, where one was chosen for this call.
    pub exchange: Option<&'static str>,
}

impl StartedArgs {
    /// Elements of each rank's block, of a call that gives `given` elements and gets `gets`.
    fn blocks(&self, ranks: usize, given: usize, gets: usize) -> Vec<usize> {
        let block = match self.collective {
            Collective::Scatter => gets,
            Collective::AllToAll | Collective::ReduceScatter => given / ranks,
            _ => given,
        };
        self.counts.clone().unwrap_or_else(|| vec![block; ranks])
    }
}

/// What to do for a call on these buffers.
///
/// # Errors
/// [`Error::Unsupported`] for an operator that does not exist for the type.
pub(super) fn begin<T: Element>(asked: &StartedArgs, given: &[T], gets: usize, steps: Steps) -> Result<Begun, Error> {
    let StartedArgs { collective, op, root, .. } = *asked;
    let (root, size) = (root.unwrap_or(0), steps.topology().size());
    let counts = asked.blocks(size, given.len(), gets);
    if !collective.folds() {
        let (given, length) = (bytes::of(given).to_vec(), gets * size_of::<T>());
        let lens: Vec<usize> = counts.iter().map(|count| count * size_of::<T>()).collect();
        let runs = match collective {
            Collective::Barrier => "dissemination",
            Collective::Broadcast => "binomial",
            _ => "direct",
        };
        let work = Box::pin(async move {
            let outcome = match collective {
                Collective::Barrier => barrier(&steps).await,
                Collective::Broadcast => broadcast(&steps, root, given, length).await,
                Collective::AllGather => all_gather(&steps, given, &lens).await,
                Collective::Gather => gather(&steps, root, given, &lens).await,
                Collective::Scatter => scatter(&steps, root, given, &lens).await,
                _ => all_to_all(&steps, given).await,
            };
            steps.end(outcome)
        });
        return Ok((work, runs));
    }
    T::DTYPE.must_have(op)?;
    let (work, plan): (Work, Option<Shape>) = match (T::DTYPE, op) {
        (DType::Bool, _) => {
            let (given, by) = (bytes::of(given).to_vec(), crate::hierarchy::of_bytes(op));
            let plan = plan::<u8>(&steps, asked, by, given.len())?;
            let work = Box::pin(async move {
                let outcome = fold(&steps, plan, by, root, given, &counts).await;
                steps.end(outcome)
            });
            (work, plan)
        }
        (DType::F16 | DType::BF16, Op::Average) => {
            let wide = bytes::widened(given);
            let mut averages = given.to_vec();
            let plan = plan::<f32>(&steps, asked, Op::Sum, wide.len())?;
            let work = Box::pin(async move {
                let outcome = fold(&steps, plan, Op::Sum, root, wide, &counts).await.map(|sums| {
                    sums.map(|sums| {
                        averages.truncate(sums.len());
                        bytes::averaged(&sums, &mut averages, size);
                        bytes::of(&averages).to_vec()
                    })
                });
                steps.end(outcome)
            });
            (work, plan)
        }
        _ => {
            let (given, sums) = (given.to_vec(), if op == Op::Average { Op::Sum } else { op });
            let plan = plan::<T>(&steps, asked, sums, given.len())?;
            let work = Box::pin(async move {
                let outcome = fold(&steps, plan, sums, root, given, &counts).await.map(|result| {
                    result.map(|mut result| {
                        if op == Op::Average {
                            bytes::divide(&mut result, size);
                        }
                        bytes::of(&result).to_vec()
                    })
                });
                steps.end(outcome)
            });
            (work, plan)
        }
    };
    Ok((work, plan.map_or("direct", |plan| plan.name)))
}

/// The plan of a reduction of `elements` in a vector of `U`; none where parts are exchanged. Refused, where it must be, by all
/// ranks before anything is posted, though leaders alone run it.
///
/// # Errors
/// [`Error::Unsupported`] for a plan that was chosen and cannot be.
pub(super) fn plan<U: Element>(
    steps: &Steps,
    asked: &StartedArgs,
    op: Op,
    elements: usize,
) -> Result<Option<Shape>, Error> {
    let exact = !U::DTYPE.is_inexact(op);
    // By rank, as posted calls of a node are.
    let traits = OpTraits { commutative: exact, exact };
    let (name, collective, root) = match (asked.collective, asked.root) {
        (Collective::ReduceScatter, _) => return Ok(None),
        (Collective::Reduce, root) => {
            ("binomial", plan::Collective::Reduce, steps.topology().place(root.unwrap_or(0)).0)
        }
        _ => {
            let name = steps.between.exchange_for(asked.exchange, elements * size_of::<U>(), traits)?;
            (name, plan::Collective::Allreduce, 0)
        }
    };
    let (work, call) = (Does::Fold(U::DTYPE, op), steps.signature.hash());
    let shape = Shape { name, collective, root, elements, work, call, turn: 0 };
    steps.between.lock()?.plans.admit(shape)?;
    Ok(Some(shape))
}

async fn fold<U: Element>(
    steps: &Steps,
    plan: Option<Shape>,
    op: Op,
    root: usize,
    given: Vec<U>,
    counts: &[usize],
) -> Result<Option<Vec<U>>, Error> {
    let (topology, room) = (steps.topology(), given.clone());
    let (leads, (home, local)) = (topology.leads(), topology.place(root));
    let to_leader = Operation::new(Collective::Reduce, op, Some(0));
    let partial = steps.give(to_leader, if leads { in_place(given) } else { gives(given) }).await?;
    let Some(plan) = plan else { return in_parts(steps, op, partial, room, counts).await.map(Some) };
    let mut data = if leads { partial } else { room };
    steps.plan(plan, bytes::of_mut(&mut data)).await?;
    if plan.collective == plan::Collective::Allreduce {
        let result = if leads { in_place(data) } else { gets(data) };
        return steps.take(Some((from_leader(), result))).await.map(Some);
    }
    let hands_over = topology.node() == home && local != 0;
    let result = match hands_over {
        true => steps.take(Some((from_leader(), if leads { in_place(data) } else { gets(data) }))).await?,
        false => {
            steps.take::<u8>(None).await?;
            data
        }
    };
    Ok((topology.rank() == root).then_some(result))
}

/// What a leader has, to its node.
pub(super) fn from_leader() -> Operation {
    Operation::new(Collective::Broadcast, MOVES, Some(0))
}

/// The rest of a reduction of which every rank gets its block.
async fn in_parts<U: Element>(
    steps: &Steps,
    op: Op,
    partial: Vec<U>,
    mut room: Vec<U>,
    counts: &[usize],
) -> Result<Vec<U>, Error> {
    let topology = steps.topology();
    let me = topology.node();
    room.truncate(counts[topology.rank()]);
    let lens: Vec<usize> = counts.iter().map(|count| count * size_of::<U>()).collect();
    let mut mine = Vec::new();
    if topology.leads() {
        let ours: Vec<Vec<u8>> =
            (0..topology.nodes()).map(|node| topology.pick(bytes::of(&partial), &lens, node)).collect();
        let mut theirs = vec![ours[me].clone(); ours.len()];
        steps.swap(&mut parts_of(&ours, &mut theirs)).await?;
        let fold = ByteFold::new(U::DTYPE, op)?;
        mine = std::mem::take(&mut theirs[0]);
        theirs[1..].iter().for_each(|of_node| fold.fold(&mut mine, of_node, false));
    }
    bytes::of_mut(&mut room).copy_from_slice(&deal(steps, mine, &lens).await?);
    Ok(room)
}

/// The lengths of the parts of this node's ranks.
fn here(topology: &Topology, lens: &[usize]) -> Vec<usize> {
    topology.here().iter().map(|&rank| lens[rank]).collect()
}

/// Gives each rank of the node its part of what the leader has.
pub(super) async fn deal(steps: &Steps, mine: Vec<u8>, lens: &[usize]) -> Result<Vec<u8>, Error> {
    let topology = steps.topology();
    let scatter = Operation::of_parts(Collective::Scatter, here(topology, lens));
    steps.take(Some((scatter, both(mine, vec![0u8; lens[topology.rank()]])))).await
}

/// What goes to each node, and room for what comes from there.
pub(super) fn parts_of<'a>(send: &'a [Vec<u8>], receive: &'a mut [Vec<u8>]) -> Vec<exec::Parts<'a>> {
    send.iter().zip(receive).map(|(send, receive)| Parts { send, receive }).collect()
}

async fn barrier(steps: &Steps) -> Outcome {
    let token = || in_place(vec![0u64]);
    let meet = || Operation::new(Collective::Barrier, MOVES, None);
    steps.give(meet(), token()).await?;
    steps.plan(plans::barrier(steps.signature.hash()), &mut [0]).await?;
    steps.take(Some((meet(), token()))).await?;
    Ok(None)
}

async fn broadcast(steps: &Steps, root: usize, given: Vec<u8>, length: usize) -> Outcome {
    let topology = steps.topology();
    let (home, local) = topology.place(root);
    let at_home = topology.node() == home;
    let mut data = vec![0; length];
    if at_home {
        let mine = if topology.rank() == root { in_place(given) } else { gets(data) };
        data = steps.give(Operation::new(Collective::Broadcast, MOVES, Some(local)), mine).await?;
    }
    let (collective, call) = (plan::Collective::Broadcast, steps.signature.hash());
    let shape = Shape { name: "binomial", collective, root: home, elements: length, work: Does::Move, call, turn: 0 };
    steps.plan(shape, &mut data).await?;
    if at_home {
        steps.take::<u8>(None).await?;
        return Ok(Some(data));
    }
    let result = if topology.leads() { in_place(data) } else { gets(data) };
    steps.take(Some((from_leader(), result))).await.map(Some)
}

/// What the node's ranks give, on its leader.
pub(super) async fn collect(steps: &Steps, given: Vec<u8>, lens: &[usize]) -> Result<Vec<u8>, Error> {
    let here = here(steps.topology(), lens);
    let room = vec![0; if steps.topology().leads() { here.iter().sum() } else { 0 }];
    steps.give(Operation::of_parts(Collective::Gather, here), both(given, room)).await
}

/// Between leaders: what the ranks of each node gave, to the nodes that want it, in rank order.
pub(super) async fn bring(
    steps: &Steps,
    mine: Vec<u8>,
    lens: &[usize],
    wants: impl Fn(usize) -> bool,
) -> Result<Vec<u8>, Error> {
    let topology = steps.topology();
    if !topology.leads() {
        return Ok(Vec::new());
    }
    let (me, nodes) = (topology.node(), 0..topology.nodes());
    let of_node = |node: usize| topology.members(node).iter().map(|&rank| lens[rank]).sum();
    let ours: Vec<Vec<u8>> = nodes.clone().map(|node| if wants(node) { mine.clone() } else { Vec::new() }).collect();
    let mut rooms: Vec<Vec<u8>> =
        nodes.clone().map(|node| vec![0; if wants(me) { of_node(node) } else { 0 }]).collect();
    steps.swap(&mut parts_of(&ours, &mut rooms)).await?;
    if !wants(me) {
        return Ok(Vec::new());
    }
    rooms[me] = mine;
    let mut all = vec![0; lens.iter().sum()];
    nodes.for_each(|node| topology.put(&mut all, lens, node, &rooms[node]));
    Ok(all)
}

async fn all_gather(steps: &Steps, given: Vec<u8>, lens: &[usize]) -> Outcome {
    let mine = collect(steps, given, lens).await?;
    let all = bring(steps, mine, lens, |_| true).await?;
    let result = if steps.topology().leads() { in_place(all) } else { gets(vec![0; lens.iter().sum()]) };
    steps.take(Some((from_leader(), result))).await.map(Some)
}

async fn gather(steps: &Steps, root: usize, given: Vec<u8>, lens: &[usize]) -> Outcome {
    let (home, _) = steps.topology().place(root);
    let mine = collect(steps, given, lens).await?;
    let all = bring(steps, mine, lens, |node| node == home).await?;
    to_root(steps, root, all, lens.iter().sum()).await
}

/// What the leader of the root's node has, to the root.
pub(super) async fn to_root(steps: &Steps, root: usize, mut all: Vec<u8>, length: usize) -> Outcome {
    let topology = steps.topology();
    let (home, local) = topology.place(root);
    match topology.node() == home && local != 0 {
        true => {
            let result = if topology.leads() { in_place(all) } else { gets(vec![0; length]) };
            all = steps.take(Some((from_leader(), result))).await?;
        }
        false => _ = steps.take::<u8>(None).await?,
    }
    Ok((topology.rank() == root).then_some(all))
}

async fn scatter(steps: &Steps, root: usize, given: Vec<u8>, lens: &[usize]) -> Outcome {
    let topology = steps.topology();
    let (home, local) = topology.place(root);
    let at_home = topology.node() == home;
    let mut all = given;
    if at_home && local != 0 {
        let mine = if topology.rank() == root { in_place(all) } else { gets(vec![0; lens.iter().sum()]) };
        all = steps.give(Operation::new(Collective::Broadcast, MOVES, Some(local)), mine).await?;
    }
    let mut mine = Vec::new();
    if topology.leads() {
        let pick = |node| if at_home { topology.pick(&all, lens, node) } else { Vec::new() };
        let ours: Vec<Vec<u8>> = (0..topology.nodes()).map(pick).collect();
        let mut rooms = vec![Vec::new(); ours.len()];
        rooms[home] = vec![0; here(topology, lens).iter().sum()];
        steps.swap(&mut parts_of(&ours, &mut rooms)).await?;
        mine = if at_home { ours[home].clone() } else { std::mem::take(&mut rooms[home]) };
    }
    deal(steps, mine, lens).await.map(Some)
}

async fn all_to_all(steps: &Steps, given: Vec<u8>) -> Outcome {
    let topology = steps.topology();
    let (block, lens) = (given.len() / topology.size(), vec![given.len(); topology.size()]);
    let mine = collect(steps, given, &lens).await?;
    let mut got = Vec::new();
    if topology.leads() {
        let ours = topology.pack_pairs(&mine, block);
        let mut rooms = ours.clone();
        steps.swap(&mut parts_of(&ours, &mut rooms)).await?;
        got = topology.unpack_pairs(&rooms, block);
    }
    deal(steps, got, &lens).await.map(Some)
}
