//! The collectives as methods: each description in its blocking form, which returns when the result is there, and in its
//! non-blocking form, which returns a request. Names and arguments are mpi4py's.

use crate::collectives::{
    all_gather, all_reduce, all_to_all, barrier, broadcast, gather, reduce, reduce_scatter, scan, scatter,
};
use crate::communicator::{PyCommunicator, operator};
use crate::op::PyOp;
use crate::request::PyRequest;
use earlybird::Collective;
use pyo3::prelude::*;

/// Defines the blocking and the non-blocking method of each description.
macro_rules! methods {
    ($(fn $blocking:ident, $nonblocking:ident($($arg:ident: $type:ty $(= $default:expr)?),*) |$comm:ident| $describe:expr;)*) => {
        #[allow(non_snake_case)]
        #[pymethods]
        impl PyCommunicator {
            $(
            #[pyo3(signature = ($($arg $(= $default)?),*))]
            fn $blocking(&self, py: Python<'_>, $($arg: $type),*) -> PyResult<()> {
                self.run(py, |$comm| $describe)
            }

            #[pyo3(signature = ($($arg $(= $default)?),*))]
            fn $nonblocking(&self, py: Python<'_>, $($arg: $type),*) -> PyResult<PyRequest> {
                self.start(py, |$comm| $describe)
            }
            )*
        }
    };
}

methods! {
    fn Barrier, Ibarrier() |_comm| Ok(barrier());
    fn Bcast, Ibcast(buf: &Bound<'_, PyAny>, root: isize = 0) |comm| broadcast(comm, buf, root);
    fn Allreduce, Iallreduce(sendbuf: &Bound<'_, PyAny>, recvbuf: &Bound<'_, PyAny>, op: Option<PyRef<'_, PyOp>> = None)
        |_comm| all_reduce(sendbuf, recvbuf, operator(op));
    fn Reduce, Ireduce(
        sendbuf: &Bound<'_, PyAny>,
        recvbuf: &Bound<'_, PyAny>,
        op: Option<PyRef<'_, PyOp>> = None,
        root: isize = 0
    ) |comm| reduce(comm, (sendbuf, recvbuf), operator(op), root);
    fn Reduce_scatter_block, Ireduce_scatter_block(
        sendbuf: &Bound<'_, PyAny>,
        recvbuf: &Bound<'_, PyAny>,
        op: Option<PyRef<'_, PyOp>> = None
    ) |_comm| reduce_scatter(sendbuf, recvbuf, None, operator(op));
    fn Reduce_scatter, Ireduce_scatter(
        sendbuf: &Bound<'_, PyAny>,
        recvbuf: &Bound<'_, PyAny>,
        recvcounts: Option<Vec<usize>> = None,
        op: Option<PyRef<'_, PyOp>> = None
    ) |_comm| reduce_scatter(sendbuf, recvbuf, recvcounts, operator(op));
    fn Scan, Iscan(sendbuf: &Bound<'_, PyAny>, recvbuf: &Bound<'_, PyAny>, op: Option<PyRef<'_, PyOp>> = None)
        |comm| scan(comm, Collective::Scan, (sendbuf, recvbuf), operator(op));
    fn Exscan, Iexscan(sendbuf: &Bound<'_, PyAny>, recvbuf: &Bound<'_, PyAny>, op: Option<PyRef<'_, PyOp>> = None)
        |comm| scan(comm, Collective::ExclusiveScan, (sendbuf, recvbuf), operator(op));
    fn Allgather, Iallgather(sendbuf: &Bound<'_, PyAny>, recvbuf: &Bound<'_, PyAny>) |_comm| all_gather(sendbuf, recvbuf);
    fn Allgatherv, Iallgatherv(sendbuf: &Bound<'_, PyAny>, recvbuf: &Bound<'_, PyAny>) |_comm| all_gather(sendbuf, recvbuf);
    fn Gather, Igather(sendbuf: &Bound<'_, PyAny>, recvbuf: &Bound<'_, PyAny>, root: isize = 0)
        |comm| gather(comm, (sendbuf, recvbuf), root, None);
    fn Gatherv, Igatherv(
        sendbuf: &Bound<'_, PyAny>,
        recvbuf: &Bound<'_, PyAny>,
        root: isize = 0,
        counts: Option<Vec<usize>> = None
    ) |comm| gather(comm, (sendbuf, recvbuf), root, counts);
    fn Scatter, Iscatter(sendbuf: &Bound<'_, PyAny>, recvbuf: &Bound<'_, PyAny>, root: isize = 0)
        |comm| scatter(comm, (sendbuf, recvbuf), root, None);
    fn Scatterv, Iscatterv(
        sendbuf: &Bound<'_, PyAny>,
        recvbuf: &Bound<'_, PyAny>,
        root: isize = 0,
        counts: Option<Vec<usize>> = None
    ) |comm| scatter(comm, (sendbuf, recvbuf), root, counts);
    fn Alltoall, Ialltoall(sendbuf: &Bound<'_, PyAny>, recvbuf: &Bound<'_, PyAny>) |_comm| all_to_all(sendbuf, recvbuf);
    fn Alltoallv, Ialltoallv(sendbuf: &Bound<'_, PyAny>, recvbuf: &Bound<'_, PyAny>) |_comm| all_to_all(sendbuf, recvbuf);
}
