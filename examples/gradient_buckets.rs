//! Many small buffers, such as the gradients of a model's layers: reduced as one operation and one by one.
//!
//! `earlybird run -n 4 -- target/release/examples/gradient_buckets [buffers] [elements of each]`

use earlybird::{Communicator, Op};
use std::time::{Duration, Instant};

/// Rounds, in which both ways take turns.
const ROUNDS: usize = 200;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<usize>());
    let (number, elements) = (arguments.next().unwrap_or(Ok(64))?, arguments.next().unwrap_or(Ok(256))?);
    let comm = Communicator::from_env()?;
    let mine = comm.rank() as f32;
    let expected = (0..comm.size()).map(|rank| rank as f32).sum::<f32>();
    let mut gradients = vec![vec![0f32; elements]; number];
    let (mut together, mut one_by_one) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        gradients.iter_mut().for_each(|gradient| gradient.fill(mine));
        comm.barrier()?;
        let began = Instant::now();
        let mut buffers: Vec<&mut [f32]> = gradients.iter_mut().map(Vec::as_mut_slice).collect();
        comm.all_reduce_grouped_in_place(&mut buffers, Op::Sum)?;
        together.push(began.elapsed());
        assert!(gradients.iter().flatten().all(|sum| *sum == expected));

        gradients.iter_mut().for_each(|gradient| gradient.fill(mine));
        comm.barrier()?;
        let began = Instant::now();
        for gradient in &mut gradients {
            comm.all_reduce_in_place(gradient, Op::Sum)?;
        }
        one_by_one.push(began.elapsed());
        assert!(gradients.iter().flatten().all(|sum| *sum == expected));
    }
    if comm.rank() == 0 {
        let [together, one_by_one] = [together, one_by_one].map(median);
        println!("{number} buffers of {} bytes: {together:?} together, {one_by_one:?} one by one", 4 * elements);
    }
    Ok(())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
