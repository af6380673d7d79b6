//! The executor: runs verified plans over a [`Transport`].
//!
//! A plan is [compiled](compile) once for a rank and a size, an [`Operation`] runs it any number of times, and an
//! [`Endpoint`] carries several operations at once. `docs/plans.md` describes the method and its cost.
//!
//! ```
//! use earlybird_hier::exec::{Endpoint, Geometry, FnOperator, Operation, compile};
//! use earlybird_hier::transport::threads::{Threads, ThreadsOptions};
//! use earlybird_hier::{Consistency, OpTraits, Params, schedule, verify};
//! use std::sync::Arc;
//!
//! let plan = verify::verify(schedule::build("butterfly", &Params::ranks(3))?)?;
//! let sum = FnOperator::new(|a: f64, b: f64| a + b, OpTraits { commutative: true, exact: false }, 1);
//! std::thread::scope(|scope| {
//!     for transport in Threads::group(3, ThreadsOptions::default()) {
//!         let plan = &plan;
//!         scope.spawn(move || -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//!             let mut endpoint = Endpoint::new(transport);
//!             let rank = earlybird_hier::exec::Transport::rank(endpoint.transport());
//!             let geometry = Geometry { elements: 4, element_bytes: 8, segment_bytes: 4096 };
//!             let program = Arc::new(compile(plan, rank, geometry)?);
//!             let mut all_reduce = Operation::new(program, sum, Consistency::Identical)?;
//!             let mut data = [rank as f64; 4];
//!             all_reduce.run(&mut endpoint, bytemuck::cast_slice_mut(&mut data), None)?;
//!             assert_eq!(data, [3.0; 4]);
//!             Ok(())
//!         });
//!     }
//! });
//! # Ok::<(), earlybird_hier::PlanError>(())
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
mod transport;

pub use alltoallv::{Alltoallv, Parts};
pub use compile::{CompileError, compile};
pub use endpoint::Endpoint;
pub use fold::{FnOperator, Fold, Token};
pub use program::{Geometry, Program};
pub use run::Operation;
pub use running::{RunError, Running, wait_all, wait_first};
pub use transport::{Failure, PacketDecision, PacketHeader, Transport};
