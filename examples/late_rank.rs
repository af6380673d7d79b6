//! One rank comes 5 ms late: how long after it does each rank have the result? Rank 0 as the fixed leader first, then
//! the library's own choice, which has folded everybody else's data by then.
//!
//! `cargo run --release --features cli -- run -n 4 -- target/release/examples/late_rank`
use earlybird::{Algorithm, Communicator, Op};
use std::time::{Duration, Instant};

fn main() -> Result<(), earlybird::Error> {
    let comm = Communicator::from_env()?;
    let late = comm.size() - 1;
    let send = vec![1.0f32; 64 * 1024];
    let mut recv = vec![0.0f32; send.len()];
    for algorithm in [Algorithm::StaticLeader, Algorithm::Auto] {
        comm.set_algorithm(algorithm)?;
        let mut best = Duration::MAX;
        for _ in 0..20 {
            comm.barrier()?;
            if comm.rank() == late {
                std::thread::sleep(Duration::from_millis(5));
            }
            let arrived = Instant::now();
            comm.all_reduce_into(&send, &mut recv, Op::Sum)?;
            best = best.min(arrived.elapsed());
        }
        assert!(recv.iter().all(|x| *x == comm.size() as f32));
        if comm.rank() == late {
            let ran = comm.last_call().map(|call| call.algorithm);
            println!("{algorithm} ({ran:?} ran): the late rank spent {best:?} in the call");
        }
    }
    Ok(())
}
