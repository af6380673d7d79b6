//! The collectives as methods: each description in its blocking form, which returns when the result is there, in its
//! non-blocking form, which returns a request, and in its persistent form, which returns a request that is started any number of
//! times. Names and arguments are mpi4py's.

use crate::collectives::{
    Argument, all_gather, all_reduce, all_to_all, barrier, broadcast, gather, reduce, reduce_scatter, scan, scatter,
};
use crate::communicator::{PyCommunicator, operator};
use crate::op::PyOp;
use crate::prequest::PyPrequest;
use crate::request::PyRequest;
use earlybird::Collective;
use pyo3::prelude::*;

/// Defines the blocking, the non-blocking and the persistent method of each description.
macro_rules! methods {
    ($(fn $blocking:ident, $nonblocking:ident, $persistent:ident($($arg:ident: $type:ty $(= $default:expr)?),*) |$comm:ident| $describe:expr;)*) => {
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

            #[pyo3(signature = ($($arg $(= $default)?),*))]
            fn $persistent(&self, py: Python<'_>, $($arg: $type),*) -> PyResult<PyPrequest> {
                self.init(py, |$comm| $describe)
            }
            )*
        }
    };
}

methods! {
    fn Barrier, Ibarrier, Barrier_init() |_comm| Ok(barrier());
    fn Bcast, Ibcast, Bcast_init(buf: Argument<'_, '_>, root: isize = 0) |comm| broadcast(comm, buf, root);
    fn Allreduce, Iallreduce, Allreduce_init(
        sendbuf: Argument<'_, '_>, recvbuf: Argument<'_, '_>, op: Option<PyRef<'_, PyOp>> = None
    ) |_comm| all_reduce(sendbuf, recvbuf, operator(op));
    fn Reduce, Ireduce, Reduce_init(
        sendbuf: Argument<'_, '_>, recvbuf: Argument<'_, '_>, op: Option<PyRef<'_, PyOp>> = None, root: isize = 0
    ) |comm| reduce(comm, (sendbuf, recvbuf), operator(op), root);
    fn Reduce_scatter_block, Ireduce_scatter_block, Reduce_scatter_block_init(
        sendbuf: Argument<'_, '_>, recvbuf: Argument<'_, '_>, op: Option<PyRef<'_, PyOp>> = None
    ) |_comm| reduce_scatter(sendbuf, recvbuf, None, operator(op));
    fn Reduce_scatter, Ireduce_scatter, Reduce_scatter_init(
        sendbuf: Argument<'_, '_>, recvbuf: Argument<'_, '_>, recvcounts: Option<Vec<usize>> = None, op: Option<PyRef<'_, PyOp>> = None
    ) |_comm| reduce_scatter(sendbuf, recvbuf, recvcounts, operator(op));
    fn Scan, Iscan, Scan_init(
        sendbuf: Argument<'_, '_>, recvbuf: Argument<'_, '_>, op: Option<PyRef<'_, PyOp>> = None
    ) |comm| scan(comm, Collective::Scan, (sendbuf, recvbuf), operator(op));
    fn Exscan, Iexscan, Exscan_init(
        sendbuf: Argument<'_, '_>, recvbuf: Argument<'_, '_>, op: Option<PyRef<'_, PyOp>> = None
    ) |comm| scan(comm, Collective::ExclusiveScan, (sendbuf, recvbuf), operator(op));
    fn Allgather, Iallgather, Allgather_init(sendbuf: Argument<'_, '_>, recvbuf: Argument<'_, '_>) |_comm| all_gather(sendbuf, recvbuf);
    fn Allgatherv, Iallgatherv, Allgatherv_init(sendbuf: Argument<'_, '_>, recvbuf: Argument<'_, '_>) |_comm| all_gather(sendbuf, recvbuf);
    fn Gather, Igather, Gather_init(
        sendbuf: Argument<'_, '_>, recvbuf: Argument<'_, '_>, root: isize = 0
    ) |comm| gather(comm, (sendbuf, recvbuf), root, None);
    fn Gatherv, Igatherv, Gatherv_init(
        sendbuf: Argument<'_, '_>, recvbuf: Argument<'_, '_>, root: isize = 0, counts: Option<Vec<usize>> = None
    ) |comm| gather(comm, (sendbuf, recvbuf), root, counts);
    fn Scatter, Iscatter, Scatter_init(
        sendbuf: Argument<'_, '_>, recvbuf: Argument<'_, '_>, root: isize = 0
    ) |comm| scatter(comm, (sendbuf, recvbuf), root, None);
    fn Scatterv, Iscatterv, Scatterv_init(
        sendbuf: Argument<'_, '_>, recvbuf: Argument<'_, '_>, root: isize = 0, counts: Option<Vec<usize>> = None
    ) |comm| scatter(comm, (sendbuf, recvbuf), root, counts);
    fn Alltoall, Ialltoall, Alltoall_init(sendbuf: Argument<'_, '_>, recvbuf: Argument<'_, '_>) |_comm| all_to_all(sendbuf, recvbuf);
    fn Alltoallv, Ialltoallv, Alltoallv_init(sendbuf: Argument<'_, '_>, recvbuf: Argument<'_, '_>) |_comm| all_to_all(sendbuf, recvbuf);
}
