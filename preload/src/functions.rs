//! The table of intercepted functions: one line per function of MPI, from which its C functions (`entry.rs`), its Fortran functions
//! (`fortran.rs`), its line of the summary and its settings (`MpiFunction`) are made.

use earlybird::Collective;

/// Calls a macro with the table. A line has MPI's name, in three spellings: that of C, that of Fortran and that of this library. In
/// brackets the name of its non-blocking form follows, if it is intercepted. Then come the collective whose settings hold for both, the
/// function that intercepts them, and the arguments before the communicator. `counts` says that the function has a form with large
/// counts, whose name ends in `_c`. The kinds of arguments are explained at `entry::argument_type`.
macro_rules! for_each_function {
    ($use:ident) => {
        $use! {
            Allreduce ALLREDUCE allreduce [Iallreduce IALLREDUCE iallreduce], AllReduce, counts, reductions::allreduce(send: Send, recv: Recv, n: Count, dtype: Type, op: Op);
            Reduce REDUCE reduce [Ireduce IREDUCE ireduce], Reduce, counts,
                reductions::reduce(send: Send, recv: Recv, n: Count, dtype: Type, op: Op, root: Root);
            Bcast BCAST bcast [Ibcast IBCAST ibcast], Broadcast, counts, data_movement::bcast(buffer: Recv, n: Count, dtype: Type, root: Root);
            Barrier BARRIER barrier [Ibarrier IBARRIER ibarrier], Barrier, no_counts, reductions::barrier();
            Allgather ALLGATHER allgather [Iallgather IALLGATHER iallgather], AllGather, counts,
                data_movement::allgather(send: Send, n: Count, dtype: Type, recv: Recv, m: Count, recv_type: Type);
            Allgatherv ALLGATHERV allgatherv [Iallgatherv IALLGATHERV iallgatherv], AllGather, counts,
                unequal_blocks::allgatherv(
                    send: Send, n: Count, dtype: Type, recv: Recv, m: Counts, to: Offsets, recv_type: Type);
            Gather GATHER gather [Igather IGATHER igather], Gather, counts,
                data_movement::gather(
                    send: Send, n: Count, dtype: Type, recv: Recv, m: Count, recv_type: Type, root: Root);
            Gatherv GATHERV gatherv [], Gather, counts,
                unequal_blocks::gatherv(
                    send: Send, n: Count, dtype: Type, recv: Recv, m: Counts, to: Offsets, recv_type: Type, root: Root);
            Scatter SCATTER scatter [Iscatter ISCATTER iscatter], Scatter, counts,
                data_movement::scatter(
                    send: Send, n: Count, dtype: Type, recv: Recv, m: Count, recv_type: Type, root: Root);
            Scatterv SCATTERV scatterv [], Scatter, counts,
                unequal_blocks::scatterv(
                    send: Send, n: Counts, from: Offsets, dtype: Type, recv: Recv, m: Count, recv_type: Type, root: Root);
            Alltoall ALLTOALL alltoall [Ialltoall IALLTOALL ialltoall], AllToAll, counts,
                data_movement::alltoall(send: Send, n: Count, dtype: Type, recv: Recv, m: Count, recv_type: Type);
            Alltoallv ALLTOALLV alltoallv [Ialltoallv IALLTOALLV ialltoallv], AllToAll, counts,
                unequal_blocks::alltoallv(
                    send: Send, n: Counts, from: Offsets, dtype: Type, recv: Recv, m: Counts, to: Offsets, recv_type: Type);
            Alltoallw ALLTOALLW alltoallw [Ialltoallw IALLTOALLW ialltoallw], AllToAll, counts,
                unequal_blocks::alltoallw(
                    send: Send, n: Counts, from: Offsets, dtypes: SendTypes, recv: Recv, m: Counts, to: Offsets, recv_types: Types);
            Reduce_scatter_block REDUCE_SCATTER_BLOCK reduce_scatter_block [Ireduce_scatter_block IREDUCE_SCATTER_BLOCK ireduce_scatter_block], ReduceScatter, counts,
                reductions::reduce_scatter_block(send: Send, recv: Recv, n: Count, dtype: Type, op: Op);
            Reduce_scatter REDUCE_SCATTER reduce_scatter [Ireduce_scatter IREDUCE_SCATTER ireduce_scatter], ReduceScatter, counts,
                reductions::reduce_scatter(send: Send, recv: Recv, n: Counts, dtype: Type, op: Op);
            Scan SCAN scan [Iscan ISCAN iscan], Scan, counts, reductions::scan(send: Send, recv: Recv, n: Count, dtype: Type, op: Op);
            Exscan EXSCAN exscan [Iexscan IEXSCAN iexscan], ExclusiveScan, counts, reductions::exscan(send: Send, recv: Recv, n: Count, dtype: Type, op: Op);
        }
    };
}
pub(crate) use for_each_function;

macro_rules! define_mpi_function {
    ($($name:ident $capitals:ident $lower:ident [$($non_blocking:ident $i_capitals:ident $i_lower:ident)?], $collective:ident,
        $counts:ident, $module:ident::$function:ident $arguments:tt;)*) => {
        /// The MPI functions that are intercepted.
        #[allow(non_camel_case_types)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum MpiFunction { $($name, $($non_blocking,)?)* }

        impl MpiFunction {
            pub const ALL: [MpiFunction; [$(MpiFunction::$name, $(MpiFunction::$non_blocking,)?)*].len()] =
                [$(MpiFunction::$name, $(MpiFunction::$non_blocking,)?)*];

            pub const fn name(self) -> &'static str {
                match self {
                    $(MpiFunction::$name => concat!("MPI_", stringify!($name)),
                    $(MpiFunction::$non_blocking => concat!("MPI_", stringify!($non_blocking)),)?)*
                }
            }

            /// The collective whose settings hold for the function.
            pub const fn collective(self) -> Collective {
                match self {
                    $(MpiFunction::$name $(| MpiFunction::$non_blocking)? => Collective::$collective,)*
                }
            }

            /// The non-blocking form of a function that has one.
            pub const fn non_blocking(self) -> MpiFunction {
                match self {
                    $($(MpiFunction::$name => MpiFunction::$non_blocking,)?)*
                    other => other,
                }
            }
        }
    };
}

for_each_function!(define_mpi_function);
