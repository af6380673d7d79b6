//! Allreduce of this library and of the MPI library below it, in turn, over the same ranks, one line per size:
//! what `tests/long/network` runs on a network of hosts.
//!
//!     mpirun -n 3 network LABEL ROUNDS i32|f32 BYTES ...
//!
//! Prints `label,ranks,dtype,bytes`, then for this library and for MPI the median and the quartiles of the time from the last
//! arrival to the last exit in microseconds, the ratio of the medians, and what ran here. Every result is checked. Ranks
//! begin at one time of the machine's clock, which all hosts made of namespaces share.

use earlybird::{Communicator, Element, Op};
use mpi::collective::SystemOperation;
use mpi::datatype::Equivalence;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator as _, CommunicatorCollectives as _, Root as _};
use std::time::Duration;

/// Long enough for the news of it to reach every rank.
const AHEAD_NS: u64 = 50_000_000;

fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Returns on all ranks at about one time.
fn meet(world: &SimpleCommunicator) {
    world.barrier();
    let mut start = now_ns() + AHEAD_NS;
    world.process_at_rank(0).broadcast_into(&mut start);
    std::thread::sleep(Duration::from_nanos(start.saturating_sub(now_ns())));
}

/// Microseconds from the last arrival to the last exit.
fn tail_us(world: &SimpleCommunicator, call: impl FnOnce()) -> f64 {
    meet(world);
    let begun = now_ns();
    call();
    let mine = [begun, now_ns()];
    let mut all = vec![0u64; 2 * world.size() as usize];
    world.all_gather_into(&mine[..], &mut all[..]);
    let last = |which: usize| all.chunks_exact(2).map(|times| times[which]).max().unwrap_or(0);
    (last(1) - last(0)) as f64 / 1e3
}

/// Median and quartiles.
fn quartiles(times: &mut [f64]) -> [f64; 3] {
    times.sort_by(f64::total_cmp);
    [times.len() / 2, times.len() / 4, times.len() * 3 / 4].map(|at| times[at])
}

fn compare<T>(label: &str, name: &str, world: &SimpleCommunicator, comm: &Communicator, bytes: usize, rounds: usize)
where
    T: Element + Equivalence + From<u8>,
{
    let (ranks, count) = (world.size() as usize, (bytes / size_of::<T>()).max(1));
    let send = vec![T::from(comm.rank() as u8); count];
    let sum = T::from((ranks * (ranks - 1) / 2) as u8);
    let mut recv = send.clone();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    // The first rounds find connections and memory.
    for round in 0..rounds + 2 {
        for turn in [round % 2, 1 - round % 2] {
            recv.fill(T::from(0));
            let time = match turn {
                0 => tail_us(world, || comm.all_reduce_into(&send, &mut recv, Op::Sum).expect("an allreduce")),
                _ => tail_us(world, || world.all_reduce_into(&send[..], &mut recv[..], SystemOperation::sum())),
            };
            assert!(recv.iter().all(|v| *v == sum), "a wrong sum of {bytes} bytes");
            if round >= 2 {
                if turn == 0 { &mut ours } else { &mut theirs }.push(time);
            }
        }
    }
    if comm.rank() == 0 {
        let ([a, b, c], [d, e, f]) = (quartiles(&mut ours), quartiles(&mut theirs));
        let ran = comm.last_call().map_or("nothing", |call| call.algorithm.name());
        println!("{label},{ranks},{name},{bytes},{a:.0},{b:.0},{c:.0},{d:.0},{e:.0},{f:.0},{:.2},{ran}", a / d);
    }
}

fn main() {
    let (universe, _) = mpi::initialize_with_threading(mpi::Threading::Funneled).expect("MPI is not initialised yet");
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let [label, rounds, dtype, sizes @ ..] = &args[..] else {
        eprintln!("usage: network LABEL ROUNDS i32|f32 BYTES ...");
        return;
    };
    let world = universe.world();
    let comm = Communicator::from_mpi(&world).expect("all ranks join");
    let rounds = rounds.parse().expect("a number of rounds");
    for bytes in sizes.iter().map(|text| text.parse().expect("a number of bytes")) {
        match dtype.as_str() {
            "f32" => compare::<f32>(label, dtype, &world, &comm, bytes, rounds),
            "i32" => compare::<i32>(label, dtype, &world, &comm, bytes, rounds),
            other => panic!("{other} is neither i32 nor f32"),
        }
    }
}
