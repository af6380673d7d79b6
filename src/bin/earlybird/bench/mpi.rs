//! The collectives of the MPI library that started the ranks, called as any MPI program calls them: the rivals that are
//! measured in turn with ours.

use bytemuck::cast_slice_mut;
use earlybird::{Collective, Communicator, Config, DType, Element, Error};
use earlybird_shm::bytes::of_mut;
use itertools::Itertools;
use mpi::Threading;
use mpi::collective::SystemOperation;
use mpi::environment::Universe;
use mpi::request::{self, Request, Scope};
use mpi::topology::{Communicator as _, SimpleCommunicator};
use mpi::traits::*;

/// Succeeds, because this program was built with an MPI library.
///
/// # Errors
/// Never here.
pub fn available() -> Result<(), Error> {
    Ok(())
}

/// Checks that MPI has a datatype for these elements.
///
/// # Errors
/// [`Error::Usage`] with those it has.
pub fn has_type(dtype: DType) -> Result<(), Error> {
    if TYPES.contains(&dtype) {
        return Ok(());
    }
    let names = TYPES.iter().map(|dtype| dtype.name()).join(", ");
    Err(Error::usage(format!("mpi has no type for --dtype {}; use one of: {names}", dtype.name())))
}

/// MPI, from its beginning to its end when this is dropped.
pub struct Mpi {
    // Dropped in this order.
    world: SimpleCommunicator,
    _universe: Universe,
}

impl Mpi {
    /// Initialises MPI.
    ///
    /// # Errors
    /// [`Error::Usage`] if that was done before.
    pub fn start() -> Result<Mpi, Error> {
        let started = mpi::initialize_with_threading(Threading::Funneled);
        let (universe, _) = started.ok_or_else(|| Error::usage("MPI was initialised twice"))?;
        Ok(Mpi { world: universe.world().duplicate(), _universe: universe })
    }

    /// Number of ranks.
    pub fn size(&self) -> usize {
        self.world.size() as usize
    }

    /// A communicator of this library with the ranks of MPI.
    ///
    /// # Errors
    /// The errors of [`Communicator::from_mpi`].
    pub fn join(&self, config: Config) -> Result<Communicator, Error> {
        Communicator::builder().config(config).connect_mpi(&self.world)
    }

    /// The operation by the MPI library, reductions as sums; if there is something to do `meanwhile`, started and then waited for.
    ///
    /// # Errors
    /// [`Error::Usage`] for elements that MPI has no type for.
    pub fn call<T: Element>(
        &self,
        op: Collective,
        root: usize,
        send: &mut [T],
        receive: &mut [T],
        meanwhile: Option<&mut dyn FnMut()>,
    ) -> Result<(), Error> {
        has_type(T::DTYPE)?;
        call_bytes(&self.world, T::DTYPE, (op, root), of_mut(send), of_mut(receive), meanwhile)
    }
}

macro_rules! with_types {
    ($($type:ty)*) => {
        const TYPES: &[DType] = &[$(<$type>::DTYPE),*];

        fn call_bytes(
            world: &SimpleCommunicator,
            dtype: DType,
            (op, root): (Collective, usize),
            send: &mut [u8],
            receive: &mut [u8],
            meanwhile: Option<&mut dyn FnMut()>,
        ) -> Result<(), Error> {
            match dtype {
                $(<$type>::DTYPE => {
                    let (send, receive) = (cast_slice_mut::<u8, $type>(send), cast_slice_mut(receive));
                    match meanwhile {
                        None => carry_out(world, op, root, send, receive),
                        Some(meanwhile) => start_and_wait(world, op, root, send, receive, meanwhile),
                    }
                })*
                other => has_type(other),
            }
        }
    };
}
with_types! { i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 }

fn carry_out<T: Equivalence>(
    world: &SimpleCommunicator,
    op: Collective,
    root: usize,
    send: &mut [T],
    receive: &mut [T],
) -> Result<(), Error> {
    let (root, is_root) = (world.process_at_rank(root as i32), world.rank() == root as i32);
    match op {
        Collective::AllReduce => world.all_reduce_into(send, receive, SystemOperation::sum()),
        Collective::Reduce if is_root => root.reduce_into_root(send, receive, SystemOperation::sum()),
        Collective::Reduce => root.reduce_into(send, SystemOperation::sum()),
        Collective::Broadcast if is_root => root.broadcast_into(send),
        Collective::Broadcast => root.broadcast_into(receive),
        Collective::AllGather => world.all_gather_into(send, receive),
        Collective::Gather if is_root => root.gather_into_root(send, receive),
        Collective::Gather => root.gather_into(send),
        Collective::Scatter if is_root => root.scatter_into_root(send, receive),
        Collective::Scatter => root.scatter_into(receive),
        Collective::AllToAll => world.all_to_all_into(send, receive),
        Collective::ReduceScatter => world.reduce_scatter_block_into(send, receive, SystemOperation::sum()),
        Collective::Scan => world.scan_into(send, receive, SystemOperation::sum()),
        Collective::ExclusiveScan => world.exclusive_scan_into(send, receive, SystemOperation::sum()),
        Collective::Barrier => world.barrier(),
        other => return Err(is_not_measured(other)),
    }
    Ok(())
}

fn is_not_measured(op: Collective) -> Error {
    Error::usage(format!("{} is not measured", op.name()))
}

fn start_and_wait<T: Equivalence>(
    world: &SimpleCommunicator,
    op: Collective,
    root: usize,
    send: &mut [T],
    receive: &mut [T],
    meanwhile: &mut dyn FnMut(),
) -> Result<(), Error> {
    fn end<'a, D: ?Sized>(request: Request<'a, D, impl Scope<'a>>, meanwhile: &mut dyn FnMut()) {
        meanwhile();
        request.wait();
    }
    let (root, is_root) = (world.process_at_rank(root as i32), world.rank() == root as i32);
    let sum = SystemOperation::sum;
    request::scope(|scope| {
        match op {
            Collective::AllReduce => end(world.immediate_all_reduce_into(scope, send, receive, sum()), meanwhile),
            Collective::Reduce if is_root => {
                end(root.immediate_reduce_into_root(scope, send, receive, sum()), meanwhile)
            }
            Collective::Reduce => end(root.immediate_reduce_into(scope, send, sum()), meanwhile),
            Collective::Broadcast => {
                end(root.immediate_broadcast_into(scope, if is_root { send } else { receive }), meanwhile)
            }
            Collective::AllGather => end(world.immediate_all_gather_into(scope, send, receive), meanwhile),
            Collective::Gather if is_root => end(root.immediate_gather_into_root(scope, send, receive), meanwhile),
            Collective::Gather => end(root.immediate_gather_into(scope, send), meanwhile),
            Collective::Scatter if is_root => end(root.immediate_scatter_into_root(scope, send, receive), meanwhile),
            Collective::Scatter => end(root.immediate_scatter_into(scope, receive), meanwhile),
            Collective::AllToAll => end(world.immediate_all_to_all_into(scope, send, receive), meanwhile),
            Collective::ReduceScatter => {
                end(world.immediate_reduce_scatter_block_into(scope, send, receive, sum()), meanwhile)
            }
            Collective::Scan => end(world.immediate_scan_into(scope, send, receive, sum()), meanwhile),
            Collective::ExclusiveScan => {
                end(world.immediate_exclusive_scan_into(scope, send, receive, sum()), meanwhile)
            }
            Collective::Barrier => end(world.immediate_barrier(), meanwhile),
            other => return Err(is_not_measured(other)),
        }
        Ok(())
    })
}
