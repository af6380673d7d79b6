//! Every blocking call: arguments checked, prepared once while calls repeat, run whole or window by window.

use super::call_cache::{CachedCall, CachedPayload, CallKey};
use super::node_comm::{NodeComm, NodeState, PeerReads};
use crate::Error;
use crate::args::{CollectiveArgs, Counts, Placement};
use crate::checked_args::CheckedArgs;
use crate::config::Algorithm;
use crate::engine;
use crate::mapped::Mapped;
use crate::op::{DType, Datatype, FoldOrder, Op, OpIdentity};
use crate::protocol::call::Prepared;
use crate::protocol::collective::Collective;
use crate::protocol::decide::folds_in_rank_order;
use crate::protocol::lengths::Announced;
use crate::protocol::payload::Buffers;
use crate::protocol::signature::Signature;
use crate::protocol::window::{Window, announced_stride};
use crate::protocol::{Member, Report, Stop};
use crate::reduce_op::ReduceOp;

/// Facts that a choice depends on besides the call, equal on all ranks.
struct Facts {
    oversubscribed: bool,
    peer_reads: PeerReads,
}

impl NodeComm {
    /// Carries out a call. The collectives are described by the constructors of [`CollectiveArgs`]; calls larger than the
    /// windows of the arena run as several operations. Cost on one node: see the algorithm files in [`crate::protocol`].
    ///
    /// # Errors
    /// The errors of [`CollectiveArgs::check`], before any other rank is involved; [`Error::Usage`] when another thread is in a call;
    /// [`Error::Unsupported`] for elements of a user's type larger than the windows; [`Error::OperatorPanicked`] on every
    /// rank when a user's operator panics in one; for an alltoall of unequal blocks [`Error::Mismatch`] on all ranks, which
    /// go on, where a rank sends another number than is expected of it. Otherwise the group's one error. After an error of a call that has
    /// begun the receive buffer holds nothing of use.
    #[inline(always)]
    pub fn execute(&self, args: CollectiveArgs<'_>) -> Result<(), Error> {
        match self.execute_fast(&args) {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(*error),
            None => self.execute_general(args),
        }
    }

    /// The same for a small call with the arguments of an earlier one; `None`, with nothing done, for any other one.
    #[inline(always)]
    pub fn execute_fast(&self, args: &CollectiveArgs<'_>) -> Option<Result<(), Box<Error>>> {
        let (key, payload) = CallKey::of(args)?;
        self.execute_cached(key, payload)
    }

    /// The same for any call.
    ///
    /// # Errors
    /// The errors of [`NodeComm::execute`].
    #[cold]
    #[inline(never)]
    pub fn execute_general(&self, args: CollectiveArgs<'_>) -> Result<(), Error> {
        match self.take_listed_counts(&args) {
            Some(counts) => self.execute(args.counts(Counts::PerRank(&counts))),
            None => self.execute_checked(args.check(self.rank, self.size)?),
        }
    }

    /// The same for arguments that were checked for this rank already.
    ///
    /// # Errors
    /// The errors of [`NodeComm::execute`]; [`Error::Usage`] for arguments that were checked for another rank or number of ranks.
    pub fn execute_checked(&self, checked: CheckedArgs<'_>) -> Result<(), Error> {
        if !checked.is_for(self.rank, self.size) {
            let (rank, size) = (self.rank, self.size);
            return Err(Error::usage(format!(
                "arguments that were checked for another rank than {rank} of {size}; check them for this communicator"
            )));
        }
        self.execute_checked_in(&mut *self.lock()?, checked)
    }

    /// A barrier of the ranks in this call of the library's own. A rank that makes another call fails with [`Error::Mismatch`], as they do.
    ///
    /// # Errors
    /// The errors of [`NodeComm::execute`].
    pub fn meet(&self, call: Collective) -> Result<(), Error> {
        self.execute(CollectiveArgs::internal(call, Buffers::in_place::<u64>(&mut [])))
    }

    /// The same for a caller that holds the handle already.
    pub(super) fn execute_in(&self, state: &mut NodeState, args: CollectiveArgs<'_>) -> Result<(), Error> {
        self.execute_checked_in(state, args.check(self.rank, self.size)?)
    }

    /// The same for arguments that were checked.
    pub(super) fn execute_checked_in(&self, state: &mut NodeState, mut checked: CheckedArgs<'_>) -> Result<(), Error> {
        match checked.take_placement() {
            Placement::Private => {}
            Placement::Registered(buffers) => return self.execute_registered(state, checked, buffers),
            Placement::SharedResult(view) => {
                *view = self.execute_into_view(state, checked, view)?;
                return Ok(());
            }
        }
        let begun = match (state.begun.take(), checked.address()) {
            (None, _) => None,
            (Some((report, of)), Some(address)) if of == address => Some(report),
            // Another thread's, which may not come between.
            (begun, _) => {
                state.begun = begun;
                return Err(engine::occupied());
            }
        };
        let (args, NodeState { member, calls, last, peer_reads, .. }) = (checked.args(), &mut *state);
        let (buffers, known) = (&args.buffers, *peer_reads);
        // A group of one has nothing to prepare for, and what is cut into windows is no single operation.
        let fits = |payload: &CachedPayload<'_>| self.size > 1 && payload.bytes() <= self.windows.deposit;
        let small = CallKey::of(args).filter(|(_, payload)| fits(payload));
        let call = small.as_ref().map(|(key, payload)| (*key, payload.counts()));
        let cached = match call.and_then(|(key, counts)| calls.find(key, counts)) {
            Some(cached) => cached,
            None => {
                let signature = checked.signature();
                match calls.place(call, (signature, checked.datatype())) {
                    Some(cached) => &*cached,
                    place @ None => {
                        let facts = Facts { oversubscribed: member.patience.oversubscribed, peer_reads: *peer_reads };
                        let prepared = match args.op {
                            ReduceOp::Builtin(op) => self.prepare_builtin(&checked, signature, op, facts)?,
                            ReduceOp::User(operator) => self.prepare_user(&checked, signature, operator.identity())?,
                        };
                        let (me, window_bytes) = (self.rank, self.windows.deposit);
                        place.insert(CachedCall::new(signature, prepared, small, (me, window_bytes)))
                    }
                }
            }
        };
        let by_user;
        let prepared = match args.op {
            ReduceOp::Builtin(_) => &cached.prepared,
            ReduceOp::User(operator) => {
                by_user = cached.prepared.by_user(operator);
                &by_user
            }
        };
        if self.size == 1 {
            if let Some([send, recv]) = checked.pair_counts()
                && send != recv
            {
                return Err(self.difference_of(state, send, recv)?);
            }
            buffers.copy(&checked.exchange());
            *last = Some(Report::ticketless(0, Algorithm::Flat));
            return Ok(());
        }
        let fast = || small.and_then(|(_, payload)| payload.run(cached, member));
        let done = match begun.map(Ok).or_else(fast) {
            Some(Ok(first @ Report { announced: Some(Announced::Pairs(_)), .. })) => {
                self.run_pairs(member, &mut checked, prepared, Some(first), peer_reads)
            }
            Some(done) => done,
            None if checked.pair_counts().is_some() => self.run_pairs(member, &mut checked, prepared, None, peer_reads),
            None if prepared.exchanges() => self.run_exchange(member, &checked, prepared),
            None => self.run(member, buffers, prepared),
        };
        match done {
            Ok(Report { is_done: false, .. }) => {
                calls.clear();
                *peer_reads = PeerReads::Refused;
                self.execute_checked_in(state, checked)
            }
            Ok(Report { announced: Some(Announced::Pairs(lengths)), .. }) if lengths.difference != 0 => {
                let [send, recv] = checked.pair_counts().expect("lengths of pairs were announced");
                Err(self.difference_of(state, send, recv)?)
            }
            Ok(Report { announced: Some(Announced::Listed), .. }) => self.scatter_listed(state, checked),
            Ok(report) => {
                let collective = checked.collective();
                if let Some(error) = report.announced.and_then(|announced| announced.error(collective, self.rank)) {
                    return Err(error);
                }
                *last = Some(report);
                // Of an alltoall of unequal blocks not all ranks come here: those of short ones may have taken the fast path.
                let tried = report.algorithm == Algorithm::SingleCopy && checked.pair_counts().is_none();
                if tried && *peer_reads == PeerReads::Untried {
                    *peer_reads = PeerReads::Work;
                }
                if *peer_reads != known {
                    // Calls that were prepared before do not know it.
                    calls.clear();
                }
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
    fn prepare_builtin(
        &self,
        checked: &CheckedArgs<'_>,
        signature: Signature,
        op: Op,
        facts: Facts,
    ) -> Result<Prepared<'static>, Error> {
        let args = checked.args();
        let Datatype::Builtin(dtype) = args.buffers.datatype() else {
            return Err(Error::usage("elements of a user's type where nothing but bytes can be moved"));
        };
        let in_rank_order = folds_in_rank_order(args.collective, args.options.order, dtype, op, self.size);
        let algorithm = match signature.is_registered() {
            true if args.buffers.are_registered() => self.select_registered(args, in_rank_order, facts.oversubscribed),
            true => Algorithm::Slices,
            false => match self.select(checked, in_rank_order) {
                // Every rank must know where the blocks for it lie, and any bytes must be elements.
                Algorithm::SingleCopy
                    if facts.peer_reads == PeerReads::Refused
                        || checked.pair_counts().is_some()
                        || checked.owners_announce()
                        || dtype == DType::Bool =>
                {
                    Algorithm::Flat
                }
                algorithm => algorithm,
            },
        };
        let lane = signature.in_lane(algorithm == Algorithm::Flat);
        let prepared = Prepared::new(lane, dtype, op, self.size, in_rank_order, algorithm)?;
        Ok(match facts.peer_reads {
            PeerReads::Refused => prepared,
            _ if dtype != DType::Bool && self.reads_pairs(checked) => prepared.reading_long_blocks(),
            PeerReads::Work => prepared.trusting(),
            PeerReads::Untried => prepared,
        })
    }

    /// The same for a user's operator, which is only borrowed, and added to what is prepared in each call.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for elements that no deposit can hold.
    #[cold]
    fn prepare_user(
        &self,
        checked: &CheckedArgs<'_>,
        signature: Signature,
        operator: OpIdentity,
    ) -> Result<Prepared<'static>, Error> {
        let CollectiveArgs { collective, ref buffers, options, .. } = *checked.args();
        self.must_fit(collective, buffers.datatype())?;
        // The order of reducing may show in a user's type.
        let ordered = matches!(operator, OpIdentity::User { ordered: true, .. });
        let in_rank_order = ordered || options.order == FoldOrder::Rank;
        let algorithm = self.select(checked, in_rank_order);
        let lane = signature.in_lane(algorithm == Algorithm::Flat);
        Ok(Prepared::of_user(lane, buffers.datatype(), self.size, in_rank_order, algorithm))
    }

    /// Refuses elements of a user's type of which no deposit holds what it must.
    pub(super) fn must_fit(&self, collective: Collective, datatype: Datatype) -> Result<(), Error> {
        // A fold reads from all ranks at once, and each deposit has a block for every rank.
        let traits = collective.traits();
        let blocks = if traits.folds && traits.in_parts { self.size } else { 1 };
        let (bytes, window) = (datatype.size().saturating_mul(blocks), self.windows.deposit);
        let each = if blocks > 1 { format!(" for each of {blocks} ranks") } else { String::new() };
        match bytes <= window {
            true => Ok(()),
            false => Err(Error::Unsupported {
                what: format!("an element of {} bytes{each} in an arena with windows of {window}", datatype.size()),
                hint: "raise EARLYBIRD_ARENA_MAX, or reduce the parts of the element".into(),
            }),
        }
    }

    fn select(&self, checked: &CheckedArgs<'_>, in_rank_order: bool) -> Algorithm {
        let CollectiveArgs { collective, options, .. } = *checked.args();
        self.thresholds.choose(collective, options.algorithm, checked.selecting_bytes(), in_rank_order)
    }

    /// Returns whether the blocks of an alltoall that are too long for its first operation are read where they lie, if any bytes are elements.
    fn reads_pairs(&self, checked: &CheckedArgs<'_>) -> bool {
        checked.pair_counts().is_some() && {
            let element_bytes = checked.datatype().size();
            let bytes = announced_stride(self.size, element_bytes, self.windows.deposit) * element_bytes;
            self.thresholds.reads_pairs(checked.settings().algorithm, bytes)
        }
    }

    /// Selects how to reduce buffers that lie in shared memory: where they lie, or by copying them as if they were private.
    /// Ranks may propose different algorithms, the first one's counts.
    fn select_registered(&self, args: &CollectiveArgs<'_>, in_rank_order: bool, oversubscribed: bool) -> Algorithm {
        // Whole: a call on such buffers is one operation.
        let buffers = &args.buffers;
        let can_copy = !in_rank_order && buffers.count() * buffers.datatype().size() <= self.windows.accumulator / 2;
        match args.options.algorithm {
            Algorithm::Chain if can_copy => Algorithm::Chain,
            Algorithm::Auto if can_copy && oversubscribed => Algorithm::Chain,
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
        if count.saturating_mul(prepared.accumulator_bytes()) <= window_bytes || buffers.are_registered() {
            return member.run(&buffers.call(0..count, prepared));
        }
        let accumulated = self.windows.accumulator / prepared.accumulator_bytes();
        let part = accumulated.min(window_bytes / buffers.datatype().size());
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

    /// Runs an exchange, window by window where it is deposited.
    fn run_exchange(
        &self,
        member: &mut Member<Mapped>,
        checked: &CheckedArgs<'_>,
        prepared: &Prepared<'_>,
    ) -> Result<Report, Stop> {
        let (exchange, buffers) = (checked.exchange(), &checked.args().buffers);
        if exchange.owners_announce {
            let window = exchange.of_owner(checked.datatype().size(), self.windows.deposit);
            return member.run(&buffers.window(&window, prepared));
        }
        let whole = exchange.whole();
        match prepared.algorithm() {
            Algorithm::SingleCopy => member.run(&buffers.window(&whole, prepared)),
            _ => self.run_windows(member, checked, &whole, prepared),
        }
    }

    fn run_windows(
        &self,
        member: &mut Member<Mapped>,
        checked: &CheckedArgs<'_>,
        all: &Window<'_>,
        prepared: &Prepared<'_>,
    ) -> Result<Report, Stop> {
        let mut report = None;
        for window in all.parts(checked.datatype().size(), self.windows.deposit) {
            report = Some(member.run(&checked.args().buffers.window(&window, prepared))?);
        }
        Ok(report.expect("an exchange has a window"))
    }

    /// Runs an alltoall in which ranks announce their lengths: the `first` operation, if that was not run, and what it has left of longer
    /// blocks, window by window.
    fn run_pairs(
        &self,
        member: &mut Member<Mapped>,
        checked: &mut CheckedArgs<'_>,
        prepared: &Prepared<'_>,
        first: Option<Report>,
        peer_reads: &mut PeerReads,
    ) -> Result<Report, Stop> {
        let stride = announced_stride(self.size, checked.datatype().size(), self.windows.deposit);
        let exchange = checked.exchange();
        let window = exchange.announced(stride, prepared.reads_long_blocks());
        let announced = match first {
            Some(report) => report,
            None => member.run(&checked.args().buffers.window(&window, prepared))?,
        };
        let Some(Announced::Pairs(all)) = announced.announced else { return Ok(announced) };
        let (reads, is_read) = (window.reads(all.largest), announced.is_done);
        if all.difference != 0 || all.largest <= stride || reads && is_read {
            return Ok(Report { is_done: true, ..announced });
        }
        checked.set_largest_pair(all.largest);
        let exchange = checked.exchange();
        let left = match reads {
            true => exchange.whole().of_blocks(stride, usize::MAX),
            false => exchange.beginning_with(stride),
        };
        if reads {
            *peer_reads = PeerReads::Refused;
        }
        self.run_windows(member, checked, &left, prepared)
    }
}
