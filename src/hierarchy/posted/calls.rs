//! Each posted call as its steps: as the blocking one in `moves.rs` and `reductions.rs`, blocks of one length only.

use super::steps::Steps;
use super::{Begun, Outcome, Prepared, Work};
use crate::plans::{self, Shape};
use crate::{DType, Element, Error, Op};
use earlybird_hier::exec::Parts;
use earlybird_hier::plan::Contract;
use earlybird_hier::{OpTraits, exec};
use earlybird_shm::bytes::{self, ByteFold};
use earlybird_shm::{Collective, Owned};
use plans::Work as Does;

fn gets<T: Element>(recv: Vec<T>) -> Owned<T> {
    Owned::apart(Vec::new(), recv)
}

fn gives<T: Element>(send: Vec<T>) -> Owned<T> {
    Owned::apart(send, Vec::new())
}

fn both<T: Element>(send: Vec<T>, recv: Vec<T>) -> Owned<T> {
    Owned::apart(send, recv)
}

fn in_place<T: Element>(recv: Vec<T>) -> Owned<T> {
    Owned::in_place(recv)
}

const MOVES: Op = Op::Sum;

/// What to do for a call on these buffers.
///
/// # Errors
/// [`Error::Unsupported`] for an operator that does not exist for the type.
pub(super) fn begin<T: Element>(prepared: &Prepared, steps: Steps) -> Result<Begun, Error> {
    let Prepared { collective, op, root, .. } = *prepared;
    let owned = prepared.owned.downcast_ref::<Owned<T>>().expect("the type it was made with");
    let given = if owned.is_in_place() { &owned.recv } else { &owned.send };
    let (root, size) = (root.unwrap_or(0), steps.topology().size());
    if !collective.folds() {
        let (given, block) = (bytes::of(given).to_vec(), size_of_val(&owned.recv[..]));
        let runs = match collective {
            Collective::Barrier => "dissemination",
            Collective::Broadcast => "binomial",
            _ => "direct",
        };
        let work = Box::pin(async move {
            let outcome = match collective {
                Collective::Barrier => barrier(&steps).await,
                Collective::Broadcast => broadcast(&steps, root, given, block).await,
                Collective::AllGather => all_gather(&steps, given).await,
                Collective::Gather => gather(&steps, root, given).await,
                Collective::Scatter => scatter(&steps, root, given, block).await,
                _ => all_to_all(&steps, given).await,
            };
            steps.end(outcome)
        });
        return Ok((work, runs));
    }
    T::DTYPE.must_have(op)?;
    let runs = match collective {
        Collective::ReduceScatter => "direct",
        _ => shape::<T>(&steps, collective, op, root, given.len())?.name,
    };
    let work: Work = match (T::DTYPE, op) {
        (DType::Bool, _) => {
            let given = bytes::of(given).to_vec();
            Box::pin(async move {
                let outcome = fold(&steps, collective, crate::hierarchy::of_bytes(op), root, given).await;
                steps.end(outcome)
            })
        }
        (DType::F16 | DType::BF16, Op::Average) => {
            let wide = bytes::widened(given);
            let mut averages = given.clone();
            Box::pin(async move {
                let outcome = fold(&steps, collective, Op::Sum, root, wide).await.map(|sums| {
                    sums.map(|sums| {
                        averages.truncate(sums.len());
                        bytes::averaged(&sums, &mut averages, size);
                        bytes::of(&averages).to_vec()
                    })
                });
                steps.end(outcome)
            })
        }
        _ => {
            let (given, sums) = (given.clone(), if op == Op::Average { Op::Sum } else { op });
            Box::pin(async move {
                let outcome = fold(&steps, collective, sums, root, given).await.map(|result| {
                    result.map(|mut result| {
                        if op == Op::Average {
                            bytes::divide(&mut result, size);
                        }
                        bytes::of(&result).to_vec()
                    })
                });
                steps.end(outcome)
            })
        }
    };
    Ok((work, runs))
}

/// The shape of the plan of a reduction.
fn shape<U: Element>(
    steps: &Steps,
    collective: Collective,
    op: Op,
    root: usize,
    elements: usize,
) -> Result<Shape, Error> {
    let exact = !U::DTYPE.is_inexact(op);
    // By rank, as posted calls of a node are.
    let traits = OpTraits { commutative: exact, exact };
    let bytes = elements * size_of::<U>();
    let (name, contract) = match collective {
        Collective::AllReduce => (steps.between.exchange_for(None, bytes, traits)?, Contract::Allreduce),
        _ => ("binomial", Contract::Reduce),
    };
    let (home, _) = steps.topology().place(root);
    let root = if contract == Contract::Reduce { home } else { 0 };
    let (work, call) = (Does::Fold(U::DTYPE, op), steps.signature.hash());
    Ok(Shape { name, contract, root, elements, work, call, turn: 0 })
}

async fn fold<U: Element>(
    steps: &Steps,
    collective: Collective,
    op: Op,
    root: usize,
    given: Vec<U>,
) -> Result<Option<Vec<U>>, Error> {
    let (topology, room) = (steps.topology(), given.clone());
    let (leads, (home, local)) = (topology.leads(), topology.place(root));
    let to_leader = (Collective::Reduce, op, Some(0));
    let from_leader = (Collective::Broadcast, MOVES, Some(0));
    let partial = steps.give(to_leader, if leads { in_place(given) } else { gives(given) }).await?;
    if collective == Collective::ReduceScatter {
        return in_parts(steps, op, partial, room).await.map(Some);
    }
    let mut data = if leads { partial } else { room };
    steps.plan(shape::<U>(steps, collective, op, root, data.len())?, bytes::of_mut(&mut data)).await?;
    if collective == Collective::AllReduce {
        let result = if leads { in_place(data) } else { gets(data) };
        return steps.take(Some((from_leader, result))).await.map(Some);
    }
    let hands_over = topology.node() == home && local != 0;
    let result = match hands_over {
        true => steps.take(Some((from_leader, if leads { in_place(data) } else { gets(data) }))).await?,
        false => {
            steps.take::<u8>(None).await?;
            data
        }
    };
    Ok((topology.rank() == root).then_some(result))
}

/// The rest of a reduction of which every rank gets its block.
async fn in_parts<U: Element>(steps: &Steps, op: Op, partial: Vec<U>, mut room: Vec<U>) -> Result<Vec<U>, Error> {
    let topology = steps.topology();
    let (size, me) = (topology.size(), topology.node());
    room.truncate(room.len() / size);
    let block = size_of_val(&room[..]);
    let lens = vec![block; size];
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
    let got = steps.take(Some(((Collective::Scatter, MOVES, Some(0)), both(mine, vec![0u8; block])))).await?;
    bytes::of_mut(&mut room).copy_from_slice(&got);
    Ok(room)
}

/// What goes to each node, and room for what comes from there.
fn parts_of<'a>(send: &'a [Vec<u8>], receive: &'a mut [Vec<u8>]) -> Vec<exec::Parts<'a>> {
    send.iter().zip(receive).map(|(send, receive)| Parts { send, receive }).collect()
}

async fn barrier(steps: &Steps) -> Outcome {
    let token = || in_place(vec![0u64]);
    steps.give((Collective::Barrier, MOVES, None), token()).await?;
    steps.plan(plans::barrier(steps.signature.hash()), &mut [0]).await?;
    steps.take(Some(((Collective::Barrier, MOVES, None), token()))).await?;
    Ok(None)
}

async fn broadcast(steps: &Steps, root: usize, given: Vec<u8>, length: usize) -> Outcome {
    let topology = steps.topology();
    let (home, local) = topology.place(root);
    let at_home = topology.node() == home;
    let mut data = vec![0; length];
    if at_home {
        let mine = if topology.rank() == root { in_place(given) } else { gets(data) };
        data = steps.give((Collective::Broadcast, MOVES, Some(local)), mine).await?;
    }
    let (contract, call) = (Contract::Broadcast, steps.signature.hash());
    let shape = Shape { name: "binomial", contract, root: home, elements: length, work: Does::Move, call, turn: 0 };
    steps.plan(shape, &mut data).await?;
    if at_home {
        steps.take::<u8>(None).await?;
        return Ok(Some(data));
    }
    let result = if topology.leads() { in_place(data) } else { gets(data) };
    steps.take(Some(((Collective::Broadcast, MOVES, Some(0)), result))).await.map(Some)
}

/// What the node's ranks give, on its leader.
async fn collect(steps: &Steps, given: Vec<u8>) -> Result<Vec<u8>, Error> {
    let topology = steps.topology();
    let room = vec![0; if topology.leads() { given.len() * topology.here().len() } else { 0 }];
    steps.give((Collective::Gather, MOVES, Some(0)), both(given, room)).await
}

/// Between leaders: what the ranks of each node gave, to the nodes that want it, in rank order.
async fn bring(steps: &Steps, mine: Vec<u8>, block: usize, wants: impl Fn(usize) -> bool) -> Result<Vec<u8>, Error> {
    let topology = steps.topology();
    if !topology.leads() {
        return Ok(Vec::new());
    }
    let (me, nodes, lens) = (topology.node(), 0..topology.nodes(), vec![block; topology.size()]);
    let bytes = |node: usize| if wants(me) { topology.members(node).len() * block } else { 0 };
    let ours: Vec<Vec<u8>> = nodes.clone().map(|node| if wants(node) { mine.clone() } else { Vec::new() }).collect();
    let mut rooms: Vec<Vec<u8>> = nodes.clone().map(|node| vec![0; bytes(node)]).collect();
    steps.swap(&mut parts_of(&ours, &mut rooms)).await?;
    if !wants(me) {
        return Ok(Vec::new());
    }
    rooms[me] = mine;
    let mut all = vec![0; block * lens.len()];
    nodes.for_each(|node| topology.put(&mut all, &lens, node, &rooms[node]));
    Ok(all)
}

async fn all_gather(steps: &Steps, given: Vec<u8>) -> Outcome {
    let (block, leads) = (given.len(), steps.topology().leads());
    let mine = collect(steps, given).await?;
    let all = bring(steps, mine, block, |_| true).await?;
    let result = if leads { in_place(all) } else { gets(vec![0; block * steps.topology().size()]) };
    steps.take(Some(((Collective::Broadcast, MOVES, Some(0)), result))).await.map(Some)
}

async fn gather(steps: &Steps, root: usize, given: Vec<u8>) -> Outcome {
    let topology = steps.topology();
    let (block, (home, local)) = (given.len(), topology.place(root));
    let mine = collect(steps, given).await?;
    let mut all = bring(steps, mine, block, |node| node == home).await?;
    match topology.node() == home && local != 0 {
        true => {
            let result = if topology.leads() { in_place(all) } else { gets(vec![0; block * topology.size()]) };
            all = steps.take(Some(((Collective::Broadcast, MOVES, Some(0)), result))).await?;
        }
        false => _ = steps.take::<u8>(None).await?,
    }
    Ok((topology.rank() == root).then_some(all))
}

async fn scatter(steps: &Steps, root: usize, given: Vec<u8>, block: usize) -> Outcome {
    let topology = steps.topology();
    let (home, local) = topology.place(root);
    let (at_home, lens) = (topology.node() == home, vec![block; topology.size()]);
    let mut all = given;
    if at_home && local != 0 {
        let mine = if topology.rank() == root { in_place(all) } else { gets(vec![0; block * lens.len()]) };
        all = steps.give((Collective::Broadcast, MOVES, Some(local)), mine).await?;
    }
    let mut mine = Vec::new();
    if topology.leads() {
        let pick = |node| if at_home { topology.pick(&all, &lens, node) } else { Vec::new() };
        let ours: Vec<Vec<u8>> = (0..topology.nodes()).map(pick).collect();
        let mut rooms = vec![Vec::new(); ours.len()];
        rooms[home] = vec![0; block * topology.here().len()];
        steps.swap(&mut parts_of(&ours, &mut rooms)).await?;
        mine = if at_home { ours[home].clone() } else { std::mem::take(&mut rooms[home]) };
    }
    steps.take(Some(((Collective::Scatter, MOVES, Some(0)), both(mine, vec![0; block])))).await.map(Some)
}

async fn all_to_all(steps: &Steps, given: Vec<u8>) -> Outcome {
    let topology = steps.topology();
    let (block, vector) = (given.len() / topology.size(), given.len());
    let mine = collect(steps, given).await?;
    let mut got = Vec::new();
    if topology.leads() {
        let ours = topology.pack_pairs(&mine, block);
        let mut rooms = ours.clone();
        steps.swap(&mut parts_of(&ours, &mut rooms)).await?;
        got = topology.unpack_pairs(&rooms, block);
    }
    steps.take(Some(((Collective::Scatter, MOVES, Some(0)), both(got, vec![0; vector])))).await.map(Some)
}

/// Puts a result into the buffer for it.
pub(super) fn put<T: Element>(owned: &mut dyn std::any::Any, result: &[u8]) {
    if let Some(owned) = owned.downcast_mut::<Owned<T>>()
        && size_of_val(&owned.recv[..]) == result.len()
    {
        match T::DTYPE {
            DType::Bool => crate::hierarchy::put_truth(&mut owned.recv, result),
            _ => bytes::of_mut(&mut owned.recv).copy_from_slice(result),
        }
    }
}
