//! Words and payload that another process of the same user writes over: values may be wrong, but every rank gets
//! its result or one error, and nobody waits for ever or crashes.

mod common;

use common::{End, Job, Player, mix};
use earlybird::{Algorithm, CollectiveArgs, Communicator, Error, Op};
use earlybird_shm::layout::Layout;
use earlybird_shm::memory::POOL_BYTES;
use earlybird_shm::protocol::word::FoldWord;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    common::play(&[("scribbled", scribbled), ("started", started), ("lent_anew", lent_anew)]);
}

/// The memory of the communicator of all ranks, as another process would reach it.
struct Shared {
    memory: File,
    at: u64,
}

impl Shared {
    fn find() -> Shared {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let region = |line: &&str| {
            line.contains("earlybird-arena") && line.split(' ').nth(2) == Some(&format!("{POOL_BYTES:08x}"))
        };
        let line = maps.lines().find(region).unwrap_or_else(|| panic!("no region in\n{maps}"));
        let at = u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap();
        let memory = OpenOptions::new().read(true).write(true).open("/proc/self/mem").unwrap();
        Shared { memory, at }
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        self.memory.write_all_at(bytes, self.at + offset as u64).unwrap();
    }

    fn read(&self, bytes: usize) -> Vec<u8> {
        let mut found = vec![0; bytes];
        self.memory.read_exact_at(&mut found, self.at).unwrap();
        found
    }
}

/// Random numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 = mix(self.0);
        (self.0 >> 11) as usize % most
    }
}

/// Writes bytes and words, mostly over the lines, some over payload that is in use.
fn scribble(shared: &Shared, ranks: usize, seed: u64) {
    let (layout, mut dice) = (Layout::new(ranks), Dice(seed));
    for _ in 0..1 + dice.below(300) {
        std::thread::sleep(Duration::from_micros(dice.below(100) as u64));
        let offset = match dice.below(16) {
            0 => layout.accumulator(dice.below(2)) + dice.below(4096),
            1 => layout.deposit(dice.below(2), dice.below(ranks)) + dice.below(4096),
            // The poison word, what members say.
            2..=4 => dice.below(layout.arrival(0)),
            // Arrivals, events, the lines of the ranks.
            5..=11 => layout.arrival(0) + dice.below(layout.fold_word(0) - layout.arrival(0)),
            12 => layout.fold_word(0) + dice.below(layout.chunk(0, 0) - layout.fold_word(0)),
            // Only the first few chunks are used.
            _ => layout.chunk(dice.below(2), 0) + dice.below(1024),
        };
        let value = mix(dice.0);
        let word = [value, 0, u64::MAX, value & 0xff, 1 << (value % 64)][dice.below(5)].to_le_bytes();
        match dice.below(2) {
            0 => shared.write(offset, &word[..1]),
            _ => shared.write(offset / 8 * 8, &word),
        }
    }
}

/// Call `i` of a seed, the same on all ranks, whatever its result.
fn call(comm: &Communicator, seed: u64, i: u64) -> Result<(), Error> {
    let mut dice = Dice(mix(seed).wrapping_add(i));
    let algorithm = Algorithm::ALL[dice.below(Algorithm::ALL.len())];
    comm.set_algorithm(algorithm)?;
    let (ranks, count) = (comm.size(), [1, 9, 200, 3000][dice.below(4)]);
    let root = comm.process_at_rank(dice.below(ranks));
    let is_root = root.rank() == comm.rank();
    let mut small = vec![1.0f64; count];
    let mut large = vec![1.0f64; count * ranks];
    match dice.below(9) {
        0 => comm.barrier(),
        8 => {
            let (first, second) = (
                comm.start(CollectiveArgs::all_reduce(small, Op::Sum))?,
                comm.start(CollectiveArgs::all_to_all((large.clone(), large)))?,
            );
            second.wait().map(drop).and(first.wait().map(drop))
        }
        1 => root.broadcast_into(&mut small),
        2 => root.reduce_in_place(&mut small, Op::Sum),
        3 if is_root => root.gather_into_root(&small, &mut large),
        3 => root.gather_into(&small),
        4 => comm.all_to_all_in_place(&mut large),
        5 => comm.all_gather_in_place(&mut large),
        _ => comm.all_reduce_in_place(&mut small, Op::Sum),
    }
}

fn scribbled(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let seed: u64 = player.arg(0);
    comm.barrier().unwrap();
    let shared = Shared::find();
    std::thread::scope(|scope| {
        if comm.rank() == 0 {
            scope.spawn(|| scribble(&shared, comm.size(), seed));
        }
        let ended = (0..2000).try_for_each(|i| call(&comm, seed, i));
        player.say(ended.map_or_else(|error| format!("{} {error}", error.code()), |()| "ok".into()));
    });
}

#[test]
fn scribbling_ends_no_wait_never_and_crashes_nobody() {
    let queue: Mutex<Vec<(usize, u64)>> = Mutex::new((0..200).map(|seed| (2 + seed as usize % 2, seed)).collect());
    let failed = Mutex::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some((ranks, seed)) = { queue.lock().unwrap().pop() } {
                    let ends = Job::new("scribbled", ranks).arg(seed).start().join();
                    let fine = |end: &End| end.status.success() && end.said.len() == 1;
                    assert!(ends.iter().all(fine), "seed {seed}, {ranks} ranks: {ends:#?}");
                    *failed.lock().unwrap() += usize::from(ends.iter().any(|end| end.said[0] != "ok"));
                }
            });
        }
    });
    println!("200 jobs, {} of them ended with an error", failed.into_inner().unwrap());
}

/// Two calls are under way, and the words of both say for ever that another rank folds.
fn started(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    comm.barrier().unwrap();
    meet(&comm, "called");
    if comm.rank() == 0 {
        let (shared, layout) = (Shared::find(), Layout::new(comm.size()));
        for epoch in [2, 3] {
            let word = FoldWord::busy(epoch, 1, 0).0.to_le_bytes();
            (0..16).for_each(|chunk| shared.write(layout.chunk(epoch as usize % 2, chunk), &word));
        }
    }
    meet(&comm, "written");
    let start = || comm.start(CollectiveArgs::all_reduce(vec![1.0f64; 3000], Op::Sum)).unwrap();
    let (first, mut second) = (start(), start());
    let code = |ended: Result<Vec<f64>, Error>| ended.map_or_else(|error| error.code(), |_| "ok");
    if player.arg::<bool>(0) {
        player.say(code(first.wait()));
        player.say(code(second.wait()));
        return;
    }
    let ended = loop {
        if let Some(ended) = second.try_wait().transpose() {
            break ended;
        }
    };
    player.say(code(ended));
}

#[test]
fn started_calls_whose_words_were_overwritten_end() {
    for waits in [true, false] {
        let job = Job::new("started", 3).arg(waits).run();
        assert!(job.iter().all(|said| said.iter().all(|code| code == "EB_POISONED")), "waits: {waits}, {job:?}");
    }
}

fn flag(name: &str) -> PathBuf {
    PathBuf::from(std::env::var("EARLYBIRD_DIR").unwrap()).with_extension(name)
}

fn meet(comm: &Communicator, name: &str) {
    std::fs::write(flag(&format!("{name}-{}", comm.rank())), "").unwrap();
    while !(0..comm.size()).all(|rank| flag(&format!("{name}-{rank}")).exists()) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The memory becomes that of another, healthy group, while these ranks still have their handles.
fn lent_anew(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    for _ in 0..2 {
        comm.all_reduce_in_place(&mut [1.0f64], Op::Sum).unwrap();
    }
    meet(&comm, "called");
    let (shared, bytes) = (Shared::find(), Layout::new(comm.size()).control_bytes());
    let other = 77u64.to_le_bytes();
    if comm.rank() == 0 {
        shared.write(0, &other);
        shared.write(8, &other);
    }
    meet(&comm, "written");
    let before = shared.read(bytes);
    for count in [1usize, 1, 500, 20_000] {
        let error = comm.all_reduce_in_place(&mut vec![1.0f64; count], Op::Sum).unwrap_err();
        player.say(format!("{} {error}", error.code()));
    }
    meet(&comm, "failed");
    assert!(shared.read(bytes) == before, "something was written");
    meet(&comm, "read");
}

#[test]
fn memory_that_is_another_communicators_by_now_is_not_touched() {
    let expected = "EB_POISONED the group was poisoned: its shared memory belongs to another communicator by now";
    for said in Job::new("lent_anew", 2).run() {
        assert_eq!(said, [expected; 4]);
    }
}
