//! Computing while a sum is under way: each step's gradients are summed while the next step is computed.
//!
//! `cargo run --release --features cli -- run -n 4 -- target/release/examples/overlap`
use earlybird::{CollectiveArgs, Communicator, Op};

/// Stands for a step of work; later ranks have more of it.
fn compute(step: usize, rank: usize) -> Vec<f64> {
    let rounds = 200 * (1 + rank);
    (0..20_000).map(|i| (0..rounds / 100).fold((i + step) as f64, |x, _| (x + 1.0).sqrt())).collect()
}

fn main() -> Result<(), earlybird::Error> {
    let comm = Communicator::from_env()?;
    let mut total = 0.0;
    let mut gradients = compute(0, comm.rank());
    for step in 1..=50 {
        // The library owns the buffer from here on; it is deposited already, so nobody waits for this rank.
        let summing = comm.start(CollectiveArgs::all_reduce(gradients, Op::Sum))?;
        gradients = compute(step, comm.rank());
        total += summing.wait()?.iter().sum::<f64>();
    }
    if comm.rank() == 0 {
        println!("{} ranks, 50 steps: {total:.3}", comm.size());
    }
    Ok(())
}
