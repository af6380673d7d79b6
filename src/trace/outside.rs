//! Calls that another library carries out: the interposer records those that it leaves to MPI beside earlybird's own, so that a trace
//! has every collective of a program.

use super::TracedProcess;
use super::record::CallOutcome;
use super::recorder::{CallTrace, NewRecord, OpenRecord, Recorder};
use crate::{Collective, Config, Error};

/// The calls of this process on one communicator of another library.
#[derive(Debug)]
pub struct OutsideCalls {
    trace: CallTrace,
    /// The entry of the library's name.
    library: u8,
}

/// A call whose end is not on record.
#[derive(Debug, Clone, Copy)]
pub struct OutsideCall(OpenRecord);

impl OutsideCalls {
    /// The calls of `process` on a communicator of `size` ranks that has this name on all of them, in the trace that `config` asks
    /// for, if any. The report has `library` in the place of an algorithm.
    ///
    /// # Errors
    /// [`Error::Usage`] for a size of the trace that holds no call or too many; the errors of creating a file.
    pub fn open(
        config: &Config,
        process: TracedProcess,
        library: &str,
        (name, size): (&str, usize),
    ) -> Result<Option<OutsideCalls>, Error> {
        let Some(recorder) = Recorder::of_process(config, process)? else { return Ok(None) };
        let library = recorder.name_outside(library);
        Ok(Some(OutsideCalls { trace: CallTrace::new(recorder, name, size), library }))
    }

    /// Records the arrival of this rank at a call whose largest block has this many bytes.
    pub fn begin(&self, collective: Collective, bytes: usize) -> OutsideCall {
        OutsideCall(self.trace.begin(NewRecord { collective, bytes }, false))
    }

    /// Records the return from a call.
    pub fn end(&self, OutsideCall(record): OutsideCall, is_done: bool) {
        let outcome = if is_done { CallOutcome::Done } else { CallOutcome::Failed };
        self.trace.end_outside(record, Some(self.library), outcome);
    }

    /// Records a call that this rank starts, and whose end the library alone will see.
    pub fn start(&self, collective: Collective, bytes: usize) {
        let record = self.trace.begin(NewRecord { collective, bytes }, true);
        self.trace.end_outside(record, None, CallOutcome::Released);
    }
}
