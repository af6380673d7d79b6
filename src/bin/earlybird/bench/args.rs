//! The arguments of `earlybird bench`, and the combinations that it refuses.

use super::composed::Composed;
use super::variant::Variant;
use super::{data, memory, mpi};
use crate::arguments::{one_of, parse_nodes, parse_ranks, refuse_chosen_algorithm};
use crate::job::launched;
use crate::lateness::Recorded;
use crate::output::must_be_writable;
use clap::{Args, FromArgMatches, ValueEnum};
use earlybird::pattern::Pattern;
use earlybird::units::{parse_size, parse_time};
use earlybird::{Algorithm, Choice, Collective, Config, DType, Error, FoldOrder, WaitPreset};
use earlybird_hier::schedule::ScheduleSpec;
use earlybird_hier::{Consistency, OpTraits, verify};
use itertools::Itertools;
use std::path::PathBuf;
use std::time::Duration;

/// Headings of the options.
const MEASURED: &str = "What is measured";
const ARRIVALS: &str = "Arrivals";
const REPORT: &str = "Report";

const EXAMPLES: &str = "\
Examples:
  earlybird bench allreduce --ranks 2
  earlybird bench allreduce --ranks 4 --sizes 64Ki,1Mi --patterns one-late --delay 5ms
  earlybird bench reduce --ranks 4 --order rank --format csv > reduce.csv
  earlybird bench allreduce --ranks 4 --sizes 64Ki --arrivals run1    (of a job with EARLYBIRD_TRACE=run1)
  earlybird bench allreduce --ranks 2 --sizes 1Mi --algorithms auto,started --compute 2ms
  earlybird bench broadcast --ranks 8 --check --html broadcast.html
  earlybird bench alltoall --ranks 4 --sizes 1Mi --skew 25
  mpirun -n 4 earlybird bench allreduce --algorithms auto,mpi      (built with --features cli,mpi)";

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
/// mpirun -n 6 earlybird bench allreduce --algorithms auto,mpi (built with --features cli,mpi).
#[derive(Args, Clone)]
#[command(after_help = EXAMPLES)]
pub struct BenchArgs {
    /// The measured operation
    #[arg(value_name = "OP", value_parser = one_of(Collective::PUBLIC, Collective::name), required_unless_present = "preset")]
    pub(super) op: Option<Collective>,

    /// Number of ranks, all nodes together [under mpirun: those that it started]
    #[arg(long, help_heading = MEASURED, value_name = "P", value_parser = parse_ranks)]
    pub(super) ranks: Option<usize>,

    /// Virtual nodes, as of `earlybird run`: calls go through the leaders of the nodes
    #[arg(long, help_heading = MEASURED, value_name = "N")]
    pub(super) nodes: Option<String>,

    /// Message sizes in bytes, with Ki, Mi or Gi, rounded down to whole elements; of an allgather or reduce-scatter the
    /// block of one rank [default: 8,64,425,1Ki,4Ki,16Ki,64Ki,256Ki,1Mi]
    #[arg(long, help_heading = MEASURED, value_name = "A,B", value_delimiter = ',', value_parser = parse_size)]
    pub(super) sizes: Option<Vec<u64>>,

    /// Blocks of two lengths: so many per cent more and less than the size, on ranks 0 and 3, 4 and 7, and so on more (allgather, gather,
    /// scatter, alltoall, reduce-scatter)
    #[arg(long, help_heading = MEASURED, value_name = "PERCENT", default_value = "0", hide_default_value = true, conflicts_with = "check",
          value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(super) skew: u8,

    /// Arrival patterns: balanced, random, first-late, last-late, one-late, ascending
    #[arg(long, help_heading = ARRIVALS, value_name = "A,B", value_delimiter = ',', default_value = "balanced,random,one-late")]
    pub(super) patterns: Vec<Pattern>,

    /// Algorithms: auto, flat, leader, chain, slices, static-leader, static-leader-early, and for allreduce and barrier
    /// plan:NAME with the name of a schedule and its parameters (see `earlybird plan`): plan:ring, plan:butterfly:r=1,
    /// plan:cyclic-shift:radices=4x3; under mpirun also mpi and mpi-started. On several nodes a plan:NAME runs flat over
    /// all ranks, exchange:NAME runs the plan between the leaders of the nodes, and the others are inside the nodes. Calls that
    /// do the same work: started, which is waited for after --compute; of allreduce reduce+broadcast, reduce-scatter+allgather
    /// and persistent, of gather as-allgather, of scatter as-broadcast, of others as-allreduce [default: all of the operation's
    /// own]
    #[arg(long, help_heading = MEASURED, value_name = "A,B", value_delimiter = ',')]
    pub(super) algorithms: Option<Vec<Variant>>,

    /// Full delay as a multiple of the balanced latency of static-leader, or several
    #[arg(long, help_heading = ARRIVALS, value_name = "X,Y", value_delimiter = ',', default_value = "10", allow_negative_numbers = true,
          value_parser = parse_mif, conflicts_with = "delay")]
    pub(super) mif: Vec<f64>,

    /// Full delay instead: seconds, or with a unit as in 5ms
    #[arg(long, help_heading = ARRIVALS, value_name = "S", allow_negative_numbers = true, value_parser = parse_time)]
    pub(super) delay: Option<Duration>,

    /// Instead of patterns the arrivals that a job of as many ranks recorded under EARLYBIRD_TRACE=FILE: those at a call of the
    /// same operation, drawn anew for every call
    #[arg(long, help_heading = ARRIVALS, value_name = "FILE", conflicts_with_all = ["patterns", "mif", "delay", "preset"])]
    pub(super) arrivals: Option<PathBuf>,

    /// Late ranks use processor time instead of sleeping
    #[arg(long, help_heading = ARRIVALS)]
    pub(super) burn: bool,

    /// Order of folding [default: EARLYBIRD_ORDER, else arrival]
    #[arg(long, help_heading = MEASURED, value_parser = one_of(&[FoldOrder::Arrival, FoldOrder::Rank], FoldOrder::name))]
    pub(super) order: Option<FoldOrder>,

    /// Kind of buffers: private; shared ones of alloc, which `auto` and `slices` reduce where they lie; or private ones
    /// and for `auto` a view of one result that all ranks share (allreduce)
    #[arg(long, help_heading = MEASURED, value_enum, default_value_t = BuffersChoice::Private)]
    pub(super) buffers: BuffersChoice,

    /// Computing time of every rank in each call, seconds or with a unit: between the start and the wait of started calls,
    /// before the others. Tail, latency and processor time contain it, the time of a call does not: below the table stands
    /// how much of that is hidden behind it
    #[arg(long, help_heading = MEASURED, value_name = "S", default_value = "0", hide_default_value = true, value_parser = parse_time,
          conflicts_with = "check")]
    pub(super) compute: Duration,

    /// Calls per row [default: as many as fit into 0.3 s, at least 10, at most 1000]
    #[arg(long, help_heading = MEASURED, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) iterations: Option<u32>,

    /// Chooses the draws of random and one-late, and of recorded calls
    #[arg(long, help_heading = ARRIVALS, value_name = "K", default_value_t = 1)]
    pub(super) seed: u64,

    /// Output format of the rows
    #[arg(long, help_heading = REPORT, value_enum, default_value_t = Format::Table)]
    pub(super) format: Format,

    /// Waiting preset: latency, balanced or power [default: EARLYBIRD_WAIT, else balanced]
    #[arg(long, help_heading = MEASURED)]
    pub(super) wait: Option<WaitPreset>,

    /// Element type, added up, or bool (logical-xor), or indexed (max-index) [default: f32]
    #[arg(long, help_heading = MEASURED, value_parser = one_of(&DType::ALL, DType::name))]
    pub(super) dtype: Option<DType>,

    /// Write a page with the curves of the tail over the size, and all rows
    #[arg(long, help_heading = REPORT, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,

    /// Hold the figures against performance guidelines: auto within 1.10 of the best single algorithm and 1.05 of
    /// static-leader, less data not slower, one call not slower than others that do its work, a prepared call not slower
    /// than a plain one. Measures besides what the guidelines need; exit code 1 if one is violated beyond the noise. Use it
    /// on a quiet machine. Results are checked for correctness in any case
    #[arg(long, help_heading = REPORT)]
    pub(super) check: bool,

    /// A published study's settings: of alizadeh jobs of 4 and 32 ranks, or of --ranks
    #[arg(long, help_heading = MEASURED, value_enum, value_name = "NAME", conflicts_with_all = ["patterns", "mif", "delay", "nodes"])]
    pub(super) preset: Option<Preset>,

    /// Another job has written the header of the CSV
    #[arg(long, hide = true)]
    pub(super) continued: bool,

    /// Says nothing and adds what is better than auto to this file: a rank of `tune`
    #[arg(long, hide = true)]
    pub(super) into: Option<String>,

    /// Measured besides what is measured without --algorithms
    #[arg(long, hide = true, value_delimiter = ',')]
    pub(super) add: Vec<Variant>,

    /// Makes this process a rank of the job
    #[arg(long, hide = true)]
    pub(super) worker: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub(super) enum BuffersChoice {
    Private,
    Alloc,
    View,
}

/// The output format of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table for readers, with the rows that are slower than static-leader.
    Table,
    /// The same table in Markdown.
    Markdown,
    /// One line per row, written as soon as it is known.
    Csv,
    /// One array of objects.
    Json,
}

/// A published study whose settings are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Preset {
    /// Alizadeh and others, process arrival pattern aware collectives, EuroMPI/USA 2022, table 3: allreduce under random
    /// lateness of 10, 20 and 50 times the balanced time (MIF), 4 and 32 ranks on a node
    Alizadeh,
}

const DEFAULT_SIZES: [u64; 9] = [8, 64, 425, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

impl BenchArgs {
    /// Returns true if this process is one of several ranks that an MPI launcher started, or MPI is wanted in a job of one.
    pub(super) fn is_launched(&self) -> bool {
        let wanted = self.variants().into_iter().any(Variant::is_mpi);
        !self.worker && launched().is_some_and(|(_, size)| size > 1 || wanted)
    }

    /// Returns true if the ranks join through MPI.
    pub(super) fn by_mpi(&self) -> bool {
        cfg!(feature = "mpi") && self.is_launched()
    }

    /// Refuses arguments that contradict each other or need what is not there, before anything is started.
    pub fn refuse(&self) -> Result<(), Error> {
        let traits = self.op().traits();
        let pointless = match self.op() {
            _ if !traits.has_data && self.sizes.is_some() => Some(("it carries no data", "--sizes")),
            _ if !traits.has_data && self.dtype.is_some() => Some(("it carries no data", "--dtype")),
            _ if !(traits.folds && traits.has_data) && self.order.is_some() => Some(("nothing is folded", "--order")),
            _ if self.skew > 0 && !traits.in_parts && !traits.joins() => Some(("its ranks have no blocks", "--skew")),
            Collective::AllReduce => None,
            _ if self.buffers == BuffersChoice::Private => None,
            _ => Some(("it copies its data in and out", "--buffers")),
        };
        if let Some((why, option)) = pointless {
            return Err(Error::usage(format!("{}: {why}; leave out {option}", self.op().name())));
        }
        if !self.compute.is_zero() && !self.variants().into_iter().any(Variant::is_started) {
            return Err(Error::usage("--compute: nothing overlaps with it; add started to --algorithms"));
        }
        refuse_chosen_algorithm(&Config::from_env()?)?;
        let ranks = self.ranks.or(launched().map(|(_, size)| size));
        if let (Some(ranks), false) = (ranks, self.worker) {
            memory::must_suffice(self.op(), self.sizes(), ranks, self.skew)?;
            self.html.as_deref().map_or(Ok(()), |path| must_be_writable("--html", path))?;
            self.arrivals.as_deref().map_or(Ok(()), |path| Recorded::read(path, Some(self.op()), ranks).map(drop))?;
        }
        let nodes = self.nodes.as_deref().zip(ranks).map(|(text, ranks)| parse_nodes(text, ranks)?.sizes(ranks));
        let nodes = nodes.transpose()?.map(|sizes| sizes.len());
        self.variants().into_iter().try_for_each(|variant| self.refuse_variant(variant, ranks, nodes))
    }

    fn refuse_variant(&self, variant: Variant, ranks: Option<usize>, nodes: Option<usize>) -> Result<(), Error> {
        let has = every_algorithm(self.op());
        let is_known = match variant {
            Variant::Library(Choice::Plan(_)) => matches!(self.op(), Collective::AllReduce | Collective::Barrier),
            Variant::Library(_) => has.contains(&variant),
            Variant::Exchange(_) => self.op() == Collective::AllReduce,
            Variant::Composed(composed) => Composed::of(self.op()).contains(&composed),
            Variant::Mpi { .. } => true,
        };
        if !is_known {
            let (op, valid) = (self.op().name(), has.iter().join(", "));
            return Err(Error::usage(format!("{op} is not carried out by {variant}; use {valid}")));
        }
        if self.skew > 0 && !matches!(variant, Variant::Library(_) | Variant::Composed(Composed::Started)) {
            return Err(Error::usage(format!("{variant}: is measured with blocks of one length; leave out --skew")));
        }
        match variant {
            Variant::Mpi { .. } => {
                mpi::available()?;
                if !self.is_launched() && !self.worker {
                    let command = "mpirun -n 6 earlybird bench allreduce --algorithms auto,mpi";
                    return Err(Error::usage(format!("mpi: start the ranks with its launcher, such as {command}")));
                }
                mpi::has_type(self.dtype())
            }
            Variant::Exchange(_) if nodes.map_or(!self.is_launched(), |nodes| nodes < 2) => Err(no_exchange(variant)),
            Variant::Library(choice @ Choice::Plan(word)) if self.op() == Collective::AllReduce => {
                ranks.map_or(Ok(()), |ranks| self.refuse_plan(choice, word, ranks))
            }
            Variant::Exchange(choice @ Choice::Plan(word)) => {
                nodes.map_or(Ok(()), |nodes| self.refuse_plan(choice, word, nodes))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a plan that does not exist for this many ranks or is not admitted for these elements.
    fn refuse_plan(&self, choice: Choice, word: &str, ranks: usize) -> Result<(), Error> {
        let op = data::op(self.dtype());
        let traits = OpTraits { commutative: true, exact: !self.dtype().is_inexact(op) };
        let made = word.parse::<ScheduleSpec>().and_then(|named| named.plan(ranks));
        let verified = made.and_then(|plan| verify::verify(plan).map_err(Into::into));
        let admitted = verified.and_then(|plan| verify::admit(plan, traits, Consistency::Identical));
        admitted.map(drop).map_err(|error| Error::usage(format!("{choice} on {ranks} ranks: {error}")))
    }

    /// The arguments of a rank of another command's job that measures by this command line.
    ///
    /// # Errors
    /// [`Error::Usage`] if the command line is none of `bench`.
    pub fn of_rank(line: &str) -> Result<BenchArgs, Error> {
        let command = BenchArgs::augment_args(clap::Command::new("earlybird bench").no_binary_name(true));
        let matches = command.try_get_matches_from(line.split(' ').chain(["--worker"]));
        matches
            .and_then(|matches| BenchArgs::from_arg_matches(&matches))
            .map_err(|error| Error::usage(error.to_string()))
    }

    /// A preset without one brings its own.
    pub(super) fn op(&self) -> Collective {
        self.op.unwrap_or(Collective::AllReduce)
    }

    pub(super) fn sizes(&self) -> &[u64] {
        if self.op().traits().has_data { self.sizes.as_deref().unwrap_or(&DEFAULT_SIZES) } else { &[0] }
    }

    pub(super) fn variants(&self) -> Vec<Variant> {
        let mut variants = self.algorithms.clone().unwrap_or_else(|| every_algorithm(self.op()));
        variants.extend(&self.add);
        if self.check {
            variants.push(Variant::Library(Choice::default()));
            variants.extend(Composed::of(self.op()).iter().map(|composed| Variant::Composed(*composed)));
        }
        variants.into_iter().unique().collect()
    }

    pub(super) fn dtype(&self) -> DType {
        self.dtype.unwrap_or(DType::F32)
    }
}

/// The library's own choice and all algorithms of `op`.
fn every_algorithm(op: Collective) -> Vec<Variant> {
    [Algorithm::Auto]
        .iter()
        .chain(op.traits().algorithms)
        .map(|algorithm| Variant::Library(Choice::Node(*algorithm)))
        .collect()
}

/// The refusal of a plan between nodes where there is one node.
pub(super) fn no_exchange(variant: Variant) -> Error {
    Error::usage(format!("{variant}: one node has no other to exchange with; give --nodes or use plan:NAME"))
}

fn parse_mif(text: &str) -> Result<f64, String> {
    let mif = text.parse().ok().filter(|mif: &f64| mif.is_finite() && *mif >= 0.0);
    mif.ok_or_else(|| "give a multiple from 0 upwards, for example 10".into())
}
