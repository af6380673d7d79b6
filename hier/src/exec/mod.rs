//! The executor: runs verified plans over a [`Transport`].
//!
//! A plan is [compiled](compile) once for a rank and a size, [`Running`] runs it any number of times, an [`Endpoint`]
//! carries several runs at once. `docs/plans.md` says how it works and what it costs.
//!
//! ```
//! use earlybird_hier::exec::{Endpoint, Geometry, Operator, Running, compile};
//! use earlybird_hier::transport::threads::{Threads, ThreadsOptions};
//! use earlybird_hier::{Consistency, OpTraits, Params, schedule, verify};
//! use std::sync::Arc;
//!
//! let plan = verify::verify(schedule::build("butterfly", &Params::ranks(3))?)?;
//! let sum = Operator::new(|a: f64, b: f64| a + b, OpTraits { commutative: true, exact: false }, 1);
//! std::thread::scope(|scope| {
//!     for transport in Threads::group(3, ThreadsOptions::default()) {
//!         let plan = &plan;
//!         scope.spawn(move || -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//!             let mut endpoint = Endpoint::new(transport);
//!             let rank = earlybird_hier::exec::Transport::rank(endpoint.transport());
//!             let geometry = Geometry { elements: 4, element_bytes: 8, segment_bytes: 4096 };
//!             let program = Arc::new(compile(plan, rank, geometry)?);
//!             let mut all_reduce = Running::new(program, sum, Consistency::Identical)?;
//!             let mut data = [rank as f64; 4];
//!             all_reduce.run(&mut endpoint, bytemuck::cast_slice_mut(&mut data), None)?;
//!             assert_eq!(data, [3.0; 4]);
//!             Ok(())
//!         });
//!     }
//! });
//! # Ok::<(), earlybird_hier::PlanError>(())
//! ```

mod compile;
mod depend;
mod direct;
mod endpoint;
mod fold;
mod memory;
mod program;
mod run;
mod state;
mod transport;

pub use compile::{CompileError, compile};
pub use direct::{Exchange, Parts, exchange};
pub use endpoint::Endpoint;
pub use fold::{Fold, Operator, Token};
pub use program::{Geometry, Program};
pub use run::{RunError, Running, wait_all, wait_first};
pub use transport::{Failure, Head, Take, Transport};
