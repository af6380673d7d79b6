//! The collectives of the MPI library that started the ranks, called as any MPI program calls them: the rivals that are
//! measured in turn with ours.

use bytemuck::cast_slice_mut;
use earlybird::{Collective, Communicator, Config, DType, Element, Error};
use earlybird_shm::bytes::of_mut;
use itertools::Itertools;
use mpi::Threading;
use mpi::collective::SystemOperation;
use mpi::environment::Universe;
use mpi::request;
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

    /// Makes the call by the MPI library, reductions as sums; if there is something to `compute`, by its non-blocking form.
    ///
    /// # Errors
    /// [`Error::Usage`] for elements that MPI has no type for.
    pub fn call<T: Element>(
        &self,
        op: Collective,
        root: usize,
        send: &mut [T],
        receive: &mut [T],
        compute: Option<&mut dyn FnMut()>,
    ) -> Result<(), Error> {
        has_type(T::DTYPE)?;
        call_bytes(&self.world, T::DTYPE, (op, root), of_mut(send), of_mut(receive), compute)
    }
}

macro_rules! with_types {
    ($($type:ty)*) => {
        const TYPES: &[DType] = &[$(<$type>::DTYPE),*];

        fn call_bytes(
            world: &SimpleCommunicator,
            dtype: DType,
            op: (Collective, usize),
            send: &mut [u8],
            receive: &mut [u8],
            compute: Option<&mut dyn FnMut()>,
        ) -> Result<(), Error> {
            match dtype {
                $(<$type>::DTYPE => {
                    call::<$type>(world, op, cast_slice_mut(send), cast_slice_mut(receive), compute)
                })*
                other => has_type(other),
            }
        }
    };
}
with_types! { i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 }

/// Makes the blocking call; if there is something to `compute`, the non-blocking one, and computes between its start and its wait.
fn call<T: Equivalence>(
    world: &SimpleCommunicator,
    (op, root): (Collective, usize),
    send: &mut [T],
    receive: &mut [T],
    compute: Option<&mut dyn FnMut()>,
) -> Result<(), Error> {
    let (root, is_root) = (world.process_at_rank(root as i32), world.rank() == root as i32);
    let sum = SystemOperation::sum;
    macro_rules! call {
        ($comm:ident: $blocking:ident, $non_blocking:ident($($arg:expr),*)) => {
            match compute {
                None => $comm.$blocking($($arg),*),
                Some(compute) => request::scope(|scope| {
                    let request = $comm.$non_blocking(scope, $($arg),*);
                    compute();
                    request.wait();
                }),
            }
        };
    }
    match op {
        Collective::AllReduce => call!(world: all_reduce_into, immediate_all_reduce_into(send, receive, sum())),
        Collective::Reduce if is_root => {
            call!(root: reduce_into_root, immediate_reduce_into_root(send, receive, sum()))
        }
        Collective::Reduce => call!(root: reduce_into, immediate_reduce_into(send, sum())),
        Collective::Broadcast if is_root => call!(root: broadcast_into, immediate_broadcast_into(send)),
        Collective::Broadcast => call!(root: broadcast_into, immediate_broadcast_into(receive)),
        Collective::AllGather => call!(world: all_gather_into, immediate_all_gather_into(send, receive)),
        Collective::Gather if is_root => call!(root: gather_into_root, immediate_gather_into_root(send, receive)),
        Collective::Gather => call!(root: gather_into, immediate_gather_into(send)),
        Collective::Scatter if is_root => call!(root: scatter_into_root, immediate_scatter_into_root(send, receive)),
        Collective::Scatter => call!(root: scatter_into, immediate_scatter_into(receive)),
        Collective::AllToAll => call!(world: all_to_all_into, immediate_all_to_all_into(send, receive)),
        Collective::ReduceScatter => {
            call!(world: reduce_scatter_block_into, immediate_reduce_scatter_block_into(send, receive, sum()))
        }
        Collective::Scan => call!(world: scan_into, immediate_scan_into(send, receive, sum())),
        Collective::ExclusiveScan => {
            call!(world: exclusive_scan_into, immediate_exclusive_scan_into(send, receive, sum()))
        }
        Collective::Barrier => match compute {
            None => world.barrier(),
            Some(compute) => {
                let request = world.immediate_barrier();
                compute();
                request.wait();
            }
        },
        other => return Err(Error::usage(format!("{} is not measured", other.name()))),
    }
    Ok(())
}
