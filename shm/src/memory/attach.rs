//! Joining a group: find the other ranks, claim a place, map the arena, wait for all ranks, leave no trace.
//!
//! The first rank at the rendezvous creates control segment and arena and serves the others ([`FdServerHandler`]): it
//! compares their statements and passes them both descriptors. Every rank takes these steps, each visible before the next:
//! 1. receive control segment and arena, take the record lock on byte `rank` of the arena, fill the entry, state `CLAIMED`;
//! 2. map the arena, state `ATTACHED`, close the connection;
//! 3. wait until the creator announces that all have attached and no name is left.
//!
//! The first error is written into the control segment and ends the wait of all ranks. The creator watches all ranks, the
//! others watch the creator, so the work of joining grows linearly with the number of ranks.

use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::announcement;
use super::arena::{self, Arena};
use super::attach_errors::{connection_lost, describe, died, of_attach};
use super::control::{ATTACHED, CLAIMED, Control, FREE, Identity, MAX_RANKS};
use super::control_map::ControlMap;
use super::deadline::Deadline;
use super::descriptor::Descriptor;
use super::fd_server::{self, FdServer, FdServerHandler};
use super::grant::{MAX_REGIONS, POOL_BYTES};
use super::messages::{self, Answer, Message, Statement};
use super::owner_thread::OwnerThread;
use super::process;
use super::rendezvous::{RendezvousAddress, Role};
use super::{Absent, AttachOptions, Region, directory, liveness, record_lock};
use crate::Error;
use crate::engine;

/// Interval at which a waiting rank checks the ranks that it watches.
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(super) struct Attached {
    pub control: Arc<ControlMap>,
    /// Holds this rank's word; `None` in a group of one, where no other rank looks.
    pub owner: Option<OwnerThread>,
    pub arena: Arc<Arena>,
    /// The table of regions.
    pub table: Region,
    /// The region of the whole group.
    pub base: Region,
    /// Regions that the arena has room for.
    pub regions: usize,
    pub me: Identity,
}

/// Joins the group; the error is the same on all ranks that had found each other.
pub(super) fn attach(options: &AttachOptions, absent: Absent<'_>) -> Result<Attached, Error> {
    let region_bytes = check(options)?;
    let statement = Statement::of(options, Identity::own(), region_bytes);
    let (deadline, looked) = (Deadline::new(options.timeout), Instant::now());
    let mut joining = Joining { options, absent, region_bytes, statement, deadline, looked, hosts: true };
    if options.size == 1 {
        return joining.create().map(|(attached, _)| attached);
    }
    #[cfg(feature = "fault")]
    crate::fault_injection::reached_in_joining(options.rank, "joining");
    let address = RendezvousAddress::new(options.dir.as_deref(), &options.key);
    loop {
        let attached = match address.enter(&mut joining.deadline, joining.absent) {
            Ok(Role::Server(point)) => joining.host(FdServer::new(point)).map(Some),
            Ok(Role::Client(socket)) => joining.join(&address, socket),
            // for example when no descriptor is left: the others do not know of this rank yet
            Err(error @ Error::System { .. }) => {
                let AttachOptions { dir, key, rank, size, .. } = options;
                return Err(announcement::refuse(dir.as_deref(), key, *rank, *size, error));
            }
            Err(error) => return Err(error),
        };
        match attached {
            Ok(Some(attached)) => return Ok(attached),
            // the group found there was complete, or had lost its creator: a new one begins
            Ok(None) => std::thread::sleep(Duration::from_micros(200)),
            Err(error) => {
                address.remove_leftover(matches!(error, Error::PeerDied { .. }));
                return Err(error);
            }
        }
    }
}

/// Checks the options and returns the bytes of a region in whole pages.
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
    statement: Statement,
    deadline: Deadline,
    /// Time of this rank's last check of the ranks that it watches.
    looked: Instant,
    /// True if this rank hosts the rendezvous.
    hosts: bool,
}

impl Joining<'_> {
    /// Creates control segment and arena, and returns the descriptor of the control segment too.
    fn create(&self) -> Result<(Attached, Descriptor), Error> {
        let (control, file) = ControlMap::create()?;
        // as many regions as `ulimit -f` leaves room for; one is asked for in any case
        let limit = arena::file_limit().map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let regions = (limit.saturating_sub(POOL_BYTES) / self.region_bytes).clamp(1, MAX_REGIONS);
        // `check` keeps the largest arena within the address range
        let arena = Arena::create(POOL_BYTES + regions * self.region_bytes)?;
        control.header.creator.store(self.options.rank as u64, Relaxed);
        Ok((self.claim_and_map(control, arena, regions)?, file))
    }

    /// Maps the control segment and the arena that the creator has sent.
    fn adopt(&self, files: Vec<Descriptor>) -> Result<Attached, Error> {
        let Ok([control, arena]) = <[Descriptor; 2]>::try_from(files) else {
            return Err(Error::system("receiving the arena", "its descriptor did not come; raise ulimit -n"));
        };
        let control = ControlMap::adopt(&control)?;
        let bytes = rustix::fs::fstat(&arena).map_err(|e| Error::system("looking at the arena", e))?.st_size;
        let regions = usize::try_from(bytes).unwrap_or(0).saturating_sub(POOL_BYTES) / self.region_bytes;
        if !(1..=MAX_REGIONS).contains(&regions) {
            return Err(Error::usage(format!("the arena received has {regions} regions; 1 to {MAX_REGIONS} can be")));
        }
        let arena = Arena::adopt(arena, POOL_BYTES + regions * self.region_bytes)?;
        self.claim_and_map(control, arena, regions)
    }

    fn claim_and_map(&self, control: ControlMap, arena: Arena, regions: usize) -> Result<Attached, Error> {
        let control = Arc::new(control);
        let owner = self.claim(&control, &arena)?;
        let arena = Arc::new(arena);
        let table = Region::of(&arena, 0, POOL_BYTES)?;
        let base = Region::of(&arena, POOL_BYTES, self.region_bytes)?;
        control.announce(self.options.rank, ATTACHED);
        Ok(Attached { control, owner, arena, table, base, regions, me: self.statement.me })
    }

    /// Claims this rank for this process, whose death is noticed from here on.
    fn claim(&self, control: &Arc<ControlMap>, arena: &Arena) -> Result<Option<OwnerThread>, Error> {
        let (rank, me) = (self.options.rank, self.statement.me);
        if !record_lock::try_take(&arena.fd(), rank)? {
            return Err(Error::usage(format!("rank {rank} of this group is already taken by another process")));
        }
        control.claim(rank, me, process::affinity(), self.options.policy);
        Ok((self.options.size > 1).then(|| OwnerThread::start(control, rank)))
    }

    /// Hosts the rendezvous of the other ranks.
    fn host(&mut self, mut server: FdServer) -> Result<Attached, Error> {
        let (rank, size) = (self.options.rank, self.options.size);
        self.hosts = true;
        let (attached, control_file) = match self.create() {
            Ok(created) => created,
            Err(error) => {
                let error = error.of_rank(rank);
                server.refuse(&error, size - 1, HashSet::new(), announcement::LINGER);
                return Err(error);
            }
        };
        let mut group = JoiningGroup {
            control: &attached.control,
            files: [control_file.as_fd(), attached.arena.fd()],
            statement: self.statement.clone(),
            known: vec![None; size],
            answered: HashSet::new(),
        };
        group.known[rank] = Some(self.statement.me);
        match self.bring_together(&mut server, &mut group, &attached) {
            Ok(()) => {
                server.end(&Answer::Over);
                attached.control.end_rendezvous();
                // keys differ from job to job, so sockets of jobs that died while joining are swept by later jobs
                let _ = directory::sweep(self.options.dir.as_deref());
                Ok(attached)
            }
            Err(error) => {
                let stands = attached.control.fail(rank, &error.of_rank(rank), None);
                // late ranks would wait for nothing; after a death or a deadline the others have waited long enough
                let linger = match stands {
                    Error::PeerDied { .. } | Error::Timeout { .. } => Duration::ZERO,
                    _ => announcement::LINGER,
                };
                let answered = group.answered;
                drop(control_file);
                server.refuse(&stands, size - 1, answered, linger);
                Err(stands)
            }
        }
    }

    fn bring_together(
        &mut self,
        server: &mut FdServer,
        group: &mut JoiningGroup<'_>,
        attached: &Attached,
    ) -> Result<(), Error> {
        while !attached.control.is_complete(self.options.size) {
            server.serve(group, engine::sleep(Duration::from_millis(50)))?;
            if self.look(attached)? {
                server.restore()?;
            }
        }
        // no rank leaves before the rendezvous is over, so one that is gone now has died
        self.look_after(attached)
    }

    /// Joins the group of another fd server; `None` when that has ended.
    fn join(&mut self, address: &RendezvousAddress, socket: Descriptor) -> Result<Option<Attached>, Error> {
        self.hosts = false;
        let message = Message::Join(self.statement.clone());
        match fd_server::send(&socket, &messages::encode(&message), &[]) {
            Ok(()) => {}
            Err(error) if fd_server::is_hangup(error) => return Ok(None),
            Err(error) => return Err(connection_lost(error)),
        }
        #[cfg(feature = "fault")]
        crate::fault_injection::reached_in_joining(self.options.rank, "asked");
        let files = match self.receive_answer(&socket)? {
            None | Some((Answer::Over, _)) => return Ok(None),
            Some((Answer::Failed(error), _)) => return Err(error),
            Some((Answer::Welcome, files)) => files,
        };
        let rank = self.options.rank;
        let attached = self.adopt(files).map_err(|error| announcement::give_up(&socket, error.of_rank(rank)))?;
        drop(socket);
        let over = attached.control.until_over(|| self.look(&attached).map(|_| engine::sleep(LOOK_EVERY)));
        // a rank that lost the creator before its answer has begun a new group, and would wait for this rank
        over.inspect_err(|error| announcement::notify(address, &Message::Failed(self.statement.me, error.clone())))?;
        Ok(Some(attached))
    }

    /// Waits for the creator's answer; `None` when the creator is gone.
    fn receive_answer(&mut self, socket: &Descriptor) -> Result<Option<(Answer, Vec<Descriptor>)>, Error> {
        let creator = record_lock::peer_process(socket);
        loop {
            let creator_runs = announcement::check_creator(creator.as_ref());
            match fd_server::receive(socket) {
                Ok(Some((bytes, files))) => return Ok(messages::decode(&bytes).map(|answer| (answer, files))),
                Ok(None) => {}
                Err(error) if fd_server::is_hangup(error) => return Ok(None),
                Err(error) => return Err(connection_lost(error)),
            }
            engine::progress();
            let waiting_for = || "attach: the process that brings the ranks together has not answered".to_owned();
            let checked = self.deadline.check(waiting_for, Vec::new, || true);
            checked.map_err(|error| announcement::give_up(socket, of_attach(error)))?;
            let gone = (self.absent)().map(|rank| died(rank, 0));
            match (creator_runs, gone) {
                (Ok(()), None) => {}
                (Ok(()), Some(gone)) => return Err(announcement::give_up(socket, gone)),
                // The creator has ended; another group of the same ranks may know which rank it was.
                (Err(ended), gone) => return Err(gone.unwrap_or(ended)),
            }
            fd_server::wait_for(socket, engine::sleep(LOOK_EVERY));
        }
    }

    /// Checks errors, deaths and the deadline for a waiting rank; returns whether it checked other ranks too. Non-blocking calls
    /// of this process progress meanwhile.
    fn look(&mut self, attached: &Attached) -> Result<bool, Error> {
        engine::progress();
        let (control, rank, size) = (&attached.control, self.options.rank, self.options.size);
        if let Some(error) = control.failure() {
            return Err(error);
        }
        let due = self.looked.elapsed() >= LOOK_EVERY;
        if due {
            self.looked = Instant::now();
            self.look_after(attached)?;
        }
        let missing = || (0..size).filter(|&rank| matches!(control.state(rank), FREE | CLAIMED)).collect::<Vec<_>>();
        let own = self.statement.me;
        let waiting_for = || {
            let names: Vec<String> = missing().into_iter().map(|rank| describe(control, rank, own)).collect();
            // a rank that failed to join has announced that for 2 s only
            let hint = "if these have failed and ended already, end this one too; EARLYBIRD_TIMEOUT bounds the wait";
            format!("attach ({size} ranks expected; missing: {}; {hint})", names.join(", "))
        };
        let first_to_warn = || control.header.warned.compare_exchange(0, 1, Relaxed, Relaxed).is_ok();
        let checked = self.deadline.check(waiting_for, missing, first_to_warn);
        checked.map(|()| due).map_err(|error| control.fail(rank, &of_attach(error), None))
    }

    /// Fails if a watched rank has died, or if another group of the same ranks knows that one will not come.
    fn look_after(&self, attached: &Attached) -> Result<(), Error> {
        let control = &attached.control;
        let absent = || (self.absent)().filter(|_| !control.is_complete(self.options.size));
        let Some(gone) = self.first_gone(control, &attached.arena).or_else(absent) else { return Ok(()) };
        // the creator may have ended the rendezvous and left since it was checked
        if !self.hosts && control.is_over() {
            return Ok(());
        }
        let pid = control.entries[gone].pid.load(Relaxed) as u32;
        Err(control.fail(self.options.rank, &died(gone, pid), Some(gone)))
    }

    /// The first watched rank that was claimed and is gone. The creator watches all ranks, the others watch the creator.
    fn first_gone(&self, control: &Control, arena: &Arena) -> Option<usize> {
        let size = self.options.size;
        let creator = (control.header.creator.load(Relaxed) as usize).min(size - 1);
        let mut watched = if self.hosts { 0..size } else { creator..creator + 1 };
        watched.find(|&rank| {
            let claimed = rank != self.options.rank && control.state(rank) != FREE;
            claimed && liveness::concludes(control, arena, &self.statement.me, rank, liveness::is_dead)
        })
    }
}

/// The group that the creator brings together.
struct JoiningGroup<'a> {
    control: &'a Control,
    files: [BorrowedFd<'a>; 2],
    /// The creator's own statement.
    statement: Statement,
    /// The processes of the ranks that have come.
    known: Vec<Option<Identity>>,
    /// The processes that have had an answer.
    answered: HashSet<Identity>,
}

impl JoiningGroup<'_> {
    fn fail(&self, error: &Error, dead: Option<usize>) -> Answer {
        Answer::Failed(self.control.fail(self.statement.rank, error, dead))
    }

    /// The error of a rank that cannot join this group.
    fn objection(&self, other: &Statement) -> Option<Error> {
        let (rank, me) = (other.rank, other.me);
        if let Some(difference) = self.statement.difference(other) {
            return Some(difference);
        }
        let Some(known) = self.known.get(rank) else {
            let size = self.known.len();
            return Some(Error::usage(format!("rank {rank} does not exist in a group of {size} ranks")));
        };
        if let Some(first) = self.known.iter().position(|known| *known == Some(me)) {
            return Some(Error::usage(format!(
                "process {} has already joined as rank {first} and cannot be rank {rank} too; one process is one rank",
                me.pid
            )));
        }
        known.map(|holder| {
            Error::usage(format!(
                "rank {rank} is given twice, to processes {} and {}; every rank must be given once (EARLYBIRD_RANK), \
                 different jobs need different names (EARLYBIRD_JOB)",
                holder.pid, me.pid
            ))
        })
    }
}

impl FdServerHandler for JoiningGroup<'_> {
    fn answer(&mut self, message: Message) -> Option<Answer> {
        self.answered.extend(message.sender());
        if let Some(error) = self.control.failure() {
            return Some(Answer::Failed(error));
        }
        match message {
            Message::Join(other) => match self.objection(&other) {
                Some(error) => Some(self.fail(&error, None)),
                None => {
                    self.known[other.rank] = Some(other.me);
                    Some(Answer::Welcome)
                }
            },
            Message::Failed(_, error) => Some(self.fail(&error, None)),
            Message::Ended(ranks) => {
                let never_came = |rank: &usize| matches!(self.known.get(*rank), Some(None));
                ranks.into_iter().find(never_came).map(|rank| self.fail(&died(rank, 0), Some(rank)))
            }
        }
    }

    fn closed(&mut self, rank: &Statement) {
        if matches!(self.control.state(rank.rank), FREE | CLAIMED) && self.control.failure().is_none() {
            self.fail(&died(rank.rank, rank.me.pid), Some(rank.rank));
        }
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.files.to_vec()
    }
}
