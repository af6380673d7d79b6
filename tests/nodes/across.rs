//! The forms and operators of calls over several nodes: averages, truth values, types and operators of users, grouped calls,
//! shared buffers, in place and in unequal parts. Right on every layout, equal bits on all ranks, one error for everybody.

use crate::common::flags::meet;
use crate::common::matrix::{Matrix, product};
use crate::common::{Job, Player, mix};
use earlybird::{BytesOp, Communicator, FoldOrder, Op, UserOp};
use half::{bf16, f16};
use num_complex::Complex;

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[
        ("averages", averages),
        ("truth", truth),
        ("users", users),
        ("large", large),
        ("as_bytes", as_bytes),
        ("forms", forms),
        ("panics", panics),
        ("differ", differ),
        ("refused", refused),
    ]);
}

const LAYOUTS: [(usize, &str); 5] = [(3, "1"), (6, "2"), (9, "5,3,1"), (3, "3"), (4, "1,3")];

/// The same communicator, or one in which nodes have no contiguous ranks: `split` with the keys reversed by parity.
fn communicators() -> Vec<Communicator> {
    let comm = Communicator::from_env().unwrap();
    let (me, size) = (comm.rank(), comm.size());
    let key = if me % 2 == 0 { me } else { 2 * size - me };
    let mixed = comm.split(Some(0), key as i64).unwrap().unwrap();
    vec![comm, mixed]
}

fn dawdle(comm: &Communicator, step: u64) {
    crate::common::dawdle(comm.rank(), step, 500);
}

/// Everybody says what should be the same everywhere.
fn same_everywhere(role: &'static str) {
    for (ranks, nodes) in LAYOUTS {
        let said = Job::new(role, ranks).var("EARLYBIRD_RANKS_PER_NODE", nodes).run();
        assert!(!said[0].is_empty() && said.iter().all(|of_rank| *of_rank == said[0]), "{nodes}: {said:?}");
    }
}

fn averages(player: &Player) {
    let mut bits = 0u64;
    for comm in communicators() {
        let (me, size) = (comm.rank(), comm.size());
        for (step, count) in [0usize, 1, 77, 40_000, 300_001].into_iter().enumerate() {
            comm.set_order(if step % 2 == 0 { FoldOrder::Rank } else { FoldOrder::Arrival }).unwrap();
            dawdle(&comm, step as u64);
            // Sums of whole numbers are exact, so the average is one rounding of the quotient.
            let value = |rank: usize, i: usize| (rank * 100 + i % 97) as f64;
            let mean = |i: usize| (0..size).map(|r| value(r, i)).sum::<f64>() / size as f64;
            let mut buf: Vec<f64> = (0..count).map(|i| value(me, i)).collect();
            let root = step % size;
            let mut reduced = buf.clone();
            comm.process_at_rank(root).reduce_in_place(&mut reduced, Op::Average).unwrap();
            let expected = |i: usize| if me == root { mean(i) } else { value(me, i) };
            assert!(reduced.iter().enumerate().all(|(i, v)| *v == expected(i)), "reduce of {count}");
            comm.all_reduce_in_place(&mut buf, Op::Average).unwrap();
            assert!(buf.iter().enumerate().all(|(i, v)| *v == mean(i)), "allreduce of {count}");
            let pairs: Vec<Complex<f32>> = (0..count * size).map(|i| Complex::new(me as f32, i as f32)).collect();
            let mut mine = vec![Complex::default(); count];
            comm.reduce_scatter_block_into(&pairs, &mut mine, Op::Average).unwrap();
            let real = (size * (size - 1) / 2) as f32 / size as f32;
            assert!(mine.iter().all(|v| v.re == real), "reduce-scatter of {count}");

            // Sums that no half can hold, and thirds: rounded once.
            let mut halves = vec![f16::from_f32(60_000.0); count];
            comm.all_reduce_in_place(&mut halves, Op::Average).unwrap();
            assert!(halves.iter().all(|v| *v == f16::from_f32(60_000.0)), "halves");
            let mut thirds = vec![bf16::from_f32(me as f32); count];
            comm.all_reduce_in_place(&mut thirds, Op::Average).unwrap();
            assert!(thirds.iter().all(|v| *v == bf16::from_f32(real)), "{thirds:?}");
            // Sums that round.
            let mut floats: Vec<f32> = (0..count).map(|i| (mix((i * 64 + me) as u64) % 1000) as f32 / 7.0).collect();
            comm.all_reduce_in_place(&mut floats, Op::Average).unwrap();
            bits = floats.iter().fold(bits, |bits, v| mix(bits ^ u64::from(v.to_bits())));
        }
    }
    player.say(format!("{bits:x}"));
}

#[test]
fn averages_are_quotients_of_sums() {
    same_everywhere("averages");
}

fn truth(player: &Player) {
    for comm in communicators() {
        let (me, size) = (comm.rank(), comm.size());
        for count in [0usize, 1, 1000, 70_000] {
            let value = |rank: usize, i: usize| !mix((i * 64 + rank) as u64).is_multiple_of(4);
            let given: Vec<bool> = (0..count).map(|i| value(me, i)).collect();
            let fold = |i: usize, by: fn(bool, bool) -> bool| (1..size).fold(value(0, i), |a, r| by(a, value(r, i)));
            type Truth = fn(bool, bool) -> bool;
            let ops: [(Op, Truth); 6] = [
                (Op::LogicalAnd, |a, b| a & b),
                (Op::LogicalOr, |a, b| a | b),
                (Op::LogicalXor, |a, b| a ^ b),
                (Op::BitAnd, |a, b| a & b),
                (Op::BitOr, |a, b| a | b),
                (Op::BitXor, |a, b| a ^ b),
            ];
            for (op, by) in ops {
                let mut got = vec![false; count];
                comm.all_reduce_into(&given, &mut got, op).unwrap();
                assert!(got.iter().enumerate().all(|(i, v)| *v == fold(i, by)), "{op:?} of {count}");
                let mut kept = given.clone();
                comm.process_at_rank(1).reduce_in_place(&mut kept, op).unwrap();
                assert_eq!(kept, if me == 1 { got.clone() } else { given.clone() });
                let blocks: Vec<bool> = (0..count * size).map(|k| value(me, k)).collect();
                comm.reduce_scatter_block_into(&blocks, &mut got, op).unwrap();
                assert!(got.iter().enumerate().all(|(i, v)| *v == fold(me * count + i, by)), "{op:?} in parts");
            }
        }
    }
    player.say("right");
}

#[test]
fn truth_values_are_folded_by_every_operator() {
    same_everywhere("truth");
}

fn matrix(rank: usize, i: usize) -> Matrix {
    std::array::from_fn(|k| mix((i << 16 ^ rank << 4 ^ k) as u64) as u32)
}

fn users(player: &Player) {
    let mut bits = 0u64;
    for comm in communicators() {
        let (me, size) = (comm.rank(), comm.size());
        let op = UserOp::ordered(product);
        let average =
            UserOp::commutative(|a: &[f32; 3], b: &[f32; 3]| std::array::from_fn(|k| a[k] / 3.0 + b[k] / 3.0));
        for (step, count) in [0usize, 1, 7, 900, 1500, 70_001].into_iter().enumerate() {
            comm.set_order(if step % 2 == 0 { FoldOrder::Rank } else { FoldOrder::Arrival }).unwrap();
            dawdle(&comm, step as u64);
            let send: Vec<Matrix> = (0..count).map(|i| matrix(me, i)).collect();
            let expected = |i: usize| (1..size).fold(matrix(0, i), |left, r| product(&left, &matrix(r, i)));
            let right =
                |found: &[Matrix], first: usize| found.iter().enumerate().all(|(i, m)| *m == expected(first + i));
            let mut recv = vec![[7; 4]; count];
            comm.all_reduce_into(&send, &mut recv, &op).unwrap();
            assert!(right(&recv, 0), "allreduce of {count}");
            let mut buf = send.clone();
            comm.all_reduce_in_place(&mut buf, &op).unwrap();
            assert_eq!(buf, recv);
            let root = mix(step as u64) as usize % size;
            let at = comm.process_at_rank(root);
            recv.fill([7; 4]);
            match me == root {
                true => at.reduce_into_root(&send, &mut recv, &op).unwrap(),
                false => at.reduce_into(&send, &op).unwrap(),
            }
            assert!(if me == root { right(&recv, 0) } else { recv.iter().all(|m| *m == [7; 4]) }, "reduce of {count}");
            let mut kept = send.clone();
            at.reduce_in_place(&mut kept, &op).unwrap();
            assert!(if me == root { right(&kept, 0) } else { kept == send }, "reduce of {count} in place");
            let block = count / size;
            let mut part = vec![[7; 4]; block];
            comm.reduce_scatter_block_into(&send[..block * size], &mut part, &op).unwrap();
            assert!(right(&part, me * block), "reduce-scatter of {count}");
            // What depends on the order of folding has the same bits everywhere.
            let mut floats: Vec<[f32; 3]> = (0..count).map(|i| [me as f32, i as f32, (me * i) as f32 / 7.0]).collect();
            comm.all_reduce_in_place(&mut floats, &average).unwrap();
            bits = floats.iter().flatten().fold(bits, |bits, v| mix(bits ^ u64::from(v.to_bits())));
        }
    }
    player.say(format!("{bits:x}"));
}

#[test]
fn operators_of_users_get_their_operands_in_rank_order() {
    same_everywhere("users");
}

/// Elements that no packet and no small window holds.
fn large(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let size = comm.size();
    let op = UserOp::commutative(|a: &[u64; 10_000], b: &[u64; 10_000]| std::array::from_fn(|k| a[k] + b[k]));
    let mut buf = vec![[comm.rank() as u64; 10_000]; 3];
    comm.all_reduce_in_place(&mut buf, &op).unwrap();
    assert!(buf.iter().flatten().all(|v| *v == (size * (size - 1) / 2) as u64));
    player.say("right");
}

#[test]
fn elements_may_be_larger_than_packets() {
    same_everywhere("large");
}

/// Elements of which only the size is known: the product again, with elements of three bytes, and with one that no window holds.
fn as_bytes(player: &Player) {
    fn of(values: &mut [Matrix]) -> &mut [u8] {
        bytemuck::cast_slice_mut(values)
    }
    for comm in communicators() {
        let (me, size) = (comm.rank(), comm.size());
        let rows = |left: &[u8], right: &mut [u8]| {
            let (left, right): (&[Matrix], &mut [Matrix]) =
                (bytemuck::cast_slice(left), bytemuck::cast_slice_mut(right));
            left.iter().zip(right).for_each(|(a, b)| *b = product(a, b));
        };
        let op = BytesOp::new(size_of::<Matrix>(), false, rows).unwrap();
        for (step, count) in [0usize, 1, 7, 1500, 70_001].into_iter().enumerate() {
            comm.set_order(if step % 2 == 0 { FoldOrder::Arrival } else { FoldOrder::Rank }).unwrap();
            dawdle(&comm, step as u64);
            let mut send: Vec<Matrix> = (0..count).map(|i| matrix(me, i)).collect();
            let expected = (0..count).map(|i| (1..size).fold(matrix(0, i), |left, r| product(&left, &matrix(r, i))));
            let (expected, mut recv): (Vec<Matrix>, _) = (expected.collect(), vec![[7; 4]; count]);
            comm.all_reduce_into(of(&mut send), of(&mut recv), &op).unwrap();
            assert_eq!(recv, expected, "allreduce of {count}");
            let mut buf = send.clone();
            comm.all_reduce_in_place(of(&mut buf), &op).unwrap();
            assert_eq!(buf, expected, "allreduce of {count} in place");
            for root in [0, mix(step as u64) as usize % size] {
                let at = comm.process_at_rank(root);
                let (mut kept, mut got) = (send.clone(), vec![[7; 4]; if me == root { count } else { 0 }]);
                at.reduce_in_place(of(&mut kept), &op).unwrap();
                assert_eq!(&kept, if me == root { &expected } else { &send }, "reduce of {count} in place");
                match me == root {
                    true => at.reduce_into_root(of(&mut send), of(&mut got), &op).unwrap(),
                    false => at.reduce_into(of(&mut send), &op).unwrap(),
                }
                assert_eq!(got, if me == root { expected.clone() } else { Vec::new() }, "reduce of {count}");
            }
            let block = count / size;
            let mut part = vec![[7; 4]; block];
            comm.reduce_scatter_block_into(of(&mut send[..block * size]), of(&mut part), &op).unwrap();
            assert_eq!(part, expected[me * block..][..block], "reduce-scatter of {count}");
        }
        for bytes in [3, 5000, 2 << 20] {
            let most = |left: &[u8], right: &mut [u8]| right.iter_mut().zip(left).for_each(|(r, l)| *r = *l.max(r));
            let op = BytesOp::new(bytes, true, most).unwrap();
            let mut buf: Vec<u8> = (0..2 * bytes).map(|i| ((i + me) % size) as u8).collect();
            let done = comm.all_reduce_in_place(&mut buf, &op);
            if bytes > 1 << 20 && comm.nodes() == 1 {
                // No window of the one node holds it.
                assert_eq!(done.map_err(|error| error.code()), Err("EB_UNSUPPORTED"));
                continue;
            }
            done.unwrap();
            assert!(buf.iter().all(|most| usize::from(*most) == size - 1), "elements of {bytes} bytes");
            let refused = comm.all_reduce_in_place(&mut buf[1..], &op).unwrap_err();
            assert!(refused.code() == "EB_USAGE" && refused.to_string().contains("no whole number"), "{refused}");
        }
    }
    player.say("right");
}

#[test]
fn operators_on_elements_of_unknown_type() {
    same_everywhere("as_bytes");
}

/// Grouped, shared, in place, unequal.
fn forms(player: &Player) {
    for comm in communicators() {
        let (me, size) = (comm.rank(), comm.size());
        let total = (size * (size - 1) / 2) as i64;
        let (mut a, mut b, mut c) = (vec![me as i64; 7], Vec::new(), vec![me as i64 * 2; 90_000]);
        comm.all_reduce_grouped_in_place(&mut [&mut a, &mut b, &mut c], Op::Sum).unwrap();
        assert!(a.iter().all(|v| *v == total) && b.is_empty() && c.iter().all(|v| *v == 2 * total));
        let mut mean = [me as f32];
        comm.all_reduce_grouped_in_place(&mut [&mut mean], Op::Average).unwrap();
        assert_eq!(mean, [total as f32 / size as f32]);

        let mut shared = comm.alloc::<f64>(50_000).unwrap();
        shared.fill(me as f64);
        let mut sum = comm.alloc::<f64>(50_000).unwrap();
        comm.all_reduce_shared_into(&shared, &mut sum, Op::Sum).unwrap();
        comm.all_reduce_shared_in_place(&mut shared, Op::Average).unwrap();
        let divided = total as f64 / size as f64;
        assert!(sum.iter().all(|v| *v == total as f64) && shared.iter().all(|v| *v == divided));

        for (root, count) in [(0, 5usize), (size - 1, 30_000), (size / 2, 0)] {
            let at = comm.process_at_rank(root);
            let value = |rank: usize, i: usize| (rank * 1000 + i % 777) as i64;
            let mine: Vec<i64> = (0..count).map(|i| value(me, i)).collect();
            let all: Vec<i64> = (0..size).flat_map(|r| (0..count).map(move |i| value(r, i))).collect();
            if me == root {
                let mut buf = vec![-1; count * size];
                buf[me * count..][..count].copy_from_slice(&mine);
                at.gather_in_place_root(&mut buf).unwrap();
                assert_eq!(buf, all);
                at.scatter_in_place_root(&mut buf).unwrap();
                assert_eq!(buf, all);
            } else {
                at.gather_into(&mine).unwrap();
                let mut got = vec![-1; count];
                at.scatter_into(&mut got).unwrap();
                assert_eq!(got, mine);
            }
            let counts: Vec<usize> = (0..size).map(|r| mix((count + r) as u64) as usize % (count + 1)).collect();
            let parts: Vec<i64> = (0..size).flat_map(|r| (0..counts[r]).map(move |i| value(r, i))).collect();
            let mut got = vec![-1; counts[me]];
            match me == root {
                true => at.scatter_varcount_into_root(&parts, &mut got, &counts).unwrap(),
                false => at.scatter_varcount_into(&mut got, &counts).unwrap(),
            }
            assert!(got.iter().enumerate().all(|(i, v)| *v == value(me, i)), "unequal scatter of {counts:?}");
        }
        comm.close().unwrap();
    }
    player.say("right");
}

#[test]
fn every_form_works() {
    same_everywhere("forms");
}

/// Folds until the operator panics in one rank, for good.
fn panics(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let (who, count): (usize, usize) = (player.arg(0), player.arg(1));
    let me = comm.rank();
    let call = std::cell::Cell::new(0);
    // Cells are not Sync: the number is moved into it.
    for number in 0..20 {
        call.set(number);
        let op = UserOp::commutative(move |a: &u64, b: &u64| {
            assert!(number < 10 || me != who, "too much");
            a + b
        });
        let mut buf = vec![1u64; count];
        if let Err(error) = comm.all_reduce_in_place(&mut buf, &op) {
            player.say(format!("{} {error}", error.code()));
            let next = comm.barrier().unwrap_err();
            player.say(format!("{} {next}", next.code()));
            return;
        }
    }
    player.say("nothing happened");
}

#[test]
fn a_panic_in_the_operator_is_everybodys_error() {
    for count in [1, 30_000] {
        for who in [0, 3] {
            // A leader folds in its node or between nodes.
            let said = Job::new("panics", 4).arg(who).arg(count).var("EARLYBIRD_RANKS_PER_NODE", "3,1").run();
            let told = format!("EB_OPERATOR_PANICKED the operator of rank {who} panicked");
            assert!(said.iter().all(|lines| lines.len() == 2 && *lines == said[0]), "{said:?}");
            assert!(said[0][0].starts_with(&told) && said[0][0].contains("too much"), "{said:?}");
        }
    }
}

/// One rank makes another call.
fn differ(player: &Player) {
    let comm = match Communicator::from_env() {
        Ok(comm) => comm,
        // The others had joined and failed before this rank had heard from all of them.
        Err(error) => return player.say(format!("{} {error}", error.code())),
    };
    let odd = comm.rank() == player.arg::<usize>(1);
    let op = |tag| UserOp::commutative(|a: &u32, b: &u32| a + b).tagged(tag).unwrap();
    let mut buf = [1u32; 60];
    let result = match (player.args()[0].as_str(), odd) {
        ("tag", odd) => comm.all_reduce_in_place(&mut buf, &op(u8::from(odd))),
        ("average", false) => comm.all_reduce_in_place(&mut [1f32; 60], Op::Average),
        ("average", true) => comm.all_reduce_in_place(&mut [1f32; 60], Op::Sum),
        ("truth", false) => comm.all_reduce_in_place(&mut [true; 60], Op::LogicalAnd),
        ("truth", true) => comm.all_reduce_in_place(&mut [1u8; 60], Op::LogicalAnd),
        ("group", odd) => {
            let (a, b) = buf.split_at_mut(if odd { 20 } else { 40 });
            comm.all_reduce_grouped_in_place(&mut [a, b], Op::Sum)
        }
        (other, _) => panic!("no case {other}"),
    };
    let result = result.and_then(|()| comm.barrier());
    player.say(result.map_or_else(|error| format!("{} {error}", error.code()), |()| "accepted".into()));
    meet("told", &comm);
}

#[test]
fn different_calls_are_one_error_for_everybody() {
    for case in ["tag", "average", "truth", "group"] {
        for odd in [0, 1, 4] {
            let job = Job::new("differ", 5).arg(case).arg(odd).var("EARLYBIRD_RANKS_PER_NODE", "2");
            crate::common::all_tell_of_different_calls(job, "EB_MISMATCH ranks ");
        }
    }
}

fn refused(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let add = UserOp::commutative(|a: &u32, b: &u32| a + b);
    let at = comm.process_at_rank(comm.size());
    let codes = [
        comm.all_reduce_into(&[1], &mut [1, 2], &add),
        comm.all_reduce_in_place(&mut [()], &UserOp::commutative(|_: &(), _: &()| ())),
        comm.reduce_scatter_block_into(&[1], &mut [1], &add),
        at.reduce_into(&[1], &add),
        at.scatter_varcount_into(&mut [1u8], &[1]),
        comm.all_reduce_grouped_in_place(&mut [&mut [1i32]], Op::Average),
        comm.process_at_rank(comm.rank()).gather_in_place_root(&mut [1u8; 7]),
    ]
    .map(|result| result.map_or_else(|error| error.code(), |()| "accepted"));
    let mut sum = [1u32];
    comm.all_reduce_in_place(&mut sum, &add).unwrap();
    player.say(format!("{} {}", codes.join(" "), sum[0]));
}

#[test]
fn refusals_leave_the_job_as_it_was() {
    let said = Job::new("refused", 5).var("EARLYBIRD_RANKS_PER_NODE", "2").run();
    let usage = "EB_USAGE ".repeat(5);
    assert!(said.iter().all(|of_rank| *of_rank == [format!("{usage}EB_UNSUPPORTED EB_USAGE 5")]), "{said:?}");
}
