//! The recorder: writes the records of this process into its file while the job runs.
//!
//! A call costs two readings of the processor's counter and the stores of one line, no system call and no allocation. What is known
//! at the arrival is stored then, so that a rank that never comes back is seen in its call, and the rest at the exit.

use super::checksum::CheckSum;
use super::format::{self, CALIBRATIONS, Header, NAMES, RECORDS_AT, TracedProcess};
use super::record::{Arrival, CallOutcome, End, RECORD_WORDS};
use super::record_clock::{Calibration, RecordClock};
use crate::identity::fingerprint;
use crate::{Algorithm, Choice, Collective, CollectiveArgs, Config, Error, Identity, Launcher};
use earlybird_shm::mapped_file::MappedFile;
use earlybird_shm::now_ns;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// Bytes of a rank's file where none are chosen.
pub const DEFAULT_BYTES: u64 = 16 << 20;
/// The most bytes that can be chosen.
const MOST_BYTES: u64 = 1 << 40;
const RECORD_BYTES: u64 = 8 * RECORD_WORDS as u64;
/// The entry of another library that carries out calls follows those of the node's algorithms, then come plans.
const OUTSIDE_AT: u8 = 15;
const PLANS_AT: usize = 16;
const _: () = assert!(Algorithm::ALL.len() <= OUTSIDE_AT as usize);

/// The file of a process.
#[derive(Debug)]
pub(crate) struct Recorder {
    path: PathBuf,
    process: u32,
    file: MappedFile,
    clock: RecordClock,
    /// The reading of the clock at which the next calibration is due.
    due: AtomicU64,
    calibrations: Mutex<Calibrations>,
    /// Records that were begun.
    begun: AtomicU64,
    /// Whether the name of a plan is in the file, by the number of the plan.
    plans: Mutex<[bool; NAMES]>,
    /// Communicators that were opened, by the fingerprints of their names: a name may be used again.
    opened: Mutex<HashMap<u64, u64>>,
}

/// The calibrations that were written.
#[derive(Debug, Default)]
struct Calibrations {
    count: usize,
    first_ticks: u64,
}

/// The recorders of this process. They stay, since a program may leave its job and join again.
static RECORDERS: Mutex<Vec<Arc<Recorder>>> = Mutex::new(Vec::new());

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recorder {
    /// The recorder that `config` asks for, if any; the file is created by the first communicator of the process.
    ///
    /// # Errors
    /// [`Error::Usage`] for a size that holds no call or too many; the errors of creating a file.
    pub fn open(config: &Config, identity: &Identity) -> Result<Option<Arc<Recorder>>, Error> {
        match (&config.trace, &config.traced_process) {
            (None, _) => Ok(None),
            (_, Some(process)) => Recorder::of_process(config, process.clone()),
            (_, None) => {
                let (process, job) = of_identity(config, identity)?;
                Recorder::of_job(config, process, job)
            }
        }
    }

    /// The same for a process that knows its place by something else than an identity.
    pub fn of_process(config: &Config, process: TracedProcess) -> Result<Option<Arc<Recorder>>, Error> {
        Recorder::of_job(config, process, launched().map_or(0, |launched| fingerprint(&launched.key)))
    }

    fn of_job(config: &Config, process: TracedProcess, job: u64) -> Result<Option<Arc<Recorder>>, Error> {
        let Some(path) = &config.trace else { return Ok(None) };
        let path = path_of(path, process.rank);
        let mut recorders = locked(&RECORDERS);
        let own = |known: &&Arc<Recorder>| known.path == path && known.process == std::process::id();
        if let Some(known) = recorders.iter().find(own) {
            return Ok(Some(known.clone()));
        }
        let recorder = Arc::new(Recorder::create(path, config.trace_bytes.unwrap_or(DEFAULT_BYTES), process, job)?);
        recorders.push(recorder.clone());
        Ok(Some(recorder))
    }

    fn create(path: PathBuf, bytes: u64, process: TracedProcess, job: u64) -> Result<Recorder, Error> {
        if !(RECORD_BYTES..=MOST_BYTES).contains(&bytes) {
            return Err(Error::usage(format!(
                "a trace of {bytes} bytes per rank; give {RECORD_BYTES} for each call, and at most {MOST_BYTES}"
            )));
        }
        let capacity = 1usize << (bytes / RECORD_BYTES).ilog2();
        // Files take milliseconds to create: the first two calibrations, before and after, tell the rate of the counter.
        let clock = RecordClock::of_this_machine();
        let before = clock.calibration();
        let file = MappedFile::create(&path, RECORDS_AT + capacity * RECORD_WORDS)?;
        let header = Header {
            capacity,
            rank: process.rank,
            size: process.size,
            job,
            clock: clock_domain(),
            monotonic_ns: now_ns(),
            realtime_ns: SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64),
            virtual_node: process.virtual_node,
            process: std::process::id(),
            host: read("/proc/sys/kernel/hostname"),
        };
        let recorder = Recorder {
            path,
            process: header.process,
            file,
            clock,
            due: AtomicU64::new(u64::MAX),
            calibrations: Mutex::default(),
            begun: AtomicU64::new(0),
            plans: Mutex::new([false; NAMES]),
            opened: Mutex::default(),
        };
        recorder.store(0, &header.encode());
        for calibration in before.into_iter().chain(clock.calibration()) {
            recorder.add(&mut locked(&recorder.calibrations), calibration);
        }
        for algorithm in Algorithm::ALL {
            recorder.name(algorithm as usize, algorithm.name());
        }
        Ok(recorder)
    }

    #[inline]
    fn store(&self, at: usize, words: &[u64]) {
        self.file.words()[at..at + words.len()].iter().zip(words).for_each(|(place, word)| place.store(*word, Relaxed));
    }

    /// Calibrates the clock if it is time to at this reading.
    #[inline]
    fn calibrate_at(&self, reading: u64) {
        if reading >= self.due.load(Relaxed) {
            self.calibrate(reading);
        }
    }

    #[cold]
    fn calibrate(&self, reading: u64) {
        // Another thread does it otherwise.
        if let Ok(mut calibrations) = self.calibrations.try_lock()
            && reading >= self.due.load(Relaxed)
            && let Some(calibration) = self.clock.calibration()
        {
            self.add(&mut calibrations, calibration);
        }
    }

    /// Writes a calibration. The next one is due when the first is twice as long ago, so the file has room for all.
    fn add(&self, calibrations: &mut Calibrations, calibration: Calibration) {
        if calibrations.count == 0 {
            calibrations.first_ticks = calibration.ticks;
        }
        self.store(format::calibration_at(calibrations.count), &format::encode_calibration(calibration));
        calibrations.count += 1;
        let due = calibration.ticks.saturating_add(calibration.ticks - calibrations.first_ticks);
        self.due.store(if calibrations.count < CALIBRATIONS { due } else { u64::MAX }, Relaxed);
    }

    /// Writes the name of another library that carries out calls, and returns its entry.
    pub fn name_outside(&self, library: &str) -> u8 {
        self.name(usize::from(OUTSIDE_AT), library);
        OUTSIDE_AT
    }

    fn name(&self, entry: usize, name: &str) {
        self.store(format::name_at(entry), &format::encode_name(name));
    }

    /// The entry of an algorithm's name, which is written if it is the first call by it; `None` for a plan that finds no room.
    #[inline]
    fn entry(&self, algorithm: Choice) -> Option<u8> {
        match algorithm {
            Choice::Node(algorithm) => Some(algorithm as u8),
            Choice::Plan(_) => self.entry_of_plan(algorithm),
        }
    }

    #[cold]
    fn entry_of_plan(&self, plan: Choice) -> Option<u8> {
        let entry = PLANS_AT + plan.plan_number();
        let mut plans = locked(&self.plans);
        if !std::mem::replace(plans.get_mut(entry)?, true) {
            self.name(entry, plan.name());
        }
        u8::try_from(entry).ok()
    }

    /// The words of this record: the ring has room for a power of two.
    #[inline]
    fn words_of(&self, index: u64) -> &[AtomicU64; RECORD_WORDS] {
        let (ring, _) = self.file.words()[RECORDS_AT..].as_chunks();
        &ring[(index - 1) as usize & (ring.len() - 1)]
    }
}

/// The file of a rank: ranks share no file, so none waits for another and each may lie on a host of its own.
pub(super) fn path_of(path: &Path, rank: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{rank}"));
    name.into()
}

/// This process in its job, and a hash of the job's name: by its launcher, so that communicators of some ranks tell the same.
fn of_identity(config: &Config, identity: &Identity) -> Result<(TracedProcess, u64), Error> {
    let launched = launched();
    let Identity { rank, size, key, .. } = launched.as_ref().unwrap_or(identity);
    let node = config.ranks_per_node.as_ref().map_or(Ok(0), |each| each.node_of(*rank, *size))?;
    Ok((TracedProcess { rank: *rank, size: *size, virtual_node: node as u32 }, fingerprint(key)))
}

/// The identity that a launcher has given.
fn launched() -> Option<Identity> {
    Identity::detect().ok().filter(|launched| launched.launcher != Launcher::Alone)
}

/// Equal for processes whose monotonic clocks are one.
fn clock_domain() -> u64 {
    let namespace = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
    fingerprint(&format!("{} {}", read("/proc/sys/kernel/random/boot_id"), namespace.display()))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// The algorithm that carried out a call, and this rank's place in the order of arrival.
type Ran = (Choice, Option<usize>);

/// A call that is to be recorded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewRecord {
    pub collective: Collective,
    pub bytes: usize,
}

impl NewRecord {
    #[inline(always)]
    pub fn of(args: &CollectiveArgs<'_>, ranks: usize) -> Self {
        NewRecord { collective: args.collective(), bytes: args.unchecked_bytes(ranks) }
    }

    pub fn without_data(collective: Collective) -> Self {
        NewRecord { collective, bytes: 0 }
    }
}

/// The calls of one communicator.
#[derive(Debug)]
pub(crate) struct CallTrace {
    recorder: Arc<Recorder>,
    communicator: u64,
    size: u32,
    /// Calls that all ranks have made.
    calls: AtomicU64,
    /// Started calls by their numbers.
    started: Mutex<HashMap<u64, OpenRecord>>,
}

/// A record of which the arrival is stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenRecord {
    index: u64,
    sum: CheckSum,
}

impl CallTrace {
    /// The trace of a communicator of `size` ranks, which has this name on all of them.
    pub fn new(recorder: Arc<Recorder>, name: &str, size: usize) -> CallTrace {
        let name = fingerprint(name);
        let times = {
            let mut opened = locked(&recorder.opened);
            let times = opened.entry(name).or_default();
            *times += 1;
            *times
        };
        let communicator = fingerprint(&format!("{name:x} {times}"));
        CallTrace { recorder, communicator, size: size as u32, calls: AtomicU64::new(0), started: Mutex::default() }
    }

    /// The communicator in its records.
    pub fn communicator(&self) -> u64 {
        self.communicator
    }

    /// The trace of another communicator.
    pub fn another(&self, name: &str, size: usize) -> CallTrace {
        CallTrace::new(self.recorder.clone(), name, size)
    }

    /// Records the arrival of this rank at a call.
    #[inline(always)]
    pub fn begin(&self, call: NewRecord, is_started: bool) -> OpenRecord {
        let number = self.calls.fetch_add(1, Relaxed) + 1;
        let index = self.recorder.begun.fetch_add(1, Relaxed) + 1;
        let (words, sum) = Arrival {
            index,
            arrival: self.recorder.clock.arrival(),
            communicator: self.communicator,
            number,
            size: self.size,
            bytes: call.bytes as u64,
            collective: call.collective,
            is_started,
        }
        .encode();
        self.recorder.words_of(index).iter().zip(words).for_each(|(place, word)| place.store(word, Relaxed));
        OpenRecord { index, sum }
    }

    /// Records the end of a blocking call, after which `ran` tells what carried it out.
    #[inline(always)]
    pub fn end<T>(&self, record: OpenRecord, result: &Result<T, Error>, ran: impl FnOnce() -> Option<Ran>) {
        self.end_waited(record, 0, result, ran);
    }

    /// The same of a call for which this rank has waited since `waiting`, unless that is 0.
    #[inline(always)]
    fn end_waited<T>(
        &self,
        record: OpenRecord,
        waiting: u64,
        result: &Result<T, Error>,
        ran: impl FnOnce() -> Option<Ran>,
    ) {
        let exit = self.recorder.clock.exit();
        let (outcome, ran) = match result {
            Ok(_) => (CallOutcome::Done, ran()),
            // The other ranks do not count it.
            Err(Error::Usage { .. } | Error::Unsupported { .. }) => {
                self.calls.fetch_sub(1, Relaxed);
                (CallOutcome::Refused, None)
            }
            Err(_) => (CallOutcome::Failed, None),
        };
        let algorithm = ran.and_then(|(algorithm, _)| self.recorder.entry(algorithm));
        let place = ran.and_then(|(_, place)| u16::try_from(place?).ok());
        self.store_end(record, End { waiting, exit, place, algorithm, outcome });
        self.recorder.calibrate_at(exit);
    }

    /// Stores the end of a record; nothing if a newer one has taken its place.
    #[inline(always)]
    fn store_end(&self, record: OpenRecord, end: End) {
        let words = self.recorder.words_of(record.index);
        if words[0].load(Relaxed) == record.index {
            end.encode(record.sum).into_iter().for_each(|(place, word)| words[place].store(word, Relaxed));
        }
    }

    /// The present moment by the clock of the records.
    pub fn now(&self) -> u64 {
        self.recorder.clock.arrival()
    }

    /// Keeps the record of a call that was started under this number.
    pub fn keep(&self, number: u64, record: OpenRecord) {
        locked(&self.started).insert(number, record);
    }

    /// Records the end of a started call, for which this rank has waited since `waiting`.
    pub fn end_started<T>(
        &self,
        (number, waiting): (u64, u64),
        result: &Result<T, Error>,
        ran: impl FnOnce() -> Option<Ran>,
    ) {
        let record = locked(&self.started).remove(&number);
        if let Some(record) = record {
            self.end_waited(record, waiting, result, ran);
        }
    }

    /// Records that no caller waits for a started call any more.
    pub fn release(&self, number: u64) {
        let record = locked(&self.started).remove(&number);
        if let Some(record) = record {
            self.end_outside(record, None, CallOutcome::Released);
        }
    }

    /// Records the end of a call that another library carries out: with its name, and at this moment, or without both if its end
    /// remains unseen.
    pub fn end_outside(&self, record: OpenRecord, algorithm: Option<u8>, outcome: CallOutcome) {
        let exit = if algorithm.is_some() { self.recorder.clock.exit() } else { 0 };
        self.store_end(record, End { waiting: 0, exit, place: None, algorithm, outcome });
        self.recorder.calibrate_at(exit);
    }
}
