//! Messages between two ranks, on one node, on virtual nodes and over TCP, and the collectives of nodes that TCP joins. What a rank
//! of a job that TCP joins says of a death is what all the others say.

use crate::common::flags::{raise, wait_for};
use crate::common::messages::{end, receive};
use crate::common::victims::{tell, told_of_a_death};
use crate::common::{Job, Player, mix};
use earlybird::messages::{Layout, MessageOptions, MessageTransport, TcpMessages};
use earlybird::{Communicator, Config, Delivery, Identity, Op, Transfer};
use earlybird_hier::exec::{Failure, Transport};
use rustix::process::Signal;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const ALL: &[&str] = &["node", "virtual", "tcp"];
const MIN: Duration = Duration::from_secs(60);

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[
        ("conform", conform),
        ("last_word", last_word),
        ("both_first", both_first),
        ("ring", ring),
        ("beside", beside),
        ("any", any),
        ("threads", threads),
        ("victim", victim),
        ("late", late),
        ("wrong", wrong),
        ("sum", sum),
        ("summing_victim", summing_victim),
    ]);
}

fn var(name: &str) -> String {
    std::env::var(name).unwrap()
}

/// Connects the ranks of the job, which tell each other their addresses by files.
fn connect() -> TcpMessages {
    let (rank, size): (usize, usize) = (var("EARLYBIRD_RANK").parse().unwrap(), var("EARLYBIRD_SIZE").parse().unwrap());
    let file = |rank: usize| PathBuf::from(format!("{}-address-{rank}", var("EARLYBIRD_DIR")));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap();
    std::fs::write(file(rank).with_extension("new"), own.to_string()).unwrap();
    std::fs::rename(file(rank).with_extension("new"), file(rank)).unwrap();
    let address = |rank: usize| {
        loop {
            match std::fs::read_to_string(file(rank)) {
                Ok(address) => return address.parse().unwrap(),
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    };
    let addresses: Vec<SocketAddr> = (0..size).map(address).collect();
    // A stranger is closed out, and keeps nobody else out.
    let mut stranger = TcpStream::connect(own).unwrap();
    stranger.write_all(&[0xab; 20]).unwrap();
    let messages = TcpMessages::connect(rank, &listener, &addresses, [7; 16], Some(MIN)).unwrap();
    std::fs::remove_file(file(rank)).unwrap();
    messages
}

/// Ranks on each node, but for the last.
fn each(size: usize) -> usize {
    (size / 2).max(1)
}

/// The job over what the first argument says.
fn join(kind: &str) -> Communicator {
    let mut config = Config::from_env().unwrap();
    if kind == "virtual" {
        config.ranks_per_node = Some(each(var("EARLYBIRD_SIZE").parse().unwrap()).to_string().parse().unwrap());
    }
    if kind != "tcp" {
        return Communicator::builder().config(config).connect().unwrap();
    }
    let messages = connect();
    let identity = Identity::detect().unwrap();
    let nodes = (0..identity.size).collect::<Vec<usize>>().chunks(each(identity.size)).map(<[usize]>::to_vec).collect();
    let processes = vec![(1, "here".into()); identity.size];
    let layout = Layout { nodes, processes, here: identity.size };
    Communicator::builder().config(config).identity(identity).messages(layout, messages).connect().unwrap()
}

fn conform(player: &Player) {
    let mut transport =
        MessageTransport::over(Box::new(connect()), MessageOptions { packet_bytes: 5000, depth: 3 }).unwrap();
    for _ in 0..2 {
        crate::conformance::all_to_all(&mut transport).unwrap();
    }
    player.say("done");
}

#[test]
fn tcp_conforms() {
    for ranks in [1, 2, 4] {
        assert!(Job::new("conform", ranks).run().iter().all(|said| said == &["done"]));
    }
}

/// Rank 2 tells the others of a failure and leaves. Who notices that it is gone learns what it told.
fn last_word(player: &Player) {
    let mut transport =
        MessageTransport::over(Box::new(connect()), MessageOptions { packet_bytes: 5000, depth: 3 }).unwrap();
    let told = Failure::Mismatch { rank_a: 1, rank_b: 2 };
    if var("EARLYBIRD_RANK") == "2" {
        transport.raise(told);
        drop(transport);
        return raise("gone");
    }
    wait_for("gone");
    player.say(transport.raise(Failure::PeerDied { rank: 2 }) == told);
}

#[test]
fn what_a_rank_told_goes_before_its_end() {
    assert_eq!(Job::new("last_word", 4).run(), [&["true"][..], &["true"], &[], &["true"]]);
}

fn bytes(from: usize, to: usize, message: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| mix((from << 40 | to << 20 | message << 10 | (at % 999)) as u64) as u8).collect()
}

const LENGTHS: [usize; 5] = [0, 8, 97, 70_000, 3_000_000];

/// Every pair sends in both directions before it receives.
fn both_first(player: &Player) {
    let comm = join(player.args()[0].as_str());
    let messages = comm.point_to_point().unwrap();
    let (me, size) = (comm.rank(), comm.size());
    for length in LENGTHS {
        let others = || (0..size).filter(|other| *other != me);
        let sent: Vec<Transfer> = others().map(|to| messages.send(to, 3, bytes(me, to, 0, length)).unwrap()).collect();
        for (from, sent) in others().zip(&sent) {
            if size == 2 {
                // Alone in its pair, a send ends before anybody receives.
                assert_eq!(end(&messages, sent), Ok(Delivery { peer: from, bytes: length }));
            }
        }
        for from in others() {
            let (transfer, memory) = receive(&messages, Some(from), 3, length).unwrap();
            assert_eq!(end(&messages, &transfer), Ok(Delivery { peer: from, bytes: length }));
            assert!(memory.bytes() == bytes(from, me, 0, length), "{length}");
        }
        sent.iter().for_each(|sent| assert!(end(&messages, sent).is_ok()));
    }
    comm.barrier().unwrap();
    player.say("done");
}

/// Started sends and receives round a ring, ended in the order in which they were started; tags in another order than sent.
fn ring(player: &Player) {
    let comm = join(player.args()[0].as_str());
    let messages = comm.point_to_point().unwrap();
    let (me, size) = (comm.rank(), comm.size());
    let (next, before) = ((me + 1) % size, (me + size - 1) % size);
    for length in LENGTHS {
        let sent: Vec<Transfer> =
            (0..3).map(|tag| messages.send(next, tag, bytes(me, next, tag as usize, length)).unwrap()).collect();
        let received: Vec<_> = (0..3).rev().map(|tag| receive(&messages, Some(before), tag, length).unwrap()).collect();
        sent.iter().for_each(|sent| assert!(end(&messages, sent).is_ok()));
        for (tag, (transfer, memory)) in (0..3).rev().zip(received) {
            assert!(end(&messages, &transfer).is_ok());
            assert!(memory.bytes() == bytes(before, me, tag, length));
        }
    }
    comm.barrier().unwrap();
    player.say("done");
}

#[test]
fn messages_arrive_whatever_joins_the_ranks() {
    for kind in ALL {
        for (role, ranks) in [("both_first", 2), ("both_first", 4), ("ring", 3)] {
            let said = Job::new(role, ranks).arg(kind).run();
            assert!(said.iter().all(|said| said == &["done"]), "{role} {kind}");
        }
    }
}

/// A message that is under way goes on while its sender waits in a collective.
fn beside(player: &Player) {
    let comm = join(player.args()[0].as_str());
    let messages = comm.point_to_point().unwrap();
    comm.set_progress(Some(messages.progress().unwrap())).unwrap();
    let length = 20_000_000;
    if comm.rank() == 0 {
        let sent = messages.send(2, 0, bytes(0, 2, 0, length)).unwrap();
        comm.barrier().unwrap();
        assert!(end(&messages, &sent).is_ok());
    } else {
        if comm.rank() == 2 {
            let (transfer, memory) = receive(&messages, Some(0), 0, length).unwrap();
            assert!(end(&messages, &transfer).is_ok() && memory.bytes() == bytes(0, 2, 0, length));
        }
        comm.barrier().unwrap();
    }
    player.say("done");
}

#[test]
fn a_message_goes_on_beside_a_collective() {
    for kind in ALL {
        assert!(Job::new("beside", 4).arg(kind).run().iter().all(|said| said == &["done"]), "{kind}");
    }
}

/// Receives from any rank, of which one has left.
fn any(player: &Player) {
    let comm = join(player.args()[0].as_str());
    let messages = comm.point_to_point().unwrap();
    let (me, size) = (comm.rank(), comm.size());
    comm.barrier().unwrap();
    if me == 0 {
        let mut from: Vec<usize> = Vec::new();
        for _ in 1..size {
            let (transfer, memory) = receive(&messages, None, 5, 1000).unwrap();
            let delivery = end(&messages, &transfer).unwrap();
            assert!(memory.bytes() == bytes(delivery.peer, 0, 0, 1000));
            from.push(delivery.peer);
        }
        from.sort_unstable();
        player.say(format!("{from:?}"));
    } else {
        // The higher the later, when the others are gone.
        std::thread::sleep(Duration::from_millis(200 * me as u64));
        assert!(end(&messages, &messages.send(0, 5, bytes(me, 0, 0, 1000)).unwrap()).is_ok());
    }
}

#[test]
fn any_rank_is_received_from_where_ranks_share_memory() {
    for kind in ["node", "virtual"] {
        let said = Job::new("any", 3).arg(kind).run();
        assert_eq!(said[0], ["[1, 2]"], "{kind}");
    }
}

/// Two threads wait for each other's messages through one communicator.
fn threads(player: &Player) {
    let comm = join(player.args()[0].as_str());
    let messages = comm.point_to_point().unwrap();
    let other = 1 - comm.rank();
    std::thread::scope(|scope| {
        for tag in 0..3u32 {
            let messages = &messages;
            scope.spawn(move || {
                for turn in 0..50u8 {
                    let sent = messages.send(other, tag, [turn; 9]).unwrap();
                    let (transfer, memory) = receive(messages, Some(other), tag, 9).unwrap();
                    assert!(end(messages, &transfer).is_ok() && end(messages, &sent).is_ok());
                    assert_eq!(memory.bytes(), [turn; 9]);
                }
            });
        }
    });
    player.say("done");
}

#[test]
fn threads_share_the_messages_of_a_rank() {
    for kind in ["node", "tcp"] {
        assert!(Job::new("threads", 2).arg(kind).run().iter().all(|said| said == &["done"]), "{kind}");
    }
}

/// Waits for rank 1, which is killed or comes late.
fn victim(player: &Player) {
    let comm = join(player.args()[0].as_str());
    let messages = comm.point_to_point().unwrap();
    comm.barrier().unwrap();
    player.say("here");
    if comm.rank() == 1 {
        std::thread::sleep(Duration::from_secs(3600));
    }
    // It may be dead by now.
    let received = receive(&messages, Some(1), 0, 1);
    tell(player, received.and_then(|(transfer, _memory)| end(&messages, &transfer)).map(drop));
    // It stands.
    tell(player, messages.send(2 - comm.rank(), 0, [0]).map(drop));
}

fn late(player: &Player) {
    victim(player);
}

#[test]
fn a_dead_rank_is_named() {
    for kind in ALL {
        let mut job = Job::new("victim", 3).arg(kind).start();
        (0..3).for_each(|rank| job.wait_for(rank, "here"));
        job.signal(1, Signal::KILL);
        for end in job.join().iter().filter(|end| end.rank != 1) {
            let told: Vec<&String> = end.said.iter().filter(|said| said.starts_with("failed")).collect();
            assert!(told.len() == 2 && told[0] == told[1], "{kind}: {end}");
            assert!(told[0].starts_with("failed EB_PEER_DIED rank 1 (pid "), "{kind}: {told:?}");
        }
    }
}

#[test]
fn a_deadline_ends_a_wait() {
    for kind in ALL {
        let mut job = Job::new("late", 3).arg(kind).var("EARLYBIRD_TIMEOUT", "0.5").start();
        job.wait_ended(&[0, 2]);
        job.signal(1, Signal::KILL);
        for end in job.join().iter().filter(|end| end.rank != 1) {
            assert!(end.heard("failed").is_some_and(|said| said.starts_with("EB_TIMEOUT")), "{kind}: {end:?}");
        }
    }
}

/// Mistakes that are refused, after which messages go on.
fn wrong(player: &Player) {
    let comm = join(player.args()[0].as_str());
    let messages = comm.point_to_point().unwrap();
    let (me, other) = (comm.rank(), 1 - comm.rank());
    for peer in [me, 2] {
        assert!(messages.send(peer, 0, [0]).unwrap_err().to_string().contains("name another rank"));
        assert!(messages.receive(Some(peer), 0, [0]).is_err());
    }
    let sent = [8, 9].map(|length| messages.send(other, 0, vec![me as u8; length]).unwrap());
    let refused = receive(&messages, Some(other), 0, 9).unwrap().0;
    assert!(end(&messages, &refused).unwrap_err().to_string().contains("sent 8 bytes under tag 0 and 9 are awaited"));
    let (transfer, memory) = receive(&messages, Some(other), 0, 9).unwrap();
    assert!(end(&messages, &transfer).is_ok() && memory.bytes() == [other as u8; 9]);
    sent.iter().for_each(|sent| assert!(end(&messages, sent).is_ok()));
    if comm.nodes() > 1 {
        assert!(messages.receive(None, 0, [0]).unwrap_err().to_string().contains("any rank over several nodes"));
    }
    assert!(Arc::ptr_eq(&messages, &comm.point_to_point().unwrap()));
    player.say("done");
}

#[test]
fn mistakes_are_refused() {
    for kind in ["node", "tcp"] {
        assert!(Job::new("wrong", 2).arg(kind).run().iter().all(|said| said == &["done"]), "{kind}");
    }
}

/// Collectives of nodes that TCP joins, and of groups of their ranks.
fn sum(player: &Player) {
    let comm = join("tcp");
    let (me, size) = (comm.rank(), comm.size());
    assert_eq!(comm.nodes(), size.div_ceil(each(size)));
    let check = |comm: &Communicator, members: &[usize]| {
        for length in [1, 1000, 300_000] {
            let mut buf: Vec<i64> = (0..length).map(|i| (me + i) as i64).collect();
            comm.all_reduce_in_place(&mut buf, Op::Sum).unwrap();
            let sum = |i: usize| members.iter().map(|rank| (rank + i) as i64).sum::<i64>();
            assert!(buf.iter().enumerate().all(|(i, value)| *value == sum(i)), "{length}");
        }
        let mut all = vec![0u32; members.len()];
        comm.all_gather_into(&[me as u32], &mut all[..]).unwrap();
        assert!(all.iter().zip(members).all(|(told, rank)| *told as usize == *rank));
    };
    let all: Vec<usize> = (0..size).collect();
    check(&comm, &all);
    let halves: Vec<usize> = all.iter().copied().filter(|rank| rank % 2 == me % 2).collect();
    let half = comm.split(Some((me % 2) as u32), 0).unwrap().unwrap();
    check(&half, &halves);
    check(&comm.duplicate().unwrap(), &all);
    drop(comm);
    // Left by all but its own ranks.
    check(&half, &halves);
    player.say("done");
}

#[test]
fn nodes_joined_by_tcp_reduce() {
    for ranks in [3, 4] {
        assert!(Job::new("sum", ranks).run().iter().all(|said| said == &["done"]));
    }
}

fn summing_victim(player: &Player) {
    let (who, calls): (usize, u64) = (player.arg(0), player.arg(1));
    let comm = join("tcp");
    let mut buf = vec![1f64; player.arg(2)];
    for call in 0u64.. {
        if comm.rank() == who && call == calls {
            player.say("here");
            std::thread::sleep(Duration::from_secs(3600));
        }
        buf.fill(1.0);
        if !tell(player, comm.all_reduce_in_place(&mut buf, Op::Sum)) {
            tell(player, comm.barrier());
            return;
        }
    }
}

#[test]
fn a_death_is_told_to_all_nodes_over_tcp() {
    // A leader with others on its node, one that no one leads, and a rank that is alone on its node.
    for who in [0, 3, 4] {
        let job = Job::new("summing_victim", 5).arg(who).arg(20).arg(1000);
        told_of_a_death(job, who, Duration::from_millis(100));
    }
}
