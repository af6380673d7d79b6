//! `earlybird doctor`: what it finds here, where little is given, and where something is broken.

use crate::{Scratch, earlybird, text, wait_until};
use rustix::process::geteuid;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// The findings of a doctor that was started so, and its exit code.
fn findings(command: &mut Command) -> (Option<i32>, Vec<Value>) {
    let output = command.output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {} {}", text(&output.stdout), text(&output.stderr)));
    let findings = answer["findings"].as_array().unwrap().clone();
    let count = |state| findings.iter().filter(|finding| finding["state"] == state).count();
    assert_eq!((&answer["broken"], &answer["notes"]), (&count("broken").into(), &count("note").into()));
    assert_eq!(output.status.code(), Some(i32::from(count("broken") > 0)), "{answer:#}");
    (output.status.code(), findings)
}

fn named<'a>(findings: &'a [Value], name: &str) -> &'a Value {
    findings.iter().find(|finding| finding["name"] == name).unwrap_or_else(|| panic!("{name}: {findings:#?}"))
}

/// State and value of a finding.
fn told<'a>(findings: &'a [Value], name: &str) -> (&'a str, &'a str) {
    let finding = named(findings, name);
    (finding["state"].as_str().unwrap(), finding["value"].as_str().unwrap())
}

#[test]
fn here_jobs_run_and_the_table_has_what_the_json_has() {
    let (code, found) = findings(&mut earlybird(&["doctor", "--format", "json"]));
    assert_eq!(code, Some(0), "{found:#?}");
    assert_eq!(told(&found, "memfd with seals"), ("ok", "works"));
    assert_eq!(told(&found, "allreduce"), ("ok", "right on both ranks"));
    assert!(told(&found, "abstract sockets").1.contains("net:["));
    let table = earlybird(&["doctor"]).output().unwrap();
    let table = text(&table.stdout);
    for finding in &found {
        // Running programs and free memory change from one call to the next.
        assert!(table.contains(&format!("{}: ", finding["name"].as_str().unwrap())), "{finding}: {table}");
        assert!(table.contains(finding["effect"].as_str().unwrap()), "{finding}: {table}");
        assert!(finding["state"] == "ok" || !finding["change"].as_str().unwrap().is_empty());
    }
}

#[test]
fn a_small_shared_memory_file_system_is_told_and_does_not_matter() {
    for (size, state, says) in [("64m", "ok", "tmpfs, 64.0 MiB, 64.0 MiB free"), ("1m", "note", "tmpfs, 1.0 MiB")] {
        let mount = format!("mount -t tmpfs -o size={size} tmpfs /dev/shm && exec \"$0\" \"$@\"");
        let inside = |how: &str| {
            let mut command = Command::new("unshare");
            command.args([how, "sh", "-c", &mount]).arg(env!("CARGO_BIN_EXE_earlybird"));
            command
        };
        let may = |how: &&str| inside(how).arg("--version").output().is_ok_and(|output| output.status.success());
        let Some(how) = ["-m", "-rm"].into_iter().find(may) else {
            println!("SKIPPED: this user cannot mount a tmpfs of its own, so a small /dev/shm was not tested");
            return;
        };
        let (code, found) = findings(inside(how).args(["doctor", "--format", "json"]));
        assert_eq!(code, Some(0), "{found:#?}");
        let (judged, value) = told(&found, "/dev/shm");
        assert!(judged == state && value.starts_with(says), "{size}: {judged} {value}");
        assert_eq!(told(&found, "allreduce").0, "ok");
    }
}

#[test]
fn a_directory_of_another_user_is_broken() {
    let scratch = Scratch::new("doctor-theirs");
    let theirs = match geteuid().is_root() {
        true => {
            std::fs::set_permissions(&scratch.0, PermissionsExt::from_mode(0o700)).unwrap();
            std::os::unix::fs::chown(&scratch.0, Some(65534), None).unwrap();
            scratch.0.clone()
        }
        false => "/usr".into(),
    };
    let (code, found) = findings(earlybird(&["doctor", "--format", "json"]).env("EARLYBIRD_DIR", &theirs));
    assert_eq!(code, Some(1));
    for name in ["EARLYBIRD_DIR", "allreduce"] {
        let (state, value) = told(&found, name);
        assert!(state == "broken" && value.contains("belongs to user"), "{name}: {state} {value}");
    }
}

#[test]
fn what_a_killed_rank_left_is_named_with_its_owner() {
    let scratch = Scratch::new("doctor-left");
    let meet = scratch.file("meet");
    let names = || std::fs::read_dir(&meet).map_or(vec![], |dir| dir.map(|name| name.unwrap().path()).collect());
    let alone = [("RANK", "0"), ("SIZE", "2"), ("JOB", "doctor-left")];
    let mut rank = earlybird(&["doctor", "--worker"]);
    rank.envs(alone.map(|(name, value)| (format!("EARLYBIRD_{name}"), value)))
        .env("EARLYBIRD_DIR", &meet)
        .env("EARLYBIRD_TIMEOUT", "60");
    let mut rank = rank.spawn().unwrap();
    wait_until("the first rank is at the rendezvous", || !names().is_empty());
    let left = names();
    let doctor = || findings(earlybird(&["doctor", "--format", "json"]).env("EARLYBIRD_DIR", &meet));
    let expected = format!("{} of user {}", left[0].display(), geteuid().as_raw());
    // Other tests may leave something in /dev/shm meanwhile.
    let tells = |found: &[Value]| found.iter().any(|one| one["value"] == expected && one["state"] == "note");
    let (_, found) = doctor();
    assert!(!tells(&found), "its owner lives: {found:#?}");
    assert_eq!(names(), left);
    rank.kill().unwrap();
    rank.wait().unwrap();
    let (code, found) = doctor();
    assert!(code == Some(0) && tells(&found), "{found:#?}");
    assert!(names().is_empty(), "the trial job met there, and removed it");
}

#[test]
fn settings_and_limits_that_no_job_survives_are_broken() {
    let (_, found) = findings(earlybird(&["doctor", "--format", "json"]).env("EARLYBIRD_WIAT", "power"));
    assert!(told(&found, "EARLYBIRD_ variables").1.contains("EARLYBIRD_WIAT is not known"), "{found:#?}");
    let limited = "ulimit -f 1000 && exec \"$0\" doctor --format json";
    let (code, found) = findings(Command::new("sh").args(["-c", limited, env!("CARGO_BIN_EXE_earlybird")]));
    assert_eq!(code, Some(1));
    for name in ["file size (ulimit -f)", "memfd with seals"] {
        assert_eq!(told(&found, name).0, "broken", "{found:#?}");
    }
}

#[test]
fn a_process_is_looked_at() {
    let own = std::process::id().to_string();
    let (_, found) = findings(&mut earlybird(&["doctor", "--format", "json", "--pid", &own]));
    assert!(
        found.iter().any(|finding| finding["section"] == "process" && finding["value"] == "not loaded"),
        "{found:#?}"
    );
    let (code, found) = findings(&mut earlybird(&["doctor", "--format", "json", "--pid", "4294967295"]));
    assert_eq!((code, told(&found, "4294967295").0), (Some(1), "broken"));
}
