//! A rank is killed inside an allreduce: the error of the others, the time until they have it, and their new communicator.

use crate::bench::Session;
use crate::lineup::now_ns;
use crate::table::table;
use earlybird::{Error, Op};
use rustix::process::{Signal, getpid, kill_process};

/// The survivors wait for so long before the death.
const WAIT_NS: i64 = 5_000_000;

/// Bytes of an error's text that travel.
const TEXT: usize = 400;

/// A rank that lives on.
pub struct Survivor {
    rank: usize,
    delay_ms: f64,
    error: String,
}

/// The rank that dies: the last one, because rank 0 reports.
pub fn rank_to_kill(ranks: usize) -> usize {
    ranks - 1
}

/// Kills the rank. Returns all survivors, and whether the error of each names it: the same on all of them. Collective.
///
/// # Errors
/// The errors of lining up, and of forming a communicator of the survivors.
pub fn run(session: &Session, killed_rank: usize) -> Result<(Vec<Survivor>, bool), Error> {
    let (comm, lineup) = (&session.comm, &session.lineup);
    let start_ns = lineup.agree_on_start_ns()?;
    let death_ns = start_ns + WAIT_NS;
    if comm.rank() == killed_rank {
        lineup.wait_until(death_ns);
        let _ = kill_process(getpid(), Signal::KILL);
    }
    lineup.wait_until(start_ns);
    let mut data = [1.0f32; 1024];
    let result = comm.all_reduce_in_place(&mut data, Op::Sum);
    let delay_ns = now_ns() - death_ns;
    let names_killed = matches!(&result, Err(Error::PeerDied { rank, .. }) if *rank == killed_rank);
    let text = result.map_or_else(|error| format!("[{}] {error}", error.code()), |()| "no error".into());

    let survivors = comm.shrink()?;
    let mut message = [0u8; TEXT];
    message.iter_mut().zip(text.bytes()).for_each(|(sent, byte)| *sent = byte);
    let mut messages = vec![0u8; TEXT * survivors.size()];
    survivors.all_gather_into(&message, &mut messages)?;
    let mine = [comm.rank() as i64, delay_ns, i64::from(names_killed)];
    let mut numbers = vec![0i64; mine.len() * survivors.size()];
    survivors.all_gather_into(&mine, &mut numbers)?;
    let survivor = |(message, &[rank, delay_ns, _]): (&[u8], &[i64; 3])| Survivor {
        rank: rank as usize,
        delay_ms: delay_ns as f64 / 1e6,
        error: String::from_utf8_lossy(message).trim_end_matches('\0').into(),
    };
    let numbers = numbers.as_chunks::<3>().0;
    let survivors = messages.chunks(TEXT).zip(numbers).map(survivor).collect();
    Ok((survivors, numbers.iter().all(|[.., names_killed]| *names_killed == 1)))
}

/// Each survivor's error and delay.
pub fn text(survivors: &[Survivor]) -> String {
    let row = |Survivor { rank, delay_ms, error }: &Survivor| {
        vec![format!("rank {rank}"), format!("{delay_ms:.1}"), error.clone()]
    };
    format!(
        "{}\n\nSurvivors: {}; they formed a new communicator (Communicator::shrink) and reported through it.\n",
        table(&["survivor", "ms after the death", "error"], survivors.iter().map(row).collect()),
        survivors.len()
    )
}
