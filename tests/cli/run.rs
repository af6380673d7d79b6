//! `earlybird run` seen from outside: exit codes, signals, grace, timeout, marks, and that nothing is left running.

use crate::{Scratch, children_of, earlybird, is_gone, pid_in, text, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Output, Stdio};

/// Runs `script` in a shell once per rank.
fn run_script(options: &[&str], script: &str) -> Output {
    let args = [&["run"], options, &["--", "sh", "-c", script]].concat();
    earlybird(&args).output().expect("start earlybird")
}

fn start_with_pid_files(scratch: &Scratch, options: &[&str], script: &str, files: &[&str]) -> (Child, Vec<Pid>) {
    let args = [&["run"], options, &["--", "sh", "-c", script]].concat();
    let mut launcher = earlybird(&args);
    launcher.current_dir(&scratch.0).stderr(Stdio::piped());
    let launcher = launcher.spawn().expect("start earlybird");
    wait_until("every rank to write its process id", || files.iter().all(|file| pid_in(&scratch.file(file)).is_some()));
    let pids = files.iter().map(|file| pid_in(&scratch.file(file)).expect("just seen")).collect();
    (launcher, pids)
}

#[test]
fn ranks_find_their_number_and_one_common_job() {
    let output = run_script(&["-n", "3"], "echo $EARLYBIRD_RANK $EARLYBIRD_SIZE $EARLYBIRD_JOB");
    assert!(output.status.success());
    let stdout = text(&output.stdout);
    let mut lines: Vec<Vec<&str>> = stdout.lines().map(|line| line.split(' ').collect()).collect();
    lines.sort();
    assert_eq!(lines.len(), 3);
    for (rank, line) in lines.iter().enumerate() {
        assert_eq!(line[..2], [rank.to_string().as_str(), "3"]);
        assert_eq!(line[2], lines[0][2]);
        assert!(line[2].len() == 32 && line[2].chars().all(|digit| digit.is_ascii_hexdigit()), "{line:?}");
    }
    let again = text(&run_script(&["-n", "1"], "echo $EARLYBIRD_JOB").stdout);
    assert_ne!(again.trim(), lines[0][2], "two jobs must not meet");
}

#[test]
fn exit_code_is_that_of_the_first_failing_rank() {
    let scratch = Scratch::new("first");
    let file = scratch.file("rank2").display().to_string();
    // Rank 0 fails too, but only when the launcher has collected rank 2: until then its process id exists.
    let script = format!(
        "case $EARLYBIRD_RANK in 2) echo $$ > {file}.part; mv {file}.part {file}; exit 7;; \
         0) while ! [ -e {file} ]; do sleep 0.01; done; while kill -0 $(cat {file}); do sleep 0.01; done; exit 9;; esac"
    );
    let output = run_script(&["-n", "3"], &script);
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("rank 2 exited with code 7"), "{}", text(&output.stderr));
}

#[test]
fn a_signal_gives_128_plus_its_number() {
    let output = run_script(&["-n", "2"], "[ $EARLYBIRD_RANK = 1 ] && kill -KILL $$; exit 0");
    assert_eq!(output.status.code(), Some(128 + 9));
    assert!(text(&output.stderr).contains("rank 1 was killed by SIGKILL"), "{}", text(&output.stderr));
}

#[test]
fn a_program_that_cannot_be_executed_gives_the_codes_of_a_shell() {
    let missing = earlybird(&["run", "-n", "1", "--", "/nonexistent/program"]).output().expect("start");
    assert_eq!(missing.status.code(), Some(127));
    assert!(text(&missing.stderr).contains("/nonexistent/program"), "{}", text(&missing.stderr));
    let directory = earlybird(&["run", "-n", "1", "--", "/tmp"]).output().expect("start");
    assert_eq!(directory.status.code(), Some(126));
}

#[test]
fn a_program_that_cannot_be_executed_gets_advice() {
    let scratch = Scratch::new("advice");
    std::fs::write(scratch.file("script.py"), "print()\n").expect("write a script");
    for (program, advice) in [
        ("script.py", "it is not in PATH, write ./script.py"),
        ("no-such-program", "it is not in PATH\n"),
        ("./script.py", "chmod +x, or name its interpreter"),
        ("/tmp", "it is a directory, name a program"),
    ] {
        let output = earlybird(&["run", "-n", "1", "--", program]).current_dir(&scratch.0).output().expect("start");
        assert!(text(&output.stderr).contains(advice), "{program}: {}", text(&output.stderr));
    }
}

#[test]
fn a_negative_number_of_ranks_and_options_after_the_program_are_answered() {
    for (args, said) in [
        (&["run", "-n", "-1", "--", "true"][..], "\"-1\" is not a number of ranks from 1 to 1023"),
        (&["run", "./program", "-n", "2"], "Usage: earlybird run -n <P> [OPTIONS] [--] <PROGRAM> [ARGUMENT]..."),
    ] {
        let output = earlybird(args).output().expect("start");
        assert!(text(&output.stderr).contains(said), "{args:?}: {}", text(&output.stderr));
    }
}

#[test]
fn others_may_speak_within_the_grace_and_are_ended_after_it() {
    let spoke = run_script(&["-n", "2"], "[ $EARLYBIRD_RANK = 1 ] && exit 3; sleep 0.3; echo last words");
    assert_eq!((spoke.status.code(), text(&spoke.stdout).as_str()), (Some(3), "last words\n"));

    let script = "[ $EARLYBIRD_RANK = 1 ] && exit 3; trap 'echo told; exit 0' TERM; while :; do sleep 0.05; done";
    let told = run_script(&["-n", "2", "--grace", "0.2"], script);
    assert_eq!((told.status.code(), text(&told.stdout).as_str()), (Some(3), "told\n"));

    let deaf = "[ $EARLYBIRD_RANK = 1 ] && exit 3; trap '' TERM; while :; do sleep 0.05; done";
    assert_eq!(run_script(&["-n", "2", "--grace", "0"], deaf).status.code(), Some(3));
}

#[test]
fn a_timeout_ends_the_job_and_says_who_was_late() {
    let output = run_script(&["-n", "3", "--timeout", "0.5"], "[ $EARLYBIRD_RANK = 1 ] && exit 0; sleep 600");
    assert_eq!(output.status.code(), Some(124));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("after 0.5 s") && stderr.contains("0, 2"), "{stderr}");
    assert_eq!(run_script(&["-n", "2", "--timeout", "600"], "exit 0").status.code(), Some(0));
}

#[test]
fn marks_are_put_on_whole_lines_of_both_streams() {
    let script = "i=0; while [ $i -lt 200 ]; do echo $EARLYBIRD_RANK out; echo $EARLYBIRD_RANK err >&2; i=$((i+1)); done; printf end";
    let output = run_script(&["-n", "3", "--prefix"], script);
    assert!(output.status.success());
    for (stream, word) in [(&output.stdout, "out"), (&output.stderr, "err")] {
        let stream = text(stream);
        for rank in 0..3 {
            let whole = format!("[{rank}] {rank} {word}");
            assert_eq!(stream.lines().filter(|line| **line == whole).count(), 200);
        }
        let ends = stream.lines().filter(|line| line.ends_with("] end")).count();
        assert_eq!((ends, stream.lines().count()), if word == "out" { (3, 603) } else { (0, 600) });
    }
}

#[test]
fn a_line_without_an_end_is_broken_and_what_follows_marked_as_its_continuation() {
    let output = run_script(&["-n", "1", "--prefix"], "head -c 100000 /dev/zero | tr '\\0' x");
    let stdout = text(&output.stdout);
    let pieces: Vec<(&str, usize)> = stdout
        .lines()
        .map(|line| line.split_once(' ').expect("marked"))
        .map(|(mark, rest)| (mark, rest.len()))
        .collect();
    assert_eq!(pieces, [("[0]", 65536), ("[0+]", 100000 - 65536)]);
}

#[test]
fn what_follows_a_broken_line_is_marked_as_a_line_of_its_own() {
    let script =
        "head -c 131073 /dev/zero | tr '\\0' x; echo; echo a; head -c 65536 /dev/zero | tr '\\0' y; echo; echo b";
    let stdout = text(&run_script(&["-n", "1", "--prefix"], script).stdout);
    let marks: Vec<&str> = stdout.lines().map(|line| &line[..line.len().min(7)]).collect();
    assert_eq!(marks, ["[0] xxx", "[0+] xx", "[0+] x", "[0] a", "[0] yyy", "[0] b"]);
}

#[test]
fn only_rank_0_reads_standard_input() {
    let mut launcher = earlybird(&["run", "-n", "2", "--", "sh", "-c", "echo $EARLYBIRD_RANK:$(cat)"]);
    let mut launcher = launcher.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("start");
    launcher.stdin.take().expect("piped").write_all(b"given").expect("write");
    let stdout = text(&launcher.wait_with_output().expect("wait").stdout);
    let mut lines: Vec<&str> = stdout.lines().collect();
    lines.sort();
    assert_eq!(lines, ["0:given", "1:"]);
}

#[test]
fn ranks_are_bound_round_robin_unless_told_otherwise() {
    let allowed = earlybird::launch::allowed_cpus().expect("affinity");
    let script = "echo $EARLYBIRD_RANK $(grep Cpus_allowed_list /proc/self/status | cut -f2)";
    let stdout = text(&run_script(&["-n", "5"], script).stdout);
    for rank in 0..5 {
        let line = format!("{rank} {}", allowed[rank % allowed.len()]);
        assert!(stdout.lines().any(|seen| seen == line), "{line:?} is not in {stdout}");
    }
    let status = std::fs::read_to_string("/proc/self/status").expect("proc");
    let own = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("affinity").trim();
    let free = text(&run_script(&["-n", "1", "--bind", "none"], script).stdout);
    assert_eq!(free, format!("0 {own}\n"));
}

#[test]
fn nothing_outlives_a_launcher_that_is_killed() {
    let scratch = Scratch::new("killed");
    let script = "echo $$ > rank$EARLYBIRD_RANK; exec sleep 600";
    let (mut launcher, ranks) = start_with_pid_files(&scratch, &["-n", "3"], script, &["rank0", "rank1", "rank2"]);
    launcher.kill().expect("kill the launcher");
    launcher.wait().expect("wait");
    wait_until("the ranks to be gone", || ranks.iter().all(|&rank| is_gone(rank)));
}

/// The program that a rank's shell starts and waits for.
const BENEATH: &str = "sh -c 'echo $$ > rank$EARLYBIRD_RANK; exec sleep 600'; true";

#[test]
fn what_ranks_have_started_does_not_outlive_a_launcher_that_is_killed() {
    let scratch = Scratch::new("beneath");
    let (mut launcher, programs) = start_with_pid_files(&scratch, &["-n", "2"], BENEATH, &["rank0", "rank1"]);
    launcher.kill().expect("kill the launcher");
    launcher.wait().expect("wait");
    wait_until("the programs to be gone", || programs.iter().all(|&program| is_gone(program)));
}

#[test]
fn a_rank_tells_the_watchdog_its_group_before_it_starts_anything() {
    let (mut told, pipe) = std::io::pipe().expect("a pipe");
    let path = format!("/proc/{}/fd/{}", std::process::id(), pipe.as_raw_fd());
    let mut rank = earlybird(&["__exec", &std::process::id().to_string(), "-", &path, "true"]);
    let mut rank = rank.process_group(0).spawn().expect("start");
    assert!(rank.wait().expect("wait").success());
    drop(pipe);
    let mut groups = String::new();
    told.read_to_string(&mut groups).expect("read");
    assert_eq!(groups, format!("+{}\n", rank.id()));
}

/// The child of the launcher that has this name.
fn child_named(launcher: &Child, name: &str) -> Option<Pid> {
    let is_named = |pid: &Pid| {
        let comm = std::fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero()));
        comm.is_ok_and(|comm| comm.trim_end() == name)
    };
    children_of(Pid::from_child(launcher)).into_iter().find(is_named)
}

#[test]
fn a_watchdog_that_is_killed_is_replaced() {
    let scratch = Scratch::new("watchdog");
    let (mut launcher, programs) = start_with_pid_files(&scratch, &["-n", "2"], BENEATH, &["rank0", "rank1"]);
    let first = child_named(&launcher, "eb-watchdog").expect("a watchdog");
    kill_process(first, Signal::KILL).expect("kill it");
    wait_until("another one", || child_named(&launcher, "eb-watchdog").is_some_and(|other| other != first));
    assert!(programs.iter().all(|&program| !is_gone(program)));
    launcher.kill().expect("kill the launcher");
    launcher.wait().expect("wait");
    wait_until("the programs to be gone", || programs.iter().all(|&program| is_gone(program)));
}

#[test]
fn a_job_that_is_killed_while_its_ranks_meet_leaves_nothing() {
    for kill_the_launcher in [false, true] {
        let scratch = Scratch::new("met");
        let meet = scratch.file("meet");
        let program = env!("CARGO_BIN_EXE_earlybird");
        let script = format!(
            "echo $$ > rank$EARLYBIRD_RANK; [ $EARLYBIRD_RANK = 1 ] && exec sleep 600; exec {program} bench allreduce --worker"
        );
        let mut launcher = earlybird(&["run", "-n", "2", "--grace", "0", "--", "sh", "-c", &script]);
        let launcher = launcher.current_dir(&scratch.0).env("EARLYBIRD_DIR", &meet).stderr(Stdio::null());
        let mut launcher = launcher.spawn().expect("start earlybird");
        let names = || {
            let files = std::fs::read_dir(&meet).into_iter().flatten().flatten();
            files.map(|file| file.file_name().into_string().expect("a name")).collect::<Vec<String>>()
        };
        wait_until("rank 0 to wait at the meeting", || names().iter().any(|name| name.starts_with("meet-")));
        wait_until("rank 1", || pid_in(&scratch.file("rank1")).is_some());
        let ranks = ["rank0", "rank1"].map(|file| pid_in(&scratch.file(file)).expect("written"));
        let leaves_nothing = || names().is_empty();
        if kill_the_launcher {
            launcher.kill().expect("kill the launcher");
            launcher.wait().expect("wait");
            wait_until("what they left to be removed", leaves_nothing);
        } else {
            ranks.iter().for_each(|rank| kill_process(*rank, Signal::KILL).expect("kill"));
            assert_eq!(launcher.wait().expect("wait").code(), Some(128 + 9));
            assert!(leaves_nothing(), "{:?}", names());
        }
    }
}

#[test]
fn signals_to_the_launcher_reach_the_ranks() {
    for (signal, name) in [(Signal::INT, "INT"), (Signal::TERM, "TERM"), (Signal::HUP, "HUP")] {
        let scratch = Scratch::new(name);
        let script =
            format!("trap 'echo told; exit 0' {name}; echo $$ > rank$EARLYBIRD_RANK; while :; do sleep 0.05; done");
        let args = ["run", "-n", "2", "--", "sh", "-c", &script];
        let launcher = earlybird(&args).current_dir(&scratch.0).stdout(Stdio::piped()).spawn().expect("start");
        wait_until("the ranks", || ["rank0", "rank1"].iter().all(|file| pid_in(&scratch.file(file)).is_some()));
        kill_process(Pid::from_child(&launcher), signal).expect("signal the launcher");
        let output = launcher.wait_with_output().expect("wait");
        assert_eq!(output.status.code(), Some(128 + signal.as_raw()));
        assert_eq!(text(&output.stdout), "told\ntold\n");
    }
}

#[test]
fn a_second_signal_kills_ranks_that_do_not_listen() {
    let scratch = Scratch::new("second");
    let script = "trap '' TERM INT; echo $$ > rank$EARLYBIRD_RANK; while :; do sleep 0.05; done";
    let (mut launcher, ranks) =
        start_with_pid_files(&scratch, &["-n", "2", "--grace", "600"], script, &["rank0", "rank1"]);
    kill_process(Pid::from_child(&launcher), Signal::TERM).expect("signal");
    let mut stderr = launcher.stderr.take().expect("piped");
    let mut seen = [0; 16];
    stderr.read_exact(&mut seen).expect("the launcher says that it heard the first one");
    kill_process(Pid::from_child(&launcher), Signal::INT).expect("signal");
    assert_eq!(launcher.wait().expect("wait").code(), Some(128 + 15), "the code of the first signal");
    assert!(ranks.iter().all(|&rank| is_gone(rank)));
}

#[test]
fn what_a_rank_started_goes_with_it() {
    let scratch = Scratch::new("group");
    let script = "sleep 600 & echo $! > helper$EARLYBIRD_RANK; exit 0";
    let (mut launcher, helpers) = start_with_pid_files(&scratch, &["-n", "2"], script, &["helper0", "helper1"]);
    assert_eq!(launcher.wait().expect("wait").code(), Some(0));
    wait_until("the helpers to be gone", || helpers.iter().all(|&helper| is_gone(helper)));
}

#[test]
fn usage_errors_exit_with_2_and_say_what_to_do() {
    for (args, part) in [
        (&["run", "-n", "0", "--", "true"][..], "from 1 to 1023"),
        (&["run", "-n", "x", "--", "true"], "from 1 to 1023"),
        (&["run", "-n", "1024", "--", "true"], "from 1 to 1023"),
        (&["bench", "allreduce", "--ranks", "1024"], "from 1 to 1023"),
        (&["run", "-n", "2"], "<PROGRAM>"),
        (&["run", "--", "true"], "--ranks"),
        (&["run", "-n", "2", "--nodes", "3", "--", "true"], "1 to 2 nodes"),
        (&["run", "-n", "2", "--nodes", "2,1", "--", "true"], "for 2 ranks"),
        (&["run", "-n", "2", "--nodes", "none", "--", "true"], "ranks per node"),
        (&["run", "-n", "2", "--bind", "socket", "--", "true"], "core, none"),
        (&["run", "-n", "2", "--timeout", "soon", "--", "true"], "write seconds"),
        (&["run", "-n", "2", "--timeout", "-1", "--", "true"], "write seconds"),
        (&["ran"], "run"),
        (&["__exec", "1"], "internal"),
    ] {
        let output = earlybird(args).output().expect("start earlybird");
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output.stderr).contains(part), "{args:?}: {}", text(&output.stderr));
    }
}

#[test]
fn a_rank_that_ends_before_it_has_joined_is_everybodys_error_soon() {
    let program = env!("CARGO_BIN_EXE_earlybird");
    for nodes in ["1", "2"] {
        let script = format!("[ $EARLYBIRD_RANK = 1 ] && exit 0; exec {program} bench allreduce --worker --sizes 8");
        let began = std::time::Instant::now();
        let output = run_script(&["-n", "3", "--nodes", nodes, "--timeout", "20", "--grace", "20"], &script);
        let stderr = text(&output.stderr);
        assert!(stderr.contains("rank 1") && stderr.contains("died during"), "{nodes}: {stderr}");
        assert_ne!(output.status.code(), Some(124), "{nodes}: {stderr}");
        assert!(began.elapsed() < std::time::Duration::from_secs(3), "{nodes}: {:?}", began.elapsed());
    }
}

#[test]
fn a_job_name_that_differs_between_launched_ranks_is_everybodys_error() {
    let program = env!("CARGO_BIN_EXE_earlybird");
    let script = format!("EARLYBIRD_JOB=job$EARLYBIRD_RANK exec {program} bench allreduce --worker --sizes 8");
    let output = run_script(&["-n", "2", "--timeout", "20", "--grace", "20"], &script);
    let stderr = text(&output.stderr);
    let says = |[one, other]: [usize; 2]| {
        format!("EARLYBIRD_JOB is job{one} on rank {one} and job{other} on rank {other}; set it alike")
    };
    assert!([[0, 1], [1, 0]].iter().any(|ranks| stderr.matches(&says(*ranks)).count() == 2), "{stderr}");
    assert_ne!(output.status.code(), Some(124), "{stderr}");
}
