//! The first call on a communicator: all its ranks decide together whether its calls are intercepted.
//!
//! Every rank makes the same MPI calls on the communicator, whatever it finds, and all reach the same decision.
#![allow(unsafe_code)]

use crate::abi::{self, Handle, constants, query};
use crate::handles::PredefinedHandles;
use crate::intercepted::InterceptedComm;
use crate::messages::PrivateComm;
use crate::selection::Selection;
use crate::summary::ForwardReason;
use crate::{progress, settings, stderr};
use earlybird::messages::Layout;
use earlybird::trace::TracedProcess;
use earlybird::{Communicator, Config, Error, Identity, Launcher, Progress};
use std::ffi::c_int;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Longest wait of joining ranks for each other; after it, calls are forwarded to MPI.
const JOIN_TIMEOUT: Duration = Duration::from_secs(20);
/// Interval at which a waiting rank lets MPI make progress.
const PROGRESS_EVERY: Duration = Duration::from_micros(200);

/// Sets up `comm`, or returns the reason why its calls are forwarded. `has_room`: whether this process can keep one more communicator.
pub fn set_up(comm: Handle, has_room: bool) -> Result<InterceptedComm, ForwardReason> {
    let config = settings::get();
    // SAFETY: MPI runs and `comm` is a communicator; each writes one int.
    let (inter, rank, size) = unsafe {
        (
            query(|inter| abi::PMPI_Comm_test_inter(comm, inter)),
            query(|rank| abi::PMPI_Comm_rank(comm, rank)),
            query(|size| abi::PMPI_Comm_size(comm, size)),
        )
    };
    let (Some(inter), Some(rank), Some(size)) = (inter, rank, size) else { return Err(ForwardReason::Argument) };
    if inter != 0 {
        return Err(ForwardReason::Intercommunicator);
    }
    if size == 1 {
        return Err(ForwardReason::OneRank);
    }
    let (rank, size) = (rank as usize, size as usize);
    let all = gather(comm, size, RankInfo::new(has_room, config))?;
    let (nodes, key) = agree(&all)?;
    let identity = Identity { rank, size, key, launcher: LAUNCHER };
    let one_node = nodes.len() == 1;
    let joined = match nodes.len() {
        1 => join(config, identity),
        _ => join_nodes(comm, config, identity, nodes, &all)?,
    };
    if let Err(error) = &joined
        && !GIVEN_UP.swap(true, Relaxed)
    {
        stderr::print(&format!(
            "earlybird: the calls of a communicator of {size} ranks, and of all later ones of its rank {rank}, are forwarded \
             to MPI: {} {error}",
            error.code()
        ));
    }
    let all = gather(comm, size, JoinOutcome::new(&joined))?;
    match joined {
        Ok(comm) if all.iter().all(|joined| joined.is_done) => {
            let is_measured = size == 2 && one_node && all.iter().all(|joined| joined.has_cpu);
            let selection = Selection::new(&config.carriers, is_measured);
            let handles = handles();
            Ok(InterceptedComm { type_ops: &handles.type_ops, selection, comm, rank, size, handles })
        }
        _ => Err(ForwardReason::SetUpFailed),
    }
}

/// Set once joining has failed in this process: the missing resource (descriptors, memory) is not requested again, and no rank
/// waits for this one until the deadline again.
static GIVEN_UP: AtomicBool = AtomicBool::new(false);

/// Descriptors that joining needs at once, and some more.
const DESCRIPTORS: usize = 8;

/// Returns whether this process can open as many descriptors as joining needs. Without them it would fail where the other ranks already
/// wait for it.
fn has_descriptors() -> bool {
    let opened: Result<Vec<_>, _> = (0..DESCRIPTORS).map(|_| std::fs::File::open("/dev/null")).collect();
    if let Err(error) = &opened
        && !GIVEN_UP.swap(true, Relaxed)
    {
        stderr::print(&format!(
            "earlybird: the calls of this process are forwarded to MPI: it cannot open {DESCRIPTORS} descriptors ({error}); raise \
             ulimit -n"
        ));
    }
    opened.is_ok()
}

/// The launcher, for error messages only.
const LAUNCHER: Launcher = if cfg!(open_mpi) { Launcher::OpenMpi } else { Launcher::Pmi };

fn join(config: &Config, identity: Identity) -> Result<Communicator, Error> {
    with_mpi_progress(Communicator::builder().config(join_config(config)).identity(identity).connect()?)
}

/// Joins ranks of several nodes. The outer error, on all ranks, is the reason why the calls are forwarded.
fn join_nodes(
    comm: Handle,
    config: &Config,
    identity: Identity,
    nodes: Vec<Vec<usize>>,
    all: &[RankInfo],
) -> Result<Result<Communicator, Error>, ForwardReason> {
    let messages = PrivateComm::split(comm, Some((0, identity.rank)));
    let name = gather(comm, identity.size, HostName::of_this_host(messages.is_ok()))?;
    let failed = |what: String| Error::Poisoned { cause: format!("joining the ranks of several nodes: {what}") };
    if let Some(rank) = name.iter().position(|name| !name.is_able) {
        return Ok(Err(failed(format!("rank {rank} cannot make a communicator"))));
    }
    let Ok(Some(messages)) = messages else { return Err(ForwardReason::SetUpFailed) };
    let here = all.iter().filter(|info| info.host == all[identity.rank].host).count();
    let processes = all.iter().zip(&name).map(|(info, name)| (info.process, name.text())).collect();
    let layout = Layout { nodes, processes, here };
    let builder = Communicator::builder().config(join_config(config)).identity(identity);
    Ok(builder.messages(layout, messages).connect().and_then(with_mpi_progress))
}

/// Returns the configuration for joining: with a deadline, and without virtual nodes, which `agree` has found.
fn join_config(config: &Config) -> Config {
    let mut config = config.clone();
    let (rank, size) = rank_in_the_world();
    config.traced_process = Some(TracedProcess { rank, size, virtual_node: virtual_node(&config) as u32 });
    config.join_timeout = Some(config.timeout.unwrap_or(JOIN_TIMEOUT));
    config.ranks_per_node = None;
    config
}

/// Makes waiting ranks call MPI, so that messages of the program arrive.
fn with_mpi_progress(comm: Communicator) -> Result<Communicator, Error> {
    comm.set_progress(Some(Progress::new(PROGRESS_EVERY, progress::poll)?))?;
    Ok(comm)
}

/// Returns the tables of predefined handles.
fn handles() -> &'static PredefinedHandles {
    static HANDLES: OnceLock<PredefinedHandles> = OnceLock::new();
    HANDLES.get_or_init(PredefinedHandles::new)
}

/// Information that every rank sends to all others before anything is set up.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct RankInfo {
    host: u64,
    /// The virtual node.
    node: u64,
    settings: u64,
    /// A random number, of which only that of rank 0 is used.
    key: [u64; 2],
    process: u32,
    has_room: bool,
    is_able: bool,
    /// Padding, so that every byte is initialized.
    gap: [u8; 2],
}

impl RankInfo {
    fn new(has_room: bool, config: &Config) -> RankInfo {
        let key = random();
        RankInfo {
            host: host(config),
            node: virtual_node(config),
            settings: settings::digest(),
            key: key.unwrap_or_default(),
            process: std::process::id(),
            has_room,
            is_able: key.is_some() && !GIVEN_UP.load(Relaxed) && has_descriptors(),
            gap: [0; 2],
        }
    }
}

/// Information that every rank sends to all others after joining.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct JoinOutcome {
    is_done: bool,
    /// True if there is a CPU for every rank of the world.
    has_cpu: bool,
}

impl JoinOutcome {
    fn new(joined: &Result<Communicator, Error>) -> JoinOutcome {
        // SAFETY: MPI runs; writes one int.
        let ranks = query(|size| unsafe { abi::PMPI_Comm_size(constants().world, size) }).unwrap_or(c_int::MAX);
        let has_cpu = joined.as_ref().is_ok_and(|comm| comm.allowed_cpus() >= ranks as usize);
        JoinOutcome { is_done: joined.is_ok(), has_cpu }
    }
}

/// The first letters of a host's name, and whether its rank has a communicator for messages.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct HostName {
    letters: [u8; 63],
    is_able: bool,
}

impl HostName {
    fn of_this_host(is_able: bool) -> HostName {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let mut letters = [0; 63];
        letters.iter_mut().zip(name.trim().bytes()).for_each(|(letter, byte)| *letter = byte);
        HostName { letters, is_able }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.letters).trim_end_matches('\0').to_owned()
    }
}

/// Returns the nodes in the order of their first ranks, and a key that no other communicator has; or the reason why the calls are
/// forwarded. All ranks return the same.
fn agree(all: &[RankInfo]) -> Result<(Vec<Vec<usize>>, String), ForwardReason> {
    if all.iter().any(|info| info.settings != all[0].settings) {
        settings::die("the EARLYBIRD_ variables differ between ranks; set the same for all");
    }
    if !all.iter().all(|info| info.has_room) {
        return Err(ForwardReason::TooMany);
    }
    if !all.iter().all(|info| info.is_able) {
        return Err(ForwardReason::SetUpFailed);
    }
    let mut nodes: Vec<((u64, u64), Vec<usize>)> = Vec::new();
    for (rank, info) in all.iter().enumerate() {
        let host_and_node = (info.host, info.node);
        match nodes.iter_mut().find(|(known, _)| *known == host_and_node) {
            Some((_, ranks)) => ranks.push(rank),
            None => nodes.push((host_and_node, vec![rank])),
        }
    }
    let [first, second] = all[0].key;
    match nodes.len() == all.len() {
        true => Err(ForwardReason::OnePerNode),
        false => Ok((nodes.into_iter().map(|(_, ranks)| ranks).collect(), format!("mpi-{first:016x}{second:016x}"))),
    }
}

/// Gathers `mine` of the `size` ranks of `comm`, by rank; `T` is plain data.
fn gather<T: Copy>(comm: Handle, size: usize, mine: T) -> Result<Vec<T>, ForwardReason> {
    let (mut all, bytes, byte) = (vec![mine; size], size_of::<T>() as c_int, constants().byte);
    // SAFETY: every rank of `comm` makes this call; `all` has room for a `T` of every rank, and every rank sends a `T`.
    let code = unsafe {
        abi::PMPI_Allgather((&raw const mine).cast(), bytes, byte, all.as_mut_ptr().cast(), bytes, byte, comm)
    };
    match code {
        0 => Ok(all),
        _ => Err(ForwardReason::SetUpFailed),
    }
}

/// Returns this process's virtual node, by its rank in the world; 0 if the settings have no virtual nodes.
fn virtual_node(config: &Config) -> u64 {
    let Some(each) = &config.ranks_per_node else { return 0 };
    let (rank, size) = rank_in_the_world();
    match each.node_of(rank, size) {
        Ok(node) => node as u64,
        Err(error) => settings::die(&format!("EARLYBIRD_RANKS_PER_NODE: {} {error}", error.code())),
    }
}

/// Returns this process's rank in the world, and the world's size.
fn rank_in_the_world() -> (usize, usize) {
    let world = constants().world;
    // SAFETY: MPI runs; each writes one int.
    let (rank, size) =
        unsafe { (query(|rank| abi::PMPI_Comm_rank(world, rank)), query(|size| abi::PMPI_Comm_size(world, size))) };
    (rank.unwrap_or(0) as usize, size.unwrap_or(0) as usize)
}

/// Returns a number that is equal for processes that can share memory: of one kernel, and of one network namespace or file system
/// for the rendezvous.
fn host(config: &Config) -> u64 {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let place = match config.dir.as_deref() {
        Some(dir) => dir.ancestors().find_map(|part| std::fs::metadata(part).ok()).map(|data| data.dev()),
        None => std::fs::metadata(Path::new("/proc/self/ns/net")).ok().map(|data| data.ino()),
    };
    settings::hash(&(boot, place.unwrap_or(0)))
}

/// Returns two random numbers.
fn random() -> Option<[u64; 2]> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut bytes)).ok()?;
    Some([0, 8].map(|at| u64::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_known_by_its_kernel_and_file_system() {
        let at = |dir: Option<&str>| {
            let mut config = Config::default();
            config.dir = dir.map(Into::into);
            host(&config)
        };
        assert_eq!(at(Some("/dev/shm")), at(Some("/dev/shm/not/there/yet")));
        assert_ne!(at(Some("/dev/shm")), at(Some("/proc")));
        assert_eq!(at(None), at(None));
    }

    #[test]
    fn nodes_are_hosts_and_virtual_nodes_and_one_rank_each_is_nothing_to_share() {
        let rank =
            |host, node| RankInfo { host, node, has_room: true, is_able: true, key: [7, 8], ..RankInfo::default() };
        let mut all = [rank(5, 0), rank(6, 0), rank(5, 0), rank(5, 1)];
        let (nodes, key) = agree(&all).unwrap();
        assert_eq!((nodes, key.len()), (vec![vec![0, 2], vec![1], vec![3]], 4 + 32));
        assert_eq!(agree(&all[1..]), Err(ForwardReason::OnePerNode));
        all[1].is_able = false;
        assert_eq!(agree(&all), Err(ForwardReason::SetUpFailed));
        all[3].has_room = false;
        assert_eq!(agree(&all), Err(ForwardReason::TooMany));
    }
}
