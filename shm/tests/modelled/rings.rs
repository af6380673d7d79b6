//! Models of the ring between two ranks: packets handed over, slots given back, sleep on both sides.

use super::{Bound, Tally, explore_quietly, report};
use earlybird_shm::model::rings::Ring;
use std::time::Instant;

/// A ring, how many packets go through it, and how its ends wait.
pub struct RingModel {
    /// Name of its test.
    pub name: &'static str,
    slots: usize,
    packets: u64,
    asleep: bool,
    bound: Bound,
}

/// Every model. A ring of one slot hands every packet over twice: full, and free again.
pub const RINGS: &[RingModel] = &[
    RingModel { name: "ring_1", slots: 1, packets: 3, asleep: false, bound: None },
    RingModel { name: "ring_2", slots: 2, packets: 4, asleep: false, bound: Some(3) },
    RingModel { name: "ring_1_asleep", slots: 1, packets: 2, asleep: true, bound: Some(3) },
];

/// The model of this name.
pub fn ring(name: &str) -> Option<&'static RingModel> {
    RINGS.iter().find(|model| model.name == name)
}

/// Explores the model and prints how far.
pub fn run_ring(model: &RingModel) {
    let (slots, packets, asleep) = (model.slots, model.packets, model.asleep);
    let begun = Instant::now();
    let executions = explore_quietly(model.bound, move || {
        let ring = Ring::new(slots);
        let theirs = ring.share();
        let consumer = loom::thread::spawn(move || theirs.consume(packets, asleep));
        ring.produce(packets, asleep);
        consumer.join().unwrap();
    });
    assert!(executions > 1, "{}: the model explores nothing", model.name);
    let title = format!("ring of {slots}, {packets} packets, {}", if asleep { "asleep" } else { "polling" });
    report(&title, model.bound, &Tally { executions, died: 0, failed: 0 }, begun);
}
