//! A communicator's first call: all its ranks find out together whether its calls are taken over.
//!
//! Every rank makes the same calls of MPI on the communicator, whatever it finds, and all reach the same answer.
#![allow(unsafe_code)]

use crate::abi::{self, Handle, asked, constants};
use crate::handles::Handles;
use crate::messages::Private;
use crate::rule::Rule;
use crate::seats::Carried;
use crate::summary::{self, Why};
use crate::{progress, settings};
use earlybird::messages::Layout;
use earlybird::{Communicator, Config, Error, Identity, Launcher, Progress};
use std::ffi::c_int;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// How long ranks that all have begun to join wait for each other; beyond it the calls go to MPI.
const JOIN_TIMEOUT: Duration = Duration::from_secs(20);
/// How often a rank that waits lets MPI make progress.
const PROGRESS_EVERY: Duration = Duration::from_micros(200);

/// Where the calls of `comm` go. `room`: whether this process can keep one more communicator.
pub fn route(comm: Handle, room: bool) -> Result<Carried, Why> {
    let config = settings::get();
    // SAFETY: MPI runs and `comm` is a communicator; each writes one int.
    let (inter, rank, size) = unsafe {
        (
            asked(|inter| abi::PMPI_Comm_test_inter(comm, inter)),
            asked(|rank| abi::PMPI_Comm_rank(comm, rank)),
            asked(|size| abi::PMPI_Comm_size(comm, size)),
        )
    };
    let (Some(inter), Some(rank), Some(size)) = (inter, rank, size) else { return Err(Why::Argument) };
    if inter != 0 {
        return Err(Why::Intercommunicator);
    }
    if size == 1 {
        return Err(Why::OneRank);
    }
    let (rank, size) = (rank as usize, size as usize);
    let all = gather(comm, size, Told::by(room, config))?;
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
        summary::say(&format!(
            "earlybird: the calls of a communicator of {size} ranks, and of all that are new to its rank {rank}, go to \
             MPI: {} {error}",
            error.code()
        ));
    }
    let all = gather(comm, size, Joined::by(&joined))?;
    match joined {
        Ok(comm) if all.iter().all(|joined| joined.done) => {
            let is_measured = size == 2 && one_node && all.iter().all(|joined| joined.has_cpu);
            let rule = Rule::new(&config.carriers, is_measured);
            let handles = handles();
            Ok(Carried { pairs: &handles.pairs, rule, comm, rank, size, handles })
        }
        _ => Err(Why::SetUpFailed),
    }
}

/// Set once joining has failed in this process: what was missing then (descriptors, memory) is not tried for again, and
/// nobody waits for this rank until the deadline again.
static GIVEN_UP: AtomicBool = AtomicBool::new(false);

/// For messages only.
const LAUNCHER: Launcher = if cfg!(open_mpi) { Launcher::OpenMpi } else { Launcher::Pmi };

fn join(config: &Config, identity: Identity) -> Result<Communicator, Error> {
    driven(Communicator::connect(joining(config), identity)?)
}

/// The same over messages between nodes. An error of its own is MPI's, on all ranks.
fn join_nodes(
    comm: Handle,
    config: &Config,
    identity: Identity,
    nodes: Vec<Vec<usize>>,
    all: &[Told],
) -> Result<Result<Communicator, Error>, Why> {
    let messages = Private::split(comm, Some((0, identity.rank)));
    let name = gather(comm, identity.size, Name::of_this_host(messages.is_ok()))?;
    let failed = |what: String| Error::Poisoned { cause: format!("joining the ranks of several nodes: {what}") };
    if let Some(rank) = name.iter().position(|name| !name.able) {
        return Ok(Err(failed(format!("rank {rank} cannot make a communicator"))));
    }
    let Ok(Some(messages)) = messages else { return Err(Why::SetUpFailed) };
    let here = all.iter().filter(|told| told.host == all[identity.rank].host).count();
    let processes = all.iter().zip(&name).map(|(told, name)| (told.process, name.text())).collect();
    let layout = Layout { nodes, processes, here };
    Ok(Communicator::connect_over(joining(config), identity, layout, Box::new(messages)).and_then(driven))
}

/// Nodes are found by asking, the virtual ones of the settings among them.
fn joining(config: &Config) -> Config {
    let join_timeout = Some(config.timeout.unwrap_or(JOIN_TIMEOUT));
    Config { join_timeout, ranks_per_node: None, ..config.clone() }
}

fn driven(comm: Communicator) -> Result<Communicator, Error> {
    comm.set_progress(Some(Progress::new(PROGRESS_EVERY, progress::drive)?))?;
    Ok(comm)
}

/// The predefined handles.
fn handles() -> &'static Handles {
    static HANDLES: OnceLock<Handles> = OnceLock::new();
    HANDLES.get_or_init(Handles::ask)
}

/// What every rank tells all others before anything is set up.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Told {
    host: u64,
    /// Its virtual node.
    node: u64,
    settings: u64,
    /// Random; that of rank 0 counts.
    key: [u64; 2],
    process: u32,
    room: bool,
    able: bool,
    /// So that every byte is one.
    gap: [u8; 2],
}

impl Told {
    fn by(room: bool, config: &Config) -> Told {
        let key = random();
        Told {
            host: host(config),
            node: virtual_node(config),
            settings: digest(&format!("{config:?}")),
            key: key.unwrap_or_default(),
            process: std::process::id(),
            room,
            able: key.is_some() && !GIVEN_UP.load(Relaxed),
            gap: [0; 2],
        }
    }
}

/// What every rank tells all others after joining.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Joined {
    done: bool,
    /// There is one for every rank of the world.
    has_cpu: bool,
}

impl Joined {
    fn by(joined: &Result<Communicator, Error>) -> Joined {
        // SAFETY: MPI runs; writes one int.
        let ranks = asked(|size| unsafe { abi::PMPI_Comm_size(constants().world, size) }).unwrap_or(c_int::MAX);
        let has_cpu = joined.as_ref().is_ok_and(|comm| comm.allowed_cpus() >= ranks as usize);
        Joined { done: joined.is_ok(), has_cpu }
    }
}

/// The first letters of a host's name, and whether its rank can go on.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Name {
    letters: [u8; 63],
    able: bool,
}

impl Name {
    fn of_this_host(able: bool) -> Name {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let mut letters = [0; 63];
        letters.iter_mut().zip(name.trim().bytes()).for_each(|(letter, byte)| *letter = byte);
        Name { letters, able }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.letters).trim_end_matches('\0').to_owned()
    }
}

/// The nodes of the ranks, in the order of their first ones, and a key that no other communicator has; or why the calls
/// go to MPI. All ranks say the same.
fn agree(all: &[Told]) -> Result<(Vec<Vec<usize>>, String), Why> {
    if all.iter().any(|told| told.settings != all[0].settings) {
        settings::die("the EARLYBIRD_ variables differ between ranks; set the same for all");
    }
    if !all.iter().all(|told| told.room) {
        return Err(Why::TooMany);
    }
    if !all.iter().all(|told| told.able) {
        return Err(Why::SetUpFailed);
    }
    let mut nodes: Vec<((u64, u64), Vec<usize>)> = Vec::new();
    for (rank, told) in all.iter().enumerate() {
        let place = (told.host, told.node);
        match nodes.iter_mut().find(|(known, _)| *known == place) {
            Some((_, ranks)) => ranks.push(rank),
            None => nodes.push((place, vec![rank])),
        }
    }
    let [first, second] = all[0].key;
    match nodes.len() == all.len() {
        true => Err(Why::OnePerNode),
        false => Ok((nodes.into_iter().map(|(_, ranks)| ranks).collect(), format!("mpi-{first:016x}{second:016x}"))),
    }
}

/// What each of the `size` ranks of `comm` gives, by rank; `T` is plain data.
fn gather<T: Copy>(comm: Handle, size: usize, mine: T) -> Result<Vec<T>, Why> {
    let (mut all, bytes, byte) = (vec![mine; size], size_of::<T>() as c_int, constants().byte);
    // SAFETY: every rank of `comm` makes this call; `all` has room for a `T` of every rank, and what comes was a `T` there.
    let code = unsafe {
        abi::PMPI_Allgather((&raw const mine).cast(), bytes, byte, all.as_mut_ptr().cast(), bytes, byte, comm)
    };
    match code {
        0 => Ok(all),
        _ => Err(Why::SetUpFailed),
    }
}

/// This process's virtual node, where the settings ask for some: by its rank in the world.
fn virtual_node(config: &Config) -> u64 {
    let Some(each) = &config.ranks_per_node else { return 0 };
    let world = constants().world;
    // SAFETY: MPI runs; each writes one int.
    let (rank, size) =
        unsafe { (asked(|rank| abi::PMPI_Comm_rank(world, rank)), asked(|size| abi::PMPI_Comm_size(world, size))) };
    match each.node_of(rank.unwrap_or(0) as usize, size.unwrap_or(0) as usize) {
        Ok(node) => node as u64,
        Err(error) => settings::die(&format!("EARLYBIRD_RANKS_PER_NODE: {} {error}", error.code())),
    }
}

/// Equal for processes that can meet and share memory: one kernel, one network namespace or file system in which they meet.
fn host(config: &Config) -> u64 {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let place = match config.dir.as_deref() {
        Some(dir) => dir.ancestors().find_map(|part| std::fs::metadata(part).ok()).map(|data| data.dev()),
        None => std::fs::metadata(Path::new("/proc/self/ns/net")).ok().map(|data| data.ino()),
    };
    digest(&(boot, place.unwrap_or(0)))
}

/// The same in every process that runs this library.
fn digest(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

/// Two numbers that nobody guesses or draws twice.
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
        let at = |dir: Option<&str>| host(&Config { dir: dir.map(Into::into), ..Config::default() });
        assert_eq!(at(Some("/dev/shm")), at(Some("/dev/shm/not/there/yet")));
        assert_ne!(at(Some("/dev/shm")), at(Some("/proc")));
        assert_eq!(at(None), at(None));
    }

    #[test]
    fn nodes_are_hosts_and_virtual_nodes_and_one_rank_each_is_nothing_to_share() {
        let rank = |host, node| Told { host, node, room: true, able: true, key: [7, 8], ..Told::default() };
        let mut all = [rank(5, 0), rank(6, 0), rank(5, 0), rank(5, 1)];
        let (nodes, key) = agree(&all).unwrap();
        assert_eq!((nodes, key.len()), (vec![vec![0, 2], vec![1], vec![3]], 4 + 32));
        assert_eq!(agree(&all[1..]), Err(Why::OnePerNode));
        all[1].able = false;
        assert_eq!(agree(&all), Err(Why::SetUpFailed));
        all[3].room = false;
        assert_eq!(agree(&all), Err(Why::TooMany));
    }
}
