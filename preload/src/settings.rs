//! The configuration from the environment, and the end of the job when it is invalid.
#![allow(unsafe_code)]

use crate::{abi, dynamic_linker, stderr, summary};
use earlybird::{Config, FoldOrder, Interpose};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::OnceLock;

/// Returns the configuration; ends the job with a message if it is invalid.
pub fn get() -> &'static Config {
    static SETTINGS: OnceLock<Config> = OnceLock::new();
    SETTINGS.get_or_init(|| {
        let mut config = Config::from_env().unwrap_or_else(|error| die(&format!("{} {error}", error.code())));
        // Users of MPI programs compare results of runs bit by bit.
        if std::env::var_os("EARLYBIRD_ORDER").is_none() {
            config.order = FoldOrder::Rank;
        }
        check_mpi_library();
        summary::set_counting(config.interpose == Interpose::Profile);
        config
    })
}

/// Returns a hash of the configuration, by which ranks compare theirs.
pub fn digest() -> u64 {
    hash(&format!("{:?}", get()))
}

/// Returns a hash that is equal in every process with this library.
pub fn hash(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

/// Ends the process if the program runs on another MPI than this library was built for.
fn check_mpi_library() {
    let Some(runs) = dynamic_linker::other_mpi_version() else { return };
    let (ours, other) = if cfg!(open_mpi) { ("Open MPI", "mpich") } else { ("MPICH", "openmpi") };
    stderr::print_and_drain(&format!(
        "earlybird: this libearlybird_mpi.so was built for {ours}, but the program runs on {runs:?}; build one with the compiler \
         of that MPI, such as: MPICC=mpicc.{other} cargo build --release -p earlybird-preload"
    ));
    // MPI_Abort would need a handle of the other library; the launcher ends the other ranks.
    std::process::exit(1);
}

/// Prints the message and ends the job by MPI_Abort.
pub fn die(message: &str) -> ! {
    stderr::print_and_drain(&format!("earlybird: {message}"));
    if abi::is_running() {
        // SAFETY: MPI runs.
        unsafe { abi::PMPI_Abort(abi::constants().world, 1) };
    }
    std::process::exit(1)
}
