//! A buffer in shared memory: reduced where it lies, next to the same call on private memory.
//!
//! `earlybird run -n 2 -- target/release/examples/shared_buffers [bytes]`

use earlybird::{Communicator, Op};
use std::time::{Duration, Instant};

/// Rounds, in which both ways take turns.
const ROUNDS: usize = 100;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bytes = std::env::args().nth(1).map_or(Ok(1 << 20), |bytes| bytes.parse::<usize>())?;
    let comm = Communicator::from_env()?;
    let (mut private, mut shared) = (vec![0f32; bytes / 4], comm.alloc::<f32>(bytes / 4)?);
    let mine = comm.rank() as f32;
    let expected = (0..comm.size()).map(|rank| rank as f32).sum::<f32>();
    let (mut in_private, mut in_shared) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        private.fill(mine);
        comm.barrier()?;
        let began = Instant::now();
        comm.all_reduce_in_place(&mut private, Op::Sum)?;
        in_private.push(began.elapsed());
        assert!(private.iter().all(|sum| *sum == expected));

        shared.fill(mine);
        comm.barrier()?;
        let began = Instant::now();
        comm.all_reduce_shared_in_place(&mut shared, Op::Sum)?;
        in_shared.push(began.elapsed());
        assert!(shared.iter().all(|sum| *sum == expected));
    }
    if comm.rank() == 0 {
        let [private, shared] = [in_private, in_shared].map(median);
        println!("{bytes} bytes on {} ranks: {private:?} in private memory, {shared:?} in shared buffers", comm.size());
    }
    Ok(())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
