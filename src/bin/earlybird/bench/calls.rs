//! The measured calls of one rank: it lines up with the others, waits for its delay, calls, takes time stamps, and checks the result.

use super::args::{BenchArgs, BuffersChoice};
use super::blocks::BlockLengths;
use super::composed::{Kit, used};
use super::data::{self, Buffer, Private, ROOT, Shared, Value};
use super::session::Session;
use super::stats::{Sample, Samples, quantile};
use super::variant::Variant;
use crate::lateness::{BALANCED, Lateness, Recorded};
use crate::lineup::{burn, now_ns};
use earlybird::pattern::{Pattern, mix};
use earlybird::{Algorithm, Choice, Collective, CollectiveArgs, Error, SharedView, Side};
use indicatif::ProgressBar;
use itertools::Itertools;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// Calls of each algorithm before those that count.
const WARM_UP: u64 = 3;
/// Balanced calls of static-leader that the delay is taken from.
const CALIBRATION_CALLS: u64 = 15;
/// A delay that follows from a measured time is never longer.
const DELAY_CAP: Duration = Duration::from_millis(50);
/// Time that the calls of one row may take together, when their number is left to us.
const ROW_BUDGET: Duration = Duration::from_millis(300);

/// The calls of all variants with one size, under one lateness.
pub struct Cell {
    pub bytes: u64,
    pub lateness: Lateness,
    /// The multiple of the balanced time that the full delay is, if it follows from that.
    pub mif: Option<f64>,
    pub measured: Vec<Measured>,
}

/// The calls of one variant.
pub struct Measured {
    pub variant: Variant,
    pub samples: Samples,
    /// The algorithms that carried the calls out, the most frequent first.
    pub chosen: String,
}

/// Measures everything that `args` ask for and hands over cell by cell, the same on all ranks. Collective.
///
/// # Errors
/// The errors of the measured calls and those of `take`.
pub fn measure<T: Value>(
    args: &BenchArgs,
    session: &Session,
    progress: &ProgressBar,
    mut take: impl FnMut(Cell) -> Result<(), Error>,
) -> Result<(), Error> {
    let recorded = args.arrivals.as_deref().map(|path| Recorded::read(path, Some(args.op()), session.comm.size()));
    let recorded = recorded.transpose()?.map(Rc::new);
    let (variants, cases) = (args.variants(), |base_us| cases(args, recorded.as_ref(), base_us));
    progress.set_length((args.sizes().len() * cases(0.0).len() * variants.len()) as u64);
    let mut calls = Calls::<T> {
        args,
        kit: Kit::new(&session.comm, args.op(), |_| false, (0, 0))?,
        session,
        variants,
        calls: 0,
        blocks: BlockLengths::new(args.op(), 0, (session.comm.rank(), session.comm.size()), 0),
        send: Private(vec![]),
        receive: Private(vec![]),
    };
    for &bytes in args.sizes() {
        calls.resize(bytes)?;
        // The balanced time is needed only where a delay follows from it.
        let is_given = args.delay.is_some() || recorded.is_some();
        let needs_base = !is_given && args.patterns.iter().any(|&pattern| pattern != Pattern::Balanced);
        let base_us = if needs_base { calls.balanced_us()? } else { 0.0 };
        for (mif, lateness) in cases(base_us) {
            progress.set_message(format!("{bytes} bytes, {}", lateness.name()));
            let measured = calls.cell(&lateness)?;
            progress.inc(measured.len() as u64);
            take(Cell { bytes, lateness, mif, measured })?;
        }
    }
    progress.finish_and_clear();
    Ok(())
}

/// The lateness under which every size is measured, with the multiple of the balanced time that a full delay is, where it follows
/// from that. Balanced arrivals know no delay and are measured once.
fn cases(args: &BenchArgs, recorded: Option<&Rc<Recorded>>, base_us: f64) -> Vec<(Option<f64>, Lateness)> {
    if let Some(recorded) = recorded {
        return vec![(None, Lateness::Recorded(Rc::clone(recorded)))];
    }
    let all = args.mif.iter().enumerate().cartesian_product(&args.patterns);
    let differ = all.filter(|((at, _), pattern)| *at == 0 || **pattern != Pattern::Balanced);
    let cases = differ.map(|((_, mif), &pattern)| {
        let delay_s = match args.delay {
            _ if pattern == Pattern::Balanced => 0.0,
            Some(delay) => delay.as_secs_f64(),
            None => (mif * base_us * 1e-6).min(DELAY_CAP.as_secs_f64()),
        };
        (args.delay.is_none().then_some(*mif), Lateness::Pattern { pattern, delay_s })
    });
    cases.collect()
}

struct Calls<'a, T> {
    args: &'a BenchArgs,
    session: &'a Session,
    variants: Vec<Variant>,
    kit: Kit<'a, T>,
    /// Calls so far, the same on all ranks: makes the data of every call different.
    calls: u64,
    blocks: BlockLengths,
    send: Buffer<T>,
    receive: Buffer<T>,
}

/// The measurements of one algorithm in one cell.
#[derive(Default)]
struct Record {
    words: Vec<i64>,
    /// Number of calls that each algorithm carried out.
    chosen: BTreeMap<&'static str, usize>,
}

impl<'a, T: Value> Calls<'a, T> {
    fn resize(&mut self, bytes: u64) -> Result<(), Error> {
        let elements = (usize::try_from(bytes).unwrap_or(usize::MAX) / T::DTYPE.size()).max(1);
        let rank = (self.session.comm.rank(), self.session.comm.size());
        self.blocks = BlockLengths::new(self.args.op(), elements, rank, self.args.skew);
        let (sent, received) = (self.blocks.sent(), self.blocks.received());
        let shared = (self.args.buffers == BuffersChoice::Alloc).then_some(&self.session.comm);
        // The old buffers go first: they may be most of the memory.
        (self.send, self.receive) = (Private(vec![]), Private(vec![]));
        self.send = data::buffer(sent, shared)?;
        self.receive = data::buffer(received, shared)?;
        self.session.comm.set_algorithm(Algorithm::Auto)?;
        let has = |composed| self.variants.contains(&Variant::Composed(composed));
        self.kit = Kit::new(&self.session.comm, self.args.op(), has, (sent, received))?;
        Ok(())
    }

    /// Median latency of static-leader in microseconds when all arrive together (of auto, where the operation has no
    /// static-leader); the same value on all ranks.
    fn balanced_us(&mut self) -> Result<f64, Error> {
        let has = self.args.op().traits().algorithms.contains(&Algorithm::StaticLeader);
        let measured = if has { Algorithm::StaticLeader } else { Algorithm::Auto };
        let mut record = Record::default();
        for iteration in 0..WARM_UP + CALIBRATION_CALLS {
            if iteration == WARM_UP {
                record = Record::default();
            }
            self.call(Variant::Library(Choice::Node(measured)), &BALANCED, iteration, &mut record)?;
        }
        Ok(quantile(&self.collect(&record)?.latencies_us(), 0.5))
    }

    /// All algorithms under one lateness, taking turns call by call, in another order in each round.
    fn cell(&mut self, lateness: &Lateness) -> Result<Vec<Measured>, Error> {
        let start_ns = now_ns();
        self.rounds(lateness, WARM_UP)?;
        let iterations = match self.args.iterations {
            Some(iterations) => u64::from(iterations),
            None => {
                let round_ns = self.session.lineup.max(now_ns() - start_ns)? as f64 / WARM_UP as f64;
                let budget_ns = ROW_BUDGET.as_nanos() as f64 * self.variants.len() as f64;
                (budget_ns / round_ns).clamp(10.0, 1000.0) as u64
            }
        };
        let records = self.rounds(lateness, iterations)?;
        let measured = self.variants.iter().zip(&records).map(|(variant, record)| {
            let chosen = record.chosen.iter().sorted_by_key(|(_, count)| std::cmp::Reverse(**count));
            let chosen = chosen.map(|(name, _)| name).join("+");
            Ok(Measured { variant: *variant, samples: self.collect(record)?, chosen })
        });
        measured.collect()
    }

    /// Rounds of calls, one of each algorithm.
    fn rounds(&mut self, lateness: &Lateness, iterations: u64) -> Result<Vec<Record>, Error> {
        let count = self.variants.len();
        let mut records: Vec<Record> = (0..count).map(|_| Record::default()).collect();
        for iteration in 0..iterations {
            for index in order(count, iteration) {
                self.call(self.variants[index], lateness, iteration, &mut records[index])?;
            }
        }
        Ok(records)
    }

    /// One measured call.
    fn call(
        &mut self,
        variant: Variant,
        lateness: &Lateness,
        iteration: u64,
        record: &mut Record,
    ) -> Result<(), Error> {
        let (rank, size) = (self.session.comm.rank(), self.session.comm.size());
        self.session.choose(variant)?;
        self.calls += 1;
        if self.args.op().traits().has_data {
            data::fill(&mut self.send, rank, self.calls);
            if let Variant::Composed(composed) = variant {
                self.kit.fill(composed, rank, self.calls)?;
            }
        }
        let delay_ns = (1e9 * lateness.seconds(size, rank, iteration, self.args.seed)) as i64;
        let start_ns = self.session.lineup.agree_on_start_ns()?;
        if self.args.burn {
            self.session.lineup.wait_until(start_ns);
            burn(delay_ns);
        } else {
            self.session.lineup.wait_until(start_ns + delay_ns);
        }

        let (compute_ns, mut computed_ns) = (self.args.compute.as_nanos() as i64, 0);
        let mut compute = || {
            // Its clocks are read in the measured time.
            if compute_ns > 0 {
                computed_ns = burn(compute_ns);
            }
        };
        let (mut sample, view) = Sample::of(|| self.carry_out(variant, &mut compute))?;
        sample.computed_ns = computed_ns;
        if let Some(view) = view {
            self.receive.copy_from_slice(&view);
        }
        if let Variant::Composed(composed) = variant {
            self.kit.take(composed, &mut self.receive)?;
        }
        sample.wrong = self.wrong() as i64;
        record.words.extend(sample.to_words());
        let ran = match self.session.carrier(variant) {
            Some(comm) => comm.last_call().map(|call| call.algorithm.name()),
            None => Some("mpi"),
        };
        if let Some(ran) = ran {
            *record.chosen.entry(ran).or_default() += 1;
        }
        Ok(())
    }

    /// The call that is measured, after the computation or around it; its result where that is a view.
    fn carry_out(&mut self, variant: Variant, compute: &mut dyn FnMut()) -> Result<Option<SharedView<'a, T>>, Error> {
        let (session, send, receive) = (self.session, &mut self.send, &mut self.receive);
        if !variant.is_started() {
            compute();
        }
        let Some(comm) = session.carrier(variant) else {
            let meanwhile = variant.is_started().then_some(compute);
            return session.call_mpi(self.args.op(), send, receive, meanwhile).map(|()| None);
        };
        if let Variant::Composed(composed) = variant {
            let call = (self.args.op(), self.blocks.counts());
            return self.kit.carry_out(composed, call, send, receive, compute).map(|()| None);
        }
        if let Variant::Library(Choice::Node(Algorithm::Auto | Algorithm::Slices)) = variant
            && let (Shared(send), Shared(receive)) = (&*send, &mut *receive)
        {
            return comm.all_reduce_shared_into(send, receive, T::OP).map(|()| None);
        }
        if variant == Variant::Library(Choice::default()) && self.args.buffers == BuffersChoice::View {
            return comm.all_reduce_shared(send, T::OP).map(Some);
        }
        match self.args.op() {
            Collective::AllReduce => comm.all_reduce_into(send, receive, T::OP),
            Collective::Barrier => comm.barrier(),
            Collective::Broadcast => {
                comm.process_at_rank(ROOT).broadcast_into(if comm.rank() == ROOT { send } else { receive })
            }
            collective => {
                let (sent, received) = used(collective, comm.rank(), (send.len(), receive.len()));
                let root = collective.traits().has_root().then_some(ROOT);
                let buffers = (&send[..sent], &mut receive[..received]);
                comm.run(CollectiveArgs::describe(collective, root, self.blocks.counts(), buffers, T::OP))
            }
        }
        .map(|()| None)
    }

    /// Elements of the last call's result that are wrong.
    fn wrong(&self) -> usize {
        let (rank, size, call, traits) =
            (self.session.comm.rank(), self.session.comm.size(), self.calls, self.args.op().traits());
        let first = self.blocks.sent_at();
        let sends_its_result = self.args.op() == Collective::Broadcast && rank == ROOT;
        let receives = !sends_its_result && (traits.receivers == Side::All || rank == ROOT);
        match traits.senders {
            _ if !traits.has_data || !receives => 0,
            _ if traits.joins() => {
                let blocks = self.blocks.places().enumerate();
                blocks.map(|(from, at)| data::count_wrong(&self.receive[at], from..from + 1, first, call)).sum()
            }
            Side::Root => data::count_wrong(&self.receive, ROOT..ROOT + 1, first, call),
            Side::All => data::count_wrong(&self.receive, traits.sources(rank, size), first, call),
        }
    }

    fn collect(&self, record: &Record) -> Result<Samples, Error> {
        Samples::from_words(&self.session.lineup.gather(&record.words)?, self.session.comm.size())
    }
}

/// The order of the variants in a round: by chance, and equal on all ranks. Each comes after each other one as often, so that none gains or
/// loses by what the one before it leaves in the caches.
fn order(variants: usize, round: u64) -> impl Iterator<Item = usize> {
    (0..variants).sorted_by_key(|variant| mix(mix(round) ^ *variant as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_variant_comes_first_and_after_each_other_one() {
        let mut pairs = [[0; 4]; 4];
        let mut firsts = [0; 4];
        for round in 0..480 {
            let order: Vec<usize> = order(4, round).collect();
            assert!(order.iter().copied().sorted().eq(0..4), "{order:?}");
            firsts[order[0]] += 1;
            order.windows(2).for_each(|pair| pairs[pair[0]][pair[1]] += 1);
        }
        // 120 expected of each, five standard deviations are 50.
        assert!(firsts.iter().all(|count| *count > 70), "{firsts:?}");
        let others =
            (0..4).flat_map(|before| (0..4).filter(move |after| *after != before).map(move |after| (before, after)));
        assert!(others.map(|(before, after)| pairs[before][after]).all(|count| count > 70), "{pairs:?}");
    }
}
