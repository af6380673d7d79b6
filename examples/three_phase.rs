//! Ranks on several nodes add up vectors: in the node, between the nodes' leaders, in the node again.
//!
//!     earlybird run -n 6 --nodes 3 -- target/debug/examples/three_phase
//!     mpirun -n 8 target/debug/examples/three_phase                            # built with --features mpi
//!     EARLYBIRD_RANKS_PER_NODE=2 mpirun -n 8 target/debug/examples/three_phase # virtual nodes over MPI

use earlybird::{Communicator, Op};

fn add_up(comm: &Communicator) -> Result<(), earlybird::Error> {
    for count in [1usize, 1000, 1_000_000] {
        let mut vector = vec![comm.rank() as f64; count];
        comm.all_reduce_in_place(&mut vector, Op::Sum)?;
        let sum = (comm.size() * (comm.size() - 1) / 2) as f64;
        assert!(vector.iter().all(|v| *v == sum), "{count} elements");
        comm.barrier()?;
        if comm.rank() == 0 {
            let (ranks, nodes, endpoints) = (comm.size(), comm.nodes(), comm.endpoints());
            println!("{count} elements of {ranks} ranks on {nodes} node(s) of {endpoints} endpoint(s): {}", vector[0]);
        }
    }
    Ok(())
}

#[cfg(feature = "mpi")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let launched = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"].iter().any(|name| std::env::var_os(name).is_some());
    if !launched {
        return Ok(add_up(&Communicator::from_env()?)?);
    }
    let (universe, _) = mpi::initialize_with_threading(mpi::Threading::Funneled).ok_or("MPI is initialised already")?;
    Ok(add_up(&Communicator::from_mpi(&universe.world())?)?)
}

#[cfg(not(feature = "mpi"))]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    Ok(add_up(&Communicator::from_env()?)?)
}
