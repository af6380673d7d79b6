//! `earlybird demo`: what the library is for, shown on this machine in seconds: a straggler, a death, and equal bits.
//!
//! The times are those of `earlybird bench`, whose session, calls and statistics measure them; the report names the command.

mod bits;
mod death;
mod picture;
mod straggler;

use crate::bench::{BenchArgs, Session, measure};
use crate::job::{as_worker, exit_code, job_of};
use crate::output::{must_be_writable, print, progress_bar, write_file};
use clap::Args;
use earlybird::Error;
use earlybird::launch::allowed_cpus;
use earlybird::units::parse_time;
use std::path::PathBuf;
use std::time::Duration;
use straggler::Comparison;

const EXAMPLES: &str = "\
Examples:
  earlybird demo
  earlybird demo --ranks 4 --delay 20ms --svg late.svg";

/// Show on this machine what happens when a rank is late and when one dies
///
/// Straggler: allreduces of f32 in which one rank, drawn anew for every call, is late, by static-leader and by auto in turn: the
/// tail (last arrival to last exit) with quartiles and the 95 % interval of its median, and a verdict from the interval of
/// the ratio of both tails, call by call. Bits: three arrival orders, the hash of every rank's result. Death: the last rank is
/// killed; the error of each survivor and the time until it came. A picture shows one call and all tails.
///
/// Exit code 1 if a result was wrong, bits differed, or the error of a survivor did not name the dead rank. An MPI library's own allreduce is measured in
/// turn with auto by `earlybird bench --algorithms auto,mpi` under its mpirun.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct DemoArgs {
    /// Number of ranks [default: as many as CPUs, 2 to 8]
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(u32).range(2..=64))]
    ranks: Option<u32>,

    /// Calls of each algorithm and size
    #[arg(long, value_name = "K", default_value = "100", value_parser = clap::value_parser!(u32).range(6..=100_000))]
    calls: u32,

    /// Delay of the late rank: seconds, or with a unit as in 5ms
    #[arg(long, value_name = "S", default_value = "0.005", allow_negative_numbers = true, value_parser = parse_time)]
    delay: Duration,

    /// File for the picture
    #[arg(long, value_name = "FILE", default_value = "earlybird-demo.svg")]
    svg: PathBuf,

    /// Makes this process a rank of the job
    #[arg(long, hide = true)]
    worker: bool,
}

/// Most ranks where their number is left to us.
const MOST_RANKS: usize = 8;

/// Runs the demonstration, or one rank of it.
pub fn run(args: &DemoArgs) -> Result<u8, Error> {
    if args.worker { work(args) } else { start(args) }
}

fn start(args: &DemoArgs) -> Result<u8, Error> {
    must_be_writable("--svg", &args.svg)?;
    args.measured()?.refuse()?;
    let cpus = allowed_cpus()?.len();
    let ranks = args.ranks.map_or(cpus.clamp(2, MOST_RANKS), |ranks| ranks as usize);
    print(&format!("{ranks} ranks on {cpus} CPUs\n"))?;
    if ranks > cpus {
        print("More ranks than CPUs: they take turns on them, so these times say little about the algorithms.\n")?;
    }
    let mut job = job_of("earlybird demo", ranks, as_worker())?;
    job.expendable = Some(death::rank_to_kill(ranks));
    Ok(exit_code(job.run()?))
}

impl DemoArgs {
    /// The command line of `earlybird bench` that measures the straggler, without the number of ranks.
    fn bench_line(&self) -> String {
        let (delay, calls) = (self.delay.as_secs_f64(), self.calls);
        format!(
            "allreduce --sizes 64Ki,1Mi --patterns one-late --delay {delay} --algorithms static-leader,auto --iterations {calls}"
        )
    }

    fn measured(&self) -> Result<BenchArgs, Error> {
        BenchArgs::of_rank(&self.bench_line())
    }
}

/// One rank; rank 0 reports.
fn work(args: &DemoArgs) -> Result<u8, Error> {
    let bench = args.measured()?;
    let session = Session::open(&bench)?;
    let (rank, ranks) = (session.comm.rank(), session.comm.size());
    let report = |text: String| if rank == 0 { print(&text) } else { Ok(()) };
    let delay_ms = args.delay.as_secs_f64() * 1e3;

    report(format!(
        "\nStraggler: in every call one rank, drawn anew, comes {delay_ms} ms late; {} calls of each algorithm in turn.\n\n",
        args.calls
    ))?;
    let mut comparisons = Vec::new();
    let progress = progress_bar(rank, "{bar:40} {msg}");
    measure::<f32>(&bench, &session, &progress, |cell| {
        comparisons.push(Comparison::of(cell)?);
        Ok(())
    })?;
    report(straggler::text(&comparisons))?;
    report(format!("The same by: earlybird bench {} --ranks {ranks}\n", args.bench_line()))?;

    let orders = bits::run(&session)?;
    report(bits::text(&orders, ranks))?;
    if comparisons.iter().any(|comparison| comparison.wrong > 0) || !bits::are_equal(&orders) {
        return Ok(1);
    }

    let killed_rank = death::rank_to_kill(ranks);
    report(format!("\nDeath: rank {killed_rank} is killed while the others wait for it in an allreduce.\n\n"))?;
    let (survivors, all_know) = death::run(&session, killed_rank)?;
    report(death::text(&survivors))?;

    if rank == 0 {
        let svg = picture::draw(&comparisons, ranks, session.comm.allowed_cpus(), delay_ms);
        write_file(&args.svg, &svg)?;
        print(&format!("\nPicture: {}\n", args.svg.display()))?;
    }
    Ok(u8::from(!all_know))
}
