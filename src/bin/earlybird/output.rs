//! Standard output, errors and exit codes of the commands.

use crate::job::is_first;
use earlybird::{Error, launch};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::fs::File;
use std::io::{ErrorKind, Write, stdout};
use std::path::Path;
use std::process::ExitCode;

/// Exit code of a request that cannot be carried out as it stands.
pub const EXIT_USAGE: u8 = 2;

/// Form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum AnswerFormat {
    /// A table for readers.
    Table,
    /// One value for programs.
    Json,
}

/// Prints the error and returns its exit code.
pub fn fail(command: &str, error: &Error) -> ExitCode {
    launch::say(format_args!("earlybird {command}: {error}"));
    match error {
        Error::Usage { .. } | Error::Unsupported { .. } => ExitCode::from(EXIT_USAGE),
        _ => ExitCode::FAILURE,
    }
}

/// Leaves an error in arguments that all ranks of a launcher share to the first rank, which fails; the others succeed, because
/// launchers kill a job at its first failure, which could otherwise come before the message. A worker always fails.
pub fn fail_once(is_worker: bool, error: Error) -> Result<u8, Error> {
    if is_worker || is_first() { Err(error) } else { Ok(0) }
}

/// Refuses a file that cannot be written, before any work is done for it. What the file holds stays.
pub fn must_be_writable(option: &str, path: &Path) -> Result<(), Error> {
    let is_new = !path.exists();
    let opened = File::options().append(true).create(true).open(path);
    opened.map_err(|error| {
        Error::usage(format!("{option} {}: {error}; name a file that can be written", path.display()))
    })?;
    if is_new {
        // An empty file may be left.
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

/// Writes to standard output. Where its reader has gone, as `head` does, this process ends by SIGPIPE as other programs do; a
/// launcher takes the other ranks along and says nothing.
pub fn print(text: &str) -> Result<(), Error> {
    match stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {
            let not_ended = signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGPIPE);
            not_ended.map_err(|error| Error::system("end by SIGPIPE", error))
        }
        written => written.map_err(|error| Error::system("write to standard output", error)),
    }
}

/// Writes a file that was asked for.
pub fn write_file(path: &Path, text: &str) -> Result<(), Error> {
    std::fs::write(path, text).map_err(|error| Error::system(format!("write {}", path.display()), error))
}

/// The answer of a command for programs.
pub fn json(answer: &impl Serialize) -> String {
    serde_json::to_string_pretty(answer).expect("answers are of strings and numbers") + "\n"
}

/// Creates the progress bar of a job: visible on rank 0 only.
pub fn progress_bar(rank: usize, template: &str) -> ProgressBar {
    if rank != 0 {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(template);
    ProgressBar::no_length().with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
