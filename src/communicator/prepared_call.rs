//! A call with its buffers that can be started, on one node or on several.

use super::Communicator;
use crate::hierarchy::Prepared;
use crate::trace::NewRecord;
use crate::{BufferOwner, Error};
use earlybird_shm::{InactiveRequest, Started};

/// A call that can be started, any number of times.
#[derive(Debug)]
pub(super) enum PreparedCall {
    /// A call on one node.
    OneNode(InactiveRequest),
    /// A call on several nodes.
    MultiNode(Box<Prepared>),
}

use PreparedCall::{MultiNode, OneNode};

/// The end of a started call, with its buffers.
pub(super) type Completion = (PreparedCall, Result<(), Error>);

impl PreparedCall {
    /// The buffers; `None` for another type than the call was made with.
    pub(super) fn buffers<B: BufferOwner>(&mut self) -> Option<&mut B> {
        match self {
            OneNode(ready) => ready.buffers(),
            MultiNode(prepared) => prepared.buffers(),
        }
    }

    /// The buffers, consuming the call.
    pub(super) fn into_buffers<B: BufferOwner>(self) -> Option<B> {
        match self {
            OneNode(ready) => ready.into_buffers(),
            MultiNode(prepared) => prepared.into_buffers(),
        }
    }
}

impl Communicator {
    /// Starts a call.
    pub(super) fn start_prepared(
        &self,
        ready: PreparedCall,
        call: NewRecord,
    ) -> Result<Started<Completion>, (PreparedCall, Error)> {
        let ready = match ready {
            OneNode(ready) if self.trace.is_none() => return self.start_on_node(ready),
            ready => ready,
        };
        let started = self.traced_start(call, || match (ready, &self.between) {
            (MultiNode(prepared), Some(between)) => {
                let started = between.start(prepared);
                between.watch();
                started.map_err(|(prepared, error)| (MultiNode(prepared), error))
            }
            (OneNode(ready), _) => {
                let started = self.node.start(ready);
                self.node.watch();
                started.map_err(|(ready, error)| (OneNode(ready), error))
            }
            (ready, None) => Err((ready, Error::usage("the call was prepared by a communicator of several nodes"))),
        });
        started.map(Started::UnderWay)
    }

    fn start_on_node(&self, ready: InactiveRequest) -> Result<Started<Completion>, (PreparedCall, Error)> {
        let started = self.node.start_or_end(ready).map_err(|(ready, error)| (OneNode(ready), error))?;
        if let Started::UnderWay(_) = started {
            self.node.watch();
        }
        Ok(started.map(|(ready, result)| (OneNode(ready), result)))
    }

    /// Makes a call over several nodes from beginning to end.
    pub(super) fn run_prepared(&self, prepared: Box<Prepared>, call: NewRecord) -> Completion {
        let mut ended = None;
        let result = self.traced(call, || {
            let (prepared, result) = match &self.between {
                Some(between) => between.run(prepared),
                None => (prepared, Err(Error::usage("the call was prepared by a communicator of several nodes"))),
            };
            ended = Some(prepared);
            result
        });
        (MultiNode(ended.expect("the call has run")), result)
    }

    /// The call started under this number, when it has ended.
    pub(super) fn finish(&self, number: u64) -> Result<Completion, Error> {
        let ended = self.traced_end(number, || match &self.between {
            Some(between) => between.finish(number).map(|(prepared, result)| Some((MultiNode(prepared), result))),
            None => self.node.finish(number).map(|(ready, result)| Some((OneNode(ready), result))),
        });
        ended.map(|ended| ended.expect("a call that was waited for has ended"))
    }

    /// The call started under this number, if it has ended by now.
    pub(super) fn ask(&self, number: u64) -> Result<Option<Completion>, Error> {
        self.traced_end(number, || match &self.between {
            Some(between) => Ok(between.ask(number)?.map(|(prepared, result)| (MultiNode(prepared), result))),
            None => Ok(self.node.ask(number)?.map(|(ready, result)| (OneNode(ready), result))),
        })
    }

    /// Returns whether the call started under this number has ended, by what was found so far: makes no progress.
    pub(super) fn has_ended(&self, number: u64) -> bool {
        match &self.between {
            Some(between) => between.has_ended(number),
            None => self.node.has_ended(number),
        }
    }

    /// Releases the call started under this number: it is completed inside later calls.
    pub(super) fn detach(&self, number: u64) {
        if let Some(trace) = &self.trace {
            trace.release(number);
        }
        match &self.between {
            Some(between) => between.detach(number),
            None => self.node.detach(number),
        }
    }
}
