//! The executor: runs verified plans over a [`Transport`].
//!
//! A plan is [compiled](compile) once for a rank and a size, an [`Operation`] runs it any number of times, and an
//! [`Endpoint`] carries several operations at once. `docs/plans.md` describes the method and its cost.
//!
//! ```
//! use earlybird_hier::exec::{Endpoint, Fold, Geometry, Operation, Transport, compile};
//! use earlybird_hier::{Consistency, Params, schedule, verify};
//! use std::sync::Arc;
//!
//! /// Sums four numbers of every rank, which all call this with a transport of their own.
//! fn all_reduce(
//!     transport: impl Transport,
//!     sum: impl Fold,
//!     numbers: &mut [f64; 4],
//! ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//!     let plan = verify::verify(schedule::build("butterfly", &Params::ranks(transport.size()))?)?;
//!     let geometry = Geometry { elements: 4, element_bytes: 8, segment_bytes: 4096 };
//!     let program = Arc::new(compile(&plan, transport.rank(), geometry)?);
//!     let mut all_reduce = Operation::new(program, sum, Consistency::Identical)?;
//!     all_reduce.run(&mut Endpoint::new(transport), bytemuck::cast_slice_mut(numbers), None)?;
//!     Ok(())
//! }
//! ```

mod access;
mod alltoallv;
mod buffers;
mod compile;
mod endpoint;
mod fold;
mod packets;
mod program;
mod progress;
mod run;
mod running;
mod slice_list;
mod transport;

pub use alltoallv::{Alltoallv, Parts};
pub use compile::{CompileError, compile};
pub use endpoint::Endpoint;
pub use fold::Fold;
pub use program::{Geometry, Program};
pub use run::Operation;
pub use running::{RunError, Running, wait_all, wait_first};
pub use slice_list::SliceList;
pub use transport::{Failure, PacketDecision, PacketHeader, Transport};
