//! A communicator's first call: all its ranks find out together whether its calls are taken over.
//!
//! Every rank makes the same calls of MPI on the communicator, whatever it finds, and all reach the same answer.
#![allow(unsafe_code)]

use crate::abi::{self, Handle, asked, constants};
use crate::handles::Handles;
use crate::seats::Carried;
use crate::summary::Why;
use crate::{progress, settings};
use earlybird::{Communicator, Config, Error, Identity, Launcher, Progress};
use std::ffi::{c_int, c_void};
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
    let key = agree(comm, rank, room, config)?;
    let joined = join(config, Identity { rank, size, key, launcher: LAUNCHER });
    if let Err(error) = &joined
        && !GIVEN_UP.swap(true, Relaxed)
    {
        eprintln!(
            "earlybird: the calls of a communicator of {size} ranks, and of all that are new to its rank {rank}, go to \
             MPI: {} {error}",
            error.code()
        );
    }
    let mut all = c_int::from(joined.is_ok());
    reduce_min(comm, (&raw mut all).cast(), 1, constants().integer)?;
    match joined {
        Ok(comm) if all == 1 => Ok(Carried { comm, rank, size, handles: handles() }),
        _ => Err(Why::SetUpFailed),
    }
}

/// Set once joining has failed in this process: what was missing then (descriptors, memory) is not tried for again, and
/// nobody waits for this rank until the deadline again.
static GIVEN_UP: AtomicBool = AtomicBool::new(false);

/// For messages only.
const LAUNCHER: Launcher = if cfg!(open_mpi) { Launcher::OpenMpi } else { Launcher::Pmi };

fn join(config: &Config, identity: Identity) -> Result<Communicator, Error> {
    let join_timeout = Some(config.timeout.unwrap_or(JOIN_TIMEOUT));
    let comm = Communicator::connect(Config { join_timeout, ..config.clone() }, identity)?;
    comm.set_progress(Some(Progress::new(PROGRESS_EVERY, progress::drive)?))?;
    Ok(comm)
}

/// The predefined handles.
fn handles() -> &'static Handles {
    static HANDLES: OnceLock<Handles> = OnceLock::new();
    HANDLES.get_or_init(Handles::ask)
}

/// Whether all ranks can meet, and if so, a key that no other communicator has.
fn agree(comm: Handle, rank: usize, room: bool, config: &Config) -> Result<String, Why> {
    let (host, settings) = (host(config), digest(&format!("{config:?}")));
    let key = if rank == 0 { random() } else { Some([u64::MAX >> 1; 2]) };
    let [first, second] = key.unwrap_or([0; 2]);
    // The least of a number and of its complement are equal on all ranks if the number is. Nothing here depends on
    // whether MPI compares with or without a sign: MPICH 4.0.2 has one where it should not.
    let able = key.is_some() && !GIVEN_UP.load(Relaxed);
    let mut least = [host, !host, settings, !settings, room.into(), able.into(), first, second];
    reduce_min(comm, least.as_mut_ptr().cast(), least.len() as c_int, constants().uint64)?;
    let [host, not_host, settings, not_settings, room, able, first, second] = least;
    if host != !not_host {
        return Err(Why::SeveralNodes);
    }
    if settings != !not_settings {
        settings::die("the EARLYBIRD_ variables differ between ranks; set the same for all");
    }
    if room == 0 {
        return Err(Why::TooMany);
    }
    if able == 0 {
        return Err(Why::SetUpFailed);
    }
    Ok(format!("mpi-{first:016x}{second:016x}"))
}

/// The least of each number over all ranks, in place of it.
fn reduce_min(comm: Handle, values: *mut c_void, count: c_int, dtype: Handle) -> Result<(), Why> {
    let c = constants();
    // SAFETY: `count` numbers of `dtype` by the two callers above; every rank of `comm` makes this call.
    match unsafe { abi::PMPI_Allreduce(c.in_place, values, count, dtype, c.min, comm) } {
        0 => Ok(()),
        _ => Err(Why::SetUpFailed),
    }
}

/// Equal for processes that see the same shared memory: one kernel, one file system in which they meet.
fn host(config: &Config) -> u64 {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let meeting = config.dir.as_deref().and_then(|dir| dir.ancestors().find(|part| part.exists()));
    let device = std::fs::metadata(meeting.unwrap_or(Path::new("/dev/shm"))).map(|data| data.dev()).unwrap_or(0);
    digest(&(boot, device))
}

/// The same in every process that runs this library.
fn digest(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

/// 124 random bits: neither value is as large as what the other ranks give, with or without a sign.
fn random() -> Option<[u64; 2]> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut bytes)).ok()?;
    let [first, second] = [0, 8].map(|at| u64::from_ne_bytes(std::array::from_fn(|i| bytes[at + i])));
    Some([first >> 2, second >> 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_known_by_its_kernel_and_file_system() {
        let at = |dir: Option<&str>| host(&Config { dir: dir.map(Into::into), ..Config::default() });
        assert_eq!(at(None), at(Some("/dev/shm/not/there/yet")));
        assert_ne!(at(None), at(Some("/proc")));
    }
}
