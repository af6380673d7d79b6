//! The bits of results, recorded: what ranks compute today they computed before, for every type, order and arrangement of nodes.
//!
//! Results that round depend on the order of folding, which the algorithms and the plans between nodes decide. A change of
//! structure must not change them. `EARLYBIRD_RECORD=1 cargo test --test collectives result_bits` writes the record anew, for a change
//! that is meant to.

use crate::common::data::{Sample, contribution, hash};
use crate::common::{Job, Player, mix};
use earlybird::{Communicator, FoldOrder, Indexed, Op};
use half::{bf16, f16};
use num_complex::Complex;
use std::collections::BTreeMap;
use std::path::Path;

const RECORD: &str = "tests/recorded/result_bits.txt";

const RANKS: usize = 4;

/// Ranks per node, and whether ranks are dealt out to the nodes in turn.
const ARRANGEMENTS: [(&str, bool); 5] =
    [("4", false), ("2,2", false), ("3,1", false), ("2,2", true), ("1,1,1,1", false)];

const COUNTS: [usize; 4] = [1, 77, 2050, 40_001];

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[("bits", bits)]);
}

/// The hash of all results of one type, the same on all ranks.
fn of_type<T: Sample>(comm: &Communicator) -> u64 {
    let (me, size) = (comm.rank(), comm.size());
    let mut sum = 0;
    for op in Op::ALL.into_iter().filter(|op| T::DTYPE.must_have(*op).is_ok()) {
        for count in COUNTS {
            let seed = mix(op as u64 * 64 + count as u64);
            let mut reduced = contribution::<T>(seed, me, count, op, false);
            comm.all_reduce_in_place(&mut reduced, op).unwrap();
            let send = contribution::<T>(seed + 1, me, count * size, op, false);
            let mut block = vec![send[0]; count];
            comm.reduce_scatter_block_into(&send, &mut block, op).unwrap();
            let mut all = vec![send[0]; count * size];
            comm.all_gather_into(&block, &mut all).unwrap();
            let root = count % size;
            let mut at_root = contribution::<T>(seed + 2, me, count, op, false);
            comm.process_at_rank(root).reduce_in_place(&mut at_root, op).unwrap();
            comm.process_at_rank(root).broadcast_into(&mut at_root).unwrap();
            sum = [hash(&reduced), hash(&all), hash(&at_root)].iter().fold(sum, |sum, hash| mix(sum ^ hash));
        }
    }
    sum
}

fn bits(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let comm = match player.arg::<bool>(0) {
        // ranks 0 and 2 on the second node, 1 and 3 on the first
        true => comm.split(Some(0), [1, 3, 0, 2][comm.rank()]).unwrap().unwrap(),
        false => comm,
    };
    comm.set_order(FoldOrder::Rank).unwrap();
    macro_rules! say {
        ($($t:ty),*) => {$(
            player.say(format!("{} {:016x}", <$t as earlybird::Element>::DTYPE.name(), of_type::<$t>(&comm)));
        )*};
    }
    say!(i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64, Complex<f32>, Complex<f64>, bool);
    say!(Indexed<i32, i32>, Indexed<i64, i64>, Indexed<f32, i32>, Indexed<f64, i64>);
}

#[test]
fn results_have_the_bits_that_were_recorded() {
    let mut found = BTreeMap::new();
    for (nodes, dealt) in ARRANGEMENTS {
        let job = Job::new("bits", RANKS).arg(dealt).var("EARLYBIRD_RANKS_PER_NODE", nodes);
        // The choice by cost may change; what a plan computes may not.
        let said = job.var("EARLYBIRD_EXCHANGE", "butterfly").run();
        assert!(said.iter().all(|lines| *lines == said[0]), "ranks have different bits on {nodes}: {said:?}");
        for line in &said[0] {
            let (dtype, hash) = line.split_once(' ').unwrap();
            found.insert(format!("{nodes}{} {dtype}", if dealt { " dealt" } else { "" }), hash.to_owned());
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(RECORD);
    let text: String = found.iter().map(|(what, hash)| format!("{what} {hash}\n")).collect();
    if std::env::var_os("EARLYBIRD_RECORD").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let recorded = std::fs::read_to_string(&path).unwrap();
    assert_eq!(recorded.lines().count(), ARRANGEMENTS.len() * 19, "{RECORD} is not whole");
    let changed: Vec<_> = text.lines().filter(|line| !recorded.lines().any(|known| known == *line)).collect();
    assert!(changed.is_empty(), "bits that differ from {RECORD}:\n{}", changed.join("\n"));
}
