//! Announcements to ranks at the rendezvous: another rank will not come, and why.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::control::Identity;
use super::deadline::Deadline;
use super::descriptor::Descriptor;
use super::fd_server::{self, FdServer};
use super::headroom::Headroom;
use super::messages::{self, Answer, Message};
use super::process;
use super::rendezvous::{RendezvousAddress, Role};
use crate::Error;

/// Time for which a failed rendezvous answers late ranks with its error.
pub(super) const LINGER: Duration = Duration::from_secs(2);
/// Time that a failed rank waits for the error of all ranks.
const ANSWER_WAIT: Duration = Duration::from_secs(1);
/// Interval at which ended ranks are announced again, for ranks that arrive later.
const REPEAT_EVERY: Duration = Duration::from_millis(100);

/// Sends a message to the fd server at an address, if there is one.
pub(super) fn notify(address: &RendezvousAddress, message: &Message) {
    let _room = Headroom::take();
    if let Ok(Some(socket)) = address.connect() {
        // a process that does not receive the message has ended
        let _ = fd_server::send(&socket, &messages::encode(&message), &[]);
    }
}

/// Fails if the fd server's process has ended without an answer. A forked child that inherited the server's socket keeps the
/// connection open then. Called before each look at the connection.
pub(super) fn check_creator(creator: Option<&Identity>) -> Result<(), Error> {
    let Some(creator) = creator.filter(|creator| process::has_ended(creator)) else { return Ok(()) };
    Err(Error::system(
        "joining",
        format!(
            "process {}, which brought the ranks together, has ended, and a child of it lives on that keeps its socket; end \
             that child and start the job again",
            creator.pid
        ),
    ))
}

/// Tells the fd server over an open connection that this rank cannot join. Returns the error of all ranks.
pub(super) fn give_up(socket: &Descriptor, error: Error) -> Error {
    if fd_server::send(socket, &messages::encode(&Message::Failed(Identity::own(), error.clone())), &[]).is_err() {
        return error;
    }
    let until = Instant::now() + ANSWER_WAIT;
    while fd_server::wait_for_message(socket, until) {
        match fd_server::receive(socket) {
            Ok(Some((bytes, _))) => match messages::decode(&bytes) {
                Some(Answer::Failed(stands)) => return stands,
                // sent before this rank gave up
                Some(Answer::Welcome) => {}
                Some(Answer::Over) | None => break,
            },
            Ok(None) => {}
            Err(_) => break,
        }
    }
    error
}

/// Tells the ranks that join under `key` that rank `rank` of `size` cannot join, and why. Returns the error, the same for all.
/// If none of them has come yet, this rank waits for them, 2 s at most.
pub fn refuse(dir: Option<&Path>, key: &str, rank: usize, size: usize, error: Error) -> Error {
    let error = error.of_rank(rank);
    if size < 2 {
        return error;
    }
    let _room = Headroom::take();
    match RendezvousAddress::new(dir, key).enter(&mut Deadline::new(Some(LINGER)), &|| None) {
        Ok(Role::Client(socket)) => give_up(&socket, error),
        Ok(Role::Server(point)) => {
            FdServer::new(point).refuse(&error, size - 1, HashSet::new(), LINGER);
            error
        }
        Err(_) => error,
    }
}

/// A job of which ranks have ended.
struct Job {
    dir: Option<PathBuf>,
    key: String,
    ended: Vec<usize>,
}

static JOBS: Mutex<Vec<Job>> = Mutex::new(Vec::new());

fn jobs() -> MutexGuard<'static, Vec<Job>> {
    JOBS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells the ranks that join under `key` that the process of rank `rank` has ended, for its launcher. If it had not joined, all
/// that wait get [`Error::PeerDied`] for it. Later ranks get it within 0.1 s of the first: a thread of this process repeats
/// the message until [`forget_job`]. Nothing is left behind.
#[doc(hidden)]
pub fn announce_end(dir: Option<&Path>, key: &str, rank: usize) {
    let mut jobs = jobs();
    let first = jobs.is_empty();
    match jobs.iter_mut().find(|job| job.key == key) {
        Some(job) => job.ended.push(rank),
        None => jobs.push(Job { dir: dir.map(Path::to_path_buf), key: key.to_owned(), ended: vec![rank] }),
    }
    drop(jobs);
    notify(&RendezvousAddress::new(dir, key), &Message::Ended(vec![rank]));
    if first {
        // without the thread only late ranks have to notice the death themselves
        let _ = std::thread::Builder::new().name("earlybird-ended".into()).spawn(repeat);
    }
}

/// Ends the announcements for a job that is over.
#[doc(hidden)]
pub fn forget_job(key: &str) {
    jobs().retain(|job| job.key != key);
}

fn repeat() {
    loop {
        std::thread::sleep(REPEAT_EVERY);
        let messages: Vec<(RendezvousAddress, Message)> = {
            let jobs = jobs();
            if jobs.is_empty() {
                return;
            }
            let address = |job: &Job| RendezvousAddress::new(job.dir.as_deref(), &job.key);
            jobs.iter().map(|job| (address(job), Message::Ended(job.ended.clone()))).collect()
        };
        messages.iter().for_each(|(address, message)| notify(address, message));
    }
}
