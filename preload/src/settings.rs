//! What the environment asks of the interposer, and how the process ends when it asks nonsense.
#![allow(unsafe_code)]

use crate::{abi, loaded, summary};
use earlybird::{Config, FoldOrder, Interpose};
use std::sync::OnceLock;

/// The settings; ends the job with a message if they are refused.
pub fn get() -> &'static Config {
    static SETTINGS: OnceLock<Config> = OnceLock::new();
    SETTINGS.get_or_init(|| {
        let mut config = Config::from_env().unwrap_or_else(|error| die(&format!("{} {error}", error.code())));
        // Those who run MPI programs compare results of runs bit by bit.
        if std::env::var_os("EARLYBIRD_ORDER").is_none() {
            config.order = FoldOrder::Rank;
        }
        must_be_our_mpi();
        summary::count(config.interpose == Interpose::Profile);
        config
    })
}

/// Ends the process where the program runs on another MPI than this library was built for.
fn must_be_our_mpi() {
    let Some(runs) = loaded::another_mpi() else { return };
    let (ours, other) = if cfg!(open_mpi) { ("Open MPI", "mpich") } else { ("MPICH", "openmpi") };
    summary::say_and_be_heard(&format!(
        "earlybird: this libearlybird_mpi.so was built for {ours}, but the program runs on {runs:?}; build one with the compiler \
         of that MPI, such as: MPICC=mpicc.{other} cargo build --release -p earlybird-preload"
    ));
    // MPI_Abort would need a handle of that library; the launcher ends the other ranks.
    std::process::exit(1);
}

/// Says why, and ends the job as MPI_Abort does.
pub fn die(message: &str) -> ! {
    summary::say_and_be_heard(&format!("earlybird: {message}"));
    if abi::is_running() {
        // SAFETY: MPI runs.
        unsafe { abi::PMPI_Abort(abi::constants().world, 1) };
    }
    std::process::exit(1)
}
