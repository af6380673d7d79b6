//! Schedules between nodes as verified data; no shared memory, no network.
//!
//! A schedule is a pure function from parameters to a [`Plan`]; [`verify::verify`] turns a plan into a [`Verified`] one
//! or names the step that is wrong. From the bottom up, no folder imports from one below it in this list:
//!
//! - [`plan`]: the plan itself, its text forms and its errors
//! - [`schedule`]: one file per algorithm that makes plans
//! - [`verify`]: proof that a plan does what it claims, and which operators may use it
//! - [`cost`]: closed forms, cost models, switch trees
//! - [`select`]: the fastest schedule for a number of ranks and bytes
//! - [`exec`]: the executor of verified plans over a [`exec::Transport`]
//! - [`sim`]: plans in simulated time
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

pub mod cost;
pub mod exec;
pub mod plan;
pub mod schedule;
pub mod select;
pub mod sim;
pub mod verify;

pub use plan::{Collective, Order, Plan, PlanError, Violation};
pub use schedule::Params;
pub use verify::{Consistency, OpTraits, Verified};
