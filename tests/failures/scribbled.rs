//! Words and payload that another process of the same user writes over: values may be wrong, but every rank gets
//! its result or one error, and nobody waits for ever or crashes.

use crate::common::flags::{meet, raise, wait_for};
use crate::common::{End, Job, Player, mix};
use earlybird::{Algorithm, CallBuffers, Collective, CollectiveArgs, Communicator, Counts, DType, Error, Op};
use earlybird_shm::channel::RingLayout;
use earlybird_shm::channel::lines::StateLine;
use earlybird_shm::channel::ring::RankPair;
use earlybird_shm::layout::Layout;
use earlybird_shm::memory::POOL_BYTES;
use earlybird_shm::protocol::lines::RankLine;
use earlybird_shm::protocol::word::FoldWord;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::time::Duration;

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[
        ("scribbled", scribbled),
        ("scribbled_rings", scribbled_rings),
        ("lost_packet", lost_packet),
        ("lost_completion", lost_completion),
        ("lost_error", lost_error),
        ("started", started),
        ("lent_anew", lent_anew),
        ("lost_list", lost_list),
    ]);
}

/// The memory of a group of all ranks, as another process would reach it.
struct Shared {
    memory: File,
    at: u64,
}

impl Shared {
    /// The region of the communicator.
    fn find(ranks: usize) -> Shared {
        Shared::of_bytes(Layout::new(ranks).bytes())
    }

    /// The rings between the ranks.
    fn find_rings(ranks: usize) -> Shared {
        Shared::of_bytes(RingLayout::new(ranks).bytes())
    }

    /// The first region of the arena whose regions have so many bytes.
    fn of_bytes(bytes: usize) -> Shared {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let region = |line: &str| {
            let mut words = line.split([' ', '-']);
            let [at, end] = [(); 2].map(|()| u64::from_str_radix(words.next().unwrap(), 16).unwrap());
            let is_first = line.split(' ').nth(2) == Some(&format!("{POOL_BYTES:08x}"));
            (line.contains("earlybird-arena") && is_first && end - at == bytes as u64).then_some(at)
        };
        let at = maps.lines().find_map(region).unwrap_or_else(|| panic!("no region of {bytes} bytes in\n{maps}"));
        let memory = OpenOptions::new().read(true).write(true).open("/proc/self/mem").unwrap();
        Shared { memory, at }
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        self.memory.write_all_at(bytes, self.at + offset as u64).unwrap();
    }

    fn read(&self, offset: usize, bytes: usize) -> Vec<u8> {
        let mut found = vec![0; bytes];
        self.memory.read_exact_at(&mut found, self.at + offset as u64).unwrap();
        found
    }
}

/// The code of an error, or `ok`.
fn code<T>(ended: Result<T, Error>) -> &'static str {
    ended.map_or_else(|error| error.code(), |_| "ok")
}

/// Random numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 = mix(self.0);
        (self.0 >> 11) as usize % most
    }
}

/// Writes bytes and words wherever `spot` says.
fn scribble(shared: &Shared, seed: u64, spot: impl Fn(&mut Dice) -> usize) {
    let mut dice = Dice(seed);
    for _ in 0..1 + dice.below(300) {
        std::thread::sleep(Duration::from_micros(dice.below(100) as u64));
        let offset = spot(&mut dice);
        let value = mix(dice.0);
        let word = [value, 0, u64::MAX, value & 0xff, 1 << (value % 64)][dice.below(5)].to_le_bytes();
        match dice.below(2) {
            0 => shared.write(offset, &word[..1]),
            _ => shared.write(offset / 8 * 8, &word),
        }
    }
}

/// A place mostly in the lines of a communicator, sometimes in payload that is in use.
fn in_region(layout: &Layout, ranks: usize) -> impl Fn(&mut Dice) -> usize {
    move |dice| match dice.below(16) {
        0 => layout.accumulator(dice.below(2)) + dice.below(4096),
        1 => layout.deposit(dice.below(2), dice.below(ranks)) + dice.below(4096),
        // The poison word, what members say.
        2..=4 => dice.below(layout.arrival(0)),
        // Arrivals, events, the lines of the ranks.
        5..=11 => layout.arrival(0) + dice.below(layout.fold_word(0) - layout.arrival(0)),
        12 => layout.fold_word(0) + dice.below(layout.chunk(0, 0) - layout.fold_word(0)),
        // Only the first few chunks are used.
        _ => layout.chunk(dice.below(2), 0) + dice.below(1024),
    }
}

/// A place in the lines before the rings, or in a ring between two ranks: its lines, and payload of its first packets.
fn in_rings(layout: &RingLayout, ranks: usize) -> impl Fn(&mut Dice) -> usize {
    move |dice| {
        let pair = RankPair { from: dice.below(ranks), to: dice.below(ranks) };
        match dice.below(8) {
            0..=1 => dice.below(layout.state(ranks)),
            2 => layout.payload(pair, dice.below(8)) + dice.below(4096),
            _ => layout.ring(pair) + dice.below(layout.payload(pair, 0) - layout.ring(pair)),
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
    meet("called", &comm);
    let (shared, layout) = (Shared::find(comm.size()), Layout::new(comm.size()));
    std::thread::scope(|scope| {
        if comm.rank() == 0 {
            scope.spawn(|| scribble(&shared, seed, in_region(&layout, comm.size())));
        }
        let ended = (0..2000).try_for_each(|i| call(&comm, seed, i));
        player.say(ended.map_or_else(|error| format!("{} {error}", error.code()), |()| "ok".into()));
    });
}

/// Blocking calls by plans of one node, or on nodes of one rank.
fn scribbled_rings(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let (seed, ranks) = (player.arg::<u64>(0), comm.size());
    comm.barrier().unwrap();
    meet("called", &comm);
    let (shared, layout) = (Shared::find_rings(ranks), RingLayout::new(ranks));
    std::thread::scope(|scope| {
        if comm.rank() == 0 {
            scope.spawn(|| scribble(&shared, seed, in_rings(&layout, ranks)));
        }
        let ended = (0..2000u64).try_for_each(|i| {
            let mut dice = Dice(mix(seed).wrapping_add(i));
            match dice.below(4) {
                0 => comm.barrier(),
                _ => comm.all_reduce_in_place(&mut vec![1.0f64; [1, 9, 200, 3000][dice.below(4)]], Op::Sum),
            }
        });
        player.say(ended.map_or_else(|error| format!("{} {error}", error.code()), |()| "ok".into()));
    });
}

/// Runs 200 jobs of this role, and prints how many of them failed.
fn nobody_waits_for_ever(role: &'static str, settings: impl Fn(Job, u64) -> Job + Sync) {
    let queue: Mutex<Vec<(usize, u64)>> = Mutex::new((0..200).map(|seed| (2 + seed as usize % 2, seed)).collect());
    let failed = Mutex::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some((ranks, seed)) = { queue.lock().unwrap().pop() } {
                    let ends = settings(Job::new(role, ranks).arg(seed), seed).start().join();
                    let fine = |end: &End| end.status.success() && end.said.len() == 1;
                    assert!(ends.iter().all(fine), "seed {seed}, {ranks} ranks: {ends:#?}");
                    *failed.lock().unwrap() += usize::from(ends.iter().any(|end| end.said[0] != "ok"));
                }
            });
        }
    });
    println!("200 jobs, {} of them ended with an error", failed.into_inner().unwrap());
}

#[test]
fn scribbling_ends_no_wait_never_and_crashes_nobody() {
    nobody_waits_for_ever("scribbled", |job, _| job);
}

/// A setting by which blocking calls use rings.
fn by_rings(job: Job, which: u64) -> Job {
    match which % 4 {
        0 => job.var("EARLYBIRD_ALGORITHM", "plan:butterfly"),
        1 => job.var("EARLYBIRD_ALGORITHM", "plan:ring"),
        2 => job.var("EARLYBIRD_ALGORITHM", "plan:direct"),
        _ => job.var("EARLYBIRD_RANKS_PER_NODE", 1),
    }
}

#[test]
fn scribbling_over_rings_ends_no_wait_never_and_crashes_nobody() {
    nobody_waits_for_ever("scribbled_rings", |job, seed| by_rings(job, seed / 2));
}

/// Runs an allreduce of which the packet that rank 0 has sent is lost, and what `more` overwrites, before rank 1 comes; then `rest`.
fn lose_packet(
    player: &Player,
    comm: &Communicator,
    more: impl FnOnce(&Shared, &RingLayout) + Send,
    rest: impl FnOnce(&Shared, &RingLayout),
) {
    let call = || code(comm.all_reduce_in_place(&mut [1.0f64], Op::Sum));
    assert_eq!(call(), "ok");
    let (shared, layout) = (Shared::find_rings(comm.size()), RingLayout::new(comm.size()));
    let slots = (0..8).map(|slot| layout.slot(RankPair { from: 0, to: 1 }, slot)).collect::<Vec<_>>();
    let sequence = |slot: &&usize| u64::from_le_bytes(shared.read(**slot, 8).try_into().unwrap());
    let next = slots.iter().map(|slot| sequence(&slot)).max().unwrap() + 1;
    let lose = || {
        let sent = || slots.iter().find(|slot| sequence(slot) == next);
        while sent().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        shared.write(*sent().unwrap(), &[0; 8]);
        more(&shared, &layout);
        raise("lost");
    };
    std::thread::scope(|scope| {
        if comm.rank() == 0 {
            scope.spawn(lose);
        } else {
            wait_for("lost");
        }
        player.say(call());
        rest(&shared, &layout);
    });
}

fn lost_packet(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    lose_packet(player, &comm, |_, _| {}, |_, _| player.say(code(comm.all_reduce_in_place(&mut [1.0f64], Op::Sum))));
}

/// Rank 0's word that it has completed the exchange is lost, too, and it goes on to a call that uses no ring.
fn lost_completion(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let rest = |shared: &Shared, layout: &RingLayout| {
        if comm.rank() == 0 {
            shared.write(layout.state(0) + std::mem::offset_of!(StateLine, completed), &[0; 8]);
            player.say(code(comm.process_at_rank(0).reduce_in_place(&mut [1.0f64], Op::Sum)));
        }
    };
    lose_packet(player, &comm, |_, _| {}, rest);
}

/// Rank 1 seems to be in another call, and the error that rank 0 reports is lost.
fn lost_error(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let more = |shared: &Shared, layout: &RingLayout| {
        shared.write(layout.state(1) + std::mem::offset_of!(StateLine, begun) + 4, &[9, 0, 0, 0]);
        let poison = layout.poison();
        while shared.read(poison, 8) == [0; 8] {
            std::thread::sleep(Duration::from_millis(1));
        }
        shared.write(poison, &[0; 8]);
    };
    lose_packet(player, &comm, more, |_, _| {});
}

#[test]
fn a_wait_for_a_packet_that_was_lost_ends() {
    for which in 0..4 {
        let said = by_rings(Job::new("lost_packet", 2), which).run();
        assert_eq!(said[1], ["EB_POISONED"; 2], "{which}: {said:?}");
        assert_eq!(said[0][1], "EB_POISONED", "{which}: {said:?}");
    }
}

#[test]
fn a_wait_for_a_rank_that_has_gone_on_to_another_call_ends() {
    let said = Job::new("lost_completion", 2).var("EARLYBIRD_ALGORITHM", "plan:direct").run();
    assert_eq!(said, [["ok", "EB_POISONED"].as_slice(), &["EB_POISONED"]]);
}

#[test]
fn a_wait_for_a_rank_whose_error_was_lost_ends() {
    let said = Job::new("lost_error", 2).var("EARLYBIRD_ALGORITHM", "plan:direct").run();
    assert_eq!(said, [["EB_POISONED"]; 2]);
}

/// Two calls are under way, and the words of both say for ever that another rank folds.
fn started(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    comm.barrier().unwrap();
    meet("called", &comm);
    if comm.rank() == 0 {
        let (shared, layout) = (Shared::find(comm.size()), Layout::new(comm.size()));
        for epoch in [2, 3] {
            let word = FoldWord::busy(epoch, 1, 0).0.to_le_bytes();
            (0..16).for_each(|chunk| shared.write(layout.chunk(epoch as usize % 2, chunk), &word));
        }
    }
    meet("written", &comm);
    let start = || comm.start(CollectiveArgs::all_reduce(vec![1.0f64; 3000], Op::Sum)).unwrap();
    let (first, mut second) = (start(), start());
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

/// Rank 0 has scattered blocks of which it alone knew the lengths, and its word that it has told them is lost before rank 1 comes.
fn lost_list(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    comm.barrier().unwrap();
    let (is_root, mut own) = (comm.rank() == 0, [0u8; 4]);
    let scatter = |own: &mut [u8]| {
        let (blocks, counts) = if is_root { ([7u8; 8].as_slice(), [4usize; 2].as_slice()) } else { (&[][..], &[][..]) };
        let buffers = CallBuffers::of_bytes(Some(blocks), own, DType::U8.into());
        let counts = Counts::PerOwner(counts);
        comm.run(CollectiveArgs::describe(Collective::Scatter, Some(0), counts, buffers, Op::Sum)).map(drop)
    };
    if is_root {
        player.say(code(scatter(&mut own)));
        let call = Layout::new(2).line(2, 0) + std::mem::offset_of!(RankLine, call);
        let shared = Shared::find(2);
        assert_ne!(shared.read(call + 8, 8), [0; 8]);
        shared.write(call + 8, &[0; 8]);
    }
    meet("lost", &comm);
    if !is_root {
        player.say(code(scatter(&mut own)));
    }
    player.say(code(comm.barrier()));
}

#[test]
fn a_scatter_whose_list_was_lost_is_an_error() {
    assert_eq!(Job::new("lost_list", 2).run(), [["ok", "EB_POISONED"], ["EB_POISONED"; 2]]);
}

/// The memory becomes that of another, healthy group, while these ranks still have their handles.
fn lent_anew(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    for _ in 0..2 {
        comm.all_reduce_in_place(&mut [1.0f64], Op::Sum).unwrap();
    }
    meet("called", &comm);
    let (shared, bytes) = (Shared::find(comm.size()), Layout::new(comm.size()).control_bytes());
    let other = 77u64.to_le_bytes();
    if comm.rank() == 0 {
        shared.write(0, &other);
        shared.write(8, &other);
    }
    meet("written", &comm);
    let before = shared.read(0, bytes);
    for count in [1usize, 1, 500, 20_000] {
        let error = comm.all_reduce_in_place(&mut vec![1.0f64; count], Op::Sum).unwrap_err();
        player.say(format!("{} {error}", error.code()));
    }
    meet("failed", &comm);
    assert!(shared.read(0, bytes) == before, "something was written");
    meet("read", &comm);
}

#[test]
fn memory_that_is_another_communicators_by_now_is_not_touched() {
    let expected = "EB_POISONED the group was poisoned: its shared memory belongs to another communicator by now";
    for said in Job::new("lent_anew", 2).run() {
        assert_eq!(said, [expected; 4]);
    }
}
