//! The inter-node layer of earlybird: schedules as verified data.
//!
//! Reading order: [`plan`] (what a schedule is), one file of [`schedule`] (how one is made), [`verify`] (why it may
//! be run), [`exec`] (how it is). A schedule is a pure function from parameters to a [`Plan`]; [`verify::verify`] turns a plan into a
//! [`Verified`] one or says which step of which rank is wrong.
//!
//! ```
//! use earlybird_hier::{schedule, verify, Params};
//!
//! let plan = schedule::build("ring", &Params::ranks(5))?;
//! let plan = verify::verify(plan)?;
//! assert_eq!(plan.counters().rounds, 8);
//! # Ok::<(), earlybird_hier::PlanError>(())
//! ```
#![forbid(unsafe_code)]

pub mod admit;
pub mod choose;
pub mod cost;
pub mod error;
pub mod exec;
pub mod levels;
pub mod model;
pub mod plan;
pub mod schedule;
pub mod sim;
pub mod topology;
pub mod transport;
pub mod verify;

pub use admit::{Consistency, OpTraits};
pub use error::{PlanError, Violation};
pub use plan::{Contract, Order, Plan};
pub use schedule::Params;
pub use verify::Verified;
