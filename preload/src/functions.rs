//! The table of intercepted functions: one line per function of MPI, from which its C functions (`entry.rs`), its Fortran functions
//! (`fortran.rs`), its line of the summary and its settings (`MpiFunction`) are made.

use earlybird::Collective;

/// Calls a macro with the table. A line has MPI's name, the same in capitals as Fortran compilers may spell it, the collective whose
/// settings hold for it, the function that intercepts it, and the arguments before the communicator. `counts` says that the function
/// has a form with large counts, whose name ends in `_c`. The kinds of arguments are explained at `entry::argument_type`.
macro_rules! for_each_function {
    ($use:ident) => {
        $use! {
            Allreduce ALLREDUCE, AllReduce, counts, reductions::allreduce(send: Send, recv: Recv, n: Count, dtype: Type, op: Op);
            Reduce REDUCE, Reduce, counts,
                reductions::reduce(send: Send, recv: Recv, n: Count, dtype: Type, op: Op, root: Root);
            Bcast BCAST, Broadcast, counts, data_movement::bcast(buffer: Recv, n: Count, dtype: Type, root: Root);
            Barrier BARRIER, Barrier, no_counts, reductions::barrier();
            Allgather ALLGATHER, AllGather, counts,
                data_movement::allgather(send: Send, n: Count, dtype: Type, recv: Recv, m: Count, recv_type: Type);
            Allgatherv ALLGATHERV, AllGather, counts,
                unequal_blocks::allgatherv(
                    send: Send, n: Count, dtype: Type, recv: Recv, m: Counts, to: Offsets, recv_type: Type);
            Gather GATHER, Gather, counts,
                data_movement::gather(
                    send: Send, n: Count, dtype: Type, recv: Recv, m: Count, recv_type: Type, root: Root);
            Gatherv GATHERV, Gather, counts,
                unequal_blocks::gatherv(
                    send: Send, n: Count, dtype: Type, recv: Recv, m: Counts, to: Offsets, recv_type: Type, root: Root);
            Scatter SCATTER, Scatter, counts,
                data_movement::scatter(
                    send: Send, n: Count, dtype: Type, recv: Recv, m: Count, recv_type: Type, root: Root);
            Scatterv SCATTERV, Scatter, counts,
                unequal_blocks::scatterv(
                    send: Send, n: Counts, from: Offsets, dtype: Type, recv: Recv, m: Count, recv_type: Type, root: Root);
            Alltoall ALLTOALL, AllToAll, counts,
                data_movement::alltoall(send: Send, n: Count, dtype: Type, recv: Recv, m: Count, recv_type: Type);
            Alltoallv ALLTOALLV, AllToAll, counts,
                unequal_blocks::alltoallv(
                    send: Send, n: Counts, from: Offsets, dtype: Type, recv: Recv, m: Counts, to: Offsets, recv_type: Type);
            Alltoallw ALLTOALLW, AllToAll, counts,
                unequal_blocks::alltoallw(
                    send: Send, n: Counts, from: Offsets, dtypes: SendTypes, recv: Recv, m: Counts, to: Offsets, recv_types: Types);
            Reduce_scatter_block REDUCE_SCATTER_BLOCK, ReduceScatter, counts,
                reductions::reduce_scatter_block(send: Send, recv: Recv, n: Count, dtype: Type, op: Op);
            Reduce_scatter REDUCE_SCATTER, ReduceScatter, counts,
                reductions::reduce_scatter(send: Send, recv: Recv, n: Counts, dtype: Type, op: Op);
            Scan SCAN, Scan, counts, reductions::scan(send: Send, recv: Recv, n: Count, dtype: Type, op: Op);
            Exscan EXSCAN, ExclusiveScan, counts, reductions::exscan(send: Send, recv: Recv, n: Count, dtype: Type, op: Op);
        }
    };
}
pub(crate) use for_each_function;

macro_rules! define_mpi_function {
    ($($name:ident $capitals:ident, $collective:ident, $counts:ident, $module:ident::$function:ident
        ($($argument:ident: $kind:ident),*);)*) => {
        /// The MPI functions that are intercepted.
        #[allow(non_camel_case_types)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum MpiFunction { $($name),* }

        impl MpiFunction {
            pub const ALL: [MpiFunction; [$(MpiFunction::$name),*].len()] = [$(MpiFunction::$name),*];

            pub const fn name(self) -> &'static str {
                match self {
                    $(MpiFunction::$name => concat!("MPI_", stringify!($name))),*
                }
            }

            /// The collective whose settings hold for the function.
            pub const fn collective(self) -> Collective {
                match self {
                    $(MpiFunction::$name => Collective::$collective),*
                }
            }
        }
    };
}

for_each_function!(define_mpi_function);
