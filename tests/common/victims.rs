//! A rank that stops taking part in the calls of a job, and what the others are told: one error, the same for all.

use super::{End, Job, Player};
use earlybird::{Communicator, Error, Op};
use rustix::process::Signal;
use std::time::Duration;

/// Says how a call failed; whether it did not.
pub fn tell(player: &Player, result: Result<(), Error>) -> bool {
    if let Err(error) = &result {
        player.say(format!("failed {} {error}", error.code()));
    }
    result.is_ok()
}

/// A role: sums vectors until the job fails, then makes one more call. Its arguments are the victim, the calls that this makes
/// before it says "here", and the elements of a vector; the victim makes no call after that, unless there is a fourth.
pub fn victim(player: &Player) {
    let (who, calls, count): (usize, u64, usize) = (player.arg(0), player.arg(1), player.arg(2));
    let comm = Communicator::from_env().unwrap();
    let mut buf = vec![1f64; count];
    for call in 0u64.. {
        if comm.rank() == who && call == calls {
            player.say("here");
            if player.args().len() == 3 {
                std::thread::sleep(Duration::from_secs(3600));
            }
        }
        buf.fill(1.0);
        if !tell(player, comm.all_reduce_in_place(&mut buf, Op::Sum)) {
            tell(player, comm.barrier());
            return;
        }
    }
}

/// What everybody but `who` was told, which is the same.
fn agreed(ends: &[End], who: usize) -> String {
    let others: Vec<&End> = ends.iter().filter(|end| end.rank != who).collect();
    assert!(others.iter().all(|end| end.said.len() == 2 && end.said == others[0].said), "{others:#?}");
    others[0].said[0].clone()
}

/// Kills the victim `who` so long after it was here; what the others were told, which names it.
pub fn told_of_a_death(job: Job, who: usize, after: Duration) -> String {
    let mut job = job.start();
    job.wait_for(who, "here");
    std::thread::sleep(after);
    job.signal(who, Signal::KILL);
    let told = agreed(&job.join(), who);
    assert!(told.starts_with(&format!("failed EB_PEER_DIED rank {who} (pid ")), "{told}");
    told
}

/// Lets the victim `who` be late for allreduce `call`, under a deadline: the others are told that, and end.
pub fn all_tell_of_a_late_rank(job: Job, who: usize, call: u64) {
    let others: Vec<usize> = (0..job.ranks).filter(|rank| *rank != who).collect();
    let mut job = job.var("EARLYBIRD_TIMEOUT", "0.5").start();
    job.wait_for(who, "here");
    job.wait_ended(&others);
    job.signal(who, Signal::KILL);
    let told = agreed(&job.join(), who);
    let expected = format!("failed EB_TIMEOUT after 500ms rank(s) [{who}] had not arrived at allreduce {call};");
    assert!(told.starts_with(&expected), "{told}");
}
