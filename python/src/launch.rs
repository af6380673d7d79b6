//! The launcher of `earlybird run` for `python -m earlybird`: the job's processes are started through this interpreter in place of
//! the `earlybird` binary.

use crate::errors::OrException;
use earlybird::Error;
use earlybird::launch::{Bind, Job, Wrapper, exec, watchdog};
use pyo3::prelude::*;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Runs a job and returns its exit code. `wrapper` is the command line to which the hidden commands are added.
#[expect(clippy::too_many_arguments, reason = "they are Python's, by name")]
#[pyfunction]
#[pyo3(signature = (ranks, command, wrapper, *, timeout=None, grace=5.0, prefix=false, bind=true))]
pub fn run_job(
    py: Python<'_>,
    ranks: usize,
    command: Vec<OsString>,
    wrapper: Vec<OsString>,
    timeout: Option<f64>,
    grace: f64,
    prefix: bool,
    bind: bool,
) -> PyResult<u8> {
    py.detach(|| {
        let seconds = |seconds: f64| {
            Duration::try_from_secs_f64(seconds).map_err(|error| Error::usage(format!("{seconds} seconds: {error}")))
        };
        let (program, args) = split(command, "the command is empty; give a program")?;
        let (interpreter, hidden) = split(wrapper, "the wrapper is empty; give the interpreter")?;
        let mut job = Job::new("earlybird run", PathBuf::new(), ranks, program, args);
        job.wrapper = Wrapper::new(interpreter.into(), hidden);
        job.timeout = timeout.map(seconds).transpose()?;
        job.grace = seconds(grace)?;
        job.prefix = prefix;
        job.bind = if bind { Bind::Core } else { Bind::None };
        Ok(job.run()?.exit_code())
    })
    .or_exception(py)
}

fn split(mut command: Vec<OsString>, refused: &str) -> Result<(OsString, Vec<OsString>), Error> {
    match command.is_empty() {
        true => Err(Error::usage(refused)),
        false => Ok((command.remove(0), command)),
    }
}

/// Carries out a hidden command of the launcher; returns its exit code, `None` for a command that is none.
#[pyfunction]
pub fn hidden_command(py: Python<'_>, args: Vec<OsString>) -> Option<u8> {
    let mut args = args.into_iter();
    let command = args.next()?;
    py.detach(|| match command.to_str() {
        Some(exec::COMMAND) => Some(exec::become_rank(args)),
        Some(watchdog::COMMAND) => {
            watchdog::watch();
            Some(0)
        }
        _ => None,
    })
}
