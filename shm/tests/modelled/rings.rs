//! Models of the ring between two ranks: packets handed over, slots given back, sleep on both sides. Loom runs the shipping lines of
//! `shm/src/channel/ring.rs` on a ring of its cells, one pair from rank 0 to rank 1.

use super::{Bound, Tally, explore_quietly, report};
use earlybird_shm::channel::lines::{AcknowledgedLine, BellLine, SlotLine};
use earlybird_shm::channel::ring::{Incoming, Outgoing, PayloadLocation, RankPair, RingBoard, announce, sleep};
use earlybird_shm::model::words;
use earlybird_shm::sync::{AtomicU64, Ordering};
use loom::cell::UnsafeCell;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// A ring, how many packets go through it, and how its ends wait.
pub struct RingModel {
    /// Name of its test.
    pub name: &'static str,
    slots: usize,
    packets: u64,
    asleep: bool,
    /// The value that another process has written over the marks of both sleepers.
    mark: u32,
    bound: Bound,
}

/// Every model. A ring of one slot hands every packet over twice: full, and free again.
pub const RINGS: &[RingModel] = &[
    RingModel { name: "ring_1", slots: 1, packets: 3, asleep: false, mark: 0, bound: None },
    RingModel { name: "ring_2", slots: 2, packets: 4, asleep: false, mark: 0, bound: Some(3) },
    RingModel { name: "ring_1_asleep", slots: 1, packets: 2, asleep: true, mark: 0, bound: Some(3) },
    RingModel { name: "ring_1_damaged", slots: 1, packets: 2, asleep: true, mark: u32::MAX, bound: Some(3) },
];

/// The model of this name.
pub fn ring(name: &str) -> Option<&'static RingModel> {
    RINGS.iter().find(|model| model.name == name)
}

/// Explores the model and prints how far.
pub fn run_ring(model: &RingModel) {
    let RingModel { slots, packets, asleep, mark, .. } = *model;
    let begun = Instant::now();
    let executions = explore_quietly(model.bound, move || {
        let ring = Ring::new(slots);
        ring.0.bells.iter().for_each(|bell| bell.sleepers.store(mark, Ordering::Relaxed));
        let theirs = ring.share();
        let consumer = loom::thread::spawn(move || theirs.consume(packets, asleep));
        ring.produce(packets, asleep);
        consumer.join().unwrap();
    });
    assert!(executions > 1, "{}: the model explores nothing", model.name);
    let waits = match (asleep, mark) {
        (false, _) => "polling",
        (true, 0) => "asleep",
        (true, _) => "asleep with damaged marks",
    };
    let title = format!("ring of {slots}, {packets} packets, {waits}");
    report(&title, model.bound, &Tally { executions, died: 0, failed: 0 }, begun);
}

const PAIR: RankPair = RankPair { from: 0, to: 1 };

/// A word of payload beside a loom cell that judges every access to it.
#[derive(Default)]
struct Payload {
    judge: UnsafeCell<()>,
    value: Cell<u64>,
}

impl Payload {
    fn store(&self, value: u64) {
        self.judge.with_mut(|_| self.value.set(value));
    }

    fn load(&self) -> u64 {
        self.judge.with(|_| self.value.get())
    }
}

struct Shared {
    slots: Vec<SlotLine>,
    acknowledged: AcknowledgedLine,
    bells: [BellLine; 2],
    cells: Vec<Payload>,
}

/// A ring that two modelled ranks use.
pub struct Ring(Rc<Shared>);

impl Ring {
    /// A fresh ring of `slots` slots.
    pub fn new(slots: usize) -> Self {
        words::reset(2);
        Ring(Rc::new(Shared {
            slots: (0..slots).map(|_| SlotLine::default()).collect(),
            acknowledged: AcknowledgedLine::default(),
            bells: Default::default(),
            cells: (0..slots).map(|_| Payload::default()).collect(),
        }))
    }

    /// A copy to move into another thread.
    pub fn share(&self) -> Self {
        Ring(self.0.clone())
    }

    /// Waits until `look` succeeds: asleep on the rank's bell, or watching the words it reads.
    fn wait(&self, rank: usize, asleep: bool, mut look: impl FnMut() -> bool) {
        if !asleep {
            return words::poll(|| look().then_some(()));
        }
        while !look() {
            sleep(self, rank, &mut look);
        }
    }

    /// Rank 0: sends `packets` packets, as the calling thread.
    pub fn produce(&self, packets: u64, asleep: bool) {
        words::enter(0);
        let end = RefCell::new(Outgoing::default());
        for packet in 0..packets {
            self.wait(0, asleep, || end.borrow_mut().has_room(self, PAIR));
            end.borrow_mut().send(self, PAIR, [packet, 7 * packet, 1], true, |payload| {
                self.0.cells[payload.addr()].store(100 + packet);
            });
            if asleep {
                announce(self, 1);
            }
        }
    }

    /// Rank 1: takes `packets` packets and checks them, as the calling thread.
    pub fn consume(&self, packets: u64, asleep: bool) {
        words::enter(1);
        let mut end = Incoming::default();
        for packet in 0..packets {
            self.wait(1, asleep, || end.has_packet(self, PAIR));
            assert_eq!(end.header(self, PAIR), [packet, 7 * packet, 1], "wrong description");
            let mut found = 0;
            let acknowledged = end.take(self, PAIR, true, |payload| {
                found = self.0.cells[payload.addr()].load();
                true
            });
            assert!(acknowledged && found == 100 + packet, "wrong payload: {found} in packet {packet}");
            if asleep {
                announce(self, 0);
            }
        }
    }
}

impl RingBoard for Ring {
    fn slots(&self) -> u64 {
        self.0.slots.len() as u64
    }
    fn slot(&self, _: RankPair, slot: usize) -> &SlotLine {
        &self.0.slots[slot]
    }
    fn acknowledged(&self, _: RankPair) -> &AtomicU64 {
        &self.0.acknowledged.0
    }
    fn bell(&self, rank: usize) -> &BellLine {
        &self.0.bells[rank]
    }
    fn read<R>(&self, at: PayloadLocation, f: impl FnOnce(*const u8) -> R) -> R {
        // The place of a payload in a model is its number.
        f(std::ptr::without_provenance(at.slot))
    }
    fn write<R>(&self, at: PayloadLocation, f: impl FnOnce(*mut u8) -> R) -> R {
        f(std::ptr::without_provenance_mut(at.slot))
    }
    fn most_sleep(&self) -> Duration {
        Duration::MAX
    }
}
