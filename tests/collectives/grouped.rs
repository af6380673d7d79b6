//! Many buffers in one operation: each gets what a call of its own would give it, and ranks agree on their lengths.

use crate::common::data::{Sample, contribution, reference, same_bits};
use crate::common::{Job, Player, mix};
use earlybird::{Algorithm, Communicator, Error, FoldOrder, Op};
use half::f16;
use num_complex::Complex;

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[("groups", groups), ("differ", differ)]);
}

/// Lengths of the buffers of a group: none, empty ones, many small, one large among small.
const LENGTHS: [&[usize]; 6] =
    [&[], &[0], &[1], &[3, 0, 5, 1, 0], &[64, 1000, 7, 33, 256, 10], &[2, 50_000, 1, 20_011]];

fn check<T: Sample>(comm: &Communicator, op: Op, lengths: &[usize], exact: bool) {
    let (rank, ranks) = (comm.rank(), comm.size());
    let seed = |i: usize| mix(lengths.len() as u64 * 100 + i as u64);
    let mut buffers: Vec<Vec<T>> =
        lengths.iter().enumerate().map(|(i, len)| contribution(seed(i), rank, *len, op, exact)).collect();
    let mut parts: Vec<&mut [T]> = buffers.iter_mut().map(Vec::as_mut_slice).collect();
    comm.all_reduce_grouped_in_place(&mut parts, op).unwrap();
    for (i, (buffer, len)) in buffers.iter().zip(lengths).enumerate() {
        let what = || format!("{op:?} of {}, buffer {i} of {lengths:?}", T::DTYPE.name());
        same_bits(buffer, &reference(seed(i), ranks, *len, op, exact), &what);
    }
}

fn groups(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let mut calls = 0;
    for algorithm in Algorithm::ALL {
        comm.set_algorithm(algorithm).unwrap();
        for order in [FoldOrder::Arrival, FoldOrder::Rank] {
            comm.set_order(order).unwrap();
            for lengths in LENGTHS {
                check::<f32>(&comm, Op::Sum, lengths, true);
                check::<f64>(&comm, Op::Average, lengths, true);
                check::<f16>(&comm, Op::Sum, lengths, true);
                check::<bool>(&comm, Op::LogicalXor, lengths, true);
                check::<Complex<f64>>(&comm, Op::Product, lengths, true);
                if order == FoldOrder::Rank {
                    check::<f32>(&comm, Op::Sum, lengths, false);
                }
                calls += 1;
            }
        }
    }
    player.say(format!("calls {calls}"));
}

#[test]
fn every_buffer_of_a_group_gets_its_result() {
    for ranks in [1, 2, 3, 5] {
        let least = earlybird_shm::layout::Windows::least_budget_bytes(ranks);
        for job in [Job::new("groups", ranks), Job::new("groups", ranks).var("EARLYBIRD_ARENA_MAX", least)] {
            let expected = format!("calls {}", Algorithm::ALL.len() * 2 * LENGTHS.len());
            assert!(job.run().iter().all(|said| *said == [expected.clone()]));
        }
    }
}

/// Rank 1 cuts the same number of elements otherwise, or makes a plain call of as many.
fn differ(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let (mut a, mut b) = ([1u32; 12], [1u32; 8]);
    let result = match (comm.rank(), player.arg::<String>(0).as_str()) {
        (1, "cut") => {
            let (first, rest) = a.split_at_mut(6);
            comm.all_reduce_grouped_in_place(&mut [first, rest, &mut b], Op::Sum)
        }
        (1, "plain") => comm.all_reduce_in_place(&mut [1u32; 20], Op::Sum),
        _ => comm.all_reduce_grouped_in_place(&mut [&mut a, &mut b], Op::Sum),
    };
    match result {
        Err(Error::Mismatch { call_a, call_b, .. }) => player.say(format!("mismatch {call_a} against {call_b}")),
        other => player.say(format!("{other:?}")),
    }
}

#[test]
fn other_lengths_are_a_mismatch() {
    for how in ["cut", "plain"] {
        let said = Job::new("differ", 3).arg(how).run();
        assert!(said[0][0].starts_with("mismatch ") && said[0][0].contains("in unequal parts"), "{said:?}");
        assert!(said.iter().all(|lines| *lines == said[0]), "{said:?}");
    }
}
