//! The collectives of the MPI library that started the ranks, called as any MPI program calls them: the rivals that are
//! measured in turn with ours.

use earlybird::{Collective, Communicator, Config, DType, Error, Indexed};
use half::{bf16, f16};
use mpi::Threading;
use mpi::collective::SystemOperation;
use mpi::environment::Universe;
use mpi::topology::{Communicator as _, SimpleCommunicator};
use mpi::traits::*;
use num_complex::Complex;

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
    let has = [
        DType::I8,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::U8,
        DType::U16,
        DType::U32,
        DType::U64,
        DType::F32,
        DType::F64,
    ];
    match has.contains(&dtype) {
        true => Ok(()),
        false => {
            let names = has.map(DType::name).join(", ");
            Err(Error::usage(format!("mpi has no type for --dtype {}; use one of: {names}", dtype.name())))
        }
    }
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
    /// The errors of [`Communicator::from_mpi_with`].
    pub fn join(&self, config: Config) -> Result<Communicator, Error> {
        Communicator::from_mpi_with(&self.world, config)
    }

    /// The operation by the MPI library.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for elements that MPI has no type for.
    pub fn call<T: Rival>(&self, op: Collective, root: usize, send: &mut [T], receive: &mut [T]) -> Result<(), Error> {
        T::call(&self.world, op, root, send, receive)
    }
}

/// Elements that MPI may have a type for.
pub trait Rival: Sized {
    /// The operation by the MPI library, reductions as sums.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where it has none for these elements.
    fn call(
        world: &SimpleCommunicator,
        op: Collective,
        root: usize,
        send: &mut [Self],
        receive: &mut [Self],
    ) -> Result<(), Error>;
}

macro_rules! rivals {
    ($($has:ty)*; $($has_not:ty)*) => {
        $(impl Rival for $has {
            fn call(
                world: &SimpleCommunicator,
                op: Collective,
                root: usize,
                send: &mut [Self],
                receive: &mut [Self],
            ) -> Result<(), Error> {
                carry_out(world, op, root, send, receive)
            }
        })*
        $(impl Rival for $has_not {
            fn call(_: &SimpleCommunicator, _: Collective, _: usize, _: &mut [Self], _: &mut [Self]) -> Result<(), Error> {
                has_type(<$has_not as earlybird::Element>::DTYPE)
            }
        })*
    };
}
rivals! {
    i8 i16 i32 i64 u8 u16 u32 u64 f32 f64;
    bool f16 bf16 Complex<f32> Complex<f64> Indexed<i32, i32> Indexed<i64, i64> Indexed<f32, i32> Indexed<f64, i64>
}

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
        Collective::ReduceScatter => world.reduce_scatter_block_into(send, receive, SystemOperation::sum()),
        Collective::Barrier => world.barrier(),
        other => return Err(Error::usage(format!("{} is not measured", other.name()))),
    }
    Ok(())
}
