//! Selection: the fastest schedule for an allreduce, over every family, list of factors and number of steps.
//!
//! No plan is built. Families with a handful of members are tried one by one (`families`); lists of factors are
//! shortest paths: hypercubes and product groups over the divisors of the number of ranks (`hypercubes`, `groups`),
//! cyclic shifts and prefixes over the slots left after each step (`windows`). The cost of a path is a sum over its
//! factors, so the best path is the best of all lists, orders and splits, though their number grows with every divisor.
//!
//! Not tried:
//! - pre-reduced rings and chains along an order of arrival: the lateness of ranks is not part of the request, and
//!   without late ranks they only cost more;
//! - `keep-order` butterflies with r > 0 for other than powers of two: they have no closed form and send more;
//! - halving-doubling with distance halving, and the bandwidth form under another name: they cost the same;
//! - lists of different factors under the `cap` rule of cyclic shifts: for a linear model every list of that rule has
//!   one under `ceil` that is no worse.
//!
//! Cost: below a millisecond to 10 000 ranks (`benches/plans.rs`).

mod candidate;
mod families;
mod groups;
mod hypercubes;
mod levels;
mod ranking;
mod search;
mod windows;

pub use levels::{Levels, PredictedPlan};
pub use ranking::{ranking, select};
pub use search::RankedSchedule;
