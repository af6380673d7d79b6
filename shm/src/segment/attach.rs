//! Joining a group: meet, claim, receive the arena, wait for everybody, leave no trace.
//!
//! Per rank, in this order, each step before the next becomes visible:
//! 1. under the lock of the rendezvous file: create or open the control segment, take the lock on byte `rank` of the
//!    rendezvous file, fill the entry, state `CLAIMED`;
//! 2. receive and map the arena, take the lock on byte `rank` of the arena, state `ATTACHED`;
//! 3. wait until all are `ATTACHED` (or have already said `BYE`); then the names are removed, by whoever is first.
//!
//! The first failure is written into the control segment and ends everybody's wait with the same error. A death is seen by the lock of step 1,
//! which is kept until step 3 is over: at any time a rank that is not dead holds one of the two locks.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use super::arena::{self, Arena};
use super::control::{ATTACHED, CLAIMED, CONTROL_BYTES, FREE, Failure, LAYOUT_VERSION, MAGIC, MAX_RANKS};
use super::control_map::ControlMap;
use super::handover::{self, Door, Guest};
use super::meeting::{self, Found, Meeting, Token};
use super::owner_thread::OwnerThread;
use super::patience::Patience;
use super::pool::{MAX_REGIONS, POOL_BYTES};
use super::process::{self, Identity};
use super::{Absent, AttachOptions, Region, roll};
use crate::Error;
use crate::engine;

/// How often a waiting rank looks whether the others are alive. A scan is one system call per rank.
const ROLL_CALL_EVERY: Duration = Duration::from_millis(200);

pub(super) struct Attached {
    pub control: Arc<ControlMap>,
    /// Holds this rank's word.
    pub owner: Option<OwnerThread>,
    pub arena: Arc<Arena>,
    /// The table of regions.
    pub table: Region,
    /// The region of the whole group.
    pub base: Region,
    pub me: Identity,
}

pub(super) fn attach(options: &AttachOptions, absent: Absent<'_>) -> Result<Attached, Error> {
    let region_bytes = check(options)?;
    let me = Identity::own();
    let mut patience = Patience::new(options.timeout);
    loop {
        let meeting = Meeting::enter(options.dir.as_deref(), &options.key, &mut patience)?;
        let mut joining = Joining { options, absent, region_bytes, me, meeting, owner: None, claimed: false };
        match joining.join(&mut patience) {
            Ok(Some(attached)) => {
                if attached.control.header.creator.load(Relaxed) == options.rank as u64 {
                    // keys differ from job to job: what a job that died while it met has left, only another one's start finds
                    let _ = meeting::sweep(options.dir.as_deref());
                }
                return Ok(attached);
            }
            Ok(None) => {}
            Err(error) => {
                joining.meeting.abandon(options.rank, joining.claimed, &mut Patience::short());
                return Err(error);
            }
        }
    }
}

/// Refuses what cannot work and returns the bytes of a region in whole pages.
fn check(options: &AttachOptions) -> Result<usize, Error> {
    let AttachOptions { rank, size, key, region_bytes, .. } = options;
    if !(1..=MAX_RANKS).contains(size) {
        return Err(Error::usage(format!("{size} ranks on one node were asked for; 1 to {MAX_RANKS} are possible")));
    }
    if rank >= size {
        return Err(Error::usage(format!("rank {rank} does not exist in a group of {size} ranks (0 to {})", size - 1)));
    }
    if key.is_empty() {
        return Err(Error::usage(
            "the key of the group is empty; give all ranks of a job the same name (EARLYBIRD_JOB)",
        ));
    }
    if *region_bytes == 0 {
        return Err(Error::usage("an arena of 0 bytes was asked for; set EARLYBIRD_ARENA_MAX to at least one page"));
    }
    region_bytes
        .checked_next_multiple_of(rustix::param::page_size())
        .filter(|bytes| *bytes <= isize::MAX as usize / MAX_REGIONS)
        .ok_or_else(|| {
            Error::usage(format!(
                "an arena with regions of {region_bytes} bytes is beyond the address space; lower EARLYBIRD_ARENA_MAX"
            ))
        })
}

struct Joining<'a> {
    options: &'a AttachOptions,
    absent: Absent<'a>,
    region_bytes: usize,
    me: Identity,
    meeting: Meeting,
    owner: Option<OwnerThread>,
    claimed: bool,
}

impl Joining<'_> {
    /// `None` when the file found was a leftover, now removed, and the meeting must be entered anew.
    fn join(&mut self, patience: &mut Patience) -> Result<Option<Attached>, Error> {
        let (token, control, created) = match self.meeting.look()? {
            Found::Stale(token) => {
                self.meeting.remove(token);
                return Ok(None);
            }
            Found::Fresh => {
                let (token, control, arena, door) = self.create()?;
                (token, control, Some((arena, door)))
            }
            Found::Live(token) => {
                let control = self.open(token)?;
                if control.is_complete(self.options.size) {
                    // they have met and are just removing their traces
                    self.meeting.remove(Some(token));
                    return Ok(None);
                }
                self.join_living(&control)?;
                (token, control, None)
            }
        };
        self.meeting.unlock();
        match self.attach_and_wait(token, &control, created, patience) {
            Ok((arena, table, base)) => {
                Ok(Some(Attached { control, owner: self.owner.take(), arena, table, base, me: self.me }))
            }
            Err(error) => {
                // whatever it was, nobody need wait for this rank
                if !control.is_complete(self.options.size) {
                    control.fail(Failure::Lost(self.options.rank));
                }
                Err(error)
            }
        }
    }

    fn create(&mut self) -> Result<(Token, Arc<ControlMap>, Arena, Option<Door>), Error> {
        let token = self.meeting.found_group()?;
        let control = Arc::new(ControlMap::create(&token.control_name())?);
        let regions = self.affordable_regions();
        let arena = Arena::create(self.arena_bytes(regions))?;
        let (dir, path) = self.meeting.dir();
        // without a socket (some file systems have none) the others go through /proc
        let door = Door::open(dir, path, &token.door_name()).ok();
        let header = &control.header;
        header.layout_version.store(LAYOUT_VERSION, Relaxed);
        header.control_bytes.store(CONTROL_BYTES as u64, Relaxed);
        header.size.store(self.options.size as u64, Relaxed);
        header.region_bytes.store(self.region_bytes as u64, Relaxed);
        header.regions.store(regions as u64, Relaxed);
        header.creator.store(self.options.rank as u64, Relaxed);
        header.arena_fd.store(arena.fd().as_raw_fd() as u64, Relaxed);
        self.claim(&control)?;
        header.magic.store(MAGIC, Release);
        Ok((token, control, arena, door))
    }

    /// Regions that `ulimit -f` leaves room for; at least one is asked for in any case.
    fn affordable_regions(&self) -> usize {
        let limit = arena::file_limit().map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        (limit.saturating_sub(POOL_BYTES) / self.region_bytes).clamp(1, MAX_REGIONS)
    }

    /// `check` keeps the largest arena within the address range.
    fn arena_bytes(&self, regions: usize) -> usize {
        POOL_BYTES + regions * self.region_bytes
    }

    fn open(&self, token: Token) -> Result<Arc<ControlMap>, Error> {
        let name = token.control_name();
        let Some(control) = ControlMap::open(&name)? else {
            return Err(Error::Unsupported {
                what: format!("a group whose ranks share {} but not /dev/shm", self.meeting.path().display()),
                hint: "give the containers of one node a common /dev/shm (--ipc=host), or each its own EARLYBIRD_DIR"
                    .into(),
            });
        };
        let (magic, version) = (control.header.magic.load(Acquire), control.header.layout_version.load(Relaxed));
        let bytes = control.header.control_bytes.load(Relaxed);
        if magic != MAGIC || version != LAYOUT_VERSION || bytes != CONTROL_BYTES as u64 {
            return Err(Error::usage(format!(
                "/dev/shm{name} has magic {magic:#x}, layout {version}, {bytes} bytes where {MAGIC:#x}, {LAYOUT_VERSION}, \
                 {CONTROL_BYTES} are expected; all ranks must run the same build of earlybird"
            )));
        }
        Ok(Arc::new(control))
    }

    /// Checks that this rank belongs to the group that is meeting, and that nobody of it has died; then claims.
    fn join_living(&mut self, control: &Arc<ControlMap>) -> Result<(), Error> {
        let (rank, size) = (self.options.rank, self.options.size);
        let their_size = control.header.size.load(Relaxed);
        if their_size != size as u64 {
            return Err(Error::usage(format!(
                "rank {rank} was told of {size} ranks on this node, the ranks already here of {their_size}; all ranks of a \
                 job must agree (EARLYBIRD_SIZE), different jobs need different keys (EARLYBIRD_JOB)"
            )));
        }
        if control.state(rank) != FREE {
            let pid = control.entries[rank].pid.load(Relaxed);
            let same = self.is_me(control, rank);
            if same || roll::holder(self.meeting.file(), rank, 1).unwrap_or(None).is_some() {
                return Err(Error::usage(format!(
                    "rank {rank} of this group is already taken by process {pid}, which is alive; every rank must be given \
                     once (EARLYBIRD_RANK), different jobs need different keys (EARLYBIRD_JOB)"
                )));
            }
        }
        if let Some(other) = (0..size).find(|&other| control.state(other) != FREE && self.is_me(control, other)) {
            return Err(Error::usage(format!(
                "this process has already joined as rank {other} and cannot be rank {rank} too; one process is one rank"
            )));
        }
        self.call_roll(control)?;
        let theirs = control.header.region_bytes.load(Relaxed);
        if theirs != self.region_bytes as u64 {
            // this rank will not come: the others need not wait for it
            control.entries[rank].pid.store(u64::from(self.me.pid), Relaxed);
            control.fail(Failure::Lost(rank));
            return Err(Error::usage(format!(
                "rank {rank} asks for regions of {} bytes, the ranks already here have regions of {theirs}; \
                 all ranks must run the same build of earlybird",
                self.region_bytes
            )));
        }
        self.claim(control)
    }

    fn claim(&mut self, control: &Arc<ControlMap>) -> Result<(), Error> {
        let rank = self.options.rank;
        if !roll::try_take(self.meeting.file(), rank)? {
            return Err(Error::usage(format!("rank {rank} of this group is already taken by another process")));
        }
        self.claimed = true;
        let entry = &control.entries[rank];
        entry.pid.store(u64::from(self.me.pid), Relaxed);
        entry.pid_namespace.store(self.me.pid_namespace, Relaxed);
        entry.start_ticks.store(self.me.start_ticks, Relaxed);
        for (word, bits) in entry.affinity.iter().zip(process::affinity()) {
            word.store(bits, Relaxed);
        }
        if rank == 0 {
            for (word, value) in control.policy.iter().zip(self.options.policy) {
                word.store(value, Relaxed);
            }
        }
        control.announce(rank, CLAIMED, self.options.size);
        self.owner = Some(OwnerThread::start(control, rank));
        Ok(())
    }

    fn attach_and_wait(
        &self,
        token: Token,
        control: &ControlMap,
        created: Option<(Arena, Option<Door>)>,
        patience: &mut Patience,
    ) -> Result<(Arc<Arena>, Region, Region), Error> {
        let (rank, size) = (self.options.rank, self.options.size);
        let (arena, mut door, guest) = match created {
            Some((arena, door)) => (arena, door, None),
            None => {
                let (arena, guest) = self.receive(token, control, patience)?;
                (arena, None, guest)
            }
        };
        let arena = Arc::new(arena);
        let table = Region::of(&arena, 0, POOL_BYTES)?;
        let base = Region::of(&arena, POOL_BYTES, self.region_bytes)?;
        if !roll::try_take(&arena.fd(), rank)? {
            return Err(Error::usage(format!("rank {rank} of this group is already taken by another process")));
        }
        control.announce(rank, ATTACHED, size);
        drop(guest);
        let mut called = Instant::now();
        while !control.is_complete(size) {
            let bell = control.header.bell.load(Acquire);
            self.check_progress(control, patience, &mut called)?;
            if control.is_complete(size) {
                break;
            }
            match &mut door {
                Some(door) => door.serve(&arena.fd(), engine::sleep(Duration::from_millis(20))),
                None => {
                    let wait = engine::sleep(Duration::from_millis(50));
                    let wait = rustix::thread::Timespec { tv_sec: 0, tv_nsec: wait.subsec_nanos().into() };
                    // whatever ends the sleep, the words are looked at again
                    let _ = rustix::thread::futex::wait(
                        &control.header.bell,
                        rustix::thread::futex::Flags::empty(),
                        bell,
                        Some(&wait),
                    );
                }
            }
        }
        self.meeting.finish(token, patience)?;
        Ok((arena, table, base))
    }

    fn receive(
        &self,
        token: Token,
        control: &ControlMap,
        patience: &mut Patience,
    ) -> Result<(Arena, Option<Guest>), Error> {
        let (dir, path) = self.meeting.dir();
        let regions = control.header.regions.load(Relaxed);
        if !(1..=MAX_REGIONS as u64).contains(&regions) {
            return Err(Error::usage(format!(
                "the arena is announced with {regions} regions; 1 to {MAX_REGIONS} can be"
            )));
        }
        let arena_bytes = self.arena_bytes(regions as usize);
        let by_socket = Guest::knock(dir, path, &token.door_name()).and_then(|guest| {
            let mut called = Instant::now();
            loop {
                if let Some(file) = guest.receive(engine::sleep(Duration::from_millis(50)))? {
                    return Ok(Ok((file, guest)));
                }
                if let Err(error) = self.check_progress(control, patience, &mut called) {
                    return Ok(Err(error));
                }
            }
        });
        let socket_error = match by_socket {
            Ok(Ok((file, guest))) => return Ok((Arena::adopt(file, arena_bytes)?, Some(guest))),
            Ok(Err(error)) => return Err(error),
            Err(error) => error,
        };
        // a creator that died closes its socket: say that, and not how the descriptor failed to come
        self.call_roll(control)?;
        let creator = control.header.creator.load(Relaxed) as usize;
        let pid = control.entries.get(creator).map_or(0, |entry| entry.pid.load(Relaxed) as u32);
        match handover::through_proc(pid, control.header.arena_fd.load(Relaxed)) {
            Ok(file) => Ok((Arena::adopt(file, arena_bytes)?, None)),
            Err(proc_error) => Err(Error::system(
                format!(
                    "receiving the arena from rank {creator} (process {pid}); over the socket: {socket_error}; through /proc"
                ),
                proc_error,
            )),
        }
    }

    /// One look around of a waiting rank: failures, the dead, the time. What it has posted elsewhere goes on.
    fn check_progress(&self, control: &ControlMap, patience: &mut Patience, called: &mut Instant) -> Result<(), Error> {
        engine::progress();
        if let Some(why) = control.failure() {
            return Err(self.failed(control, why));
        }
        if called.elapsed() >= ROLL_CALL_EVERY {
            *called = Instant::now();
            self.call_roll(control)?;
            if let Some(rank) = (self.absent)().filter(|_| !control.is_complete(self.options.size)) {
                return Err(self.failed(control, control.fail(Failure::Lost(rank))));
            }
        }
        let missing = || self.missing(control);
        let who = || {
            let names: Vec<String> = missing().into_iter().map(|rank| self.describe(control, rank)).collect();
            format!("attach ({} ranks expected; missing: {})", self.options.size, names.join(", "))
        };
        let first_to_warn = || control.header.warned.compare_exchange(0, 1, AcqRel, Relaxed).is_ok();
        patience.check(who, missing, first_to_warn).map_err(|error| match error {
            Error::Timeout { after, .. } => {
                self.failed(control, control.fail(Failure::TimedOut(after.as_millis() as u64)))
            }
            other => other,
        })
    }

    fn missing(&self, control: &ControlMap) -> Vec<usize> {
        (0..self.options.size).filter(|&rank| matches!(control.state(rank), FREE | CLAIMED)).collect()
    }

    fn describe(&self, control: &ControlMap, rank: usize) -> String {
        let pid = control.entries[rank].pid.load(Relaxed);
        if control.state(rank) == FREE {
            return format!("rank {rank}, not started or elsewhere");
        }
        let visible = control.entries[rank].pid_namespace.load(Relaxed) == self.me.pid_namespace;
        let stat = if visible { process::stat(&pid.to_string()) } else { None };
        let state = match stat {
            Some(('T', _)) => "stopped",
            Some(('t', _)) => "held by a debugger",
            Some(('D', _)) => "waiting for disk",
            _ => "alive",
        };
        format!("rank {rank}, pid {pid}, {state}")
    }

    /// Fails when the group has failed, or when a rank that claimed its place is gone while others still need it.
    fn call_roll(&self, control: &ControlMap) -> Result<(), Error> {
        if let Some(why) = control.failure() {
            return Err(self.failed(control, why));
        }
        let gone = (0..self.options.size).find(|&rank| {
            let counts = rank != self.options.rank || !self.claimed;
            counts && control.state(rank) != FREE && matches!(roll::holder(self.meeting.file(), rank, 1), Ok(None))
        });
        match gone {
            // a rank that saw everybody attached may have gone its way since the states were read
            Some(rank) if !control.is_complete(self.options.size) => {
                Err(self.failed(control, control.fail(Failure::Lost(rank))))
            }
            _ => Ok(()),
        }
    }

    fn failed(&self, control: &ControlMap, why: Failure) -> Error {
        let during = "attach".to_owned();
        match why {
            Failure::Lost(rank) => {
                let pid = control.entries[rank].pid.load(Relaxed) as u32;
                Error::PeerDied { rank, pid, host: process::host_name(), during }
            }
            Failure::TimedOut(after_ms) => {
                Error::Timeout { missing: self.missing(control), after: Duration::from_millis(after_ms), during }
            }
        }
    }

    /// Whether the entry of `rank` was written by this very process.
    fn is_me(&self, control: &ControlMap, rank: usize) -> bool {
        control.entries[rank].identity() == self.me
    }
}
