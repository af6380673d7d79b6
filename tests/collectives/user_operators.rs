//! Operators and types of users: operands stand where they must in every algorithm, a panic becomes one error for all,
//! and calls that differ are told apart.

use crate::common::flags::{meet, raise, wait_for};
use crate::common::matrix::{Matrix, matrices, product, serial_product};
use crate::common::{Job, Player, mix};
use bytemuck::Pod;
use earlybird::{Algorithm, BytesOp, Communicator, Error, FoldOrder, Op, UserOp};
use std::fmt::Debug;
use std::sync::Once;
use std::time::Duration;

const ORDERS: [FoldOrder; 2] = [FoldOrder::Arrival, FoldOrder::Rank];

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[
        ("ordered", ordered),
        ("alike", alike),
        ("sizes", sizes),
        ("panics", panics),
        ("scripts", scripts),
        ("refused", refused),
        ("nested", nested),
        ("away", away),
    ]);
}

/// Comes late to some calls, another rank to another call.
fn dawdle(call: u64, rank: usize) {
    let random = mix(call * 64 + rank as u64);
    if random.is_multiple_of(4) {
        std::thread::sleep(Duration::from_micros(random >> 32 & 0x1ff));
    }
}

fn ordered(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let (rank, ranks) = (comm.rank(), comm.size());
    let op = UserOp::ordered(product);
    let mut calls = 0;
    for count in [1, 6, 7, 40, 1000, 20_011] {
        let seed = mix(count as u64);
        let send = matrices(seed, rank, count);
        let expected = serial_product(seed, ranks, count);
        for algorithm in Algorithm::ALL {
            for order in ORDERS {
                comm.set_algorithm(algorithm).unwrap();
                comm.set_order(order).unwrap();
                for in_place in [false, true] {
                    calls += 1;
                    dawdle(calls, rank);
                    let mut recv = if in_place { send.clone() } else { vec![[7; 4]; count] };
                    match in_place {
                        true => comm.all_reduce_in_place(&mut recv, &op).unwrap(),
                        false => comm.all_reduce_into(&send, &mut recv, &op).unwrap(),
                    }
                    assert_eq!(recv, expected, "{algorithm} {order:?} {count} in place {in_place}");
                }
                let root = calls as usize % ranks;
                let process = comm.process_at_rank(root);
                let mut recv = send.clone();
                process.reduce_in_place(&mut recv, &op).unwrap();
                assert_eq!(&recv, if rank == root { &expected } else { &send }, "{algorithm} {order:?} {count} {root}");
                recv.fill([7; 4]);
                match rank == root {
                    true => process.reduce_into_root(&send, &mut recv, &op).unwrap(),
                    false => process.reduce_into(&send, &op).unwrap(),
                }
                assert_eq!(recv, if rank == root { expected.clone() } else { vec![[7; 4]; count] });
                let block = count / ranks;
                recv.truncate(block);
                comm.reduce_scatter_block_into(&send[..block * ranks], &mut recv, &op).unwrap();
                assert_eq!(recv, expected[rank * block..(rank + 1) * block], "{algorithm} {order:?} {count}");
                as_bytes(&comm, &send, &expected, root);
            }
        }
    }
    player.say(format!("calls {calls}"));
}

/// Operators that ranks cannot tell apart, in turn: what is kept of a call is not its operator.
fn alike(player: &Player) {
    type Triple = [u64; 3];
    let comm = Communicator::from_env().unwrap();
    let (rank, ranks) = (comm.rank(), comm.size());
    let (sum, product) = (
        UserOp::commutative(|a: &Triple, b: &Triple| [0, 1, 2].map(|i| a[i].wrapping_add(b[i]))),
        UserOp::commutative(|a: &Triple, b: &Triple| [0, 1, 2].map(|i| a[i].wrapping_mul(b[i]))),
    );
    let value = |rank: usize, i: usize| [1, 2, 3].map(|n| mix((rank * 1000 + i * 3 + n) as u64) | 1);
    // To 8184 bytes, one piece of a deposit, and beyond, where an element would lie in two.
    for count in [1, 4, 5, 341, 342, 400, 1000] {
        let send: Vec<Triple> = (0..count).map(|i| value(rank, i)).collect();
        let of_all = |fold: fn(u64, u64) -> u64| -> Vec<Triple> {
            let all = |i| (1..ranks).fold(value(0, i), |a, r| [0, 1, 2].map(|n| fold(a[n], value(r, i)[n])));
            (0..count).map(all).collect()
        };
        let (sums, products) = (of_all(u64::wrapping_add), of_all(u64::wrapping_mul));
        for turn in 0..3 * ranks {
            dawdle((count * 100 + turn) as u64, rank);
            let (mut added, mut multiplied) = (vec![[7; 3]; count], send.clone());
            comm.all_reduce_into(&send, &mut added, &sum).unwrap();
            comm.all_reduce_in_place(&mut multiplied, &product).unwrap();
            assert!(added == sums && multiplied == products, "allreduce of {count}");
            let root = comm.process_at_rank(turn % ranks);
            let is_root = turn % ranks == rank;
            added.fill([7; 3]);
            match is_root {
                true => root.reduce_into_root(&send, &mut added, &sum).unwrap(),
                false => root.reduce_into(&send, &sum).unwrap(),
            }
            multiplied.copy_from_slice(&send);
            root.reduce_in_place(&mut multiplied, &product).unwrap();
            let expected = if is_root { (&sums, &products) } else { (&vec![[7; 3]; count], &send) };
            assert_eq!((&added, &multiplied), expected, "reduce of {count}");
            let block = count / ranks;
            let mut own = vec![[7; 3]; block];
            comm.reduce_scatter_block_into(&send[..block * ranks], &mut own, &product).unwrap();
            assert_eq!(own, products[rank * block..][..block], "reduce-scatter of {count}");
        }
    }
    of_other_sizes(&comm);
    player.say("done");
}

/// Blocks with lengths of their own, of equally many elements of different sizes.
fn of_other_sizes(comm: &Communicator) {
    fn scatter<T: Pod + PartialEq + Debug + Sync>(comm: &Communicator, counts: &[usize], one: T, all: T) {
        let op = UserOp::commutative(move |_: &T, _: &T| all);
        let mut own = vec![one; counts[comm.rank()]];
        comm.reduce_scatter_varcount_into(&vec![one; counts.iter().sum()], &mut own, counts, &op).unwrap();
        assert!(own.iter().all(|element| *element == all), "{own:?}");
    }
    let counts: Vec<usize> = (0..comm.size()).map(|rank| 3 + rank).collect();
    for _ in 0..2 {
        scatter(comm, &counts, [1u64; 2], [2; 2]);
        scatter(comm, &counts, [1u64; 3], [2; 3]);
    }
}

/// The same product of elements whose size only the program knows.
fn as_bytes(comm: &Communicator, send: &[Matrix], expected: &[Matrix], root: usize) {
    let rows = |left: &[u8], right: &mut [u8]| {
        let (left, right): (&[Matrix], &mut [Matrix]) = (bytemuck::cast_slice(left), bytemuck::cast_slice_mut(right));
        left.iter().zip(right).for_each(|(a, b)| *b = product(a, b));
    };
    let op = BytesOp::new(size_of::<Matrix>(), false, rows).unwrap();
    let mut recv = send.to_vec();
    comm.all_reduce_in_place(bytemuck::cast_slice_mut(&mut recv), &op).unwrap();
    assert_eq!(recv, expected);
    recv.copy_from_slice(send);
    comm.process_at_rank(root).reduce_in_place(bytemuck::cast_slice_mut(&mut recv), &op).unwrap();
    assert_eq!(recv, if comm.rank() == root { expected } else { send });
    let block = send.len() / comm.size();
    recv.truncate(block);
    let all = bytemuck::cast_slice(&send[..block * comm.size()]);
    comm.reduce_scatter_block_into(all, bytemuck::cast_slice_mut(&mut recv), &op).unwrap();
    assert_eq!(recv, expected[comm.rank() * block..][..block]);
}

/// The last rank comes once another one has applied the operator.
fn away(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    comm.set_algorithm(Algorithm::Slices).unwrap();
    let (rank, ranks, root) = (comm.rank(), comm.size(), player.arg::<usize>(0));
    let send = matrices(5, rank, 1000);
    let expected = serial_product(5, ranks, 1000);
    for call in ["allreduce", "reduce"] {
        let tell = Once::new();
        let op = UserOp::ordered(|a: &Matrix, b: &Matrix| {
            tell.call_once(|| raise(call));
            product(a, b)
        });
        if rank == ranks - 1 {
            wait_for(call);
        }
        let mut recv = vec![[7; 4]; 1000];
        let process = comm.process_at_rank(root);
        match call {
            "allreduce" => comm.all_reduce_into(&send, &mut recv, &op).unwrap(),
            _ if rank == root => process.reduce_into_root(&send, &mut recv, &op).unwrap(),
            _ => process.reduce_into(&send, &op).unwrap(),
        }
        assert!(recv == expected || call == "reduce" && rank != root);
    }
    player.say("done");
}

/// Elements of `N` bytes that are counters without carry: a commutative sum of every byte.
fn counters<const N: usize>(comm: &Communicator, count: usize)
where
    [u8; N]: bytemuck::Pod,
{
    let value =
        |rank: usize, i: usize| -> [u8; N] { std::array::from_fn(|k| mix((rank * 31 + i * 7 + k) as u64) as u8) };
    let add = |a: &[u8; N], b: &[u8; N]| -> [u8; N] { std::array::from_fn(|k| a[k].wrapping_add(b[k])) };
    let op = UserOp::commutative(add);
    let send: Vec<[u8; N]> = (0..count).map(|i| value(comm.rank(), i)).collect();
    for algorithm in Algorithm::ALL {
        comm.set_algorithm(algorithm).unwrap();
        let mut recv = send.clone();
        comm.all_reduce_in_place(&mut recv, &op).unwrap();
        for (i, found) in recv.iter().enumerate() {
            let expected = (1..comm.size()).fold(value(0, i), |sum, r| add(&sum, &value(r, i)));
            assert!(*found == expected, "{algorithm}: element {i} of {count} x {N} bytes");
        }
    }
}

fn sizes(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    for count in [0, 1, 5, 300] {
        counters::<1>(&comm, count);
        counters::<3>(&comm, count);
        counters::<24>(&comm, count);
        counters::<105>(&comm, count);
        counters::<1000>(&comm, count);
        counters::<4096>(&comm, count);
    }
    // A user's operator on a type of the library, whose alignment is more than a byte.
    let op = UserOp::commutative(|a: &f64, b: &f64| a.hypot(*b));
    let mut x = [3.0, 4.0];
    comm.set_algorithm(Algorithm::Auto).unwrap();
    comm.all_reduce_in_place(&mut x, &op).unwrap();
    assert!((x[0] - 3.0 * (comm.size() as f64).sqrt()).abs() < 1e-9, "{x:?}");
    player.say("done");
}

/// One rank's operator panics, the others' do not.
fn panics(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let (algorithm, victim, count): (Algorithm, usize, usize) = (player.arg(0), player.arg(1), player.arg(2));
    let rank = comm.rank();
    comm.set_algorithm(algorithm).unwrap();
    let op = UserOp::commutative(move |a: &u64, b: &u64| {
        assert!(rank != victim, "rank {rank} cannot add, and says so in far more words than fit into the shared lines");
        a.wrapping_add(*b)
    });
    comm.barrier().unwrap();
    // In every call another rank is first and another one last, so that the victim folds before long.
    let mut buf = vec![1u64; count];
    for call in 0..200 {
        std::thread::sleep(Duration::from_micros(if call as usize % comm.size() == rank { 300 } else { 0 }));
        if let Err(error) = comm.all_reduce_in_place(&mut buf, &op) {
            assert_eq!(comm.barrier().unwrap_err().code(), error.code(), "the group's error changed");
            player.say(format!("{} {error}", error.code()));
            // Leaving at once must not become the others' error.
            meet("told", &comm);
            return;
        }
    }
    player.say("no error");
}

/// One call by each rank: what it says of its operator.
fn scripts(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let text = &player.args()[comm.rank()];
    let max = |a: &u64, b: &u64| *a.max(b);
    let result = match text.as_str() {
        "commutative" => comm.all_reduce_in_place(&mut [1u64], &UserOp::commutative(max)),
        "ordered" => comm.all_reduce_in_place(&mut [1u64], &UserOp::ordered(max)),
        "tagged" => comm.all_reduce_in_place(&mut [1u64], &UserOp::commutative(max).tagged(5).unwrap()),
        "bytes" => comm.all_reduce_in_place(&mut [[1u8; 8]], &UserOp::commutative(|a: &[u8; 8], _| *a)),
        "more" => comm.all_reduce_in_place(&mut [[1u8; 9]], &UserOp::commutative(|a: &[u8; 9], _| *a)),
        "two" => comm.all_reduce_in_place(&mut [1u64; 2], &UserOp::commutative(max)),
        "built-in" => comm.all_reduce_in_place(&mut [1u64], Op::Max),
        other => panic!("{other}"),
    };
    player.say(result.map_or_else(|error| format!("{} {error}", error.code()), |()| "ok".into()));
}

/// Mistakes that are refused on every rank before anything is shared; afterwards the group works.
fn refused(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let report = |key: &str, result: Result<(), Error>| {
        let error = result.unwrap_err();
        player.say(format!("{key} {} {error}", error.code()));
    };
    report("average", comm.all_reduce_in_place(&mut [1i32], Op::Average));
    report("bits", comm.all_reduce_in_place(&mut [1.0f32], Op::BitAnd));
    report("index", comm.all_reduce_in_place(&mut [1u64], Op::MinIndex));
    report("empty", comm.all_reduce_in_place(&mut [(); 3], &UserOp::commutative(|_: &(), _: &()| ())));
    type Huge = [[u64; 1024]; 512];
    let huge = UserOp::commutative(|a: &Huge, _: &Huge| *a);
    let mut buffer = bytemuck::zeroed_vec::<Huge>(1);
    report("huge", comm.all_reduce_in_place(&mut buffer, &huge));
    let half = BytesOp::new(4, false, |_: &[u8], _: &mut [u8]| {}).unwrap();
    report("half an element", comm.all_reduce_in_place(&mut [0; 6], &half));
    report("tag", UserOp::commutative(|a: &u8, _: &u8| *a).tagged(64).map(|_| ()));
    let mut x = [comm.rank() as u64];
    comm.all_reduce_in_place(&mut x, Op::Sum).unwrap();
    assert_eq!(x[0], (0..comm.size() as u64).sum::<u64>());
}

/// An operator that calls its own communicator is told so instead of waiting for ever.
fn nested(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let op = UserOp::commutative(|a: &u64, b: &u64| {
        let error = comm.barrier().unwrap_err();
        assert_eq!(error.code(), "EB_USAGE", "{error}");
        a + b
    });
    let mut x = [1u64];
    comm.all_reduce_in_place(&mut x, &op).unwrap();
    player.say(x[0]);
}

#[test]
fn operands_of_an_ordered_operator_stand_in_rank_order_everywhere() {
    for ranks in [1, 2, 3, 5, 8] {
        let calls = 6 * Algorithm::ALL.len() * 2 * 2;
        for said in Job::new("ordered", ranks).run() {
            assert_eq!(said, [format!("calls {calls}")]);
        }
    }
}

#[test]
fn operators_that_look_alike_take_turns() {
    for ranks in [2, 3, 4] {
        assert!(Job::new("alike", ranks).run().iter().all(|said| *said == ["done"]));
    }
}

#[test]
fn slices_fold_what_is_there_while_a_rank_is_away() {
    for (ranks, root) in [(3, 0), (4, 1), (4, 3)] {
        for said in Job::new("away", ranks).arg(root).run() {
            assert_eq!(said, ["done"]);
        }
    }
}

#[test]
fn elements_of_any_size_in_arenas_of_any_size() {
    for ranks in [2, 3] {
        let least = earlybird_shm::layout::Windows::least_budget_bytes(ranks);
        for job in [Job::new("sizes", ranks), Job::new("sizes", ranks).var("EARLYBIRD_ARENA_MAX", least)] {
            for said in job.run() {
                assert_eq!(said, ["done"]);
            }
        }
    }
}

#[test]
fn a_panic_in_an_operator_is_the_same_error_on_every_rank() {
    for algorithm in Algorithm::ALL {
        for (ranks, victim) in [(2, 0), (2, 1), (3, 1), (4, 0)] {
            for count in [3, 30_000] {
                // The static leaders fold on rank 0 alone, by rank order of a fixed plan.
                let alone = matches!(algorithm, Algorithm::StaticLeader | Algorithm::StaticLeaderEarly);
                let said = Job::new("panics", ranks).arg(algorithm).arg(victim).arg(count).run();
                if alone && victim != 0 {
                    assert!(said.iter().all(|lines| lines == &["no error"]), "{algorithm}: {said:?}");
                    continue;
                }
                let expected = format!("EB_OPERATOR_PANICKED the operator of rank {victim} panicked in ");
                for lines in &said {
                    assert_eq!(lines.len(), 1, "{algorithm} {ranks} {count}: {said:?}");
                    assert!(lines[0].starts_with(&expected), "{algorithm} {ranks} {count}: {said:?}");
                    assert!(lines[0].contains(&format!("rank {victim} cannot add, and says so in")), "{said:?}");
                }
            }
        }
    }
}

#[test]
fn different_operators_and_elements_are_a_mismatch() {
    let words = [
        ("commutative", "1 x u64, a user's commutative operator (tag 0)"),
        ("ordered", "1 x u64, a user's ordered operator (tag 0)"),
        ("tagged", "1 x u64, a user's commutative operator (tag 5)"),
        ("bytes", "1 x a type of 8 bytes, a user's commutative operator (tag 0)"),
        ("more", "1 x a type of 9 bytes, a user's commutative operator (tag 0)"),
        ("two", "2 x u64, a user's commutative operator (tag 0)"),
        ("built-in", "1 x u64, max"),
    ];
    for (i, (one, one_said)) in words.iter().enumerate() {
        for (other, other_said) in &words[i + 1..] {
            let said = Job::new("scripts", 3).arg(one).arg(one).arg(other).run();
            for lines in &said {
                assert!(lines[0].starts_with("EB_MISMATCH"), "{one} against {other}: {said:?}");
                assert!(lines[0].contains(one_said) && lines[0].contains(other_said), "{said:?}");
            }
        }
    }
    let said = Job::new("scripts", 3).arg("tagged").arg("tagged").arg("tagged").run();
    assert!(said.iter().all(|lines| lines == &["ok"]), "{said:?}");
}

#[test]
fn what_cannot_be_is_refused_on_every_rank_and_harms_nothing() {
    for ranks in [1, 3] {
        for said in Job::new("refused", ranks).run() {
            let starts = [
                "average EB_UNSUPPORTED the operator average on i32 is not supported; i32 has sum, product, ",
                "bits EB_UNSUPPORTED the operator bit-and on f32 is not supported; f32 has sum, product, min, max, average; ",
                "index EB_UNSUPPORTED the operator min-index on u64 is not supported; ",
                "empty EB_USAGE the element has no size",
                "huge EB_UNSUPPORTED an element of 4194304 bytes in an arena with windows of ",
                "half an element EB_USAGE a buffer is no whole number of elements of 4 bytes",
                "tag EB_USAGE the tag 64 ",
            ];
            assert_eq!(said.len(), starts.len(), "{said:?}");
            for (line, start) in said.iter().zip(starts) {
                assert!(line.starts_with(start), "{line}");
            }
        }
    }
}

#[test]
fn an_operator_that_calls_its_communicator_is_refused() {
    assert_eq!(Job::new("nested", 2).run(), [["2"], ["2"]]);
}
