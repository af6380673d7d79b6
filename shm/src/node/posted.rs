//! Calls that are posted now and completed later, of a node: arguments checked, operations prepared once.

use super::{NodeComm, State};
use crate::Error;
use crate::config::Algorithm;
use crate::op::{Element, FoldOrder, Op};
use crate::protocol::call::Prepared;
use crate::protocol::geometry::{Exchange, Lens};
use crate::protocol::lines::INLINE_BYTES;
use crate::protocol::posted::{Held, Owned, Posted, Room};
use crate::protocol::signature::{Collective, Signature};
use crate::protocol::{Report, Stop};
use std::sync::PoisonError;

/// A call with its buffers, ready to be posted, any number of times.
#[derive(Debug)]
pub struct Ready(Box<Posted>);

impl Ready {
    /// What this rank gives, where that is no result, and what it gets; `None` for another type than it was made with.
    pub fn buffers<T: Element>(&mut self) -> Option<(&mut [T], &mut [T])> {
        let owned = (self.0.held() as &mut dyn std::any::Any).downcast_mut::<Owned<T>>()?;
        Some((&mut owned.send, &mut owned.recv))
    }

    /// The same, for good.
    pub fn into_buffers<T: Element>(self) -> Option<Owned<T>> {
        let held: Box<dyn std::any::Any> = self.0.into_held();
        held.downcast().ok().map(|owned| *owned)
    }
}

/// How a posted call ended, with its buffers.
pub type Ended = (Ready, Result<(), Error>);

impl NodeComm {
    /// Prepares a call that can be posted: `op` counts where `collective` folds, `root` where it has one. What this rank
    /// gives and gets are the vectors of `owned`, empty where it gives or gets nothing.
    ///
    /// Blocks up to 104 bytes exchange beside their marks, larger reductions to all run [`Algorithm::Slices`], everything
    /// else exchanges. Folds are always by rank where that shows.
    ///
    /// # Errors
    /// [`Error::Usage`] for a root that does not exist and for lengths that do not fit, [`Error::Unsupported`] when
    /// `op` does not exist for `T`.
    pub fn ready<T: Element>(
        &self,
        collective: Collective,
        op: Op,
        root: Option<usize>,
        mut owned: Owned<T>,
    ) -> Result<Ready, Error> {
        if let Some(root) = root {
            self.check_root(root)?;
        }
        let dtype = T::DTYPE;
        let block = match collective {
            Collective::AllToAll => self.even_part(owned.send.len())?,
            Collective::Scatter | Collective::ReduceScatter | Collective::Broadcast => owned.recv.len(),
            _ if owned.in_place => owned.recv.len(),
            _ => owned.send.len(),
        };
        let exchange = Exchange::new(collective, root.unwrap_or(0), self.size, Lens::Equal(block));
        let buffers = owned.lend();
        self.check_lengths(collective, &exchange, [buffers.send_count(), buffers.recv_count()])?;
        let folds = collective.folds() || collective == Collective::Barrier;
        let op = if folds { op } else { Op::Sum };
        let few = block * size_of::<T>() <= INLINE_BYTES;
        let algorithm = match collective {
            Collective::AllReduce if !few => Algorithm::Slices,
            _ => Algorithm::Flat,
        };
        let signature = Signature::new(collective, dtype, op, FoldOrder::Rank, Algorithm::Auto, block).posted();
        let signature = root.map_or(signature, |root| signature.rooted(root));
        let by_rank = collective.folds() && dtype.is_inexact(op) && self.size > 2;
        let signature = signature.in_lane(algorithm == Algorithm::Flat);
        let prepared = Prepared::new(signature, dtype, op, self.size, by_rank, algorithm)?;
        let room = Room { accumulator: self.windows.accumulator, deposit: self.windows.deposit };
        Ok(Ready(Box::new(Posted::new(prepared, Box::new(owned), root.unwrap_or(0), block, room))))
    }

    /// Posts a call and gives the number to ask for it by. Never waits for another rank.
    ///
    /// # Errors
    /// [`Error::Usage`] when another thread is in a call; the group's one error. The call comes back.
    pub fn post(&self, ready: Ready) -> Result<u64, (Ready, Error)> {
        let mut state = match self.lock() {
            Ok(state) => state,
            Err(error) => return Err((ready, error)),
        };
        self.let_go(&mut state);
        let collective = ready.0.collective();
        state
            .member
            .post(ready.0)
            .map_err(|(posted, stop)| (Ready(posted), self.error_of(&state.member, stop, collective)))
    }

    /// The call that was posted under this number, when it has ended; everything else that is posted proceeds meanwhile.
    ///
    /// # Errors
    /// [`Error::Usage`] when another thread is in a call, or for a number that stands for nothing.
    pub fn finish(&self, number: u64) -> Result<Ended, Error> {
        let mut state = self.lock()?;
        self.let_go(&mut state);
        let ended = state.member.finish(number);
        let ended = ended.ok_or_else(|| Error::usage(format!("no call is posted under the number {number}")))?;
        Ok(self.ended(&mut state, ended))
    }

    /// The same if it has ended by now; never waits.
    ///
    /// # Errors
    /// [`Error::Usage`] when another thread is in a call.
    pub fn ask(&self, number: u64) -> Result<Option<Ended>, Error> {
        let mut state = self.lock()?;
        self.let_go(&mut state);
        let ended = state.member.ask(number);
        Ok(ended.map(|ended| self.ended(&mut state, ended)))
    }

    /// Nobody will ask for the call posted under this number: it is completed inside later calls.
    pub fn detach(&self, number: u64) {
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner).push(number);
        // Where another thread is in a call, a later one does it.
        if let Ok(mut state) = self.lock() {
            self.let_go(&mut state);
        }
    }

    /// Waits until everything that was posted has ended.
    ///
    /// # Errors
    /// The group's one error; [`Error::Usage`] when another thread is in a call.
    pub fn settle(&self) -> Result<(), Error> {
        let mut state = self.lock()?;
        self.settle_in(&mut state)
    }

    fn settle_in(&self, state: &mut State) -> Result<(), Error> {
        self.let_go(state);
        let settled = state.member.settle();
        settled.map_err(|stop| self.error_of(&state.member, stop, Collective::Barrier))
    }

    /// Forgets the calls that nobody asks for. Called wherever calls are posted or asked for.
    fn let_go(&self, state: &mut State) {
        let mut dropped = self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        for number in dropped.drain(..) {
            state.member.detach(number);
        }
    }

    fn ended(&self, state: &mut State, (posted, result): (Box<Posted>, Result<Report, Stop>)) -> Ended {
        let result = match result {
            Ok(report) => {
                state.last = Some(report);
                Ok(())
            }
            Err(stop) => Err(self.error_of(&state.member, stop, posted.collective())),
        };
        (Ready(posted), result)
    }
}

impl Drop for NodeComm {
    /// Others may need what is posted here: waits for it as a call would, unless this thread is panicking.
    fn drop(&mut self) {
        let Ok(state) = self.state.get_mut() else { return };
        let waits = state.member.has_pending() && !std::thread::panicking();
        if waits && !state.member.board.segment().is_forked_child() {
            // Nobody is left to tell: the other ranks get the error at their own calls.
            let _ = state.member.settle();
        }
    }
}
