//! Running a command on the hosts: alone on the first one, or through an MPI launcher on all.

use crate::Args;
use crate::host::{Failed, Host};
use crate::scratch::Scratch;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

/// Whose launcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Mpi {
    /// Open MPI's mpirun, over its TCP transport.
    Openmpi,
    /// MPICH's mpiexec.
    Mpich,
}

/// Runs the command and returns its exit code, 128 + signal for a signal.
///
/// # Errors
/// When it cannot be started.
pub fn run(args: &Args, head: &Host, hosts: &[Host], scratch: &Scratch) -> Result<u8, Failed> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |why| Failed::new(what, why)
    };
    let mut command = if args.mpi.is_some() { head.enter() } else { hosts[0].enter() };
    if let (Some(mpi), Some(ranks)) = (args.mpi, args.ranks) {
        let agent = scratch.agent();
        fs::write(&agent, agent_script(hosts)).map_err(failed("cannot write the agent"))?;
        fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).map_err(failed("cannot write the agent"))?;
        launcher(&mut command, mpi, ranks, hosts, &agent);
        command.args(&args.launcher_option);
    }
    let status = command.args(&args.command).status().map_err(failed("cannot run the command"))?;
    Ok(status.code().or(status.signal().map(|signal| 128 + signal)).map_or(3, |code| code as u8))
}

/// The launcher and its options, `ranks` dealt out contiguously, the first `ranks % hosts` hosts with one more.
fn launcher(command: &mut Command, mpi: Mpi, ranks: usize, hosts: &[Host], agent: &Path) {
    let (least, more) = (ranks / hosts.len(), ranks % hosts.len());
    let places: Vec<_> = hosts
        .iter()
        .enumerate()
        .map(|(i, host)| (host.address(), least + usize::from(i < more)))
        .filter(|(_, count)| *count > 0)
        .map(|(address, count)| format!("{address}:{count}"))
        .collect();
    let (places, ranks, agent) = (places.join(","), ranks.to_string(), agent.to_string_lossy().into_owned());
    match mpi {
        Mpi::Openmpi => {
            command.args(["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]);
            for (name, value) in [
                ("plm_rsh_agent", agent.as_str()),
                ("btl", "tcp,vader,self"),
                ("pml", "ob1"),
                ("btl_tcp_if_include", "10.99.0.0/24"),
                ("oob_tcp_if_include", "10.99.0.0/24"),
            ] {
                command.args(["--mca", name, value]);
            }
            command.args(["--host", &places, "-n", &ranks]);
        }
        Mpi::Mpich => {
            command.args(["mpiexec.mpich", "-launcher", "rsh", "-launcher-exec", &agent, "-iface", "eb0"]);
            command.args(["-hosts", &places, "-n", &ranks]);
        }
    }
}

/// What a launcher runs in place of rsh: enters the host with the address in its first argument.
fn agent_script(hosts: &[Host]) -> String {
    let mut script =
        String::from("#!/bin/sh\nwhile [ \"${1#-}\" != \"$1\" ]; do shift; done\nhost=$1\nshift\ncase $host in\n");
    for host in hosts {
        script += &format!("{}) exec {} sh -c \"$*\" ;;\n", host.address(), host.enter_line());
    }
    script + "esac\necho \"no host $host\" >&2\nexit 255\n"
}
