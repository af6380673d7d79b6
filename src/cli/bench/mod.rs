//! `earlybird bench`: a collective under controlled arrival patterns, algorithms interleaved, every result checked.
//!
//! The parent starts the ranks, which are this program again with one more argument; rank 0 of them reports.

mod data;
mod report;
mod stats;
mod worker;

use super::{fail, not_built, own_binary, parse_nodes, parse_ranks, parse_seconds};
use clap::{Args, ValueEnum};
use earlybird::launch::{Job, Outcome};
use earlybird::pattern::Pattern;
use earlybird::units::parse_size;
use earlybird::{Algorithm, Choice, Collective, Config, DType, Error, FoldOrder, WaitPreset, algorithms};
use report::Format;
use std::process::ExitCode;
use std::time::Duration;

pub use stats::{Sample, Samples, quantile};

/// Measure a collective under controlled arrival patterns
///
/// For every size and pattern all algorithms are measured in turn, call by call, so that they meet the same
/// conditions. Before every call the send buffer is rewritten, the ranks line up on a second communicator and agree on
/// an instant; each waits for its delay after it, stamps its arrival, calls, stamps its exit and checks every element.
///
/// tail = last exit - last arrival; latency = last exit - first arrival. The full delay is --mif times the balanced
/// latency of static-leader for the size (at most 50 ms; of auto where the operation has no static-leader), or --delay.
/// The root is rank 0; call_us_mean of a reduce is that of the others, which may leave early. Exit code 1 if any result
/// was wrong.
#[derive(Args)]
pub struct BenchArgs {
    /// allreduce, reduce, broadcast, barrier, allgather or reduce-scatter
    #[arg(value_name = "OP", value_parser = parse_op)]
    op: Collective,

    /// Number of ranks
    #[arg(long, value_name = "P", value_parser = parse_ranks)]
    ranks: usize,

    /// Virtual nodes, as of `earlybird run`: calls go through the leaders of the nodes
    #[arg(long, value_name = "N")]
    nodes: Option<String>,

    /// Message sizes in bytes, with Ki, Mi or Gi; of an allgather or reduce-scatter the block of one rank [default:
    /// 8,64,425,1Ki,4Ki,16Ki,64Ki,256Ki,1Mi]
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = parse_size)]
    sizes: Option<Vec<u64>>,

    /// Arrival patterns: balanced, random, first-late, last-late, one-late, ascending
    #[arg(long, value_name = "A,B", value_delimiter = ',', default_value = "balanced,random,one-late")]
    patterns: Vec<Pattern>,

    /// Algorithms: auto, flat, leader, chain, slices, static-leader, static-leader-early, and for allreduce and barrier
    /// plan:NAME with the name of a schedule (see `earlybird plan`) [default: all of the operation but plans]
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = parse_algorithm)]
    algorithms: Option<Vec<Choice>>,

    /// Full delay as a multiple of the balanced latency of static-leader
    #[arg(long, value_name = "X", default_value_t = 10.0, allow_negative_numbers = true, value_parser = parse_mif, conflicts_with = "delay")]
    mif: f64,

    /// Full delay in seconds instead
    #[arg(long, value_name = "S", allow_negative_numbers = true, value_parser = parse_seconds)]
    delay: Option<Duration>,

    /// Late ranks use processor time instead of sleeping
    #[arg(long)]
    burn: bool,

    /// Order of folding: arrival or rank [default: arrival]
    #[arg(long, value_enum)]
    order: Option<OrderChoice>,

    /// Where the buffers are: private, or shared ones of alloc, which `auto` reduces where they lie (allreduce)
    #[arg(long, value_enum, default_value_t = BuffersChoice::Private)]
    buffers: BuffersChoice,

    /// Calls per row [default: as many as fit into 0.3 s, at least 10, at most 1000]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    iterations: Option<u32>,

    /// Chooses the draws of random and one-late
    #[arg(long, value_name = "K", default_value_t = 1)]
    seed: u64,

    /// How rows are written
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,

    /// How ranks wait: latency, balanced or power [default: EARLYBIRD_WAIT, else balanced]
    #[arg(long)]
    wait: Option<WaitPreset>,

    /// Element type: i8 to i64, u8 to u64, f16, bf16, f32, f64, complex-f32, complex-f64, bool (logical-xor),
    /// indexed-i32, -i64, -f32 or -f64 (max-index) [default: f32]
    #[arg(long, value_parser = parse_dtype)]
    dtype: Option<DType>,

    /// Write a page with plots (not built yet)
    #[arg(long, value_name = "FILE")]
    html: Option<String>,

    /// Check the results against stated expectations (not built yet; results are always checked for correctness)
    #[arg(long)]
    check: bool,

    /// A published study's settings (not built yet)
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,

    /// Makes this process a rank of the job
    #[arg(long, hide = true)]
    worker: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OrderChoice {
    Arrival,
    Rank,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BuffersChoice {
    Private,
    Alloc,
}

const DEFAULT_SIZES: [u64; 9] = [8, 64, 425, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// Runs the benchmark, or one rank of it.
pub fn run(args: &BenchArgs) -> ExitCode {
    let code = args.refuse_what_is_not_built().and_then(|()| match args.worker {
        true => worker::work(args),
        false => start(args),
    });
    code.map_or_else(|error| fail("bench", &error), ExitCode::from)
}

/// Starts this command again as ranks. An exit by a rank's failure is 1: what failed is the thing measured.
fn start(args: &BenchArgs) -> Result<u8, Error> {
    // Each rank reads its environment too; a mistake in it is better said once, and before anything is started.
    Config::from_env()?;
    let mut again: Vec<_> = std::env::args_os().skip(1).collect();
    again.push("--worker".into());
    let binary = own_binary()?;
    let mut job = Job::new("earlybird bench", binary.clone(), args.ranks, binary.into(), again);
    job.nodes = args.nodes.as_deref().map(|text| parse_nodes(text, args.ranks)).transpose()?;
    Ok(match job.run()? {
        Outcome::Success => 0,
        Outcome::Failed { .. } => 1,
        outcome => outcome.exit_code(),
    })
}

impl BenchArgs {
    fn refuse_what_is_not_built(&self) -> Result<(), Error> {
        let asked = [(self.html.is_some(), "--html"), (self.check, "--check"), (self.preset.is_some(), "--preset")];
        if let Some((_, what)) = asked.iter().find(|(asked, _)| *asked) {
            return Err(not_built(what));
        }
        let pointless = [
            (self.op == Collective::Barrier && self.sizes.is_some(), "a barrier carries no data", "--sizes"),
            (self.op == Collective::Barrier && self.dtype.is_some(), "a barrier carries no data", "--dtype"),
            (!self.op.folds() && self.order.is_some(), "nothing is folded", "--order"),
            (self.op != Collective::AllReduce && self.allocates(), "it copies its data in and out", "--buffers alloc"),
        ];
        if let Some((_, why, option)) = pointless.iter().find(|(given, ..)| *given) {
            return Err(Error::usage(format!("{}: {why}; leave out {option}", self.op.name())));
        }
        let has = every_algorithm(self.op);
        // Plans there are for these two.
        let by_plan = matches!(self.op, Collective::AllReduce | Collective::Barrier);
        let known = |choice: &Choice| has.contains(choice) || (by_plan && matches!(choice, Choice::Plan(_)));
        match self.algorithms().into_iter().find(|choice| !known(choice)) {
            None => Ok(()),
            Some(other) => {
                let valid: Vec<&str> = has.iter().map(|algorithm| algorithm.name()).collect();
                let valid = valid.join(", ");
                Err(Error::usage(format!("{} is not carried out by {other}; use {valid}", self.op.name())))
            }
        }
    }

    fn sizes(&self) -> &[u64] {
        match self.op {
            Collective::Barrier => &[0],
            _ => self.sizes.as_deref().unwrap_or(&DEFAULT_SIZES),
        }
    }

    fn algorithms(&self) -> Vec<Choice> {
        self.algorithms.clone().unwrap_or_else(|| every_algorithm(self.op))
    }

    fn order(&self) -> FoldOrder {
        match self.order {
            Some(OrderChoice::Rank) => FoldOrder::Rank,
            Some(OrderChoice::Arrival) | None => FoldOrder::Arrival,
        }
    }

    fn allocates(&self) -> bool {
        self.buffers == BuffersChoice::Alloc
    }

    fn dtype(&self) -> DType {
        self.dtype.unwrap_or(DType::F32)
    }
}

/// The operations that can be measured.
const OPERATIONS: [Collective; 6] = [
    Collective::AllReduce,
    Collective::Reduce,
    Collective::Broadcast,
    Collective::Barrier,
    Collective::AllGather,
    Collective::ReduceScatter,
];

/// The library's own choice and all algorithms of `op`.
fn every_algorithm(op: Collective) -> Vec<Choice> {
    [Algorithm::Auto].iter().chain(algorithms(op)).copied().map(Choice::Node).collect()
}

fn parse_op(text: &str) -> Result<Collective, String> {
    OPERATIONS.into_iter().find(|op| op.name() == text).ok_or_else(|| {
        format!("the operations that can be measured are: {}", OPERATIONS.map(Collective::name).join(", "))
    })
}

fn parse_algorithm(text: &str) -> Result<Choice, Error> {
    match text {
        "mpi" => Err(not_built(text)),
        _ => text.parse(),
    }
}

fn parse_dtype(text: &str) -> Result<DType, String> {
    let valid = || DType::ALL.map(DType::name).join(", ");
    DType::ALL.into_iter().find(|dtype| dtype.name() == text).ok_or_else(|| format!("use one of: {}", valid()))
}

fn parse_mif(text: &str) -> Result<f64, String> {
    let mif = text.parse().ok().filter(|mif: &f64| mif.is_finite() && *mif >= 0.0);
    mif.ok_or_else(|| "give a multiple from 0 upwards, for example 10".into())
}
