//! Back-to-back small all-reduces on 2 and 4 ranks: nanoseconds per call, the floor of the small-message path.
//!
//! `cargo bench --features cli --bench hot_loop`. `benches/instructions/run` counts the instructions of such a call.

use earlybird::launch::{Job, Outcome};
use earlybird::{Communicator, Error, Op};
use std::time::Instant;

fn rank(calls: u32, counts: &[usize]) -> Result<(), Error> {
    let comm = Communicator::from_env()?;
    for &count in counts {
        let mut x = vec![1.0f64; count];
        let begun = Instant::now();
        for _ in 0..calls {
            x.fill(1.0);
            comm.all_reduce_in_place(&mut x, Op::Sum)?;
        }
        let ns = begun.elapsed().as_nanos() as f64 / f64::from(calls);
        assert!(x.iter().all(|v| *v == comm.size() as f64));
        if comm.rank() == 0 {
            println!("{} ranks, {:>4} B: {ns:8.1} ns per call", comm.size(), count * 8);
        }
    }
    Ok(())
}

fn main() -> Result<(), Error> {
    let mut given = std::env::args().skip(1).filter_map(|a| a.parse::<usize>().ok());
    let calls = given.next().unwrap_or(200_000);
    if std::env::var_os("EARLYBIRD_RANK").is_some() {
        let counts: Vec<usize> = given.collect();
        return rank(calls as u32, if counts.is_empty() { &[1, 8, 64] } else { &counts });
    }
    let own = std::env::current_exe().map_err(|e| Error::system("finding this program", e))?;
    for ranks in [2, 4] {
        let wrapper = env!("CARGO_BIN_EXE_earlybird").into();
        let job = Job::new("hot_loop", wrapper, ranks, own.clone().into(), vec![calls.to_string().into()]);
        let outcome = job.run()?;
        assert_eq!(outcome, Outcome::Success);
    }
    Ok(())
}
