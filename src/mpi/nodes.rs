//! The nodes of an MPI communicator, by the ranks that share memory: as MPI reports them, confirmed by a socket at which one rank
//! listens and to which the others connect. Containers on one machine may share a host name, even memory for MPI, and not the network
//! namespace of the rendezvous.

use crate::Error;
use crate::messages::Layout;
use mpi::topology::{Color, SimpleCommunicator};
use mpi::traits::*;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

/// Bytes of a host's name that are gathered.
const HOST_BYTES: usize = 64;

/// A random number that cannot be guessed and is not drawn twice.
fn nonce() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// The number of rank 0, on all ranks.
pub(super) fn common_nonce(comm: &SimpleCommunicator) -> [u64; 2] {
    let mut words = [nonce(), nonce()];
    comm.process_at_rank(0).broadcast_into(&mut words[..]);
    words
}

/// Refuses on all ranks what one of them cannot do: its own error there, its number on the others.
pub(super) fn agree<T>(comm: &SimpleCommunicator, result: Result<T, Error>) -> Result<T, Error> {
    let mut refused = vec![0u8; comm.size() as usize];
    comm.all_gather_into(&u8::from(result.is_err()), &mut refused[..]);
    let value = result?;
    match refused.iter().position(|refused| *refused != 0) {
        None => Ok(value),
        Some(rank) => Err(Error::usage(format!("rank {rank} cannot join; its own error says why"))),
    }
}

/// Finds the nodes. `virtual_node` is this rank's among the ranks that share memory. Collective.
pub(super) fn find(comm: &SimpleCommunicator, virtual_node: usize) -> Layout {
    let mut candidates = comm.split_shared(comm.rank());
    let here = loop {
        let sees = reaches_first_rank(&candidates);
        let part = candidates.split_by_color(Color::with_value(i32::from(sees)));
        let all_see = part.as_ref().is_none_or(|part| part.size() == candidates.size());
        candidates = part.unwrap_or(candidates);
        // The rank that wrote sees it, so those that do not are fewer every time.
        if sees || all_see {
            break candidates;
        }
    };
    let mut first = comm.rank();
    here.process_at_rank(0).broadcast_into(&mut first);
    let ranks = comm.size() as usize;
    let mut nodes = vec![[0u64; 2]; ranks].concat();
    comm.all_gather_into(&[first as u64, virtual_node as u64][..], &mut nodes[..]);
    let mut members: BTreeMap<&[u64], Vec<usize>> = BTreeMap::new();
    for (rank, node) in nodes.chunks_exact(2).enumerate() {
        members.entry(node).or_default().push(rank);
    }
    let mut members: Vec<Vec<usize>> = members.into_values().collect();
    members.sort_unstable_by_key(|node| node[0]);
    Layout { nodes: members, processes: processes(comm), here: here.size() as usize }
}

/// Returns whether this rank can reach the first of `comm` at an abstract socket, which is a matter of its network namespace.
fn reaches_first_rank(comm: &SimpleCommunicator) -> bool {
    let number = common_nonce(comm);
    let name = format!("earlybird-probe-{:016x}{:016x}", number[0], number[1]);
    let address = SocketAddr::from_abstract_name(name);
    let first = comm.rank() == 0;
    // If it cannot, every rank is a node of its own, which works.
    let listener = address.as_ref().ok().filter(|_| first).and_then(|address| UnixListener::bind_addr(address).ok());
    comm.barrier();
    let sees = address.is_ok_and(|address| UnixStream::connect_addr(&address).is_ok());
    comm.barrier();
    drop(listener);
    first || sees
}

/// The processes of all ranks, for errors.
fn processes(comm: &SimpleCommunicator) -> Vec<(u32, String)> {
    let mut mine = [0u8; HOST_BYTES + 4];
    mine[..4].copy_from_slice(&std::process::id().to_le_bytes());
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim().as_bytes();
    let length = host.len().min(HOST_BYTES);
    mine[4..4 + length].copy_from_slice(&host[..length]);
    let mut all = vec![0u8; mine.len() * comm.size() as usize];
    comm.all_gather_into(&mine[..], &mut all[..]);
    let process = |bytes: &[u8]| {
        let (pid, host) = bytes.split_at(4);
        let pid = pid.try_into().map_or(0, u32::from_le_bytes);
        (pid, String::from_utf8_lossy(host).trim_end_matches('\0').to_owned())
    };
    all.chunks_exact(mine.len()).map(process).collect()
}
