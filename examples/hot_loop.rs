//! Back-to-back small all-reduces: nanoseconds per call.
//!
//! `cargo run --release -- run -n 2 -- target/release/examples/hot_loop`
use earlybird::{Communicator, Op};
use std::time::Instant;

fn main() -> Result<(), earlybird::Error> {
    let comm = Communicator::from_env()?;
    let calls = std::env::args().nth(1).map_or(2_000_000u32, |n| n.parse().expect("calls"));
    let mut x = [1.0f64];
    let begun = Instant::now();
    for _ in 0..calls {
        x[0] = 1.0;
        comm.all_reduce_in_place(&mut x, Op::Sum)?;
    }
    assert_eq!(x[0], comm.size() as f64);
    if comm.rank() == 0 {
        println!("{:.1} ns per call", begun.elapsed().as_nanos() as f64 / f64::from(calls));
    }
    Ok(())
}
