//! Standard output, errors and exit codes of the commands.

use crate::job::is_first;
use earlybird::{Error, launch};
use indicatif::{ProgressBar, ProgressStyle};
use std::fmt::Display;
use std::io::{ErrorKind, Write, stdout};
use std::process::ExitCode;

/// Exit code of a request that cannot be carried out as it stands.
pub const EXIT_USAGE: u8 = 2;

/// Prints the error and returns its exit code.
pub fn fail(command: &str, error: &Error) -> ExitCode {
    launch::say(format_args!("earlybird {command}: {error}"));
    match error {
        Error::Usage { .. } | Error::Unsupported { .. } => ExitCode::from(EXIT_USAGE),
        _ => ExitCode::FAILURE,
    }
}

/// Reports an error in arguments that all ranks of a launcher share: the first rank prints the error and fails, the others succeed,
/// because launchers kill a job at its first failure, which could otherwise come before the message. A worker always reports.
pub fn fail_once(command: &str, is_worker: bool, error: &Error) -> ExitCode {
    match is_worker || is_first() {
        true => fail(command, error),
        false => ExitCode::SUCCESS,
    }
}

/// Writes to standard output; a reader that has gone is an error, not a panic.
pub fn print(text: &str) -> Result<(), Error> {
    stdout().write_all(text.as_bytes()).map_err(|error| Error::system("write to standard output", error))
}

/// Prints the answer of a command that starts no ranks, or why there is none. A reader may stop early, as `head` does.
pub fn print_answer(command: &str, answer: Result<String, impl Display>) -> ExitCode {
    match answer.map(|text| stdout().write_all(text.as_bytes())) {
        Err(reason) => {
            eprintln!("earlybird {command}: {reason}");
            ExitCode::from(EXIT_USAGE)
        }
        Ok(Err(error)) if error.kind() != ErrorKind::BrokenPipe => {
            eprintln!("earlybird {command}: cannot write the answer: {error}");
            ExitCode::FAILURE
        }
        Ok(_) => ExitCode::SUCCESS,
    }
}

/// Creates the progress bar of a job: visible on rank 0 only.
pub fn progress_bar(rank: usize, length: usize, template: &str) -> ProgressBar {
    if rank != 0 {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(template);
    ProgressBar::new(length as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
