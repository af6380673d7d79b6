//! One result for all ranks, read where it lies, next to a result of its own for each.
//!
//! `earlybird run -n 2 -- target/release/examples/shared_result [bytes]`

use earlybird::{Communicator, Op};
use std::time::{Duration, Instant};

/// Rounds, in which both ways take turns.
const ROUNDS: usize = 100;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bytes = std::env::args().nth(1).map_or(Ok(1 << 20), |bytes| bytes.parse::<usize>())?;
    let comm = Communicator::from_env()?;
    let (send, mut own) = (vec![comm.rank() as f32; bytes / 4], vec![0f32; bytes / 4]);
    let expected = (0..comm.size()).map(|rank| rank as f32).sum::<f32>();
    let (mut in_own, mut in_shared, mut copies) = (Vec::new(), Vec::new(), 0);
    for _ in 0..ROUNDS {
        comm.barrier()?;
        let began = Instant::now();
        comm.all_reduce_into(&send, &mut own, Op::Sum)?;
        in_own.push(began.elapsed());

        comm.barrier()?;
        let began = Instant::now();
        let result = comm.all_reduce_shared(&send, Op::Sum)?;
        in_shared.push(began.elapsed());
        copies += usize::from(result.is_copy());
        assert!(result.iter().zip(&own).all(|(shared, own)| *shared == expected && *own == expected));
    }
    if comm.rank() == 0 {
        let [own, shared] = [in_own, in_shared].map(median);
        println!("{bytes} bytes on {} ranks: {own:?} each its own, {shared:?} shared ({copies} copies)", comm.size());
    }
    Ok(())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
