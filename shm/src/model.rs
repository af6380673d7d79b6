//! What loom needs in place of the machine: words that a waiting rank can block on ([`words`]), and the exploration of a model.
//!
//! The boards of cells on which the shipping lines run stand with the models, in `shm/tests/modelled`. That of joining is here, since it
//! uses what only this crate can name.

pub mod joining;
pub mod words;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;

/// Runs `body` under every interleaving, or under every one with at most `bound` preemptions, and prints how many executions
/// that were. Each execution starts afresh: what it shares is made in `body`.
///
/// No limit ends it silently: loom panics where an execution has more than 20,000 steps, and there is no other.
///
/// # Panics
/// If `body` panics in some execution, if loom finds an unordered access, and if there was only one execution.
pub fn explore(title: &str, bound: Option<usize>, body: impl Fn() + Sync + Send + 'static) -> usize {
    let (begun, count) = (Instant::now(), Arc::new(AtomicUsize::new(0)));
    let counted = count.clone();
    let mut builder = loom::model::Builder::new();
    (builder.preemption_bound, builder.max_branches) = (bound, 20_000);
    (builder.max_duration, builder.max_permutations) = (None, None);
    builder.check(move || {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        words::reset(0);
        body();
    });
    let executions = count.load(std::sync::atomic::Ordering::Relaxed);
    assert!(executions > 1, "{title}: the model ran {executions} time(s): it explores nothing");
    let reach = bound.map_or("every interleaving".to_owned(), |n| format!("at most {n} preemptions"));
    let seconds = begun.elapsed().as_secs_f64();
    println!("loom: {title}: {executions} executions, {seconds:.1} s, complete for {reach}");
    executions
}

// All ranks of a model run on the operating system thread of its test.
std::thread_local! {
    static SPINS: Cell<u32> = const { Cell::new(0) };
}

/// Lets the ranks of the models that this thread runs from here on look so often without a pause, and as often with one, and
/// then yield, before they sleep. At first they sleep at once: other waits show nothing more, and take longer to explore.
pub fn spin_first(looks: u32) {
    SPINS.set(looks);
}

/// The number of these looks.
pub fn spins() -> u32 {
    SPINS.get()
}
