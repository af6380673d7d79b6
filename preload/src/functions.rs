//! The table of intercepted functions: one line per function of MPI, from which its C functions (`entry.rs`), its Fortran functions
//! (`fortran.rs`), its line of the summary and its settings (`MpiFunction`) are made.

use earlybird::Collective;

/// Calls a macro with the table. A line has MPI's name, in three spellings: that of C, that of Fortran and that of this library. In
/// brackets the names of its non-blocking and its persistent form follow, if these are intercepted. Then come the collective whose
/// settings hold for all, the arguments before the communicator, whose kinds are explained at `entry::argument_type`, and after the
/// arrow the function that intercepts all forms, with those of its arguments that follow the call. `counts` says that the function
/// has a form with large counts, whose name ends in `_c`.
macro_rules! for_each_function {
    ($use:ident) => {
        $use! {
            Allreduce ALLREDUCE allreduce
                [Iallreduce IALLREDUCE iallreduce; Allreduce_init ALLREDUCE_INIT allreduce_init], AllReduce, counts,
                (send: Send, recv: Recv, n: Count, dtype: Type, op: Op) => reductions::reduction((send, recv), n, (dtype, op), None);
            Reduce REDUCE reduce
                [Ireduce IREDUCE ireduce; Reduce_init REDUCE_INIT reduce_init], Reduce, counts,
                (send: Send, recv: Recv, n: Count, dtype: Type, op: Op, root: Root)
                => reductions::reduction((send, recv), n, (dtype, op), Some(root));
            Bcast BCAST bcast
                [Ibcast IBCAST ibcast; Bcast_init BCAST_INIT bcast_init], Broadcast, counts,
                (buffer: Recv, n: Count, dtype: Type, root: Root) => data_movement::broadcast(elements(buffer, n, dtype), root);
            Barrier BARRIER barrier
                [Ibarrier IBARRIER ibarrier; Barrier_init BARRIER_INIT barrier_init], Barrier, no_counts, () => reductions::barrier();
            Allgather ALLGATHER allgather
                [Iallgather IALLGATHER iallgather; Allgather_init ALLGATHER_INIT allgather_init], AllGather, counts,
                (send: Send, n: Count, dtype: Type, recv: Recv, m: Count, recv_type: Type)
                => data_movement::equal_blocks(elements(send, n, dtype), elements(recv, m, recv_type), None);
            Allgatherv ALLGATHERV allgatherv
                [Iallgatherv IALLGATHERV iallgatherv; Allgatherv_init ALLGATHERV_INIT allgatherv_init], AllGather, counts,
                (send: Send, n: Count, dtype: Type, recv: Recv, m: Counts, to: Offsets, recv_type: Type)
                => data_movement::all_gather_unequal(elements(send, n, dtype), blocks(recv, m, to, recv_type));
            Gather GATHER gather
                [Igather IGATHER igather; Gather_init GATHER_INIT gather_init], Gather, counts,
                (send: Send, n: Count, dtype: Type, recv: Recv, m: Count, recv_type: Type, root: Root)
                => data_movement::equal_blocks(elements(send, n, dtype), elements(recv, m, recv_type), Some(root));
            Gatherv GATHERV gatherv
                [Igatherv IGATHERV igatherv; Gatherv_init GATHERV_INIT gatherv_init], Gather, counts,
                (send: Send, n: Count, dtype: Type, recv: Recv, m: Counts, to: Offsets, recv_type: Type, root: Root)
                => data_movement::unequal_blocks_at_root(elements(send, n, dtype), blocks(recv, m, to, recv_type), root);
            Scatter SCATTER scatter
                [Iscatter ISCATTER iscatter; Scatter_init SCATTER_INIT scatter_init], Scatter, counts,
                (send: Send, n: Count, dtype: Type, recv: Recv, m: Count, recv_type: Type, root: Root)
                => data_movement::equal_blocks(elements(recv, m, recv_type), elements(send, n, dtype), Some(root));
            Scatterv SCATTERV scatterv
                [Iscatterv ISCATTERV iscatterv; Scatterv_init SCATTERV_INIT scatterv_init], Scatter, counts,
                (send: Send, n: Counts, from: Offsets, dtype: Type, recv: Recv, m: Count, recv_type: Type, root: Root)
                => data_movement::unequal_blocks_at_root(elements(recv, m, recv_type), blocks(send, n, from, dtype), root);
            Alltoall ALLTOALL alltoall
                [Ialltoall IALLTOALL ialltoall; Alltoall_init ALLTOALL_INIT alltoall_init], AllToAll, counts,
                (send: Send, n: Count, dtype: Type, recv: Recv, m: Count, recv_type: Type)
                => data_movement::alltoall(elements(send, n, dtype), elements(recv, m, recv_type));
            Alltoallv ALLTOALLV alltoallv
                [Ialltoallv IALLTOALLV ialltoallv; Alltoallv_init ALLTOALLV_INIT alltoallv_init], AllToAll, counts,
                (send: Send, n: Counts, from: Offsets, dtype: Type, recv: Recv, m: Counts, to: Offsets, recv_type: Type)
                => data_movement::alltoall_unequal(blocks(send, n, from, dtype), blocks(recv, m, to, recv_type));
            Alltoallw ALLTOALLW alltoallw
                [Ialltoallw IALLTOALLW ialltoallw; Alltoallw_init ALLTOALLW_INIT alltoallw_init], AllToAll, counts,
                (send: Send, n: Counts, from: Offsets, dtypes: SendTypes, recv: Recv, m: Counts, to: Offsets, recv_types: Types)
                => data_movement::alltoall_unequal(blocks_of_types(send, n, from, dtypes), blocks_of_types(recv, m, to, recv_types));
            Reduce_scatter_block REDUCE_SCATTER_BLOCK reduce_scatter_block
                [Ireduce_scatter_block IREDUCE_SCATTER_BLOCK ireduce_scatter_block; Reduce_scatter_block_init REDUCE_SCATTER_BLOCK_INIT reduce_scatter_block_init], ReduceScatter, counts,
                (send: Send, recv: Recv, n: Count, dtype: Type, op: Op) => reductions::reduction((send, recv), n, (dtype, op), None);
            Reduce_scatter REDUCE_SCATTER reduce_scatter
                [Ireduce_scatter IREDUCE_SCATTER ireduce_scatter; Reduce_scatter_init REDUCE_SCATTER_INIT reduce_scatter_init], ReduceScatter, counts,
                (send: Send, recv: Recv, n: Counts, dtype: Type, op: Op) => reductions::reduce_scatter((send, recv), n, (dtype, op));
            Scan SCAN scan
                [Iscan ISCAN iscan; Scan_init SCAN_INIT scan_init], Scan, counts,
                (send: Send, recv: Recv, n: Count, dtype: Type, op: Op) => reductions::reduction((send, recv), n, (dtype, op), None);
            Exscan EXSCAN exscan
                [Iexscan IEXSCAN iexscan; Exscan_init EXSCAN_INIT exscan_init], ExclusiveScan, counts,
                (send: Send, recv: Recv, n: Count, dtype: Type, op: Op) => reductions::reduction((send, recv), n, (dtype, op), None);
        }
    };
}
pub(crate) use for_each_function;

macro_rules! define_mpi_function {
    ($($name:ident $capitals:ident $lower:ident
        [$non_blocking:ident $i_capitals:ident $i_lower:ident; $persistent:ident $p_capitals:ident $p_lower:ident],
        $collective:ident, $counts:ident, $arguments:tt => $module:ident::$function:ident $described:tt;)*) => {
        /// The MPI functions that are intercepted.
        #[allow(non_camel_case_types)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum MpiFunction { $($name, $non_blocking, $persistent,)* }

        impl MpiFunction {
            pub const ALL: [MpiFunction; [$(stringify!($name), stringify!($non_blocking), stringify!($persistent),)*].len()] =
                [$(MpiFunction::$name, MpiFunction::$non_blocking, MpiFunction::$persistent,)*];

            pub const fn name(self) -> &'static str {
                match self {
                    $(MpiFunction::$name => concat!("MPI_", stringify!($name)),
                    MpiFunction::$non_blocking => concat!("MPI_", stringify!($non_blocking)),
                    MpiFunction::$persistent => concat!(env!("PRELOAD_PERSISTENT"), stringify!($persistent)),)*
                }
            }

            /// The collective whose settings hold for the function.
            pub const fn collective(self) -> Collective {
                match self {
                    $(MpiFunction::$name | MpiFunction::$non_blocking | MpiFunction::$persistent => Collective::$collective,)*
                }
            }
        }
    };
}

for_each_function!(define_mpi_function);
