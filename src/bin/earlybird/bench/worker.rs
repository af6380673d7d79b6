//! One rank of a benchmark: lines up, comes late as told, calls, stamps, checks.

use super::args::{BenchArgs, BuffersChoice};
use super::composed::Kit;
use super::data::{self, Buffer, ROOT, Value};
use super::report::Report;
use super::row::Row;
use super::session::Session;
use super::stats::{Bounds, Sample, Samples, quantile};
use super::variant::Variant;
use crate::lineup::{burn, now_ns};
use crate::output::progress_bar;
use earlybird::pattern::Pattern;
use earlybird::{Algorithm, Choice, Collective, CollectiveArgs, Counts, Element, Error, Indexed, SharedView, Side};
use half::{bf16, f16};
use itertools::Itertools;
use num_complex::Complex;
use std::collections::BTreeMap;
use std::time::Duration;

/// Calls of each algorithm before those that count.
const WARM_UP: u64 = 3;
/// Balanced calls of static-leader that the delay is taken from.
const PILOT: u64 = 15;
/// A delay that follows from a measured time is never longer.
const DELAY_CAP: Duration = Duration::from_millis(50);
/// Time that the calls of one row may take together, when their number is left to us.
const ROW_BUDGET: Duration = Duration::from_millis(300);

/// Measures everything that was asked for; the exit code of this rank.
pub fn work(args: &BenchArgs) -> Result<u8, Error> {
    macro_rules! with_elements {
        ($($element:ty)*) => {
            match args.dtype() {
                $(<$element>::DTYPE => measure_all::<$element>(args),)*
            }
        };
    }
    with_elements! {
        i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64 bool Complex<f32> Complex<f64>
        Indexed<i32, i32> Indexed<i64, i64> Indexed<f32, i32> Indexed<f64, i64>
    }
}

fn measure_all<T: Value>(args: &BenchArgs) -> Result<u8, Error> {
    let session = Session::open(args)?;
    let rank = session.comm.rank();
    let mut report = (rank == 0).then(|| Report::new(args)).transpose()?;
    let variants = args.variants();
    let cases = cases(args);
    let rows = args.sizes().len() * cases.len() * variants.len();
    let progress = progress_bar(rank, rows, "{bar:30} {pos}/{len} rows, {eta} left: {msg}");
    let mut bench = Bench::<T> {
        args,
        kit: Kit::new(&session.comm, |_| false, 0, 0)?,
        session: &session,
        variants,
        calls: 0,
        send: Buffer::Private(vec![]),
        receive: Buffer::Private(vec![]),
    };
    for &bytes in args.sizes() {
        bench.resize(bytes)?;
        // The balanced time is needed only where a delay follows from it.
        let needs_base = args.delay.is_none() && args.patterns.iter().any(|&pattern| pattern != Pattern::Balanced);
        let base_us = if needs_base { bench.balanced_us()? } else { 0.0 };
        for &(mif, pattern) in &cases {
            let delay_us = match args.delay {
                _ if pattern == Pattern::Balanced => 0.0,
                Some(delay) => delay.as_secs_f64() * 1e6,
                None => (mif * base_us).min(DELAY_CAP.as_secs_f64() * 1e6),
            };
            progress.set_message(format!("{bytes} bytes, {pattern}"));
            for row in bench.cell(bytes, pattern, mif, delay_us)? {
                progress.inc(1);
                if let Some(report) = &mut report {
                    progress.suspend(|| report.add(row))?;
                }
            }
        }
    }
    progress.finish_and_clear();
    report.map_or(Ok(0), Report::finish)
}

/// The cases that are measured of every size: multiples of the balanced time as full delay, and patterns. Balanced arrivals know no
/// delay and are measured once.
fn cases(args: &BenchArgs) -> Vec<(f64, Pattern)> {
    let all = args.mif.iter().enumerate().flat_map(|(at, mif)| args.patterns.iter().map(move |p| (at, *mif, *p)));
    all.filter(|(at, _, pattern)| *at == 0 || *pattern != Pattern::Balanced).map(|(_, mif, p)| (mif, p)).collect()
}

struct Bench<'a, T> {
    args: &'a BenchArgs,
    session: &'a Session,
    variants: Vec<Variant>,
    kit: Kit<'a, T>,
    /// Calls so far, the same on all ranks: makes the data of every call different.
    calls: u64,
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

impl<'a, T: Value> Bench<'a, T> {
    fn resize(&mut self, bytes: u64) -> Result<(), Error> {
        let elements = (usize::try_from(bytes).unwrap_or(usize::MAX) / T::DTYPE.size()).max(1);
        let all = elements.saturating_mul(self.session.comm.size());
        let traits = self.args.op().traits();
        let sent = if traits.in_parts { all } else { elements };
        let received = if traits.joins() { all } else { elements };
        let shared = (self.args.buffers == BuffersChoice::Alloc).then_some(&self.session.comm);
        // The old buffers go first: they may be most of the memory.
        (self.send, self.receive) = (Buffer::Private(vec![]), Buffer::Private(vec![]));
        self.send = Buffer::new(sent, shared)?;
        self.receive = Buffer::new(received, shared)?;
        self.session.comm.set_algorithm(Algorithm::Auto)?;
        let has = |composed| self.variants.contains(&Variant::Composed(composed));
        self.kit = Kit::new(&self.session.comm, has, sent, received)?;
        Ok(())
    }

    /// Median latency of static-leader in microseconds when all arrive together (of auto, where the operation has no
    /// static-leader); the same value on all ranks.
    fn balanced_us(&mut self) -> Result<f64, Error> {
        let has = self.args.op().traits().algorithms.contains(&Algorithm::StaticLeader);
        let pilot = if has { Algorithm::StaticLeader } else { Algorithm::Auto };
        let mut record = Record::default();
        for iteration in 0..WARM_UP + PILOT {
            if iteration == WARM_UP {
                record = Record::default();
            }
            self.call(Variant::Library(Choice::Node(pilot)), Pattern::Balanced, iteration, 0.0, &mut record)?;
        }
        Ok(quantile(&self.collect(&record)?.latencies_us(), 0.5))
    }

    /// All algorithms under one pattern, taking turns call by call, each round beginning with another one.
    fn cell(&mut self, bytes: u64, pattern: Pattern, mif: f64, delay_us: f64) -> Result<Vec<Row>, Error> {
        let start_ns = now_ns();
        self.rounds(pattern, WARM_UP, delay_us)?;
        let iterations = match self.args.iterations {
            Some(iterations) => u64::from(iterations),
            None => {
                let round_ns = self.session.lineup.max(now_ns() - start_ns)? as f64 / WARM_UP as f64;
                let budget_ns = ROW_BUDGET.as_nanos() as f64 * self.variants.len() as f64;
                (budget_ns / round_ns).clamp(10.0, 1000.0) as u64
            }
        };
        let records = self.rounds(pattern, iterations, delay_us)?;
        let (mut rows, traits) = (Vec::new(), self.args.op().traits());
        for (variant, record) in self.variants.iter().zip(&records) {
            let samples = self.collect(record)?;
            let tails_us = samples.tails_us();
            let chosen = record.chosen.iter().sorted_by_key(|(_, count)| std::cmp::Reverse(**count));
            rows.push(Row {
                op: self.args.op().name(),
                ranks: self.session.comm.size(),
                bytes,
                dtype: if traits.has_data { T::DTYPE.name() } else { "-" },
                pattern: pattern.name(),
                algorithm: variant.to_string(),
                iterations: tails_us.len(),
                tail_us_median: rounded(quantile(&tails_us, 0.5)),
                tail_us_p99: rounded(quantile(&tails_us, 0.99)),
                latency_us_median: rounded(quantile(&samples.latencies_us(), 0.5)),
                call_us_mean: rounded(samples.call_us_mean(self.first_counted())),
                cpu_us_mean: rounded(samples.cpu_us_mean()),
                wrong: if traits.has_data { samples.wrong() } else { samples.left_too_early() },
                nodes: self.session.comm.nodes(),
                mif: self.args.delay.is_none().then_some(mif),
                delay_us: rounded(delay_us),
                order: if traits.folds && traits.has_data { self.args.order().name() } else { "-" },
                buffers: self.args.buffers.into(),
                chosen: chosen.map(|(name, _)| name).join("+"),
                tail_us: Bounds::of(&tails_us),
            });
        }
        Ok(rows)
    }

    /// Rounds of calls, one of each algorithm.
    fn rounds(&mut self, pattern: Pattern, iterations: u64, delay_us: f64) -> Result<Vec<Record>, Error> {
        let count = self.variants.len();
        let mut records: Vec<Record> = (0..count).map(|_| Record::default()).collect();
        for iteration in 0..iterations {
            for turn in 0..count {
                let index = (turn + iteration as usize) % count;
                self.call(self.variants[index], pattern, iteration, delay_us, &mut records[index])?;
            }
        }
        Ok(records)
    }

    /// One measured call.
    fn call(
        &mut self,
        variant: Variant,
        pattern: Pattern,
        iteration: u64,
        delay_us: f64,
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
        let delay_ns = (delay_us * 1e3 * pattern.fraction(size, rank, iteration, self.args.seed)) as i64;
        let start_ns = self.session.lineup.agree_on_start_ns()?;
        if self.args.burn {
            self.session.lineup.wait_until(start_ns);
            burn(delay_ns);
        } else {
            self.session.lineup.wait_until(start_ns + delay_ns);
        }

        let (mut sample, view) = Sample::of(|| self.carry_out(variant))?;
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

    /// The first rank whose time in the call counts: that of a reduce's root is the others' lateness.
    fn first_counted(&self) -> usize {
        usize::from(self.args.op() == Collective::Reduce && self.session.comm.size() > 1)
    }

    /// The call that is measured; its result where that is a view.
    fn carry_out(&mut self, variant: Variant) -> Result<Option<SharedView<'a, T>>, Error> {
        let (session, send, receive) = (self.session, &mut self.send, &mut self.receive);
        let Some(comm) = session.carrier(variant) else {
            return session.call_mpi(self.args.op(), send, receive).map(|()| None);
        };
        if let Variant::Composed(composed) = variant {
            return self.kit.carry_out(composed, self.args.op(), send, receive).map(|()| None);
        }
        if let Variant::Library(Choice::Node(Algorithm::Auto | Algorithm::Slices)) = variant
            && let (Buffer::Shared(send), Buffer::Shared(receive)) = (&*send, &mut *receive)
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
                let (traits, is_root) = (collective.traits(), comm.rank() == ROOT);
                let room = |side, count| if side == Side::All || is_root { count } else { 0 };
                let (sent, received) = (room(traits.senders, send.len()), room(traits.receivers, receive.len()));
                let (root, buffers) = (traits.has_root().then_some(ROOT), (&send[..sent], &mut receive[..received]));
                comm.run(CollectiveArgs::describe(collective, root, Counts::Uniform, buffers, T::OP))
            }
        }
        .map(|()| None)
    }

    /// Elements of the last call's result that are wrong.
    fn wrong(&self) -> usize {
        let (rank, size, call, traits) =
            (self.session.comm.rank(), self.session.comm.size(), self.calls, self.args.op().traits());
        let block = if traits.joins() { self.receive.len() / size } else { self.receive.len() };
        let first = if traits.in_parts { rank * block } else { 0 };
        let sends_its_result = self.args.op() == Collective::Broadcast && rank == ROOT;
        let receives = !sends_its_result && (traits.receivers == Side::All || rank == ROOT);
        match traits.senders {
            _ if !traits.has_data || !receives => 0,
            _ if traits.joins() => {
                let blocks = self.receive.chunks(block).enumerate();
                blocks.map(|(from, block)| data::count_wrong(block, from..from + 1, first, call)).sum()
            }
            Side::Root => data::count_wrong(&self.receive, ROOT..ROOT + 1, first, call),
            Side::All => data::count_wrong(&self.receive, traits.sources(rank, size), first, call),
        }
    }

    fn collect(&self, record: &Record) -> Result<Samples, Error> {
        Samples::from_words(&self.session.lineup.gather(&record.words)?, self.session.comm.size())
    }
}

/// To a nanosecond: the stamps know no more.
fn rounded(us: f64) -> f64 {
    (us * 1e3).round() / 1e3
}
