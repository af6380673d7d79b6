//! What the environment asks of the interposer, and how the process ends when it asks nonsense.
#![allow(unsafe_code)]

use crate::{abi, summary};
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
        if config.interpose == Interpose::Profile {
            summary::count();
        }
        config
    })
}

/// Says why, and ends the job as MPI_Abort does.
pub fn die(message: &str) -> ! {
    eprintln!("earlybird: {message}");
    if abi::is_running() {
        // SAFETY: MPI runs.
        unsafe { abi::PMPI_Abort(abi::constants().world, 1) };
    }
    std::process::exit(1)
}
