//! `earlybird topo`: the processors of this machine, what they share, and where ranks sit.

#[cfg(feature = "hwloc")]
mod hwloc;
mod machine;
mod places;
mod source;
mod sysfs;

use crate::arguments::parse_ranks;
use crate::numbers::{ranges, size};
use crate::output::{AnswerFormat, json, print};
use crate::table::table;
use clap::Args;
use earlybird::launch::{self, Bind};
use earlybird::{Error, probe};
use machine::Machine;
use places::Place;
use serde::Serialize;
use source::SourceArgs;

const EXAMPLES: &str = "\
Examples:
  earlybird topo
  earlybird topo -n 4 --bind none
  earlybird topo --job 4711        (the ranks of a running job, by the process id of its launcher)";

/// Show packages, NUMA domains, caches and cores, and where ranks sit
///
/// Without --job the ranks are those that `earlybird run` would start here. Ranks that share a processor or a core are warned of.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct TopoArgs {
    /// Ranks to place as `earlybird run` would [default: one for each allowed processor]
    #[arg(short = 'n', long = "ranks", value_name = "P", value_parser = parse_ranks)]
    ranks: Option<usize>,

    /// Binding of these ranks
    #[arg(long, value_enum, default_value_t)]
    bind: Bind,

    /// Show the ranks of a running job instead: the process id of its launcher
    #[arg(long, value_name = "PID", conflicts_with_all = ["ranks", "bind"])]
    job: Option<u32>,

    #[command(flatten)]
    source: SourceArgs,

    /// Form of the answer
    #[arg(long, value_enum, default_value_t = AnswerFormat::Table)]
    format: AnswerFormat,
}

#[derive(Serialize)]
struct Answer {
    #[serde(flatten)]
    machine: Machine,
    allowed_cpus: Vec<usize>,
    cpu_quota: Option<usize>,
    ranks: Vec<Place>,
    warnings: Vec<String>,
}

/// Looks and prints.
pub fn run(args: &TopoArgs) -> Result<u8, Error> {
    let answer = answer(args)?;
    print(&match args.format {
        AnswerFormat::Json => json(&answer),
        AnswerFormat::Table => shown(&answer),
    })?;
    Ok(0)
}

fn answer(args: &TopoArgs) -> Result<Answer, Error> {
    let (machine, is_this_one) = args.source.read()?;
    let (allowed_cpus, cpu_quota) = match is_this_one {
        true => (launch::allowed_cpus()?, probe::cpu_quota()),
        false => (machine.cpus(), None),
    };
    let ranks = match args.job {
        Some(_) if !is_this_one => {
            return Err(Error::usage("--job shows a job of this machine; leave out the description of another one"));
        }
        Some(launcher) => places::running(&machine, launcher)?,
        None => places::planned(&machine, args.ranks.unwrap_or(allowed_cpus.len()), args.bind, &allowed_cpus),
    };
    let warnings = places::warnings(&machine, &ranks);
    Ok(Answer { machine, allowed_cpus, cpu_quota, ranks, warnings })
}

fn shown(answer: &Answer) -> String {
    let Answer { machine, allowed_cpus, cpu_quota, ranks, warnings } = answer;
    let counts = [
        (machine.packages.len(), "package"),
        (machine.numa_domains.len(), "NUMA domain"),
        (machine.cores.len(), "core"),
        (machine.cpus().len(), "processor"),
    ];
    let counts = counts.map(|(count, name)| format!("{count} {name}{}", if count == 1 { "" } else { "s" })).join(", ");
    let quota = cpu_quota.map_or("no quota".into(), |quota| format!("a quota of {quota}"));
    let mut text = format!("{counts}; {} allowed ({}), {quota}\n\n", allowed_cpus.len(), ranges(allowed_cpus));

    let row =
        |name: String, bytes: Option<u64>, cpus: &[usize]| vec![name, bytes.map_or(String::new(), size), ranges(cpus)];
    let packages = machine.packages.iter().map(|of| row(format!("package {}", of.id), None, &of.cpus));
    let domains =
        machine.numa_domains.iter().map(|of| row(format!("NUMA domain {}", of.id), Some(of.memory_bytes), &of.cpus));
    let caches = machine.last_level().map(|of| row(format!("L{} cache", of.level), Some(of.bytes), &of.cpus));
    // A core that is one processor needs no line.
    let threaded = machine.cores.iter().filter(|core| core.cpus.len() > 1);
    let cores = threaded.map(|of| row("core".into(), None, &of.cpus));
    let rows = packages.chain(domains).chain(caches).chain(cores).collect();
    text += &format!("{}\n\n", table(&["what", "size", "processors"], rows));

    let pid = |place: &Place| place.pid.map_or("not started".into(), |pid| pid.to_string());
    let row = |place: &Place| {
        vec![
            place.rank.to_string(),
            pid(place),
            ranges(&place.cpus),
            ranges(&place.packages),
            ranges(&place.numa_domains),
        ]
    };
    let header = ["rank", "process", "processors", "package", "NUMA domain"];
    text += &format!("{}\n", table(&header, ranks.iter().map(row).collect()));
    for warning in warnings {
        text += &format!("\nwarning: {warning}");
    }
    if warnings.is_empty() { text } else { text + "\n" }
}
