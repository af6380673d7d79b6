//! `earlybird bench`: a collective under controlled arrival patterns, algorithms interleaved, every result checked.
//!
//! The parent starts the ranks, which are this program again with one more argument; rank 0 of them reports.

mod check;
mod choosing;
mod composed;
mod data;
#[cfg_attr(not(feature = "mpi"), path = "no_mpi.rs")]
pub mod mpi;
mod page;
mod preset;
mod report;
mod session;
mod stats;
mod way;
mod worker;

use super::{as_worker, fail, fail_once, launched, parse_nodes, parse_ranks, parse_seconds, run_job};
use clap::{Args, ValueEnum};
use composed::Composed;
use earlybird::pattern::Pattern;
use earlybird::units::parse_size;
use earlybird::{Algorithm, Choice, Collective, Config, DType, Error, FoldOrder, Tables, WaitPreset, algorithms};
use earlybird_hier::schedule::ScheduleSpec;
use earlybird_hier::{Consistency, OpTraits, verify};
use preset::Preset;
use report::Format;
use std::process::ExitCode;
use std::time::Duration;
use way::Way;

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
///
/// Under mpirun the ranks that it started are measured, and `mpi` is that MPI library's own collective:
/// mpirun -n 6 earlybird bench allreduce --algorithms auto,mpi (built with --features mpi).
#[derive(Args, Clone)]
pub struct BenchArgs {
    /// allreduce, reduce, broadcast, barrier, allgather or reduce-scatter
    #[arg(value_name = "OP", value_parser = parse_op, required_unless_present = "preset")]
    op: Option<Collective>,

    /// Number of ranks, all nodes together [under mpirun: those that it started]
    #[arg(long, value_name = "P", value_parser = parse_ranks)]
    ranks: Option<usize>,

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
    /// plan:NAME with the name of a schedule and its parameters (see `earlybird plan`): plan:ring, plan:butterfly:r=1,
    /// plan:cyclic-shift:radices=4x3; under mpirun also mpi. On several nodes a plan:NAME runs flat over all ranks,
    /// exchange:NAME runs the plan between the leaders of the nodes, and the others are inside the nodes. Calls that do the
    /// same work: of allreduce reduce+broadcast, reduce-scatter+allgather and persistent, of the others as-allreduce
    /// [default: all of the operation's own]
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    algorithms: Option<Vec<Way>>,

    /// Full delay as a multiple of the balanced latency of static-leader, or several
    #[arg(long, value_name = "X,Y", value_delimiter = ',', default_value = "10", allow_negative_numbers = true,
          value_parser = parse_mif, conflicts_with = "delay")]
    mif: Vec<f64>,

    /// Full delay in seconds instead
    #[arg(long, value_name = "S", allow_negative_numbers = true, value_parser = parse_seconds)]
    delay: Option<Duration>,

    /// Late ranks use processor time instead of sleeping
    #[arg(long)]
    burn: bool,

    /// Order of folding: arrival or rank [default: arrival]
    #[arg(long, value_enum)]
    order: Option<OrderChoice>,

    /// Where the buffers are: private; shared ones of alloc, which `auto` and `slices` reduce where they lie; or private ones
    /// and for `auto` a view of one result that all ranks share (allreduce)
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

    /// Write a page with the curves of the tail over the size, and all rows
    #[arg(long, value_name = "FILE")]
    html: Option<String>,

    /// Hold the figures against performance guidelines: auto within 1.10 of the best single algorithm and 1.05 of
    /// static-leader, less data not slower, one call not slower than others that do its work, a prepared call not slower
    /// than a plain one. Measures besides what the guidelines need; exit code 1 if one is violated beyond the noise. Use it
    /// on a quiet machine. Results are checked for correctness in any case
    #[arg(long)]
    check: bool,

    /// A published study's settings, our figures beside its own: of alizadeh jobs of 4 and 32 ranks, or of --ranks
    #[arg(long, value_enum, value_name = "NAME", conflicts_with_all = ["patterns", "mif", "delay", "nodes"])]
    preset: Option<Preset>,

    /// Another job has written the header of the CSV
    #[arg(long, hide = true)]
    continued: bool,

    /// Says nothing and adds what is better than auto to this file: a rank of `tune`
    #[arg(long, hide = true)]
    into: Option<String>,

    /// Measured besides what is measured without --algorithms
    #[arg(long, hide = true, value_delimiter = ',')]
    add: Vec<Way>,

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
    View,
}

impl BuffersChoice {
    fn name(self) -> &'static str {
        match self {
            BuffersChoice::Private => "private",
            BuffersChoice::Alloc => "alloc",
            BuffersChoice::View => "view",
        }
    }
}

const DEFAULT_SIZES: [u64; 9] = [8, 64, 425, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// Runs the benchmark, or one rank of it.
pub fn run(args: &BenchArgs) -> ExitCode {
    let args = &mut args.clone();
    let complete = args.preset.map_or(Ok(()), |preset| preset.apply(args));
    if let Err(error) = complete.and_then(|()| args.refuse()) {
        return fail_once("bench", args.worker, &error);
    }
    let code = match args.worker || args.is_launched() {
        true => worker::work(args),
        false => start(args),
    };
    code.map_or_else(|error| fail("bench", &error), ExitCode::from)
}

/// Starts this command again as ranks, once for every number of ranks.
fn start(args: &BenchArgs) -> Result<u8, Error> {
    // Each rank reads its environment too; a mistake in it is better said once, and before anything is started.
    Config::from_env()?;
    let jobs: &[usize] = match (&args.ranks, args.preset) {
        (Some(ranks), _) => std::slice::from_ref(ranks),
        (None, Some(preset)) if args.format != Format::Json && args.html.is_none() => preset.ranks(),
        (None, Some(_)) => return Err(Error::usage("one job makes one JSON array, and one page; give --ranks")),
        (None, None) => return Err(Error::usage("how many ranks? give --ranks P, or start them with mpirun")),
    };
    for (at, &ranks) in jobs.iter().enumerate() {
        let mut again = as_worker();
        again.extend((at > 0).then(|| "--continued".into()));
        let code = run_job("earlybird bench", ranks, args.nodes.as_deref(), again)?;
        if code != 0 {
            return Ok(code);
        }
    }
    Ok(0)
}

impl BenchArgs {
    /// Whether this process is one of several ranks that an MPI launcher started, or MPI is wanted in a job of one.
    fn is_launched(&self) -> bool {
        let wanted = self.ways().contains(&Way::Mpi);
        !self.worker && launched().is_some_and(|(_, size)| size > 1 || wanted)
    }

    /// Whether the ranks join through MPI.
    fn by_mpi(&self) -> bool {
        cfg!(feature = "mpi") && self.is_launched()
    }

    /// What makes no sense, or is not there: said before anything is started.
    fn refuse(&self) -> Result<(), Error> {
        let pointless = [
            (self.op() == Collective::Barrier && self.sizes.is_some(), "a barrier carries no data", "--sizes"),
            (self.op() == Collective::Barrier && self.dtype.is_some(), "a barrier carries no data", "--dtype"),
            (!self.op().folds() && self.order.is_some(), "nothing is folded", "--order"),
            (
                self.op() != Collective::AllReduce && self.buffers != BuffersChoice::Private,
                "it copies its data in and out",
                "--buffers",
            ),
        ];
        if let Some((_, why, option)) = pointless.iter().find(|(given, ..)| *given) {
            return Err(Error::usage(format!("{}: {why}; leave out {option}", self.op().name())));
        }
        let ranks = self.ranks.or(launched().map(|(_, size)| size));
        let nodes = self.nodes.as_deref().zip(ranks).map(|(text, ranks)| parse_nodes(text, ranks)?.sizes(ranks));
        let nodes = nodes.transpose()?.map(|sizes| sizes.len());
        self.ways().into_iter().try_for_each(|way| self.refuse_way(way, ranks, nodes))
    }

    fn refuse_way(&self, way: Way, ranks: Option<usize>, nodes: Option<usize>) -> Result<(), Error> {
        let has = every_algorithm(self.op());
        let is_known = match way {
            Way::Library(Choice::Plan(_)) => matches!(self.op(), Collective::AllReduce | Collective::Barrier),
            Way::Library(_) => has.contains(&way),
            Way::Exchange(_) => self.op() == Collective::AllReduce,
            Way::Composed(composed) => Composed::of(self.op()).contains(&composed),
            Way::Mpi => true,
        };
        if !is_known {
            let valid: Vec<String> = has.iter().map(Way::to_string).collect();
            let valid = valid.join(", ");
            return Err(Error::usage(format!("{} is not carried out by {way}; use {valid}", self.op().name())));
        }
        match way {
            Way::Mpi => {
                mpi::available()?;
                if !self.is_launched() && !self.worker {
                    let command = "mpirun -n 6 earlybird bench allreduce --algorithms auto,mpi";
                    return Err(Error::usage(format!("mpi: start the ranks with its launcher, such as {command}")));
                }
                mpi::has_type(self.dtype())
            }
            Way::Exchange(_) if nodes.is_some_and(|nodes| nodes < 2) || (nodes.is_none() && !self.is_launched()) => {
                Err(Error::usage(format!("{way}: one node has nobody to exchange with; give --nodes or use plan:NAME")))
            }
            Way::Library(choice @ Choice::Plan(word)) if self.op() == Collective::AllReduce => {
                ranks.map_or(Ok(()), |ranks| self.refuse_plan(choice, word, ranks))
            }
            Way::Exchange(choice @ Choice::Plan(word)) => {
                nodes.map_or(Ok(()), |nodes| self.refuse_plan(choice, word, nodes))
            }
            _ => Ok(()),
        }
    }

    /// What a plan cannot do for this many ranks and these elements.
    fn refuse_plan(&self, choice: Choice, word: &str, ranks: usize) -> Result<(), Error> {
        let op = data::op(self.dtype());
        let traits = OpTraits { commutative: true, exact: !self.dtype().is_inexact(op) };
        let made = word.parse::<ScheduleSpec>().and_then(|named| named.plan(ranks));
        let verified = made.and_then(|plan| verify::verify(plan).map_err(Into::into));
        let admitted = verified.and_then(|plan| verify::admit(plan, traits, Consistency::Identical));
        admitted.map(drop).map_err(|error| Error::usage(format!("{choice} on {ranks} ranks: {error}")))
    }

    /// A preset without one brings its own.
    fn op(&self) -> Collective {
        self.op.unwrap_or(Collective::AllReduce)
    }

    fn sizes(&self) -> &[u64] {
        match self.op() {
            Collective::Barrier => &[0],
            _ => self.sizes.as_deref().unwrap_or(&DEFAULT_SIZES),
        }
    }

    fn ways(&self) -> Vec<Way> {
        let mut ways = self.algorithms.clone().unwrap_or_else(|| every_algorithm(self.op()));
        ways.extend(&self.add);
        if self.check {
            let compared = Composed::of(self.op()).iter().map(|composed| Way::Composed(*composed));
            for way in std::iter::once(Way::Library(Choice::default())).chain(compared) {
                if !ways.contains(&way) {
                    ways.push(way);
                }
            }
        }
        ways
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

/// The library's own choice and all algorithms of `op`.
fn every_algorithm(op: Collective) -> Vec<Way> {
    [Algorithm::Auto].iter().chain(algorithms(op)).map(|algorithm| Way::Library(Choice::Node(*algorithm))).collect()
}

pub fn parse_op(text: &str) -> Result<Collective, String> {
    let known = Tables::OPERATIONS;
    known
        .into_iter()
        .find(|op| op.name() == text)
        .ok_or_else(|| format!("the operations that can be measured are: {}", known.map(Collective::name).join(", ")))
}

fn parse_dtype(text: &str) -> Result<DType, String> {
    let valid = || DType::ALL.map(DType::name).join(", ");
    DType::ALL.into_iter().find(|dtype| dtype.name() == text).ok_or_else(|| format!("use one of: {}", valid()))
}

fn parse_mif(text: &str) -> Result<f64, String> {
    let mif = text.parse().ok().filter(|mif: &f64| mif.is_finite() && *mif >= 0.0);
    mif.ok_or_else(|| "give a multiple from 0 upwards, for example 10".into())
}
