//! From checked arguments to operations: prepared once while calls repeat, run whole or window by window.

use super::{How, NodeComm, State};
use crate::Error;
use crate::config::Algorithm;
use crate::mapped::Mapped;
use crate::op::{DType, FoldOrder, Op};
use crate::protocol::call::{Collective, Prepared, Signature};
use crate::protocol::decide;
use crate::protocol::geometry::{Exchange, Lens};
use crate::protocol::payload::Buffers;
use crate::protocol::{Member, Report, Stop};

/// A call as the user makes it, but for its buffers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wish<'a> {
    pub collective: Collective,
    /// The operator, of a collective that folds.
    pub op: Op,
    pub root: Option<usize>,
    /// Elements of a block, or of each block.
    pub lens: Lens<'a>,
    pub how: How,
}

impl Wish<'_> {
    fn signature(&self, dtype: DType) -> Signature {
        let folds = self.collective.folds() || self.collective == Collective::Barrier;
        let (op, order) = if folds { (self.op, self.how.order) } else { (Op::Sum, FoldOrder::Arrival) };
        let has = decide::algorithms(self.collective).contains(&self.how.algorithm);
        let algorithm = if has { self.how.algorithm } else { Algorithm::Auto };
        let count = if let Lens::Equal(count) = self.lens { count } else { 0 };
        let asked = Signature::new(self.collective, dtype, op, order, algorithm, count);
        let asked = if let Lens::Each(lens, _) = self.lens { asked.unequal(lens) } else { asked };
        self.root.map_or(asked, |root| asked.rooted(root))
    }
}

impl NodeComm {
    /// Carries out a call whose buffers have the lengths that it needs.
    #[inline]
    pub(super) fn carry_out(&self, wish: &Wish<'_>, buffers: &Buffers<'_>) -> Result<(), Error> {
        self.carry_out_in(&mut *self.lock()?, wish, buffers)
    }

    /// The same for a caller that holds the handle already.
    #[inline]
    pub(super) fn carry_out_in(&self, state: &mut State, wish: &Wish<'_>, buffers: &Buffers<'_>) -> Result<(), Error> {
        let asked = wish.signature(buffers.dtype());
        if state.prepared.is_none_or(|(last, _)| last != asked) {
            state.prepared = Some((asked, self.prepare(asked, wish, buffers.dtype())));
        }
        let State { member, prepared: Some((_, prepared)), last } = state else { unreachable!("prepared above") };
        if self.size == 1 {
            buffers.copy();
            *last = Some(Report { epoch: 0, algorithm: Algorithm::Flat, place: None });
            return Ok(());
        }
        let done = match prepared.exchanges() {
            true => self.run_exchange(member, wish, buffers, prepared),
            false => self.run(member, buffers, prepared),
        };
        match done {
            Ok(report) => {
                *last = Some(report);
                Ok(())
            }
            Err(stop) => Err(self.error_of(member, stop, wish.collective)),
        }
    }

    /// Works out what follows from the arguments of a call.
    #[cold]
    fn prepare(&self, asked: Signature, wish: &Wish<'_>, dtype: DType) -> Prepared {
        let exact = !matches!((dtype, wish.op), (DType::F32 | DType::F64, Op::Sum | Op::Product));
        // Every operator here is commutative bit for bit, so two ranks cannot tell the orders apart.
        let by_rank = wish.collective.folds() && wish.how.order == FoldOrder::Rank && !exact && self.size > 2;
        let most = Exchange::new(wish.collective, wish.root.unwrap_or(0), self.size, wish.lens).most();
        let bytes = most * dtype.size();
        let algorithm = self.thresholds.choose(wish.collective, wish.how.algorithm, bytes, by_rank);
        Prepared::new(asked.in_lane(algorithm == Algorithm::Flat), dtype, wish.op, by_rank, algorithm)
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

    /// Runs an exchange, window by window.
    fn run_exchange(
        &self,
        member: &mut Member<Mapped>,
        wish: &Wish<'_>,
        buffers: &Buffers<'_>,
        prepared: &Prepared,
    ) -> Result<Report, Stop> {
        let exchange = Exchange::new(wish.collective, wish.root.unwrap_or(0), self.size, wish.lens);
        let mut report = None;
        for window in exchange.windows(buffers.dtype().size(), self.windows.deposit) {
            report = Some(member.run(&buffers.window(&window, prepared))?);
        }
        Ok(report.expect("an exchange has a window"))
    }
}
