//! `earlybird tune`: measures what carries out each operation best on this machine and writes a file for `EARLYBIRD_TUNE`.

use super::bench::parse_op;
use super::{fail, own_binary, parse_ranks};
use clap::Args;
use earlybird::launch::{Job, Outcome};
use earlybird::units::parse_size;
use earlybird::{Collective, Config, Error};
use std::ffi::OsString;
use std::process::ExitCode;

/// Measure what carries out each operation best on this machine
///
/// Every operation is measured by `bench` under balanced and random arrivals and with one late rank: all algorithms, and of
/// allreduce flat plans too. A size is given to what is faster than the library's own choice beyond the noise under one pattern
/// and slower under none; all others stay with `auto`, so a file may have comments only. The file counts for communicators of
/// this many ranks on one node, where EARLYBIRD_TUNE names it; EARLYBIRD_ALGORITHM and EARLYBIRD_ALLREDUCE and its like go before
/// it. Use it on a quiet machine.
#[derive(Args)]
pub struct TuneArgs {
    /// Number of ranks, or several
    #[arg(long, value_name = "P,Q", value_delimiter = ',', required = true, value_parser = parse_ranks)]
    ranks: Vec<usize>,

    /// The file that is written
    #[arg(long, short, value_name = "FILE")]
    output: String,

    /// allreduce, reduce, broadcast, barrier, allgather, reduce-scatter
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = parse_op,
          default_value = "allreduce,reduce,broadcast,barrier,allgather,reduce-scatter")]
    operations: Vec<Collective>,

    /// Message sizes in bytes, with Ki, Mi or Gi
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = parse_size,
          default_value = "8,64,512,4Ki,16Ki,64Ki,256Ki,1Mi,4Mi")]
    sizes: Vec<u64>,

    /// Calls per row [default: as of bench]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    iterations: Option<u32>,
}

/// What is measured of an allreduce besides the node's own algorithms.
const PLANS: &str = "plan:ring,plan:halving-doubling,plan:butterfly,plan:recursive-doubling,plan:binomial,plan:direct";

/// Measures and writes.
pub fn run(args: &TuneArgs) -> ExitCode {
    measure(args).map_or_else(|error| fail("tune", &error), ExitCode::from)
}

fn measure(args: &TuneArgs) -> Result<u8, Error> {
    let config = Config::from_env()?;
    if config.ranks_per_node.is_some() {
        return Err(Error::usage("a file for EARLYBIRD_TUNE is for one node; unset EARLYBIRD_RANKS_PER_NODE"));
    }
    let header = "# earlybird tune: RANKS OPERATION TABLE, for EARLYBIRD_TUNE. What is not listed is left to auto.\n";
    std::fs::write(&args.output, header).map_err(|error| Error::usage(format!("--output {}: {error}", args.output)))?;
    let sizes: Vec<String> = args.sizes.iter().map(u64::to_string).collect();
    for &ranks in &args.ranks {
        for operation in &args.operations {
            let mut again: Vec<OsString> = vec!["bench".into(), operation.name().into(), "--worker".into()];
            again.extend(["--into".into(), args.output.clone().into()]);
            if *operation != Collective::Barrier {
                again.extend(["--sizes".into(), sizes.join(",").into()]);
            }
            if *operation == Collective::AllReduce {
                again.extend(["--add".into(), PLANS.into()]);
            }
            if let Some(iterations) = args.iterations {
                again.extend(["--iterations".into(), iterations.to_string().into()]);
            }
            let binary = own_binary()?;
            match Job::new("earlybird tune", binary.clone(), ranks, binary.into(), again).run()? {
                Outcome::Success => {}
                Outcome::Failed { .. } => return Ok(1),
                outcome => return Ok(outcome.exit_code()),
            }
        }
    }
    let written = std::fs::read_to_string(&args.output);
    super::print(&written.map_err(|error| Error::system("read the file", format!("{}: {error}", args.output)))?)?;
    Ok(0)
}
