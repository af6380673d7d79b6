//! Counts beyond 2^31: too long for every change, run by `tests/long/run`.

use crate::common::{Job, Player};
use earlybird::{Algorithm, Communicator, Op};
use std::time::Duration;

/// Elements of a byte: 2 GiB and a little per rank.
const COUNT: usize = (1 << 31) + 5;

/// Prime, so that no offset by chunks or windows goes unseen.
const PERIOD: usize = 251;

#[test]
#[ignore = "a rank of the job that the other test starts"]
fn rank() {
    crate::common::play(&[("bytes", bytes)]);
}

fn bytes(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    comm.set_algorithm(player.arg::<Algorithm>(0)).unwrap();
    let (rank, ranks) = (comm.rank() as u8, comm.size() as u8);
    let period: [u8; PERIOD] = std::array::from_fn(|i| (i as u8).wrapping_mul(3).wrapping_add(rank));
    let expected: [u8; PERIOD] = std::array::from_fn(|i| {
        (0..ranks).fold(0, |sum: u8, r| sum.wrapping_add((i as u8).wrapping_mul(3)).wrapping_add(r))
    });
    let mut buffer = vec![0u8; COUNT];
    buffer.chunks_mut(PERIOD).for_each(|part| part.copy_from_slice(&period[..part.len()]));
    comm.all_reduce_in_place(&mut buffer, Op::Sum).unwrap();
    assert!(buffer.chunks(PERIOD).all(|part| part == &expected[..part.len()]), "a byte is wrong");
    player.say(format!("operations {}", comm.last_call().unwrap().operation));
}

#[test]
#[ignore = "4 GiB of memory; tests/long/run"]
fn two_gigabytes_of_bytes_and_five() {
    for algorithm in [Algorithm::Chain, Algorithm::Flat] {
        let said = Job::new("bytes", 2).arg(algorithm).watchdog(Duration::from_secs(300)).run();
        assert_eq!(said[0], said[1]);
        println!("{algorithm}: {COUNT} bytes on 2 ranks, {}", said[0][0]);
    }
}
