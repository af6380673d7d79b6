//! From checked arguments to operations: prepared once while calls repeat, run whole or window by window.

use super::again::{Asked, Kept};
use super::{How, NodeComm, State};
use crate::Error;
use crate::config::Algorithm;
use crate::mapped::Mapped;
use crate::op::{ElementType, FoldOrder, Op, Operator};
use crate::protocol::call::Prepared;
use crate::protocol::decide;
use crate::protocol::geometry::{Exchange, Lens};
use crate::protocol::payload::Buffers;
use crate::protocol::signature::{Collective, Signature, USER_SIZE_SHIFT};
use crate::protocol::{Member, Report, Stop};
use crate::user_op::UserFold;

/// By what a call folds.
#[derive(Debug, Clone, Copy)]
pub(super) enum Folding<'a> {
    Built(Op),
    /// A user's operator, and what it is in a signature.
    User(&'a dyn UserFold, Operator),
}

impl Folding<'_> {
    fn operator(&self) -> Operator {
        match *self {
            Folding::Built(op) => op.into(),
            Folding::User(_, operator) => operator,
        }
    }
}

/// A call as the user makes it, but for its buffers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wish<'a> {
    pub collective: Collective,
    /// The operator, of a collective that folds.
    pub op: Folding<'a>,
    pub root: Option<usize>,
    /// Elements of a block, or of each block.
    pub lens: Lens<'a>,
    pub how: How,
}

impl Wish<'_> {
    fn signature(&self, buffers: &Buffers<'_>) -> Signature {
        let folds = self.collective.folds() || self.collective == Collective::Barrier;
        let (op, order) =
            if folds { (self.op.operator(), self.how.order) } else { (Op::Sum.into(), FoldOrder::Arrival) };
        let has = decide::algorithms(self.collective).contains(&self.how.algorithm);
        let algorithm = if has { self.how.algorithm } else { Algorithm::Auto };
        let count = if let Lens::Equal(count) = self.lens { count } else { 0 };
        let asked = Signature::new(self.collective, buffers.element(), op, order, algorithm, count);
        let asked = match self.lens {
            Lens::Equal(_) => asked,
            Lens::Each(lens, _) => asked.unequal(lens),
            // The other counts were compared before.
            Lens::Pairs(pairs) => asked.unequal(&[pairs.most]),
        };
        let asked = asked.within(self.how.within);
        let asked = buffers.mark(asked);
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
        let State { member, kept, last, .. } = state;
        // A group of one has nothing to prepare for.
        let asked = Asked::of(wish, buffers).filter(|_| self.size > 1);
        let lent;
        let prepared = match (wish.op, kept) {
            (Folding::Built(_), Some(kept)) if asked.is_some() && kept.asked == asked => &kept.prepared,
            // What follows from its arguments is not kept, since the operator is only lent.
            (Folding::User(operator, _), _) => {
                lent = self.prepare_lent(wish.signature(buffers), wish, buffers, operator)?;
                &lent
            }
            (Folding::Built(op), kept) => {
                let signature = wish.signature(buffers);
                if kept.as_ref().is_none_or(|kept| kept.signature != signature) {
                    let crowded = member.patience.oversubscribed;
                    let prepared = self.prepare(signature, wish, buffers, op, crowded)?;
                    *kept = Some(Kept { signature, prepared, asked });
                }
                let Some(kept) = kept else { unreachable!("kept above") };
                kept.asked = asked;
                &kept.prepared
            }
        };
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
            Err(stop) => Err(self.error_of(member, stop)),
        }
    }

    /// Works out what follows from the arguments of a call.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a pair of type and operator that does not exist.
    #[cold]
    fn prepare(
        &self,
        asked: Signature,
        wish: &Wish<'_>,
        buffers: &Buffers<'_>,
        op: Op,
        crowded: bool,
    ) -> Result<Prepared<'static>, Error> {
        let element = buffers.element();
        let ElementType::Built(dtype) = element else { unreachable!("elements of a built-in operator") };
        // Every other pair is commutative bit for bit, so two ranks cannot tell the orders apart.
        let shows = wish.collective.folds() && dtype.is_inexact(op) && self.size > 2;
        let by_rank = wish.how.order == FoldOrder::Rank && shows;
        let algorithm = match asked.is_lent() {
            true if buffers.are_lent() => self.choose_lent(wish, buffers, by_rank, crowded),
            true => Algorithm::Slices,
            false => self.choose(wish, element, by_rank),
        };
        Prepared::new(asked.in_lane(algorithm == Algorithm::Flat), dtype, op, self.size, by_rank, algorithm)
    }

    /// The same for a user's operator.
    ///
    /// # Errors
    /// [`Error::Usage`] for more elements than a signature can tell, [`Error::Unsupported`] for elements that no deposit
    /// can hold.
    #[cold]
    fn prepare_lent<'a>(
        &self,
        asked: Signature,
        wish: &Wish<'_>,
        buffers: &Buffers<'_>,
        operator: &'a dyn UserFold,
    ) -> Result<Prepared<'a>, Error> {
        let (element, count) = (buffers.element(), buffers.count());
        if count as u64 >> USER_SIZE_SHIFT != 0 {
            return Err(Error::usage(format!(
                "{count} elements of a user's operator are too many; reduce them in parts"
            )));
        }
        self.must_fit(wish.collective, element)?;
        // Nobody can know whether the order of folding shows in a user's type.
        let ordered = matches!(wish.op.operator(), Operator::User { ordered: true, .. });
        let by_rank = ordered || wish.how.order == FoldOrder::Rank;
        let algorithm = self.choose(wish, element, by_rank);
        let signature = asked.in_lane(algorithm == Algorithm::Flat);
        Ok(Prepared::with_user(signature, element, operator, self.size, by_rank, algorithm))
    }

    fn choose(&self, wish: &Wish<'_>, element: ElementType, by_rank: bool) -> Algorithm {
        let most = match (wish.collective, wish.lens) {
            // A grouped call is one message.
            (Collective::AllReduce, Lens::Each(_, starts)) => starts.last().copied().unwrap_or(0),
            _ => Exchange::new(wish.collective, wish.root.unwrap_or(0), self.size, wish.lens).most(),
        };
        self.thresholds.choose(wish.collective, wish.how.algorithm, most.saturating_mul(element.size()), by_rank)
    }

    /// How to reduce buffers that lie in shared memory: where they lie, or by copying them as if they were private. Ranks may
    /// propose different ways, the first one's counts.
    fn choose_lent(&self, wish: &Wish<'_>, buffers: &Buffers<'_>, by_rank: bool, crowded: bool) -> Algorithm {
        // Whole: a call on such buffers is one operation.
        let can_copy = !by_rank && buffers.count() * buffers.element().size() <= self.windows.accumulator / 2;
        match wish.how.algorithm {
            Algorithm::Chain if can_copy => Algorithm::Chain,
            Algorithm::Auto if can_copy && crowded => Algorithm::Chain,
            _ => Algorithm::Slices,
        }
    }

    /// Runs the call as one operation, or as several where it is larger than the windows of the arena.
    #[inline]
    fn run(&self, member: &mut Member<Mapped>, buffers: &Buffers<'_>, prepared: &Prepared<'_>) -> Result<Report, Stop> {
        let count = buffers.count();
        let window_bytes = match prepared.algorithm() {
            Algorithm::Chain => self.windows.accumulator,
            _ => self.windows.deposit,
        };
        if count.saturating_mul(prepared.accumulator_bytes()) <= window_bytes || buffers.are_lent() {
            return member.run(&buffers.call(0..count, prepared));
        }
        let accumulated = self.windows.accumulator / prepared.accumulator_bytes();
        let part = accumulated.min(window_bytes / buffers.element().size());
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
        prepared: &Prepared<'_>,
    ) -> Result<Report, Stop> {
        let exchange = Exchange::new(wish.collective, wish.root.unwrap_or(0), self.size, wish.lens);
        let mut report = None;
        for window in exchange.windows(buffers.element().size(), self.windows.deposit) {
            report = Some(member.run(&buffers.window(&window, prepared))?);
        }
        Ok(report.expect("an exchange has a window"))
    }
}
