//! The trace of calls that MPI carries out: recorded where the settings ask for a trace, whatever the reason why they are forwarded.
//! With `EARLYBIRD_INTERPOSE=off` these are all calls of the program.
#![allow(unsafe_code)]

use crate::abi::{self, Handle, constants};
use crate::summary::ForwardReason;
use crate::{comm_cache, set_up, settings};
use earlybird::Collective;
use earlybird::trace::{OutsideCall, OutsideCalls};
use std::cell::Cell;
use std::ffi::c_int;

thread_local! {
    /// The blocking call of this thread that MPI carries out, if it is recorded.
    static BLOCKING: Cell<Option<(&'static OutsideCalls, OutsideCall)>> = const { Cell::new(None) };
}

/// Returns whether calls that are forwarded for this reason are recorded.
#[inline]
pub fn is_recorded(reason: ForwardReason) -> bool {
    is_traced() && !matches!(reason, ForwardReason::NotRunning | ForwardReason::Argument)
}

#[inline]
fn is_traced() -> bool {
    settings::get().trace.is_some()
}

/// Records the arrival at a call whose largest block has this many bytes.
#[cold]
pub fn begin(comm: Handle, collective: Collective, bytes: usize) {
    BLOCKING.set(calls(comm).map(|calls| (calls, calls.begin(collective, bytes))));
}

/// Records the start of a call that does not block, whose end MPI alone will see.
#[cold]
pub fn start(comm: Handle, collective: Collective, bytes: usize) {
    if let Some(calls) = calls(comm) {
        calls.start(collective, bytes);
    }
}

/// Records the return from the call that this thread has forwarded last, and returns its return code.
#[inline]
pub fn end(code: c_int) -> c_int {
    if is_traced()
        && let Some((calls, call)) = BLOCKING.take()
    {
        calls.end(call, code == 0);
    }
    code
}

/// The calls on `comm`, which have been recorded since its first one.
fn calls(comm: Handle) -> Option<&'static OutsideCalls> {
    comm_cache::entry(comm)?.forwarded.get_or_init(|| open(comm)).as_ref()
}

/// The calls on `comm`; nothing for an intercommunicator, whose ranks have no common order.
fn open(comm: Handle) -> Option<OutsideCalls> {
    let (config, name) = (settings::get(), members_in_the_world(comm)?);
    let calls = OutsideCalls::open(config, set_up::traced_process(config), "mpi", (&format!("{name:?}"), name.len()));
    calls.unwrap_or_else(|error| settings::die(&format!("EARLYBIRD_TRACE: {} {error}", error.code())))
}

/// The ranks of `comm` by their numbers in MPI_COMM_WORLD.
fn members_in_the_world(comm: Handle) -> Option<Vec<c_int>> {
    let size = match set_up::members(comm) {
        Ok((_, size)) => size,
        Err(ForwardReason::OneRank) => 1,
        Err(_) => return None,
    };
    let group = |comm| {
        let mut group = 0;
        // SAFETY: MPI runs and `comm` is a communicator; writes one handle.
        (unsafe { abi::PMPI_Comm_group(comm, &mut group) } == 0).then_some(group)
    };
    let (world, members) = (group(constants().world)?, group(comm)?);
    let (ranks, mut names) = (Vec::from_iter(0..size as c_int), vec![0; size]);
    // SAFETY: two groups; reads and writes `size` ints.
    let code =
        unsafe { abi::PMPI_Group_translate_ranks(members, size as c_int, ranks.as_ptr(), world, names.as_mut_ptr()) };
    for mut group in [world, members] {
        // SAFETY: each is freed once.
        unsafe { abi::PMPI_Group_free(&mut group) };
    }
    (code == 0).then_some(names)
}
