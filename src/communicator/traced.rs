//! The calls of a communicator that is traced: each is recorded at its arrival and at its end.

use super::Communicator;
use super::prepared_call::Completion;
use crate::trace::{CallTrace, NewRecord};
use crate::{Choice, CollectiveArgs, Error};

impl Communicator {
    /// The trace of this communicator's calls, if they are recorded: not in a forked child, which has the file of its parent.
    #[inline]
    pub(super) fn call_trace(&self) -> Option<&CallTrace> {
        self.trace.as_deref().filter(|_| !self.node.is_forked())
    }

    /// Makes a blocking call that is recorded, on the fast path where it can take that.
    #[inline(never)]
    pub(super) fn run_traced(&self, trace: &CallTrace, mut args: CollectiveArgs<'_>) -> Result<(), Error> {
        let record = trace.begin(NewRecord::of(&args, self.size), false);
        let result = match self.settings.options_of_all_calls() {
            Some(options) => match self.node.execute_fast(args.set_options(options)) {
                // Apart, since nothing but the node can have carried it out.
                Some(Ok(())) => {
                    let ran = || self.node.last_call().map(|report| (report.algorithm.into(), report.place));
                    trace.end(record, &Ok::<(), Error>(()), ran);
                    return Ok(());
                }
                Some(Err(error)) => Err(*error),
                None => self.node.execute_general(args),
            },
            None => self.route(args),
        };
        trace.end(record, &result, || self.what_ran());
        result
    }

    /// Makes a call, and records it where calls are traced.
    #[inline]
    pub(super) fn traced<T>(&self, call: NewRecord, run: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let Some(trace) = self.call_trace() else { return run() };
        let record = trace.begin(call, false);
        let result = run();
        trace.end(record, &result, || self.what_ran());
        result
    }

    /// Starts a call, and keeps its record under the number that `start` returns.
    pub(super) fn traced_start<E>(
        &self,
        call: NewRecord,
        start: impl FnOnce() -> Result<u64, (E, Error)>,
    ) -> Result<u64, (E, Error)> {
        let Some(trace) = self.call_trace() else { return start() };
        let record = trace.begin(call, true);
        match start() {
            Ok(number) => {
                trace.keep(number, record);
                Ok(number)
            }
            Err((call, error)) => {
                trace.end(record, &Err::<(), _>(error.clone()), || None);
                Err((call, error))
            }
        }
    }

    /// Asks for a started call by `ask`, and records its end if that is what it finds.
    pub(super) fn traced_end(
        &self,
        number: u64,
        ask: impl FnOnce() -> Result<Option<Completion>, Error>,
    ) -> Result<Option<Completion>, Error> {
        let Some(trace) = &self.trace else { return ask() };
        let since = trace.now();
        let ended = ask()?;
        if let Some((_, result)) = &ended {
            trace.end_started((number, since), result, || self.what_ran());
        }
        Ok(ended)
    }

    /// The algorithm of the call that has just ended, and this rank's place in the order of arrival.
    #[inline]
    fn what_ran(&self) -> Option<(Choice, Option<usize>)> {
        self.last_call().map(|report| (report.algorithm, report.place))
    }
}
