//! The set-up of a communicator by one of its first calls: all its ranks decide together whether its calls are intercepted.
//!
//! Every rank makes the same MPI calls on the communicator, whatever it finds, and all reach the same decision.
#![allow(unsafe_code)]

use crate::abi::{self, Handle, constants, query};
use crate::handles::PredefinedHandles;
use crate::intercepted::{CommEntry, InterceptedComm};
use crate::messages::PrivateComm;
use crate::selection::{Measured, Selection};
use crate::summary::{self, ForwardReason, SetUp};
use crate::{machine, progress, retired, settings, stderr, waits};
use earlybird::messages::Layout;
use earlybird::trace::TracedProcess;
use earlybird::{Communicator, Config, Error, Identity, Launcher, Progress};
use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Longest wait of joining ranks for each other; after it, calls are forwarded to MPI.
const JOIN_TIMEOUT: Duration = Duration::from_secs(20);
/// Interval at which a waiting rank lets MPI make progress.
const PROGRESS_EVERY: Duration = Duration::from_micros(200);

/// The first call of a communicator that is worth its set-up, by measurement (`docs/mpi.md`).
const FROM_CALL: u64 = 16;

/// The number of the call, from 1, that sets up `comm`. MPI_COMM_WORLD, of which there is one, is set up by its first.
pub fn from_call(comm: Handle) -> u64 {
    match settings::get().carriers.from_call {
        Some(configured) => configured,
        None if comm == constants().world => 1,
        None => FROM_CALL,
    }
}

/// Returns this process's rank in `comm` and its size, or the reason why its calls are forwarded, which all ranks find.
pub fn members(comm: Handle) -> Result<(usize, usize), ForwardReason> {
    // SAFETY: MPI runs and `comm` is a communicator; writes one int.
    let inter = query(|inter| unsafe { abi::PMPI_Comm_test_inter(comm, inter) });
    match (inter, abi::rank_and_size(comm)) {
        (Some(0), Some((_, 1))) => Err(ForwardReason::OneRank),
        (Some(0), Some(rank_and_size)) => Ok(rank_and_size),
        (Some(_), Some(_)) => Err(ForwardReason::Intercommunicator),
        _ => Err(ForwardReason::Argument),
    }
}

/// Sets up `comm`, or finds the reason why its calls are forwarded.
pub fn set_up(comm: Handle) -> Arc<CommEntry> {
    take_over_or_begin(comm).unwrap_or_else(|reason| CommEntry::new(Err(reason)))
}

/// Takes over a communicator that MPI has freed, forms one of ranks of another one, or joins a new group: the first of these
/// that all ranks can.
fn take_over_or_begin(comm: Handle) -> Result<Arc<CommEntry>, ForwardReason> {
    let (config, (rank, size)) = (settings::get(), members(comm)?);
    let home = retired::home();
    let home = home.as_ref().and_then(|home| home.state.as_ref().ok());
    let all = gather(comm, size, &[RankInfo::new(config, home)])?;
    let nodes = agree(&all)?;
    let processes: Box<[u64]> = all.iter().map(|info| info.process_key).collect();
    let one_node = nodes.len() == 1;
    // Communicators of several nodes are not kept.
    if one_node {
        let offer = retired::take(&processes);
        let own_key = offer.as_ref().and_then(|offer| offer.state.as_ref().ok()).map_or(0, |offer| offer.key);
        let is_equal = gather(comm, size, &[own_key])?.into_iter().all(|key| key == own_key);
        if let Some(offer) = offer.filter(|_| is_equal) {
            summary::count_set_up(SetUp::TakenOver);
            return Ok(offer);
        }
    }
    // Equal on all ranks of this communicator, and on no others.
    let key = settings::hash(&(all[0].process_key, all[0].set_ups));
    let formed = match home {
        Some(home) if one_node && all.iter().all(|info| info.home == home.key) => {
            let places: Vec<usize> = all.iter().map(|info| info.place as usize).collect();
            let mut exchange = |words: &mut [u64]| sum(comm, size, words);
            // If memory is short, all ranks join a new group instead.
            home.comm.form(&places, key, &mut exchange).ok()
        }
        _ => None,
    };
    let how = if formed.is_some() { SetUp::Formed } else { SetUp::Joined };
    let joined = match formed {
        Some(formed) => Ok(formed),
        None => join(comm, config, (rank, size), nodes, &all)?,
    };
    let joined = joined.and_then(with_mpi_progress);
    if let Err(error) = &joined
        && !GIVEN_UP.swap(true, Relaxed)
    {
        stderr::print(&format!(
            "earlybird: the calls of a communicator of {size} ranks, and of all later ones of its rank {rank}, are forwarded \
             to MPI: {} {error}",
            error.code()
        ));
    }
    let all = gather(comm, size, &[JoinOutcome::new(&joined)])?;
    match joined {
        Ok(comm) if all.iter().all(|joined| joined.is_done) => {
            summary::count_set_up(how);
            let measured = match one_node {
                false => Measured::SeveralNodes,
                true if size == 2 && all.iter().all(|joined| joined.has_cpu) => Measured::TwoRanks,
                true => Measured::Nowhere,
            };
            let selection = Selection::new(&config.carriers, measured);
            let starts_calls = all.iter().all(|joined| joined.starts_calls);
            let (handles, has_failed) = (handles(), AtomicBool::new(false));
            let type_ops = &handles.type_ops;
            let comm = InterceptedComm {
                type_ops,
                selection,
                comm,
                rank,
                size,
                starts_calls,
                handles,
                key,
                processes,
                has_failed,
            };
            Ok(CommEntry::new(Ok(comm)))
        }
        _ => Err(ForwardReason::SetUpFailed),
    }
}

/// Joins the ranks of `comm` in a new group. The outer error, on all ranks, is the reason why the calls are forwarded.
fn join(
    comm: Handle,
    config: &Config,
    (rank, size): (usize, usize),
    nodes: Vec<Vec<usize>>,
    all: &[RankInfo],
) -> Result<Result<Communicator, Error>, ForwardReason> {
    let key = format!("mpi-{:016x}{:016x}", all[0].process_key, all[0].set_ups);
    let identity = Identity { rank, size, key, launcher: LAUNCHER };
    if nodes.len() > 1 {
        return join_nodes(comm, config, identity, nodes, all);
    }
    // A rank that lacks descriptors is known to the others before they wait for it.
    match gather(comm, size, &[has_descriptors()])?.into_iter().all(|has| has) {
        true => Ok(Communicator::builder().config(join_config(config)).identity(identity).connect()),
        false => Err(ForwardReason::SetUpFailed),
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

/// Joins ranks of several nodes. The outer error, on all ranks, is the reason why the calls are forwarded.
fn join_nodes(
    comm: Handle,
    config: &Config,
    identity: Identity,
    nodes: Vec<Vec<usize>>,
    all: &[RankInfo],
) -> Result<Result<Communicator, Error>, ForwardReason> {
    let messages = PrivateComm::split(comm, Some((0, identity.rank)));
    let name = gather(comm, identity.size, &[HostName::of_this_host(messages.is_ok() && has_descriptors())])?;
    let failed = |what: String| Error::Poisoned { cause: format!("joining the ranks of several nodes: {what}") };
    if let Some(rank) = name.iter().position(|name| !name.is_able) {
        return Ok(Err(failed(format!("rank {rank} cannot make a communicator, or has too few descriptors"))));
    }
    let Ok(Some(messages)) = messages else { return Err(ForwardReason::SetUpFailed) };
    let here = all.iter().filter(|info| info.host == all[identity.rank].host).count();
    let processes = all.iter().zip(&name).map(|(info, name)| (info.process, name.text())).collect();
    let layout = Layout { nodes, processes, here };
    let builder = Communicator::builder().config(join_config(config)).identity(identity);
    Ok(builder.messages(layout, messages).connect())
}

/// Returns the configuration for joining: with a deadline and what is known of the machine, and without virtual nodes, which `agree` has
/// found.
fn join_config(config: &Config) -> Config {
    let mut config = config.clone();
    config.traced_process = Some(traced_process(&config));
    config.join_timeout = Some(config.timeout.unwrap_or(JOIN_TIMEOUT));
    config.ranks_per_node = None;
    config.shares_cpus = machine::ranks_outnumber_cpus();
    config
}

/// Returns this process as traces know it.
pub fn traced_process(config: &Config) -> TracedProcess {
    let (rank, size) = rank_in_the_world();
    TracedProcess { rank, size, virtual_node: virtual_node(config) as u32 }
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
    /// A random number, by which this process is known.
    process_key: u64,
    /// The set-ups of this process so far, of which only that of rank 0 is used.
    set_ups: u64,
    /// The key of the communicator of whose ranks others are formed; 0 if there is none.
    home: u64,
    /// This process's rank in it.
    place: u32,
    process: u32,
    is_able: bool,
    /// Padding, so that every byte is initialized.
    gap: [u8; 7],
}

impl RankInfo {
    fn new(config: &Config, home: Option<&InterceptedComm>) -> RankInfo {
        static FACTS: OnceLock<RankInfo> = OnceLock::new();
        static SET_UPS: AtomicU64 = AtomicU64::new(0);
        let facts = FACTS.get_or_init(|| {
            let (process_key, host) = (random(), machine::name());
            RankInfo {
                host: host.unwrap_or_default(),
                node: virtual_node(config),
                settings: settings::digest(),
                process_key: process_key.unwrap_or_default(),
                process: std::process::id(),
                is_able: process_key.is_some() && host.is_some(),
                ..RankInfo::default()
            }
        });
        let is_able = facts.is_able && !GIVEN_UP.load(Relaxed);
        let (home, place) = home.map_or((0, 0), |home| (home.key, home.rank as u32));
        RankInfo { set_ups: SET_UPS.fetch_add(1, Relaxed), home, place, is_able, ..*facts }
    }
}

/// Information that every rank sends to all others after joining.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct JoinOutcome {
    is_done: bool,
    /// True if there is a CPU for every rank of the world on this machine.
    has_cpu: bool,
    /// True if this process can make progress in non-blocking calls whenever it is inside MPI.
    starts_calls: bool,
}

impl JoinOutcome {
    fn new(joined: &Result<Communicator, Error>) -> JoinOutcome {
        let has_cpu = !machine::ranks_outnumber_cpus();
        JoinOutcome { is_done: joined.is_ok(), has_cpu, starts_calls: waits::can_call() }
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

/// Returns the nodes in the order of their first ranks, or the reason why the calls are forwarded: the same on all ranks.
fn agree(all: &[RankInfo]) -> Result<Vec<Vec<usize>>, ForwardReason> {
    if all.iter().any(|info| info.settings != all[0].settings) {
        settings::die("the EARLYBIRD_ variables differ between ranks; set the same for all");
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
    match nodes.len() == all.len() {
        true => Err(ForwardReason::OnePerNode),
        false => Ok(nodes.into_iter().map(|(_, ranks)| ranks).collect()),
    }
}

/// Gathers as much of each of the `size` ranks of `comm`, by rank; `T` is plain data.
fn gather<T: Copy>(comm: Handle, size: usize, mine: &[T]) -> Result<Vec<T>, ForwardReason> {
    abi::gather(comm, size, mine).ok_or(ForwardReason::SetUpFailed)
}

/// Sums each of the words over the `size` ranks of `comm`.
fn sum(comm: Handle, size: usize, words: &mut [u64]) -> Result<(), Error> {
    let Ok(all) = gather(comm, size, words) else {
        return Err(Error::Poisoned { cause: "an MPI_Allgather failed while a communicator was set up".into() });
    };
    words.fill(0);
    for of_one in all.chunks(words.len()) {
        words.iter_mut().zip(of_one).for_each(|(sum, word)| *sum = sum.wrapping_add(*word));
    }
    Ok(())
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
    abi::rank_and_size(constants().world).unwrap_or((0, 0))
}

/// Returns a random number.
fn random() -> Option<u64> {
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut bytes)).ok()?;
    Some(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_hosts_and_virtual_nodes_and_one_rank_each_is_nothing_to_share() {
        let rank = |host, node| RankInfo { host, node, is_able: true, ..RankInfo::default() };
        let mut all = [rank(5, 0), rank(6, 0), rank(5, 0), rank(5, 1)];
        assert_eq!(agree(&all), Ok(vec![vec![0, 2], vec![1], vec![3]]));
        assert_eq!(agree(&all[1..]), Err(ForwardReason::OnePerNode));
        all[1].is_able = false;
        assert_eq!(agree(&all), Err(ForwardReason::SetUpFailed));
    }
}
