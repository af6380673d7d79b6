//! A job of two ranks on this system, which shows what single facts cannot: that ranks meet, reduce, and may read each other.

use super::finding::{Finding, State};
use super::processes::ptrace_scope;
use crate::job::own_binary;
use earlybird::{Algorithm, Communicator, Error, Op};
use std::process::Command;

const SECTION: &str = "a job of two ranks";

/// Settings that are not the trial's: they would write the user's files, or name other numbers of ranks.
const LEFT_OUT: [&str; 4] =
    ["EARLYBIRD_TRACE", "EARLYBIRD_TRACE_SIZE", "EARLYBIRD_RANKS_PER_NODE", "EARLYBIRD_VERBOSE"];

/// The line of a rank after a call by which the ranks read each other's memory, and after one by which they could not.
const MAY_READ: &str = "may read";
const MAY_NOT_READ: &str = "may not read";

/// All of the section.
pub fn findings() -> Vec<Finding> {
    let effect = "every other command and every program starts like this";
    let trial = own_binary().and_then(|binary| {
        let mut command = Command::new(&binary);
        command
            .args(["run", "-n", "2", "--grace", "1", "--timeout", "20", "--"])
            .arg(&binary)
            .args(["doctor", "--worker"]);
        for name in LEFT_OUT {
            command.env_remove(name);
        }
        command.output().map_err(|error| Error::system("starting the trial job", error))
    });
    match trial {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            vec![Finding::ok(SECTION, "allreduce", "right on both ranks", effect), reading(text.trim())]
        }
        failed => {
            let why = failed.map_or_else(
                |error| error.to_string(),
                |output| {
                    let text = String::from_utf8_lossy(&output.stderr).into_owned();
                    text.lines()
                        .next()
                        .unwrap_or("failed without a word")
                        .trim_start_matches("earlybird doctor: ")
                        .to_owned()
                },
            );
            vec![Finding::ok(SECTION, "allreduce", why, effect).judged(State::Broken, "what the error says")]
        }
    }
}

fn reading(answer: &str) -> Finding {
    let effect = "large blocks of allgather, alltoall and scatter are copied once (single-copy)";
    let finding = |value| Finding::ok(SECTION, "process_vm_readv", value, effect);
    match answer == MAY_READ {
        true => finding(format!("works between ranks ({})", ptrace_scope())),
        false => Finding {
            effect: "they are copied twice, through shared memory (flat)".into(),
            ..finding(format!("refused between ranks ({})", ptrace_scope()))
        }
        .judged(State::Note, "kernel.yama.ptrace_scope=0, or --cap-add=SYS_PTRACE of the container"),
    }
}

/// The part of one rank of the trial. Returns what the second rank has to say of reading the first.
///
/// # Errors
/// Those of joining and of the calls; [`Error::System`] for a sum that is wrong.
pub fn work() -> Result<Option<&'static str>, Error> {
    let comm = Communicator::from_env()?;
    let mut sums = vec![comm.rank() as u64 + 1; 1 << 12];
    comm.all_reduce_in_place(&mut sums, Op::Sum)?;
    let expected: u64 = (1..=comm.size() as u64).sum();
    if sums.iter().any(|sum| *sum != expected) {
        return Err(Error::system("the trial allreduce", format!("a sum is not {expected}")));
    }
    comm.set_algorithm(Algorithm::SingleCopy)?;
    let mut gathered = vec![0u64; 8 * comm.size()];
    comm.all_gather_into(&[comm.rank() as u64; 8], &mut gathered)?;
    let ran = comm.last_call().map(|call| call.algorithm.to_string());
    Ok((comm.rank() == 1).then_some(if ran.as_deref() == Some("single-copy") { MAY_READ } else { MAY_NOT_READ }))
}
