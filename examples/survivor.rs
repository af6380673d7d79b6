//! Ranks that compute and reduce until something goes wrong: kill one and see what the others are told.
//!
//! `cargo run --release --features cli -- run -n 4 -- target/release/examples/survivor &`, then `kill -9` one of the pids it prints.
use earlybird::{Communicator, Op};
use std::time::{Duration, Instant};

fn main() {
    let comm = match Communicator::from_env() {
        Ok(comm) => comm,
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1);
        }
    };
    println!("rank {} is pid {}", comm.rank(), std::process::id());
    let mut x = [0u64; 512];
    for step in 0.. {
        std::thread::sleep(Duration::from_millis(10));
        x.fill(1);
        let begun = Instant::now();
        if let Err(error) = comm.all_reduce_in_place(&mut x, Op::Sum) {
            eprintln!(
                "rank {}, step {step}, after {:?} in the call: [{}] {error}",
                comm.rank(),
                begun.elapsed(),
                error.code()
            );
            std::process::exit(1);
        }
    }
}
