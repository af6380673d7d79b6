//! Others at the rendezvous: a process of another build, and another user who has taken the address.
#![cfg(not(earlybird_loom))]

mod segment_support;

use std::path::Path;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType, bind, connect, listen, recv, send, socket,
};
use segment_support::{Rank, Scratch, as_stranger, attach_all, options, serve_as_rank, team};

#[test]
fn rank_process() {
    serve_as_rank();
}

/// The abstract address of a group's rendezvous: user and key, the key as its 128-bit FNV-1a hash.
fn address(dir: &Path, key: &str) -> SocketAddrUnix {
    let key = options(dir, key, 0, 2).key;
    let hash = key.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |hash: u128, byte| {
        (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    });
    let name = format!("earlybird-{}-{hash:032x}", rustix::process::geteuid().as_raw());
    SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()
}

/// The error of two waiting ranks of three and of a third one that states these values: one for all.
fn told(values: &[(&str, &str)]) -> String {
    let scratch = Scratch::new();
    let mut ranks: Vec<Rank> = (0..2).map(|rank| Rank::spawn(&scratch.meet(), "builds", rank, 3)).collect();
    for (rank, process) in ranks.iter_mut().enumerate() {
        process.tell("attach");
        process.wait_claimed(rank);
    }
    let third = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    connect(&third, &address(&scratch.meet(), "builds")).unwrap();
    let me = format!(r#"{{"pid":{},"pid_namespace":1,"start_ticks":1}}"#, std::process::id());
    let values: Vec<String> = values.iter().map(|(name, value)| format!(r#"["{name}","{value}"]"#)).collect();
    let joins = format!(r#"{{"Join":{{"rank":2,"me":{me},"values":[{}]}}}}"#, values.join(","));
    send(&third, joins.as_bytes(), SendFlags::empty()).unwrap();
    let mut bytes = [0; 4096];
    let (heard, _) = recv(&third, &mut bytes, RecvFlags::empty()).unwrap();
    let heard = String::from_utf8_lossy(&bytes[..heard]).into_owned();
    let answers = [ranks[0].answer(), ranks[1].answer()];
    assert_eq!(answers[0], answers[1]);
    let says = answers[0].strip_prefix("EB_USAGE ").unwrap_or_default();
    assert!(!says.is_empty() && heard.contains(says), "{answers:?}, {heard:?}");
    assert_eq!(scratch.files(), Vec::<String>::new());
    says.to_owned()
}

#[test]
fn another_build_is_everybodys_error_with_both_versions() {
    let (protocol, version) = ("the protocol of joining", "the version of earlybird");
    let says = told(&[(protocol, "0")]);
    let ours = says.strip_prefix("the protocol of joining is ").and_then(|says| says.split(' ').next()).unwrap();
    let advice = "rank 2; all ranks must run the same build of earlybird";
    assert_eq!(says, format!("the protocol of joining is {ours} on rank 0 and 0 on {advice}"));
    let mine = env!("CARGO_PKG_VERSION");
    let says = told(&[(protocol, ours), (version, "9.9.9")]);
    assert_eq!(says, format!("the version of earlybird is {mine} on rank 0 and 9.9.9 on {advice}"));
    let says = told(&[(protocol, ours), (version, mine), ("the build of earlybird", "another")]);
    assert!(
        says.starts_with("the build of earlybird is ") && says.ends_with(&format!("another on {advice}")),
        "{says}"
    );
}

#[test]
fn an_address_that_another_user_has_taken_is_said_and_a_directory_is_the_way_round_it() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can play another user");
        return;
    }
    let scratch = Scratch::new();
    let at = address(&scratch.meet(), "squatted");
    let _squatter = as_stranger(move || {
        let squatter = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        bind(&squatter, &at).unwrap();
        listen(&squatter, 1024).unwrap();
        squatter
    });
    let mut ranks = team(&scratch.meet(), "squatted", 2);
    for rank in &mut ranks {
        assert_eq!(rank.ask("no-dir"), "ok");
        let answer = rank.ask("attach");
        assert!(answer.starts_with("EB_USAGE the rendezvous of the group "), "{answer}");
        assert!(answer.contains("is taken by user 12345; give the job another name (EARLYBIRD_JOB)"), "{answer}");
    }
    let mut ranks: Vec<Rank> = team(&scratch.meet(), "squatted", 2);
    attach_all(&mut ranks);
    assert_eq!(scratch.files(), Vec::<String>::new());
}
