//! Schedules: pure functions from parameters to plans, one algorithm per file.
//!
//! Costs in the files' headers are α per message, β per element sent, γ per element reduced, with m elements in
//! blocks of u = m / blocks, P ranks, L = ⌈log₂ P⌉, p₂ = 2^⌊log₂ P⌋. Sources by short name:
//!
//! - KZ: Kolmakov, Zhang, *A Generalization of the Allreduce Operation*
//! - JO: Jocksch and others, *Towards an optimal allreduce communication in message-passing systems*, EuroMPI 2020
//! - RS: Rabenseifner, Träff, slides and papers on reductions for any number of processes
//! - AL: Alizadeh and others, process arrival pattern aware collectives, EuroMPI/USA 2022
//! - PY: Patarasuk, Yuan, *Bandwidth optimal all-reduce algorithms for clusters of workstations*, JPDC 2009

mod algorithms;
mod arithmetic;
mod binomial;
mod bruck;
mod butterfly;
mod census;
mod chain;
mod cyclic_shift;
mod direct;
mod dissemination;
mod elimination;
mod fold;
mod frame;
mod group;
mod halving_doubling;
mod latency;
mod lazy;
mod odd_ring;
mod params;
mod prefix;
mod prereduced_ring;
mod recursive_doubling;
mod ring;
mod rsg;
mod slot_set;
mod slots;
mod smp;
mod spec;
mod surplus;

pub use algorithms::{ALGORITHMS, Algorithm, MAX_RANKS, algorithm, build};
pub(crate) use arithmetic::{ceil_log2, floor_log2, merge_primes, primes, repeated};
pub(crate) use fold::{capped as capped_sizes, exactly as exact_sizes, halving_sizes};
pub use lazy::{LazyPlan, MAX_LAZY_RANKS};
pub use params::{Distance, Factor, GroupSpec, Params, Protocol, ShiftRule};
pub(crate) use params::{MAX_CELLS, bad};
pub use spec::{KeyValues, ScheduleSpec, key_values};
