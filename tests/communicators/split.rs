//! Communicators made of others: who is in them, that they do not disturb each other, what they cost and what comes
//! back, and what the others are told when one of them is left, killed or used wrongly.

use crate::common::{Job, Player, mix};
use earlybird::{Communicator, Error, Op};
use rustix::process::Signal;
use std::time::{Duration, Instant};

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[
        ("grid", grid),
        ("many", many),
        ("budget", budget),
        ("threads", threads),
        ("orders", orders),
        ("leaver", leaver),
        ("death", death),
        ("mismatch", mismatch),
        ("settings", settings),
        ("pairs", pairs),
        ("formed", formed),
    ]);
}

/// A sum over `comm` that only the right members in the right number give, for small and for windowed calls.
fn check(comm: &Communicator, count: usize) -> Result<(), Error> {
    let value = |job_rank: usize, i: usize| (job_rank as u64 + 1) * 1000 + (i % 7) as u64;
    let own = comm.job_ranks()[comm.rank()];
    let mut buf: Vec<u64> = (0..count).map(|i| value(own, i)).collect();
    comm.all_reduce_in_place(&mut buf, Op::Sum)?;
    for (i, sum) in buf.iter().enumerate() {
        assert_eq!(*sum, comm.job_ranks().iter().map(|&r| value(r, i)).sum::<u64>(), "{:?}", comm.job_ranks());
    }
    Ok(())
}

/// Waits until the node's communicators take no more than `bytes`: the others may still be dropping theirs.
fn wait_for_memory(comm: &Communicator, bytes: u64) {
    let began = Instant::now();
    while comm.shared_memory_bytes() > bytes {
        assert!(began.elapsed() < Duration::from_secs(10), "{} bytes, not {bytes}", comm.shared_memory_bytes());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Rows and columns of a grid, parts of rows, ranks without a color, and groups in the opposite order.
fn grid(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let (me, size, width) = (comm.rank(), comm.size(), player.arg::<usize>(0));
    check(&comm, 10).unwrap();
    let row = comm.split(Some((me / width) as u32), 0).unwrap().unwrap();
    let column = comm.split(Some((me % width) as u32), -(me as i64)).unwrap().unwrap();
    let first = me / width * width;
    assert_eq!(row.job_ranks(), (first..(first + width).min(size)).collect::<Vec<_>>());
    assert_eq!(column.job_ranks(), (0..size).filter(|r| r % width == me % width).rev().collect::<Vec<_>>());
    assert_eq!((row.rank(), column.job_ranks()[column.rank()]), (me % width, me));
    for count in [1, 300, 70_000] {
        check(&row, count).unwrap();
        check(&column, count).unwrap();
        check(&comm, count).unwrap();
    }
    // parts of parts, down to single ranks
    let half = row.split(Some(u32::from(row.rank() >= row.size().div_ceil(2))), 0).unwrap().unwrap();
    let single = half.split(Some(half.rank() as u32), 0).unwrap().unwrap();
    assert_eq!((single.size(), single.job_ranks()), (1, &[me][..]));
    for part in [&half, &single, &single.duplicate().unwrap()] {
        check(part, 5000).unwrap();
    }
    // odd ranks stay out
    let even = comm.split((me % 2 == 0).then_some(u32::MAX), 0).unwrap();
    assert_eq!(even.is_some(), me % 2 == 0);
    even.iter().for_each(|even| check(even, 400).unwrap());
    assert!(comm.split(None, 0).unwrap().is_none());
    check(&comm, 3).unwrap();
    player.say("done");
}

#[test]
fn groups_have_the_members_and_the_order_asked_for() {
    for (ranks, width) in [(1, 1), (2, 2), (4, 2), (6, 3), (7, 3)] {
        assert!(Job::new("grid", ranks).arg(width).run().iter().all(|said| said == &["done"]), "{ranks} ranks");
    }
}

/// Many communicators at once, all in use; dropped, they take nothing any more, and can be made again.
fn many(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    check(&comm, 20_000).unwrap();
    // the table of regions stays once it is used, and so does what the calls of a split take in either payload area
    for _ in 0..3 {
        drop(comm.duplicate().unwrap());
    }
    comm.barrier().unwrap();
    let before = comm.shared_memory_bytes();
    for round in 0..3u64 {
        let all: Vec<Communicator> = (0..player.arg(0)).map(|_| comm.duplicate().unwrap()).collect();
        for call in 0..3 {
            for (i, part) in all.iter().enumerate() {
                let count = [1, 2000, 30_000][(mix(round + call * 100 + i as u64) % 3) as usize];
                check(part, count).unwrap();
            }
        }
        assert!(comm.shared_memory_bytes() > before + all.len() as u64 * 64 * 1024);
        // in another order on every rank
        let mut all: Vec<_> = all.into_iter().enumerate().collect();
        all.sort_by_key(|(i, _)| mix(*i as u64 + 1000 * comm.rank() as u64));
        drop(all);
        wait_for_memory(&comm, before + 64 * 1024);
        comm.barrier().unwrap();
    }
    player.say("done");
}

#[test]
fn sixty_four_communicators_at_once_and_nothing_stays() {
    for (ranks, number) in [(2, 64), (3, 100)] {
        assert!(Job::new("many", ranks).arg(number).run().iter().all(|said| said == &["done"]));
    }
}

/// Small budgets: shares shrink, calls run in more pieces, then all ranks are refused alike, and nothing is broken.
fn budget(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let mut made: Vec<Communicator> = Vec::new();
    let error = loop {
        match comm.duplicate() {
            Ok(part) => made.push(part),
            Err(error) => break error,
        }
    };
    let Error::NoSpace { needed, free, hint } = &error else { panic!("{error}") };
    assert!(needed > free && hint.contains("EARLYBIRD_ARENA_MAX"), "{error}");
    let sizes: Vec<u64> = made.iter().map(Communicator::budget_bytes).collect();
    assert!(sizes.is_sorted_by(|a, b| a >= b), "{sizes:?}");
    let total = player.arg::<u64>(0);
    assert!(sizes.iter().sum::<u64>() + comm.budget_bytes() + free == total, "{sizes:?} of {total}");
    player.say(format!("{} {} {error}", made.len(), sizes.first().unwrap_or(&0)));
    made.iter().chain([&comm]).for_each(|part| check(part, 50_000).unwrap());
    // half of them dropped, as many can be made again
    let back = made.len() / 2;
    made.truncate(made.len() - back);
    comm.barrier().unwrap();
    (0..back).for_each(|_| made.push(comm.duplicate().unwrap()));
    made.iter().for_each(|part| check(part, 100).unwrap());
    player.say("done");
}

#[test]
fn a_budget_used_up_is_smaller_parts_then_an_error_on_all_ranks() {
    let least = earlybird_shm::layout::Windows::least_budget_bytes(3);
    for (total, some) in [(least, 0), (3 * least / 2, 0), (4 * least, 2), (64 << 20, 20)] {
        let said = Job::new("budget", 3).arg(total).var("EARLYBIRD_ARENA_MAX", total).run();
        assert!(said.iter().all(|s| s == &said[0] && s[1] == "done"), "{said:?}");
        let number: usize = said[0][0].split(' ').next().unwrap().parse().unwrap();
        assert!(number >= some && (some > 0 || number == 0), "{total}: {said:?}");
    }
}

/// Threads in different communicators call as they like and split on their own; two in one are refused.
fn threads(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let parts: Vec<Communicator> = (0..3).map(|_| comm.duplicate().unwrap()).collect();
    std::thread::scope(|scope| {
        for (i, part) in parts.iter().enumerate() {
            scope.spawn(move || {
                for call in 0..60 {
                    check(part, [1, 600, 20_000][(call + i) % 3]).unwrap();
                    if call % 10 == 0 {
                        let own = part.split(Some((part.rank() % 2) as u32), 0).unwrap().unwrap();
                        check(&own, 100).unwrap();
                    }
                }
            });
        }
        (0..30).for_each(|_| check(&comm, 9).unwrap());
    });
    player.say("done");
}

#[test]
fn threads_use_different_communicators_at_once() {
    for ranks in [2, 4] {
        assert!(Job::new("threads", ranks).run().iter().all(|said| said == &["done"]));
    }
}

/// A communicator outlives the one it was made from.
fn orders(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    check(&comm, 100_000).unwrap();
    let pair = comm.split(Some((comm.rank() / 2) as u32), 0).unwrap().unwrap();
    let taken = comm.shared_memory_bytes();
    drop(comm);
    check(&pair, 10).unwrap();
    // what all ranks shared is given back when the last of them has dropped it
    wait_for_memory(&pair, taken - 200_000);
    let again = pair.duplicate().unwrap();
    drop(pair);
    for _ in 0..20 {
        check(&again, 3000).unwrap();
    }
    player.say("done");
}

#[test]
fn a_parent_may_go_first() {
    for ranks in [2, 4, 5] {
        assert!(Job::new("orders", ranks).run().iter().all(|said| said == &["done"]));
    }
}

/// Rank 1 drops a communicator in which the others still call.
fn leaver(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let part = comm.split((comm.rank() > 0).then_some(1), 0).unwrap();
    part.iter().for_each(|part| check(part, 50).unwrap());
    if comm.rank() == 1 {
        drop(part);
    } else if let Some(part) = &part {
        for _ in 0..2 {
            match check(part, player.arg(0)) {
                Err(Error::PeerDied { rank: 0, during, .. }) => {
                    assert!(during.contains("of sub-communicator"), "{during}")
                }
                other => panic!("{other:?}"),
            }
        }
    }
    // nobody else's error
    check(&comm, 100).unwrap();
    player.say("done");
}

#[test]
fn leaving_a_communicator_in_use_is_named_to_its_ranks_only() {
    for count in [3, 5000] {
        assert!(Job::new("leaver", 4).arg(count).run().iter().all(|said| said == &["done"]));
    }
}

/// Rank 3 is killed: its pair and the whole job learn of it, the other pair goes on and even splits.
fn death(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let pair = comm.split(Some((comm.rank() / 2) as u32), 0).unwrap().unwrap();
    let spare = pair.duplicate().unwrap();
    check(&pair, 50).unwrap();
    player.say("made");
    if comm.rank() == 3 {
        std::thread::sleep(Duration::from_secs(3600));
    }
    if comm.rank() == 2 {
        match pair.barrier() {
            Err(Error::PeerDied { rank: 1, during, .. }) => assert!(during.contains("sub-communicator"), "{during}"),
            other => panic!("{other:?}"),
        }
        let before = comm.shared_memory_bytes();
        // the dead rank holds them no more, so the last of the living gives them back
        drop((pair, spare));
        wait_for_memory(&comm, before - 2 * 64 * 1024);
    } else {
        for _ in 0..300 {
            check(&pair, 700).unwrap();
        }
        check(&pair.duplicate().unwrap(), 700).unwrap();
    }
    match comm.barrier() {
        Err(Error::PeerDied { rank: 3, .. }) => {}
        other => panic!("{other:?}"),
    }
    match comm.duplicate() {
        Err(Error::PeerDied { rank: 3, .. }) => player.say("done"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_death_is_an_error_where_the_dead_rank_belonged() {
    let mut job = Job::new("death", 4).start();
    (0..4).for_each(|rank| job.wait_for(rank, "made"));
    job.signal(3, Signal::KILL);
    for end in job.join().iter().filter(|end| end.rank != 3) {
        assert_eq!(end.said.last().map(String::as_str), Some("done"), "{end}");
    }
}

/// One rank makes another call while the others split.
fn mismatch(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let mut buf = [1.0f32; 6];
    let call = if comm.rank() == player.arg::<usize>(0) { player.arg::<String>(2) } else { player.arg(1) };
    let result = match call.as_str() {
        "split" => comm.split(Some(0), 0).map(drop),
        "duplicate" => comm.duplicate().map(drop),
        "allreduce" => comm.all_reduce_in_place(&mut buf, Op::Sum),
        "barrier" => comm.barrier(),
        other => panic!("{other}"),
    };
    let Err(error @ Error::Mismatch { .. }) = result else { panic!("{result:?}") };
    assert_eq!(comm.split(Some(0), 0).map(drop), Err(error.clone()));
    player.say(error);
}

#[test]
fn another_call_during_a_split_is_a_mismatch_for_all() {
    for (most, odd) in [("split", "allreduce"), ("split", "barrier"), ("split", "duplicate"), ("barrier", "duplicate")]
    {
        for who in 0..3 {
            let said = Job::new("mismatch", 3).arg(who).arg(most).arg(odd).run();
            assert!(said.iter().all(|s| s == &said[0] && s[0].contains(most) && s[0].contains(odd)), "{said:?}");
        }
    }
}

/// Settings are taken along; a refused second thread and a split of a poisoned communicator harm nobody else.
fn settings(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    comm.set_algorithm(earlybird::Algorithm::Leader).unwrap();
    check(&comm, 5).unwrap();
    let last = comm.last_call();
    let part = comm.duplicate().unwrap();
    assert_eq!(comm.last_call(), last, "a split is none of the caller's operations");
    comm.set_algorithm(earlybird::Algorithm::Chain).unwrap();
    check(&part, 5).unwrap();
    check(&comm, 5).unwrap();
    let ran = |comm: &Communicator| comm.last_call().unwrap().algorithm;
    assert_eq!((ran(&part), ran(&comm)), (earlybird::Algorithm::Leader.into(), earlybird::Algorithm::Chain.into()));
    assert_eq!((part.identity(), part.allowed_cpus()), (comm.identity(), comm.allowed_cpus()));
    player.say("done");
}

#[test]
fn settings_are_taken_along() {
    assert!(Job::new("settings", 3).run().iter().all(|said| said == &["done"]));
}

/// More groups in one split than a page of the table holds.
fn pairs(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let pair = comm.split(Some((comm.rank() / 2) as u32), 0).unwrap().unwrap();
    check(&pair, 400).unwrap();
    check(&comm, 10).unwrap();
    player.say(pair.budget_bytes());
}

#[test]
fn groups_of_one_split_share_alike() {
    let said = Job::new("pairs", 40).run();
    assert!(said.iter().all(|s| s == &said[0]), "{said:?}");
}

/// Pairs that are formed by their members alone, until no memory is left for another one: the same number on both.
fn formed(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let (me, serials) = (comm.rank(), std::cell::Cell::new(0));
    let means = comm.split(Some((me / 2) as u32), 0).unwrap().unwrap();
    let form = |ranks: &[usize]| {
        serials.set(serials.get() + 1);
        let serial = (serials.get() << 8) + me as u64 / 2;
        comm.form(ranks, serial, &mut |words: &mut [u64]| means.all_reduce_in_place(words, Op::Sum))
    };
    let pair = [me | 1, me & !1];
    for ranks in [&[me ^ 1][..], &[me, me], &[me, 99]] {
        assert!(matches!(form(ranks), Err(Error::Usage { .. })), "{ranks:?}");
    }
    // The second pair goes on while the first has ended.
    let rounds = if me < 2 { 1 } else { 3 };
    for _ in 0..rounds {
        let formed = form(&pair).unwrap();
        assert_eq!((formed.job_ranks(), formed.rank()), (&pair[..], usize::from(me % 2 == 0)));
        [1, 300, 70_000].iter().for_each(|count| check(&formed, *count).unwrap());
        assert_eq!(form(&[me]).unwrap().size(), 1);
    }
    comm.barrier().unwrap();
    if me < 2 {
        let mut made = Vec::new();
        let error = loop {
            match form(&pair) {
                Ok(formed) => made.push(formed),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::NoSpace { .. }) && !made.is_empty(), "{} and {error}", made.len());
        made.iter().for_each(|formed| check(formed, 10).unwrap());
        player.say(made.len());
        drop(made);
        means.barrier().unwrap();
        check(&form(&pair).unwrap(), 10).unwrap();
    }
    comm.barrier().unwrap();
}

#[test]
fn members_of_a_new_communicator_form_it_alone() {
    let said = Job::new("formed", 4).var("EARLYBIRD_ARENA_MAX", 4 << 20).run();
    assert!(said[0] == said[1] && said[0].len() == 1 && said[2..].concat().is_empty(), "{said:?}");
}
