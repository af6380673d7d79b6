//! Schedules between nodes: what they cost, that they are right, how they are chosen, carried out and simulated.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/concrete.rs"]
mod concrete;
#[path = "../common/conformance.rs"]
mod conformance;
#[path = "../common/execute.rs"]
mod execute;
#[path = "../common/faulty.rs"]
mod faulty;
#[path = "../common/operators.rs"]
mod operators;
#[path = "../common/random_plans.rs"]
mod random_plans;
#[path = "../common/threads.rs"]
mod threads;

mod exact_costs;
mod executor;
mod executor_refuses;
mod lazy;
mod levels;
mod plan_forms;
mod published_counts;
mod schedule_props;
mod select;
mod sim;
mod three_phase;
mod topology;
mod transports;
mod verify_refuses;
