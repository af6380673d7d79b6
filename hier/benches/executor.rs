//! The executor's overhead per step over its transport: a ring of small messages run as a plan, and the same packets sent
//! and received directly.

#[path = "../tests/common/operators.rs"]
mod operators;
#[path = "../tests/common/threads.rs"]
mod threads;

use criterion::{Criterion, criterion_group, criterion_main};
use earlybird_hier::exec::{Endpoint, Geometry, Operation, PacketDecision, PacketHeader, Running, Transport, compile};
use earlybird_hier::{Consistency, OpTraits, Params, schedule, verify};
use operators::Sum;
use std::hint::black_box;
use std::sync::Arc;
use threads::{Threads, ThreadsOptions};

const RANKS: usize = 8;
/// Steps of one rank: a message sent and one received each.
const STEPS: usize = 2 * (RANKS - 1);

/// One thread drives all ranks, so that nothing but the code is measured.
fn plan(c: &mut Criterion) {
    let plan = verify::verify(schedule::build("ring", &Params::ranks(RANKS)).unwrap()).unwrap();
    let sum = Sum { traits: OpTraits { commutative: true, exact: true }, code: 1 };
    let mut ranks: Vec<_> = Threads::group(RANKS, ThreadsOptions::default())
        .into_iter()
        .enumerate()
        .map(|(rank, transport)| {
            let geometry = Geometry { elements: RANKS, element_bytes: 8, segment_bytes: 4096 };
            let program = Arc::new(compile(&plan, rank, geometry).unwrap());
            let running = Operation::new(program, sum, Consistency::Identical).unwrap();
            (Endpoint::new(transport), running, [0u8; 8 * RANKS])
        })
        .collect();
    c.bench_function(&format!("ring plan, {RANKS} ranks, {STEPS} steps each"), |b| {
        b.iter(|| {
            for (endpoint, running, _) in &mut ranks {
                running.start(endpoint).unwrap();
            }
            while ranks.iter().any(|(_, running, _)| running.is_running()) {
                for (endpoint, running, data) in ranks.iter_mut().filter(|(_, running, _)| running.is_running()) {
                    running.poll(endpoint, data).unwrap();
                }
            }
        });
    });
}

fn by_hand(c: &mut Criterion) {
    let mut ranks = Threads::group(RANKS, ThreadsOptions::default());
    let mut data = [[0u8; 8]; RANKS];
    c.bench_function(&format!("the same packets by hand, {STEPS} steps each"), |b| {
        b.iter(|| {
            for step in 0..STEPS {
                let head = PacketHeader { operation: 1, packet: step as u32, call: 7 };
                for (rank, transport) in ranks.iter_mut().enumerate() {
                    let sent = data[rank];
                    let to = (rank + 1) % RANKS;
                    assert!(transport.post_send(to, head, 8, |room| room.copy_from_slice(&sent)).unwrap());
                }
                for (rank, transport) in ranks.iter_mut().enumerate() {
                    let from = (rank + RANKS - 1) % RANKS;
                    let taken = transport.receive(from, |_, payload| {
                        data[rank].iter_mut().zip(payload).for_each(|(d, p)| *d = d.wrapping_add(*p));
                        PacketDecision::Consume
                    });
                    assert!(taken.unwrap());
                }
            }
            black_box(&data);
        });
    });
}

criterion_group!(benches, plan, by_hand);
criterion_main!(benches);
