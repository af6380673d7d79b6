//! Starting, testing and completing non-blocking operations, which make progress while the rank computes.

use super::active_request::{ActiveRequest, Effort};
use super::board::Board;
use super::fault;
use super::member::{Member, mix};
use super::operation::{RankContext, Report, Stop};
use super::request_queue::find;
use crate::config::Algorithm;

/// A call that was started. `E` is what comes back at its end.
#[derive(Debug)]
pub enum Started<E> {
    /// Under way under this number, by which it is completed.
    UnderWay(u64),
    /// Complete already.
    Ended(E),
}

impl<E> Started<E> {
    /// The same with what `end` makes of the end.
    pub fn map<F>(self, end: impl FnOnce(E) -> F) -> Started<F> {
        match self {
            Started::UnderWay(number) => Started::UnderWay(number),
            Started::Ended(ended) => Started::Ended(end(ended)),
        }
    }
}

/// A started call that is complete.
type Complete = (Box<ActiveRequest>, Report);

impl<B: Board> Member<B> {
    /// Starts `request`; never waits. A contribution whose memory is not free yet is queued, and deposited inside a later call.
    ///
    /// # Errors
    /// The call with its buffers, and the error of the group, which has failed.
    pub fn start(&mut self, mut request: Box<ActiveRequest>) -> Result<Started<Complete>, (Box<ActiveRequest>, Stop)> {
        let first = self.epoch + 1;
        request.begin(first, self.history);
        self.counts.moved();
        if self.board.ranks() == 1 {
            request.copy();
            self.epoch += request.segments;
            self.pending.last = self.epoch;
            return Ok(Started::Ended((request, Report::ticketless(0, Algorithm::Flat))));
        }
        let is_complete = if request.make_ready(&self.board) { self.start_small(&mut request) } else { None };
        if is_complete.is_none() {
            self.epoch += request.segments;
        }
        self.pending.last = self.epoch;
        // Once for all its operations, in the order of the calls.
        self.history = mix(self.history ^ request.prepared.hash);
        match is_complete {
            Some(true) => {
                request.buffers.leaving();
                self.pending.leave(&self.board, self.epoch + 1);
                self.counts.moved();
                let report = request.report();
                return Ok(Started::Ended((request, report)));
            }
            Some(false) => self.pending.active.push_back(request),
            None => {
                if let Some(stop) = fault::failed(&self.board).filter(|stop| stop.0.epoch() <= first) {
                    return Err((request, stop));
                }
                self.pending.active.push_back(request);
                self.progress();
            }
        }
        Ok(Started::UnderWay(first))
    }

    /// The number of a call that was started, by which it is completed: one that is complete is kept until then.
    pub fn number_of(&mut self, started: Started<Complete>) -> u64 {
        match started {
            Started::UnderWay(number) => number,
            Started::Ended((request, _)) => {
                let number = request.id;
                self.pending.keep(request);
                number
            }
        }
    }

    /// The call of this number, if it is complete or has failed; inspects the peers if an inspection is due.
    pub fn ask(&mut self, id: u64) -> Option<(Box<ActiveRequest>, Result<Report, Stop>)> {
        if !self.is_done(id) {
            self.progress();
        }
        self.complete(id, Effort::Poll)
    }

    /// The call of this number, if it is complete or has failed; never inspects the peers.
    pub fn take(&mut self, id: u64) -> Option<(Box<ActiveRequest>, Result<Report, Stop>)> {
        self.progress();
        self.complete(id, Effort::Now)
    }

    /// Returns whether the call of this number is known to be complete; makes no progress.
    pub fn is_done(&self, id: u64) -> bool {
        find(&self.pending.done, id).is_some()
    }

    /// Waits until the call of this number is complete or has failed; `None` for a number that no call has or that was taken.
    pub fn finish(&mut self, id: u64) -> Option<(Box<ActiveRequest>, Result<Report, Stop>)> {
        if !self.pending.is_empty() {
            self.progress();
        }
        self.complete(id, Effort::Wait)
    }

    fn complete(&mut self, id: u64, effort: Effort) -> Option<(Box<ActiveRequest>, Result<Report, Stop>)> {
        let Member { board, patience, all_left, counts, pending, epoch, .. } = self;
        if let Some(request) = pending.take_done(id) {
            let result = match (request.failed, board.ranks()) {
                (Some(stop), _) => Err(stop),
                (None, 1) => Ok(Report::ticketless(0, Algorithm::Flat)),
                (None, _) => Ok(request.report()),
            };
            return Some((request, result));
        }
        let i = find(&pending.active, id)?;
        // The caller has just made what progress there is.
        if effort == Effort::Poll && !pending.active[i].is_to_be_inspected(board) {
            return None;
        }
        let mut request = pending.active.remove(i)?;
        loop {
            let context = RankContext { board, patience, all_left, counts, pending: pending.as_pending() };
            let ended = match request.failed {
                Some(stop) => Err(stop),
                None => request.progress(context, effort),
            };
            match ended {
                Ok(true) if request.next_segment() => pending.leave(board, request.epoch),
                Ok(true) => {
                    pending.leave(board, *epoch + 1);
                    let report = request.report();
                    return Some((request, Ok(report)));
                }
                Ok(false) if effort == Effort::Wait => {}
                Ok(false) => {
                    pending.active.insert(i, request);
                    return None;
                }
                Err(stop) => {
                    request.failed = Some(stop);
                    return Some((request, Err(stop)));
                }
            }
        }
    }

    /// Releases the call of this number: it is completed inside later calls, which then drop its buffers.
    pub fn detach(&mut self, id: u64) {
        if let Some(mut request) = self.pending.take_done(id) {
            request.release();
        } else if let Some(i) = find(&self.pending.active, id) {
            self.pending.active[i].detached = true;
        }
    }

    /// Completes all started calls.
    ///
    /// # Errors
    /// The error of the group, if it has failed.
    pub fn settle(&mut self) -> Result<(), Stop> {
        while let Some(first) = self.pending.active.front() {
            let id = first.id;
            let Some((request, result)) = self.finish(id) else { continue };
            let failed = result.err();
            self.pending.keep(request);
            if let Some(stop) = failed {
                return Err(stop);
            }
        }
        Ok(())
    }

    /// Returns whether a started call is not complete.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }
}
