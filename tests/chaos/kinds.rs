//! The kinds of violence: what is done to which ranks, what the others must then see, and which kinds the short form runs.

/// An act of a rank or of the driver.
#[derive(Clone, Copy, PartialEq)]
pub enum Act {
    Nothing,
    /// SIGKILL to every victim.
    Kill,
    /// SIGSTOP, later SIGCONT, to every victim.
    Stop,
    /// SIGSTOP to the first victim, SIGKILL to the others, then SIGCONT.
    StopOneKillOthers,
    /// `exit(0)` in mid-call.
    Exit,
    /// Another program in mid-call.
    Exec,
    /// `close_range(3, ~0)`, then the numbers are taken by a file of the user's.
    CloseRange,
    /// Opens and closes every `/proc/self/fd/N`.
    Reopen,
    /// A child by fork that lives on.
    Fork,
    /// The same, then SIGKILL to the parent.
    ForkThenKill,
    /// A child by fork that drops the communicators.
    ForkThenDrop,
    /// Low limits of the victims (`ulimit`).
    Descriptors,
    AddressSpace,
    FileSize,
    Processes,
    /// A meeting directory with no room.
    FullDirectory,
    /// A /dev/shm with no room.
    FullShm,
}

impl Act {
    /// Returns whether a rank may refuse to join because of it.
    pub fn refuses(self) -> bool {
        use Act::*;
        matches!(self, Descriptors | AddressSpace | FileSize | Processes | FullDirectory | FullShm)
    }
}

/// The end that the ranks must have that are no victims.
#[derive(Clone, Copy, PartialEq)]
pub enum Expect {
    /// All calls succeed, in the victims too.
    Success,
    /// An error that names a victim.
    Death,
    /// Success or an error, but an end.
    AnEnd,
}

/// The calls of the ranks meanwhile.
#[derive(Clone, Copy, PartialEq)]
pub enum Load {
    /// Calls of all forms.
    Mixed,
    /// New communicators all the time, each with a first call of its plans.
    Nested,
    /// Joining.
    Joining,
}

pub struct Kind {
    pub name: &'static str,
    pub act: Act,
    pub expect: Expect,
    pub load: Load,
    /// The least number of victims; 1 for exactly one.
    pub victims: usize,
}

const fn kind(name: &'static str, act: Act, expect: Expect, load: Load, victims: usize) -> Kind {
    Kind { name, act, expect, load, victims }
}

pub const KINDS: &[Kind] = &[
    kind("none", Act::Nothing, Expect::Success, Load::Mixed, 1),
    kind("kill", Act::Kill, Expect::Death, Load::Mixed, 1),
    kind("kill-several", Act::Kill, Expect::Death, Load::Mixed, 2),
    kind("kill-in-split", Act::Kill, Expect::Death, Load::Nested, 1),
    kind("kill-in-joining", Act::Kill, Expect::Death, Load::Joining, 1),
    kind("stop", Act::Stop, Expect::Success, Load::Mixed, 1),
    kind("stop-and-kill", Act::StopOneKillOthers, Expect::Death, Load::Mixed, 2),
    kind("exit", Act::Exit, Expect::Death, Load::Mixed, 1),
    kind("exec", Act::Exec, Expect::Death, Load::Mixed, 1),
    kind("close-range", Act::CloseRange, Expect::AnEnd, Load::Mixed, 1),
    kind("reopen", Act::Reopen, Expect::Success, Load::Mixed, 1),
    kind("fork", Act::Fork, Expect::Success, Load::Mixed, 1),
    kind("fork-then-kill", Act::ForkThenKill, Expect::Death, Load::Mixed, 1),
    kind("fork-then-drop", Act::ForkThenDrop, Expect::Success, Load::Mixed, 1),
    kind("descriptors", Act::Descriptors, Expect::AnEnd, Load::Mixed, 2),
    kind("address-space", Act::AddressSpace, Expect::AnEnd, Load::Mixed, 2),
    kind("file-size", Act::FileSize, Expect::AnEnd, Load::Mixed, 2),
    kind("processes", Act::Processes, Expect::AnEnd, Load::Mixed, 2),
    kind("arena", Act::Nothing, Expect::AnEnd, Load::Mixed, 1),
    kind("directory", Act::FullDirectory, Expect::AnEnd, Load::Mixed, 1),
    kind("shm", Act::FullShm, Expect::AnEnd, Load::Mixed, 1),
];

/// The seeds of the short form for every kind, and why there are none.
pub const SHORT: &[(&str, &[u64], &str)] = &[
    ("none", &[1, 2, 3, 4, 5, 6, 7, 8], ""),
    ("kill", &[1, 2, 3, 4], ""),
    ("kill-several", &[1, 2, 7], ""),
    ("kill-in-split", &[1, 2, 3], ""),
    ("kill-in-joining", &[1, 2, 3], ""),
    ("stop", &[1, 5], ""),
    ("stop-and-kill", &[1, 2], ""),
    ("exit", &[1, 2, 9], ""),
    ("exec", &[1, 2], ""),
    ("close-range", &[1, 2, 3], ""),
    ("reopen", &[1, 2, 3], ""),
    ("fork", &[1, 5], ""),
    ("fork-then-kill", &[1, 2], ""),
    ("fork-then-drop", &[1, 5], ""),
    ("descriptors", &[1, 2], ""),
    ("address-space", &[1, 2], ""),
    ("file-size", &[1, 2], ""),
    ("processes", &[1], "no limit for root"),
    ("arena", &[1, 2], ""),
    ("directory", &[], MOUNTS),
    ("shm", &[], MOUNTS),
];

const MOUNTS: &str = "it mounts file systems: only in the mount namespace that tests/long/chaos makes";
