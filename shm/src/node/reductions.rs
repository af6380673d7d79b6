//! The reductions of a node: arguments checked and prepared, then run as one operation or as several.

use super::{How, NodeComm, State};
use crate::Error;
use crate::config::Algorithm;
use crate::mapped::Mapped;
use crate::op::{DType, Element, FoldOrder, Op};
use crate::protocol::call::{Collective, Prepared, Signature};
use crate::protocol::payload::Buffers;
use crate::protocol::{Member, Report, Stop};

impl NodeComm {
    /// Reduces `send` of all ranks into `recv` of every rank.
    ///
    /// Any count, 0 included; calls larger than the arena's windows run as several operations. Cost on one node: see
    /// the algorithm files in [`crate::protocol`].
    ///
    /// # Errors
    /// [`Error::Usage`] when the lengths differ or another thread is in a call; the group's one error otherwise. After
    /// an error `recv` holds nothing of use.
    pub fn all_reduce_into<T: Element>(&self, send: &[T], recv: &mut [T], op: Op, how: How) -> Result<(), Error> {
        self.reduce(Collective::AllReduce, op, &Buffers::apart(send, recv)?, how)
    }

    /// Reduces `buf` of all ranks into `buf` of every rank. After an error `buf` holds nothing of use.
    ///
    /// # Errors
    /// As [`NodeComm::all_reduce_into`].
    pub fn all_reduce_in_place<T: Element>(&self, buf: &mut [T], op: Op, how: How) -> Result<(), Error> {
        self.reduce(Collective::AllReduce, op, &Buffers::in_place(buf), how)
    }

    /// Returns when every rank has called it.
    ///
    /// # Errors
    /// As [`NodeComm::all_reduce_into`].
    pub fn barrier(&self, how: How) -> Result<(), Error> {
        self.reduce(Collective::Barrier, Op::Sum, &Buffers::in_place::<u64>(&mut []), how)
    }

    #[inline]
    fn reduce(&self, collective: Collective, op: Op, buffers: &Buffers<'_>, how: How) -> Result<(), Error> {
        let mut state = self.lock()?;
        let asked = Signature::new(collective, buffers.dtype(), op, how.order, how.algorithm, buffers.count());
        if state.prepared.is_none_or(|(last, _)| last != asked) {
            state.prepared = Some((asked, self.prepare(asked, buffers, op, how)));
        }
        let State { member, prepared: Some((_, prepared)), last } = &mut *state else { unreachable!("prepared above") };
        if self.size == 1 {
            buffers.copy();
            *last = Some(Report { epoch: 0, algorithm: Algorithm::Flat, place: None });
            return Ok(());
        }
        match self.run(member, buffers, prepared) {
            Ok(report) => {
                *last = Some(report);
                Ok(())
            }
            Err(stop) => Err(self.error_of(member, stop, collective)),
        }
    }

    /// Works out what follows from the arguments of a call.
    #[cold]
    fn prepare(&self, asked: Signature, buffers: &Buffers<'_>, op: Op, how: How) -> Prepared {
        let (count, dtype) = (buffers.count(), buffers.dtype());
        let exact = !matches!((dtype, op), (DType::F32 | DType::F64, Op::Sum | Op::Product));
        // Every operator here is commutative bit for bit, so two ranks cannot tell the orders apart.
        let by_rank = how.order == FoldOrder::Rank && !exact && self.size > 2;
        let algorithm = self.thresholds.choose(how.algorithm, count * dtype.size(), by_rank);
        Prepared::new(asked.in_lane(algorithm == Algorithm::Flat), dtype, op, by_rank, algorithm)
    }

    /// Runs the call as one operation, or as several where it is larger than the windows of the arena.
    #[inline]
    fn run(&self, member: &mut Member<Mapped>, buffers: &Buffers<'_>, prepared: &Prepared) -> Result<Report, Stop> {
        let (count, element_bytes) = (buffers.count(), buffers.dtype().size());
        let window_bytes = match prepared.algorithm() {
            Algorithm::Chain => self.windows.accumulator,
            _ => self.windows.deposit,
        };
        if count * element_bytes <= window_bytes {
            return member.run(&buffers.call(0..count, prepared));
        }
        let part = window_bytes / element_bytes;
        let mut done = 0;
        loop {
            let until = (done + part).min(count);
            let report = member.run(&buffers.call(done..until, prepared))?;
            if until == count {
                return Ok(report);
            }
            done = until;
        }
    }
}
