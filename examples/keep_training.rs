//! Training that goes on when a process is killed: the survivors shrink their communicator, go back to the last step that all
//! of them have, divide the data anew and continue.
//!
//! `cargo build --release --example keep_training`, then
//! `cargo run --release --features cli -- run -n 4 --grace 3600 -- target/release/examples/keep_training`
//! (`--grace`: what the launcher leaves to the others after a rank has failed; the job's exit code is still that of the killed one).
use earlybird::{Communicator, Error, Op};
use rustix::process::{Signal, getpid, kill_process};

/// Weights of the model, samples of all ranks together, and steps.
const WEIGHTS: usize = 8;
const SAMPLES: usize = 4_000;
const STEPS: u64 = 60;
/// This rank of the job is killed in this step.
const VICTIM: (usize, u64) = (1, 25);

type Model = [f64; WEIGHTS];

fn main() -> Result<(), Error> {
    let mut comm = Communicator::from_env()?;
    // the last two models, each with the steps that it has seen: ranks may be one step apart when they notice a death
    let mut kept = [(0u64, [0.0; WEIGHTS]); 2];
    while kept[1].0 < STEPS {
        let (step, model) = kept[1];
        match train(&comm, step, &model) {
            Ok((next, loss)) => {
                kept = [kept[1], (step + 1, next)];
                if comm.rank() == 0 && (step % 10 == 0 || step.abs_diff(VICTIM.1) < 2) {
                    println!("step {step}: loss {loss:.6} on {} ranks", comm.size());
                }
            }
            Err(error @ Error::PeerDied { .. }) => {
                eprintln!("rank {} in step {step}: {error}", comm.rank());
                let common;
                (comm, common) = survivors(&comm, kept[1].0)?;
                // a rank that is one step ahead takes that step back
                if kept[1].0 > common {
                    kept[1] = kept[0];
                }
                if comm.rank() == 0 {
                    println!("step {common}: ranks {:?} of the job are left and go on", comm.job_ranks());
                }
            }
            Err(error) => return Err(error),
        }
    }
    if comm.rank() == 0 {
        println!("trained in {STEPS} steps on {} ranks at the end", comm.size());
    }
    Ok(())
}

/// A communicator of those that are left, and the last step that all of them have, of which this rank has `mine`.
fn survivors(comm: &Communicator, mine: u64) -> Result<(Communicator, u64), Error> {
    let mut left = comm.shrink()?;
    loop {
        let mut common = [mine];
        match left.all_reduce_in_place(&mut common, Op::Min) {
            Ok(()) => return Ok((left, common[0])),
            Err(Error::PeerDied { .. }) => left = left.shrink()?,
            Err(error) => return Err(error),
        }
    }
}

/// One step of gradient descent on this rank's part of the samples; the new model and the loss before the step.
fn train(comm: &Communicator, step: u64, model: &Model) -> Result<(Model, f64), Error> {
    let mut sums = [0.0f64; WEIGHTS + 1];
    for sample in (comm.rank()..SAMPLES).step_by(comm.size()) {
        let input: Model = std::array::from_fn(|i| ((sample * (2 * i + 3) + i) % 17) as f64 / 17.0 - 0.5);
        let wanted: f64 = input.iter().enumerate().map(|(i, x)| x * (i as f64 - 3.5)).sum();
        let error = input.iter().zip(model).map(|(x, w)| x * w).sum::<f64>() - wanted;
        sums.iter_mut().zip(input).for_each(|(sum, x)| *sum += error * x);
        sums[WEIGHTS] += error * error;
    }
    if (comm.job_ranks()[comm.rank()], step) == VICTIM && comm.size() > 1 {
        let _ = kill_process(getpid(), Signal::KILL);
    }
    comm.all_reduce_in_place(&mut sums, Op::Sum)?;
    let next = std::array::from_fn(|i| model[i] - 4.0 * sums[i] / SAMPLES as f64);
    Ok((next, sums[WEIGHTS] / SAMPLES as f64))
}
