//! MPI_Init: the ranks of MPI_COMM_WORLD compare their settings before the program makes its first call. If some ranks intercepted a
//! call and others forwarded it, all would wait for ever; so a rank with other settings ends the job, and one without the library is named.
//!
//! Every rank sends a hash of its settings to rank 0, which answers when it has all of them. A rank that is only slow, or stopped by a
//! debugger, looks like one without the library: the others wait, and nothing but `EARLYBIRD_TIMEOUT` ends that.
#![allow(unsafe_code)]

use crate::abi::{self, constants};
use crate::messages::PendingMessage;
use crate::{dynamic_linker, machine, settings, stderr};
use earlybird::Interpose;
use earlybird::messages::{Failure, Message};
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// The time after which ranks that are missing are named. The others wait a little longer for rank 0's word on it.
const NAME_AFTER: Duration = Duration::from_secs(1);
/// Every MPI allows tags up to 32767.
const TAG: c_int = 32749;

/// Rank 0 waits for other ranks.
const WAITING: u64 = 1;
/// All ranks have the same settings.
const EQUAL: u64 = 2;

/// Compares the settings, the first time that it is called. Then every rank has this library, and all of them count the CPUs.
fn compare_once() {
    static DONE: AtomicBool = AtomicBool::new(false);
    if !abi::is_running() || DONE.swap(true, Relaxed) {
        return;
    }
    let mine = settings::digest();
    match abi::rank_and_size(constants().world) {
        Some((0, size)) => lead(mine, size as c_int),
        Some(_) => follow(mine),
        None => return,
    }
    if settings::get().interpose != Interpose::Off {
        machine::count_ranks();
    }
}

/// A word to or from another rank of MPI_COMM_WORLD.
struct WordMessage(PendingMessage);

impl WordMessage {
    fn send(to: c_int, word: u64) -> WordMessage {
        Self::started(PendingMessage::send(constants().world, to, TAG, word.to_ne_bytes().into()))
    }

    fn receive(from: c_int) -> WordMessage {
        Self::started(PendingMessage::receive(constants().world, from, TAG, vec![0; 8]))
    }

    fn started(message: Result<PendingMessage, Failure>) -> WordMessage {
        WordMessage(message.unwrap_or_else(|failure| settings::die(&failure.to_string())))
    }

    /// The word, if the message is complete.
    fn test(&mut self) -> Option<u64> {
        self.0.test().ok()??;
        self.0.contents().try_into().ok().map(u64::from_ne_bytes)
    }

    fn wait(mut self) {
        let started = Instant::now();
        while self.test().is_none() {
            pause(started);
        }
    }
}

/// Rank 0: collects the settings of all ranks and answers.
fn lead(mine: u64, size: c_int) {
    let mut missing: Vec<(c_int, WordMessage)> = (1..size).map(|rank| (rank, WordMessage::receive(rank))).collect();
    let ranks_of = |missing: &[(c_int, WordMessage)]| missing.iter().map(|(rank, _)| *rank).collect::<Vec<_>>();
    let (started, mut is_named, mut present) = (Instant::now(), false, Vec::new());
    while !missing.is_empty() {
        let mut arrived = Vec::new();
        missing.retain_mut(|(rank, message)| match message.test() {
            Some(word) => {
                arrived.push((*rank, word));
                false
            }
            None => true,
        });
        if let Some((rank, _)) = arrived.iter().find(|(_, theirs)| *theirs != mine) {
            settings::die(&format!(
                "the EARLYBIRD_ variables of rank {rank} differ from those of rank 0; set the same for all ranks"
            ));
        }
        if !is_named && started.elapsed() > NAME_AFTER {
            is_named = true;
            stderr::print(&format!("earlybird: {}", missing_ranks(&ranks_of(&missing))));
            present.iter().for_each(|rank| WordMessage::send(*rank, WAITING).wait());
        }
        if is_named {
            arrived.iter().for_each(|(rank, _)| WordMessage::send(*rank, WAITING).wait());
        }
        if is_over(started) {
            settings::die(&missing_ranks(&ranks_of(&missing)));
        }
        present.extend(arrived.iter().map(|(rank, _)| *rank));
        pause(started);
    }
    present.into_iter().for_each(|rank| WordMessage::send(rank, EQUAL).wait());
}

/// Every other rank: sends its settings to rank 0 and waits for the answer.
fn follow(mine: u64) {
    let (sent, mut answer) = (WordMessage::send(0, mine), WordMessage::receive(0));
    let (started, mut is_named, mut is_waiting) = (Instant::now(), false, false);
    loop {
        match answer.test() {
            Some(EQUAL) => break,
            Some(_) => (answer, is_waiting) = (WordMessage::receive(0), true),
            None => pause(started),
        }
        // Rank 0 names the missing ranks, and ends the job in its time, unless it is missing itself.
        if !is_waiting && !is_named && started.elapsed() > 2 * NAME_AFTER {
            is_named = true;
            stderr::print(&format!("earlybird: {}", missing_ranks(&[0])));
        }
        if !is_waiting && is_over(started) {
            settings::die(&missing_ranks(&[0]));
        }
    }
    sent.wait();
}

/// Returns whether the wait has lasted as long as the settings allow.
fn is_over(started: Instant) -> bool {
    settings::get().timeout.is_some_and(|most| started.elapsed() > most)
}

/// Leaves the CPU to others, after a while for longer.
fn pause(started: Instant) {
    match started.elapsed() < Duration::from_millis(20) {
        true => thread::yield_now(),
        false => thread::sleep(Duration::from_micros(200)),
    }
}

/// The message that names missing ranks.
fn missing_ranks(ranks: &[c_int]) -> String {
    let (mut names, more) =
        (ranks.iter().take(8).map(c_int::to_string).collect::<Vec<_>>().join(", "), ranks.len() > 8);
    if more {
        names += ", ...";
    }
    let (ranks, have) = if ranks.len() == 1 { ("rank", "has") } else { ("ranks", "have") };
    format!(
        "{ranks} {names} of MPI_COMM_WORLD {have} not compared settings in MPI_Init, and all ranks wait (EARLYBIRD_TIMEOUT bounds it). If \
         the library is missing there, end the job, and load libearlybird_mpi.so on all ranks or on none (LD_PRELOAD; mpirun -x or -genv \
         reaches other hosts)"
    )
}

/// Defines functions that initialize MPI: each calls the function of its name in the next library, a tool or MPI, and compares settings.
macro_rules! define_init {
    ($($spelling:literal),*; $arguments:tt $result:ty) => {
        $(define_init!(@one $spelling $arguments $result);)*
    };
    (@one $spelling:literal ($($argument:ident: $kind:ty),*) $result:ty) => {
        const _: () = {
            /// The function of this name.
            ///
            /// # Safety
            /// The caller keeps the rules of the MPI standard.
            #[unsafe(export_name = $spelling)]
            unsafe extern "C" fn function($($argument: $kind),*) -> $result {
                // SAFETY: the function of this name in another library has these arguments, which are forwarded unchanged.
                let result = unsafe {
                    let next: unsafe extern "C" fn($($kind),*) -> $result = std::mem::transmute(next(concat!($spelling, "\0")));
                    next($($argument),*)
                };
                compare_once();
                result
            }
        };
    };
}

/// The function of this name, which ends in a zero, in the next library.
fn next(name: &str) -> *mut c_void {
    let name = CStr::from_bytes_with_nul(name.as_bytes()).unwrap_or_default();
    let next = dynamic_linker::next_function(name);
    if next.is_null() {
        settings::die(&format!("the MPI library has no {}", name.to_string_lossy()));
    }
    next
}

type IntPtr = *mut c_int;

define_init!("MPI_Init"; (argc: IntPtr, argv: *mut c_void) c_int);
define_init!("MPI_Init_thread"; (argc: IntPtr, argv: *mut c_void, required: c_int, provided: IntPtr) c_int);
// The other Fortran functions of MPICH call those of C.
define_init!("mpi_init_f08_"; (error: IntPtr) ());
define_init!("mpi_init_thread_f08_"; (required: IntPtr, provided: IntPtr, error: IntPtr) ());
#[cfg(open_mpi)]
define_init!("mpi_init", "mpi_init_", "mpi_init__", "MPI_INIT"; (error: IntPtr) ());
#[cfg(open_mpi)]
define_init!("mpi_init_thread", "mpi_init_thread_", "mpi_init_thread__", "MPI_INIT_THREAD";
    (required: IntPtr, provided: IntPtr, error: IntPtr) ());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_ranks_are_named_and_not_too_many() {
        assert!(missing_ranks(&[3]).starts_with("rank 3 of MPI_COMM_WORLD has not"));
        assert!(missing_ranks(&[1, 2]).starts_with("ranks 1, 2 of MPI_COMM_WORLD have not"));
        assert!(missing_ranks(&(1..100).collect::<Vec<_>>()).starts_with("ranks 1, 2, 3, 4, 5, 6, 7, 8, ... of"));
    }
}
