//! The MPI transport under the launcher of the MPI library that it was built with: the conformance suite and every
//! schedule, on 2, 3 and 5 ranks.
//!
//! Started without a launcher this program starts itself through one; it has no other harness, since libtest would run
//! its tests once per rank and on threads that MPI may not allow.

#[path = "../../hier/tests/common/mod.rs"]
mod cases;
#[path = "../../hier/tests/common/conformance.rs"]
mod conformance;
#[path = "../../hier/tests/common/execute.rs"]
#[allow(dead_code)]
mod execute;
mod joined;

use earlybird::mpi::{MpiOptions, MpiTransport};
use earlybird_hier::exec::{Endpoint, Failure, Transport};
use earlybird_hier::{schedule, verify};
use execute::{Job, judge, run_on};
use mpi::Threading;
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;
use std::process::{Command, ExitCode};
use std::sync::Arc;

/// Set by every launcher we know; a process without them is the one that starts the others.
const LAUNCHED: [&str; 2] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"];

fn main() -> ExitCode {
    match LAUNCHED.iter().any(|name| std::env::var_os(name).is_some()) {
        true => rank(),
        false => launch(),
    }
}

fn launch() -> ExitCode {
    let version = mpi::environment::library_version().unwrap_or_default();
    let (launcher, options): (&str, &[&str]) = match version.contains("Open MPI") {
        true => ("mpirun.openmpi", &["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]),
        false => ("mpiexec.mpich", &[]),
    };
    let program = std::env::current_exe().expect("a program knows its path");
    for ranks in ["2", "3", "5"] {
        let status = Command::new(launcher).args(options).args(["-n", ranks]).arg(&program).status();
        match status {
            Ok(status) if status.success() => {}
            Ok(status) => {
                eprintln!("{launcher} with {ranks} ranks: {status}");
                return ExitCode::FAILURE;
            }
            Err(error) => {
                eprintln!("cannot start {launcher}: {error}; install it beside the library {version:?}");
                return ExitCode::FAILURE;
            }
        }
    }
    println!("test result: ok. 3 passed under {launcher}; 0 failed");
    ExitCode::SUCCESS
}

fn rank() -> ExitCode {
    let (universe, level) = mpi::initialize_with_threading(Threading::Funneled).expect("MPI is not initialised yet");
    let world = universe.world();
    the_suite(&world);
    every_schedule(&world);
    a_failure_reaches_everybody(&world);
    joined::all(&world);
    if level < Threading::Serialized {
        another_thread_is_refused(&world);
    }
    if world.rank() == 0 {
        println!("{} ranks: conformance, schedules, failure, communicators, threads ({level:?})", world.size());
    }
    ExitCode::SUCCESS
}

fn transport(world: &SimpleCommunicator, options: MpiOptions) -> MpiTransport {
    MpiTransport::new(world, options).expect("MPI can duplicate a communicator")
}

fn the_suite(world: &SimpleCommunicator) {
    // Eager and not, one packet at a time and many.
    for (packet_bytes, depth) in [(1, 2), (97, 1), (4096, 3), (48 << 10, 8), (300_000, 4)] {
        let mut transport = transport(world, MpiOptions { packet_bytes, depth });
        conformance::all_to_all(&mut transport).unwrap_or_else(|f| panic!("packets of {packet_bytes} bytes: {f}"));
        while !transport.is_flushed().expect("nobody fails") {}
        world.barrier();
    }
    let mut transport = transport(world, MpiOptions { packet_bytes: 1000, depth: 4 });
    conformance::a_full_lane_refuses(&mut transport, || world.barrier()).expect("nobody fails");
}

fn every_schedule(world: &SimpleCommunicator) {
    let ranks = world.size() as usize;
    let mut jobs: Vec<Job> = Vec::new();
    for (name, params) in cases::cases(ranks, false) {
        let plan = schedule::build(name, &params).expect("a schedule of this size");
        let plan = Arc::new(verify::verify(plan).expect("every schedule is right"));
        for elements in [0, 1, ranks + 1, 1000] {
            jobs.push((plan.clone(), elements, [8, 4096, 256][jobs.len() % 3].max(elements / 4)));
        }
    }
    let mut endpoint = Endpoint::new(transport(world, MpiOptions { packet_bytes: 8192, depth: 4 }));
    for job in &jobs {
        let mine = run_on(&mut endpoint, job);
        let all: Vec<Vec<Vec<[u8; 8]>>> = match world.rank() {
            0 => {
                let others = (1..world.size()).map(|rank| world.process_at_rank(rank).receive_vec::<u8>().0);
                let others = others.map(|bytes| serde_json::from_slice(&bytes).expect("what the rank sent"));
                std::iter::once(mine).chain(others).collect()
            }
            _ => {
                world.process_at_rank(0).send(&serde_json::to_vec(&mine).expect("plain numbers")[..]);
                continue;
            }
        };
        if let Some(fault) = judge(job, &all) {
            panic!("{} {:?}, {} elements, segments of {}: {fault}", job.0.algorithm, job.0.parameters, job.1, job.2);
        }
    }
    assert!(jobs.len() > 100, "{} jobs", jobs.len());
}

fn a_failure_reaches_everybody(world: &SimpleCommunicator) {
    let mut transport = transport(world, MpiOptions::default());
    let expected = Failure::Lost { from: 1, to: 0, expected: 5, found: 6 };
    let failure = match world.rank() {
        1 => transport.raise(expected.clone()),
        _ => (0..).find_map(|passes| transport.idle(passes).err()).expect("an endless search"),
    };
    assert_eq!(failure, expected);
    assert_eq!(transport.raise(Failure::PeerDied { rank: 0 }), expected, "the first failure stands");
    assert_eq!(transport.progress(), Err(expected));
    world.barrier();
}

fn another_thread_is_refused(world: &SimpleCommunicator) {
    let mut transport = transport(world, MpiOptions::default());
    let to = (transport.rank() + 1) % transport.size();
    let head = earlybird_hier::exec::PacketHeader { operation: 1, packet: 0, call: 0 };
    let refused = std::thread::scope(|scope| {
        scope.spawn(|| transport.post_send(to, head, 8, |room| room.fill(0))).join().expect("an error, not a panic")
    });
    assert!(matches!(&refused, Err(Failure::Transport(text)) if text.contains("MPI_THREAD_SERIALIZED")), "{refused:?}");
}
