//! One description per collective, from the arguments of Python, which its blocking and its non-blocking method share.

use crate::buffers::{BufferArg, Given};
use crate::call::{Blocks, Call, contribution};
use crate::fold::CallOp;
use crate::op::Operator;
use earlybird::{Collective, Communicator, DType, Op};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

/// An argument that stands for a buffer.
pub type Argument<'a, 'py> = &'a Bound<'py, PyAny>;

/// A call by sums on blocks of one length, which the descriptions below change.
fn call(collective: Collective, send: Option<BufferArg>, recv: BufferArg) -> Call {
    let (op, blocks) = (CallOp::Builtin(Op::Sum), Blocks::Uniform);
    Call { collective, op, root: None, blocks, send, recv, has_result: true, is_shared: false, locked: None }
}

/// Returns the root's number; the library refuses one that does not exist.
fn root_number(comm: &Communicator, root: isize) -> PyResult<usize> {
    usize::try_from(root)
        .map_err(|_| PyValueError::new_err(format!("root {root} does not exist among {} ranks", comm.size())))
}

/// The contribution and the receive buffer of a call that may be in place.
fn pair(send: Argument<'_, '_>, recv: Argument<'_, '_>) -> PyResult<(Option<BufferArg>, BufferArg)> {
    let recv = Given::read(recv, "recvbuf")?.buffer("recvbuf")?;
    let send = match Given::read(send, "sendbuf")? {
        Given::InPlace => None,
        given => Some(given.buffer("sendbuf")?),
    };
    Ok((send, recv))
}

/// The contribution and the receive buffer of a call whose result only the root receives.
fn pair_for_root(
    is_root: bool,
    (send, recv): (Argument<'_, '_>, Argument<'_, '_>),
) -> PyResult<(Option<BufferArg>, BufferArg)> {
    if is_root {
        return pair(send, recv);
    }
    let send = Given::read(send, "sendbuf")?.buffer("sendbuf")?;
    let none = BufferArg::none("recvbuf", send.datatype);
    Ok((Some(send), none))
}

fn per_rank(counts: Option<Vec<usize>>) -> Blocks {
    counts.map_or(Blocks::Uniform, Blocks::PerRank)
}

pub fn barrier() -> Call {
    let none = |name| BufferArg::none(name, DType::U64.into());
    call(Collective::Barrier, Some(none("sendbuf")), none("recvbuf"))
}

pub fn broadcast(comm: &Communicator, buf: Argument<'_, '_>, root: isize) -> PyResult<Call> {
    let (buf, root) = (Given::read(buf, "buf")?.buffer("buf")?, root_number(comm, root)?);
    let is_root = comm.rank() == root;
    let send = (!is_root).then(|| BufferArg::none("sendbuf", buf.datatype));
    Ok(Call { root: Some(root), has_result: !is_root, ..call(Collective::Broadcast, send, buf) })
}

pub fn all_reduce(send: Argument<'_, '_>, recv: Argument<'_, '_>, op: Operator) -> PyResult<Call> {
    let (send, recv) = pair(send, recv)?;
    let op = CallOp::new(op, contribution(&send, &recv))?;
    Ok(Call { op, is_shared: true, ..call(Collective::AllReduce, send, recv) })
}

/// A scan, or an exclusive one, which leaves the receive buffer of rank 0 as it is.
pub fn scan(
    comm: &Communicator,
    collective: Collective,
    (send, recv): (Argument<'_, '_>, Argument<'_, '_>),
    op: Operator,
) -> PyResult<Call> {
    let has_result = collective == Collective::Scan || comm.rank() > 0;
    Ok(Call { collective, has_result, is_shared: false, ..all_reduce(send, recv, op)? })
}

pub fn reduce(
    comm: &Communicator,
    buffers: (Argument<'_, '_>, Argument<'_, '_>),
    op: Operator,
    root: isize,
) -> PyResult<Call> {
    let root = root_number(comm, root)?;
    let (send, recv) = pair_for_root(comm.rank() == root, buffers)?;
    let op = CallOp::new(op, contribution(&send, &recv))?;
    Ok(Call { op, root: Some(root), ..call(Collective::Reduce, send, recv) })
}

pub fn reduce_scatter(
    send: Argument<'_, '_>,
    recv: Argument<'_, '_>,
    counts: Option<Vec<usize>>,
    op: Operator,
) -> PyResult<Call> {
    let (send, mut recv) = pair(send, recv)?;
    let blocks = per_rank(counts.or(recv.counts.take()));
    let op = CallOp::new(op, contribution(&send, &recv))?;
    Ok(Call { op, blocks, ..call(Collective::ReduceScatter, send, recv) })
}

pub fn all_gather(send: Argument<'_, '_>, recv: Argument<'_, '_>) -> PyResult<Call> {
    let (send, mut recv) = pair(send, recv)?;
    let blocks = per_rank(recv.counts.take());
    Ok(Call { blocks, ..call(Collective::AllGather, send, recv) })
}

/// Counts are the same on all ranks, so a rank that only sends passes them too, in `counts`.
pub fn gather(
    comm: &Communicator,
    buffers: (Argument<'_, '_>, Argument<'_, '_>),
    root: isize,
    counts: Option<Vec<usize>>,
) -> PyResult<Call> {
    let root = root_number(comm, root)?;
    let (send, mut recv) = pair_for_root(comm.rank() == root, buffers)?;
    let blocks = per_rank(counts.or(recv.counts.take()));
    Ok(Call { root: Some(root), blocks, ..call(Collective::Gather, send, recv) })
}

pub fn scatter(
    comm: &Communicator,
    (send, recv): (Argument<'_, '_>, Argument<'_, '_>),
    root: isize,
    counts: Option<Vec<usize>>,
) -> PyResult<Call> {
    let root = root_number(comm, root)?;
    let recv = Given::read(recv, "recvbuf")?;
    if comm.rank() != root {
        let mut recv = recv.buffer("recvbuf")?;
        let blocks = per_rank(counts.or(recv.counts.take()));
        let none = BufferArg::none("sendbuf", recv.datatype);
        return Ok(Call { root: Some(root), blocks, ..call(Collective::Scatter, Some(none), recv) });
    }
    let mut send = Given::read(send, "sendbuf")?.buffer("sendbuf")?;
    let blocks = per_rank(counts.or(send.counts.take()));
    let described = match recv {
        // The root's own block stays where it is.
        Given::InPlace => Call { has_result: false, ..call(Collective::Scatter, None, send) },
        recv => call(Collective::Scatter, Some(send), recv.buffer("recvbuf")?),
    };
    Ok(Call { root: Some(root), blocks, ..described })
}

pub fn all_to_all(send: Argument<'_, '_>, recv: Argument<'_, '_>) -> PyResult<Call> {
    let (mut send, mut recv) = pair(send, recv)?;
    let blocks = match (send.as_mut().map(|send| send.counts.take()), recv.counts.take()) {
        (None | Some(None), None) => Blocks::Uniform,
        (None, Some(recv)) => Blocks::PerPair { send: recv.clone(), recv },
        (Some(Some(send)), Some(recv)) => Blocks::PerPair { send, recv },
        (Some(_), _) => {
            return Err(PyTypeError::new_err(
                "one of sendbuf and recvbuf has counts; give [buffer, counts] for both or for none",
            ));
        }
    };
    Ok(Call { blocks, ..call(Collective::AllToAll, send, recv) })
}
