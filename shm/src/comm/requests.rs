//! Calls that are posted now and completed later, of a node: arguments checked, operations prepared once.

use super::alltoallv_buffers::AlltoallvBuffers;
use super::node_comm::{NodeComm, NodeState};
use crate::Error;
use crate::bytes_op::BytesOp;
use crate::checked_args::{check_lengths, check_root, even_part, starts};
use crate::config::Algorithm;
use crate::engine::{self, Drive};
use crate::op::{DType, Datatype, Element, FoldOrder, Op, OpIdentity};
use crate::protocol::active_request::{ActiveRequest, Blocks, Room};
use crate::protocol::call::Prepared;
use crate::protocol::geometry::Exchange;
use crate::protocol::lines::INLINE_BYTES;
use crate::protocol::request_buffers::{GroupedBuffers, OwnedBuffers, RequestBuffers};
use crate::protocol::signature::{Collective, Signature, USER_SIZE_SHIFT};
use crate::protocol::{Report, Stop};
use crate::user_op::{ReduceFn, UserOp, datatype_of};
use bytemuck::Pod;
use std::any::Any;
use std::sync::{Arc, PoisonError};

/// A call with its buffers, ready to be posted, any number of times.
#[derive(Debug)]
pub struct InactiveRequest(Box<ActiveRequest>);

impl InactiveRequest {
    pub(super) fn of(posted: ActiveRequest) -> Self {
        InactiveRequest(Box::new(posted))
    }

    /// The same call as a part of a larger operation with this number, as [`CallOptions::within`](crate::CallOptions) says.
    pub fn within(mut self, number: u16) -> Self {
        self.0.be_within(number);
        self
    }

    /// What this rank gives, where that is no result, and what it gets; `None` for another type than it was made with.
    pub fn buffers<T: Send + 'static>(&mut self) -> Option<(&mut [T], &mut [T])> {
        let held: &mut dyn Any = self.0.held();
        let owned = match held.is::<AlltoallvBuffers<T>>() {
            true => held.downcast_mut::<AlltoallvBuffers<T>>()?.buffers()?,
            false => held.downcast_mut::<OwnedBuffers<T>>()?,
        };
        Some((&mut owned.send, &mut owned.recv))
    }

    /// Puts these vectors where the ones it has are, and those here; whether it is of this type. What is posted has vectors of the
    /// lengths that it was made with.
    pub fn swap<T: Send + 'static>(&mut self, send: &mut Vec<T>, recv: &mut Vec<T>) -> bool {
        let held: &mut dyn Any = self.0.held();
        held.downcast_mut::<OwnedBuffers<T>>().is_some_and(|owned| {
            std::mem::swap(&mut owned.send, send);
            std::mem::swap(&mut owned.recv, recv);
            true
        })
    }

    /// The same, for good.
    pub fn into_buffers<T: Send + 'static>(self) -> Option<OwnedBuffers<T>> {
        let held: Box<dyn Any> = self.0.into_held();
        match held.downcast::<AlltoallvBuffers<T>>() {
            Ok(pairs) => pairs.into_buffers(),
            Err(held) => held.downcast().ok().map(|owned| *owned),
        }
    }

    /// The buffers of a grouped call.
    pub fn parts<T: Element>(&mut self) -> Option<&mut Vec<Vec<T>>> {
        Some(&mut (self.0.held() as &mut dyn Any).downcast_mut::<GroupedBuffers<T>>()?.parts)
    }

    /// The same, for good.
    pub fn into_parts<T: Element>(self) -> Option<Vec<Vec<T>>> {
        let held: Box<dyn Any> = self.0.into_held();
        held.downcast::<GroupedBuffers<T>>().ok().map(|grouped| grouped.parts)
    }
}

/// A call to prepare, but for its type, operator and buffers.
struct StartedArgs<'a> {
    collective: Collective,
    root: Option<usize>,
    blocks: Blocks,
    /// The lengths that ranks compare, where they are not all of one length.
    lens: Option<&'a [usize]>,
}

impl StartedArgs<'_> {
    fn root(&self) -> usize {
        self.root.unwrap_or(0)
    }

    fn signature(&self, element: Datatype, op: OpIdentity, algorithm: Algorithm) -> Signature {
        let count = if let Blocks::Equal(count) = self.blocks { count } else { 0 };
        let asked = Signature::new(self.collective, element, op, FoldOrder::Rank, Algorithm::Auto, count).posted();
        let asked = self.lens.map_or(asked, |lens| asked.unequal(lens));
        self.root.map_or(asked, |root| asked.rooted(root)).in_lane(algorithm == Algorithm::Flat)
    }
}

/// How a posted call ended, with its buffers.
pub type Completion = (InactiveRequest, Result<(), Error>);

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
        owned: OwnedBuffers<T>,
    ) -> Result<InactiveRequest, Error> {
        let blocks = Blocks::Equal(self.block_of(collective, &owned)?);
        self.built(StartedArgs { collective, root, blocks, lens: None }, T::DTYPE, op, Box::new(owned))
    }

    /// The same with blocks of different lengths, block `r` of `counts[r]` elements.
    ///
    /// # Errors
    /// As [`NodeComm::ready`]; [`Error::Usage`] when `counts` does not fit the ranks.
    pub fn ready_varcount<T: Element>(
        &self,
        collective: Collective,
        op: Op,
        root: Option<usize>,
        counts: &[usize],
        owned: OwnedBuffers<T>,
    ) -> Result<InactiveRequest, Error> {
        let blocks = Blocks::Each(counts.to_vec(), starts(counts, self.size)?);
        self.built(StartedArgs { collective, root, blocks, lens: Some(counts) }, T::DTYPE, op, Box::new(owned))
    }

    /// Prepares the reduction of many buffers as one operation, each in its place.
    ///
    /// # Errors
    /// As [`NodeComm::ready`].
    pub fn ready_grouped<T: Element>(&self, op: Op, parts: Vec<Vec<T>>) -> Result<InactiveRequest, Error> {
        let lens: Vec<usize> = parts.iter().map(Vec::len).collect();
        let blocks = Blocks::Equal(lens.iter().sum());
        let asked = StartedArgs { collective: Collective::AllReduce, root: None, blocks, lens: Some(&lens) };
        self.built(asked, T::DTYPE, op, Box::new(GroupedBuffers::new(parts)))
    }

    /// As [`NodeComm::ready`] by an operator of the caller's, which the call keeps.
    ///
    /// # Errors
    /// The errors of [`NodeComm::ready`] and [`NodeComm::execute`].
    pub fn ready_with<T, F>(
        &self,
        collective: Collective,
        op: impl Into<Arc<UserOp<T, F>>>,
        root: Option<usize>,
        owned: OwnedBuffers<T>,
    ) -> Result<InactiveRequest, Error>
    where
        T: Pod + Send,
        F: Fn(&T, &T) -> T + Send + Sync + 'static,
    {
        let op = op.into();
        self.by_user(collective, (datatype_of::<T>()?, op.identity()), op, root, owned)
    }

    /// The same on elements of which only the size is known.
    ///
    /// # Errors
    /// The errors of [`NodeComm::ready`] and [`NodeComm::execute`].
    pub fn ready_raw<F>(
        &self,
        collective: Collective,
        op: impl Into<Arc<BytesOp<F>>>,
        root: Option<usize>,
        owned: OwnedBuffers<u8>,
    ) -> Result<InactiveRequest, Error>
    where
        F: Fn(&[u8], &mut [u8]) + Send + Sync + 'static,
    {
        let op = op.into();
        self.by_user(collective, (op.datatype(), op.identity()), op, root, owned)
    }

    fn by_user<T: Send + 'static>(
        &self,
        collective: Collective,
        (element, operator): (Datatype, OpIdentity),
        op: Arc<dyn ReduceFn + Send>,
        root: Option<usize>,
        owned: OwnedBuffers<T>,
    ) -> Result<InactiveRequest, Error> {
        self.must_fit(collective, element)?;
        let block = self.block_of(collective, &owned)?;
        if block as u64 >> USER_SIZE_SHIFT != 0 {
            return Err(Error::usage(format!(
                "{block} elements of a user's operator are too many; reduce them in parts"
            )));
        }
        let asked = StartedArgs { collective, root, blocks: Blocks::Equal(block), lens: None };
        let mut held: Box<dyn RequestBuffers> = Box::new(owned);
        let algorithm = self.check(&asked, element, &mut *held)?;
        let signature = asked.signature(element, operator, algorithm);
        let prepared = Prepared::of_user(signature, element, self.size, true, algorithm);
        Ok(InactiveRequest(Box::new(
            ActiveRequest::new(prepared, held, asked.root(), asked.blocks, self.room()).folded_by(op),
        )))
    }

    fn built(
        &self,
        asked: StartedArgs<'_>,
        dtype: DType,
        op: Op,
        mut held: Box<dyn RequestBuffers>,
    ) -> Result<InactiveRequest, Error> {
        let collective = asked.collective;
        let algorithm = self.check(&asked, dtype.into(), &mut *held)?;
        let folds = collective.folds() || collective == Collective::Barrier;
        let op = if folds { op } else { Op::Sum };
        let signature = asked.signature(dtype.into(), op.into(), algorithm);
        let by_rank = collective.folds() && dtype.is_inexact(op) && self.size > 2;
        let prepared = Prepared::new(signature, dtype, op, self.size, by_rank, algorithm)?;
        Ok(InactiveRequest(Box::new(ActiveRequest::new(prepared, held, asked.root(), asked.blocks, self.room()))))
    }

    /// Elements of a block of a call on these buffers.
    fn block_of<T>(&self, collective: Collective, owned: &OwnedBuffers<T>) -> Result<usize, Error> {
        let entries = match collective {
            Collective::AllToAll => even_part(owned.send.len(), self.size)?,
            Collective::Scatter | Collective::ReduceScatter | Collective::Broadcast => owned.recv.len(),
            _ if owned.is_in_place() => owned.recv.len(),
            _ => owned.send.len(),
        };
        Ok(entries / owned.values_per_element())
    }

    /// Refuses a root that does not exist and buffers that do not fit; what runs otherwise.
    fn check(
        &self,
        asked: &StartedArgs<'_>,
        element: Datatype,
        held: &mut dyn RequestBuffers,
    ) -> Result<Algorithm, Error> {
        if let Some(root) = asked.root {
            check_root(root, self.size)?;
        }
        let exchange = Exchange::new(asked.collective, asked.root(), self.size, asked.blocks.lens());
        let buffers = held.lend();
        let given = [buffers.send_count(), buffers.recv_count()];
        check_lengths(asked.collective, &exchange, element.size(), given, self.rank, self.size)?;
        let few = exchange.most() * element.size() <= INLINE_BYTES;
        Ok(match asked.collective {
            Collective::AllReduce if !few => Algorithm::Slices,
            _ => Algorithm::Flat,
        })
    }

    pub(super) fn room(&self) -> Room {
        Room { accumulator: self.windows.accumulator, deposit: self.windows.deposit }
    }

    /// Posts a call and gives the number to ask for it by. Never waits for another rank.
    ///
    /// # Errors
    /// [`Error::Usage`] when another thread is in a call, or for buffers of other lengths than the call was made with; the
    /// group's one error. The call comes back.
    pub fn post(&self, mut ready: InactiveRequest) -> Result<u64, (InactiveRequest, Error)> {
        if !ready.0.has_its_lengths() {
            let message =
                "the call has buffers of other lengths than it was prepared with; give those back that it had";
            return Err((ready, Error::usage(message)));
        }
        let mut state = match self.lock() {
            Ok(state) => state,
            Err(error) => return Err((ready, error)),
        };
        self.let_go(&mut state);
        state
            .member
            .post(ready.0)
            .map_err(|(posted, stop)| (InactiveRequest(posted), self.error_of(&state.member, stop)))
    }

    /// The call that was posted under this number, when it has ended; everything else that is posted proceeds meanwhile.
    ///
    /// # Errors
    /// [`Error::Usage`] when another thread is in a call, or for a number that stands for nothing.
    pub fn finish(&self, number: u64) -> Result<Completion, Error> {
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
    pub fn ask(&self, number: u64) -> Result<Option<Completion>, Error> {
        let mut state = self.lock()?;
        self.let_go(&mut state);
        // Who drives does not wait for it: peers are inspected, and deadlines run, for who does.
        let ended = match engine::is_driving() {
            true => state.member.take(number),
            false => state.member.ask(number),
        };
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

    fn settle_in(&self, state: &mut NodeState) -> Result<(), Error> {
        self.let_go(state);
        let settled = state.member.settle();
        settled.map_err(|stop| self.error_of(&state.member, stop))
    }

    /// Forgets the calls that nobody asks for. Called wherever calls are posted or asked for.
    fn let_go(&self, state: &mut NodeState) {
        let mut dropped = self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        for number in dropped.drain(..) {
            state.member.detach(number);
        }
    }

    fn ended(
        &self,
        state: &mut NodeState,
        (mut posted, result): (Box<ActiveRequest>, Result<Report, Stop>),
    ) -> Completion {
        let result = match result {
            Ok(report) => posted.held().end().inspect(|()| state.last = Some(report)),
            Err(stop) => Err(self.error_of(&state.member, stop)),
        };
        (InactiveRequest(posted), result)
    }
}

impl Drive for NodeComm {
    fn drive(&self) -> bool {
        // Whoever is inside a call, this thread perhaps, carries on with what is posted here.
        let Some(state) = self.state.try_lock() else { return true };
        self.inside(state).is_ok_and(|mut state| {
            self.let_go(&mut state);
            state.member.carry_on();
            state.member.has_pending()
        })
    }
}

impl Drop for NodeComm {
    /// Others may need what is posted here: waits for it as a call would, unless this thread is panicking. What this rank
    /// finds different in what others have called, it can only warn of.
    fn drop(&mut self) {
        let state = self.state.get_mut();
        if state.broken || state.member.has_ended() || std::thread::panicking() || self.segment.is_forked_child() {
            return;
        }
        // Nobody is left to tell: the other ranks get the error at their own calls.
        if state.member.failure().is_none()
            && state.member.settle().is_ok()
            && let Err(stop) = state.member.end(false)
            && stop.0.reporter() == self.rank
        {
            let state = self.state.lock();
            crate::warn(format_args!("{}", self.error_of(&state.member, stop)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::JoinOptions;

    #[test]
    fn vectors_come_and_go_but_what_is_posted_has_its_lengths() {
        let alone = JoinOptions { size: 1, key: "vectors".into(), ..JoinOptions::default() };
        let node = NodeComm::join(&alone).unwrap();
        let owned = OwnedBuffers::apart(vec![7u32; 3], vec![0; 3]);
        let mut ready = node.ready(Collective::Reduce, Op::Sum, Some(0), owned).unwrap();
        let (mut send, mut recv) = (Vec::new(), Vec::new());
        assert!(!ready.swap::<u64>(&mut Vec::new(), &mut Vec::new()), "another type");
        assert!(ready.swap::<u32>(&mut send, &mut recv));
        assert_eq!((&send[..], recv.len()), (&[7; 3][..], 3));
        send.pop();
        ready.swap(&mut send, &mut recv);
        let (mut ready, error) = node.post(ready).unwrap_err();
        assert!(matches!(&error, Error::Usage { message } if message.contains("other lengths")), "{error}");
        ready.swap(&mut send, &mut recv);
        send.push(9);
        ready.swap(&mut send, &mut recv);
        let number = node.post(ready).unwrap();
        let (mut ready, result) = node.finish(number).unwrap();
        result.unwrap();
        assert_eq!(ready.buffers::<u32>().unwrap().1, [7, 7, 9]);
    }
}
