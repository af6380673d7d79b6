//! One rank of a benchmark: measures, and makes rows of the figures, which rank 0 reports.

use super::args::BenchArgs;
use super::calls::{Cell, Measured, measure};
use super::data::Value;
use super::report::Report;
use super::row::Row;
use super::session::Session;
use super::stats::{Bounds, Caveat, quantile};
use super::variant::Variant;
use crate::output::progress_bar;
use earlybird::{Algorithm, Choice, Collective, Element, Error, Indexed};
use half::{bf16, f16};
use num_complex::Complex;

/// Measures all rows of the arguments. Returns the exit code of this rank.
pub fn work(args: &BenchArgs) -> Result<u8, Error> {
    macro_rules! with_elements {
        ($($element:ty)*) => {
            match args.dtype() {
                $(<$element>::DTYPE => report_all::<$element>(args),)*
            }
        };
    }
    with_elements! {
        i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64 bool Complex<f32> Complex<f64>
        Indexed<i32, i32> Indexed<i64, i64> Indexed<f32, i32> Indexed<f64, i64>
    }
}

fn report_all<T: Value>(args: &BenchArgs) -> Result<u8, Error> {
    let session = Session::open(args)?;
    let rank = session.comm.rank();
    let mut report = (rank == 0).then(|| Report::new(args));
    let progress = progress_bar(rank, "{bar:30} {pos}/{len} rows, {eta} left: {msg}");
    measure::<T>(args, &session, &progress, |cell| {
        let Some(report) = &mut report else { return Ok(()) };
        progress.suspend(|| rows(args, &session, &cell).into_iter().try_for_each(|row| report.add(row)))
    })?;
    report.map_or(Ok(0), Report::finish)
}

/// A row for each variant.
fn rows(args: &BenchArgs, session: &Session, cell: &Cell) -> Vec<Row> {
    let baseline = Variant::Library(Choice::Node(Algorithm::StaticLeader));
    let baseline = cell.measured.iter().find(|measured| measured.variant == baseline);
    let baseline_us = baseline.map(|baseline| baseline.samples.tails_us());
    let (op, ranks) = (args.op(), session.comm.size());
    let traits = op.traits();
    // The time of a reduce's root is the others' lateness.
    let first_counted = usize::from(op == Collective::Reduce && ranks > 1);
    let is_tail_vague = ranks > session.comm.allowed_cpus() && cell.lateness.longest_s() == 0.0;
    let row = |Measured { variant, samples, chosen }: &Measured| {
        let (tails_us, latencies_us) = (samples.tails_us(), samples.latencies_us());
        Row {
            op: op.name(),
            ranks,
            bytes: cell.bytes,
            dtype: if traits.has_data { args.dtype().name() } else { "-" },
            pattern: cell.lateness.name(),
            algorithm: variant.to_string(),
            iterations: tails_us.len(),
            tail_us_median: rounded(quantile(&tails_us, 0.5)),
            tail_us_p99: rounded(quantile(&tails_us, 0.99)),
            latency_us_median: rounded(quantile(&latencies_us, 0.5)),
            call_us_mean: rounded(samples.call_us_mean(first_counted)),
            cpu_us_mean: rounded(samples.cpu_us_mean()),
            wrong: if traits.has_data { samples.wrong() } else { samples.left_too_early() },
            nodes: session.comm.nodes(),
            mif: cell.mif,
            delay_us: rounded(cell.lateness.longest_s() * 1e6),
            order: if traits.folds && traits.has_data { session.order.name() } else { "-" },
            buffers: args.buffers.into(),
            chosen: chosen.clone(),
            compute_us: rounded(args.compute.as_secs_f64() * 1e6),
            skew: args.skew,
            compared_us: Bounds::of(if is_tail_vague { &latencies_us } else { &tails_us }),
            versus_baseline: baseline_us.as_ref().map(|baseline_us| Bounds::of_ratios(&tails_us, baseline_us)),
            caveats: Caveat::of(&tails_us),
        }
    };
    cell.measured.iter().map(row).collect()
}

/// Rounds to a nanosecond, the resolution of the stamps.
fn rounded(us: f64) -> f64 {
    (us * 1e3).round() / 1e3
}
