//! Another rank's process, and its state as far as the operating system shows it.

/// Another rank's process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its process id in its own pid namespace; 0 for a rank that does not exist.
    pub pid: u32,
    /// The node.
    pub host: String,
}

/// State of a rank's process, as far as the operating system shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
pub enum PeerState {
    /// Running, runnable or asleep; also when its state cannot be seen from here (another container).
    #[strum(serialize = "running")]
    Running,
    /// In a system call that cannot be interrupted, usually for a disk or a network file system.
    #[strum(serialize = "waiting for a disk")]
    Disk,
    /// Stopped by a signal (SIGSTOP, SIGTSTP).
    #[strum(serialize = "stopped")]
    Stopped,
    /// Held by a debugger.
    #[strum(serialize = "held by a debugger")]
    Traced,
    /// Dead, executing another program, or not a member any more.
    #[strum(serialize = "gone")]
    Gone,
}
