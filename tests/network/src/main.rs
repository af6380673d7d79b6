//! A network of hosts on one machine: each host is a set of namespaces, a relay delays and rate-limits what they send.
//!
//! The kernel here has no netem. Frames cross this process, so a run ends with how late the relay itself was and how
//! much CPU it took: a measurement on this network is only as good as these two figures. An MPI launcher runs on a
//! host of its own, so that all ranks are treated alike.
//!
//! ```text
//! earlybird-network --hosts 3 --delay-us 1000 --rate-mbit 1000 --mpi openmpi --ranks 3 -- PROGRAM ARGS
//! ```
//!
//! Needs root and Linux with TUN; exit code of the command, 2 for usage, 3 when the network cannot be built.

mod host;
mod launch;
mod relay;
mod scratch;
mod switch;

use clap::Parser;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs a command on hosts that are joined by links with a delay and a rate.
#[derive(Debug, Parser)]
#[command(name = "earlybird-network")]
struct Args {
    /// Hosts, 2 to 32.
    #[arg(long, value_parser = clap::value_parser!(u8).range(2..=32))]
    hosts: u8,
    /// Time from one host to another, microseconds.
    #[arg(long, default_value_t = 1000)]
    delay_us: u64,
    /// Rate of every link, each way, megabits per second; 0 for no limit.
    #[arg(long, default_value_t = 0)]
    rate_mbit: u64,
    /// Largest packet, bytes.
    #[arg(long, default_value_t = 9000, value_parser = clap::value_parser!(u16).range(1280..=16000))]
    mtu: u16,
    /// Start the command through this MPI's launcher; without it the command runs once, on host 1.
    #[arg(long, requires = "ranks")]
    mpi: Option<launch::Mpi>,
    /// MPI ranks, dealt out to the hosts in contiguous blocks.
    #[arg(long, requires = "mpi")]
    ranks: Option<usize>,
    /// Options handed to the launcher as they are, for example `-x NAME=VALUE`.
    #[arg(long, allow_hyphen_values = true, value_name = "OPTION")]
    launcher_option: Vec<String>,
    /// Program and arguments.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("earlybird-network: {error}");
            ExitCode::from(3)
        }
    }
}

fn run(args: &Args) -> Result<u8, host::Failed> {
    let scratch = scratch::Scratch::new().map_err(|why| host::Failed::new("cannot make a directory", why))?;
    let hosts = (1..=args.hosts).map(|number| host::Host::start(number, args.mtu)).collect::<Result<Vec<_>, _>>()?;
    let head = host::Host::start_head(args.hosts + 1, args.mtu)?;
    let devices = hosts.iter().chain([&head]).map(host::Host::open_link).collect::<Result<Vec<_>, _>>()?;
    let switch = switch::Switch::new(devices.len(), args.delay_us * 1000, args.rate_mbit * 1_000_000);
    let stop = AtomicBool::new(false);
    let (code, report) = std::thread::scope(|scope| {
        let relay = scope.spawn(|| relay::run(&devices, switch, &stop));
        let code = launch::run(args, &head, &hosts, &scratch);
        stop.store(true, Ordering::Relaxed);
        (code, relay.join())
    });
    match report {
        Ok(Ok(report)) => eprintln!("{report}"),
        Ok(Err(error)) => return Err(host::Failed::new("the relay ended early", error)),
        Err(_) => return Err(host::Failed::new("the relay panicked", std::io::ErrorKind::Other.into())),
    }
    code
}
