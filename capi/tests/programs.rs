//! Programs in C, compiled with all warnings as errors as C and as C++, run by `earlybird run`: results are exact, mistakes
//! have their errors, a death is named.

mod support;

use earlybird::{CollectiveArgs, Communicator, Config, Error, Identity, Op, UserOp};
use std::process::{Command, Stdio};
use support::{C, CPP, Program, built, compiles, has, home, launcher, text};

const RANKS: [usize; 4] = [1, 2, 3, 5];

/// The languages: C and, if there is a compiler for it, C++.
fn programs(name: &str) -> Vec<Program> {
    let compilers = [C, CPP].into_iter().filter(|compiler| compiler == &C || has(compiler[0]));
    compilers.map(|compiler| Program::compile(compiler, name)).collect()
}

fn is_right_on_all(name: &str) {
    for program in programs(name) {
        RANKS.iter().for_each(|ranks| program.is_right(name, *ranks));
    }
}

#[test]
fn every_operation_is_exact() {
    is_right_on_all("collectives.c");
}

#[test]
fn every_mistake_has_its_error() {
    is_right_on_all("misuse.c");
}

#[test]
fn operators_of_the_caller() {
    is_right_on_all("user_ops.c");
}

#[test]
fn scans_in_every_form() {
    is_right_on_all("scan.c");
}

#[test]
fn calls_under_way_and_shared_buffers() {
    is_right_on_all("requests.c");
}

#[test]
fn calls_made_again_and_again_with_counts_and_in_groups() {
    is_right_on_all("persistent.c");
}

#[test]
fn blocks_that_differ_for_every_pair_started_and_again() {
    is_right_on_all("alltoallv.c");
}

#[test]
fn results_that_all_ranks_read() {
    is_right_on_all("views.c");
}

#[test]
fn communicators_options_threads_and_forks() {
    is_right_on_all("groups.c");
}

#[test]
fn calls_that_differ_are_reported_when_a_communicator_is_closed() {
    is_right_on_all("close.c");
}

#[test]
fn a_killed_rank_is_named_to_the_others_who_may_go_on() {
    let programs = ["death.c", "shrink.c"].map(|name| Program::compile(C, name));
    for (ranks, program) in [2, 3, 5].into_iter().flat_map(|ranks| programs.iter().map(move |program| (ranks, program)))
    {
        let output = program.run(ranks);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(128 + 9), "{said}");
        assert_eq!(said.matches(" right\n").count(), ranks - 1, "{said}");
    }
}

#[test]
fn a_rank_that_is_too_late_is_named() {
    let program = Program::compile(C, "timeout.c");
    for ranks in [2, 3] {
        program.is_right("timeout.c", ranks);
    }
}

#[test]
fn several_nodes_do_what_they_can() {
    let program = Program::compile(C, "nodes.c");
    program.is_right_with("nodes.c", 5, &["--nodes", "2"]);
    program.is_right_with("nodes.c", 4, &["--nodes", "1,3"]);
    for name in ["user_ops.c", "persistent.c", "alltoallv.c", "views.c", "scan.c"] {
        let program = Program::compile(C, name);
        program.is_right_with(name, 5, &["--nodes", "2"]);
        program.is_right_with(name, 4, &["--nodes", "1,3"]);
    }
}

#[test]
fn calls_that_differ_between_nodes_are_reported_when_a_communicator_is_closed() {
    let program = Program::compile(C, "close.c");
    program.is_right_with("close.c", 2, &["--nodes", "1"]);
    program.is_right_with("close.c", 5, &["--nodes", "2"]);
}

#[test]
fn nothing_leaks_and_nothing_is_written_beside_a_buffer() {
    let checked = &["cc", "-g", "-fsanitize=address", "-x", "c"];
    if !compiles(checked) {
        eprintln!("SKIPPED: no address sanitizer on this machine");
        return;
    }
    for name in [
        "collectives.c",
        "misuse.c",
        "groups.c",
        "user_ops.c",
        "requests.c",
        "persistent.c",
        "alltoallv.c",
        "views.c",
        "scan.c",
    ] {
        Program::compile(checked, name).is_right(name, 2);
    }
    let output = Program::compile(checked, "leaks.c").run(1);
    assert!(!output.status.success() && text(&output).contains("LeakSanitizer"), "{}", text(&output));
}

#[test]
fn ranks_in_c_and_in_rust_are_one_job() {
    let program = Program::compile(C, "joined.c");
    let job = format!("joined {}", std::process::id());
    let child = Command::new(program.path()).args([&job, "1", "2"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut config = Config::default();
    config.timeout = Some(std::time::Duration::from_secs(60));
    let comm = Communicator::builder().config(config).identity(Identity::named(&job, 0, 2).unwrap()).connect().unwrap();
    let mut sums = [2i32, 20, 200];
    comm.all_reduce_in_place(&mut sums, Op::Sum).unwrap();
    assert_eq!(sums, [3, 30, 300]);
    comm.process_at_rank(0).broadcast_into(&mut [true, false]).unwrap();
    let (mut pair, second) = ([[1u32, 2]], UserOp::ordered(|_: &[u32; 2], right: &[u32; 2]| *right).tagged(3).unwrap());
    comm.all_reduce_in_place(&mut pair, &second).unwrap();
    assert_eq!(pair, [[5, 6]]);
    comm.start(CollectiveArgs::barrier()).unwrap().wait().unwrap();
    let refused = comm.all_reduce_in_place(&mut sums, Op::Sum);
    assert!(matches!(refused, Err(Error::Mismatch { .. })), "{refused:?}");
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn a_program_that_is_wrong_is_noticed() {
    // A rank that fails must fail the test: here every rank misses a launcher's variable.
    let program = Program::compile(C, "timeout.c");
    let output = Command::new(program.path()).env("EARLYBIRD_RANK", "0").output().unwrap();
    assert!(!output.status.success() && text(&output).contains("EARLYBIRD_JOB is missing"), "{}", text(&output));
}

#[test]
fn the_example_in_python_is_right() {
    if !has("python3") {
        return;
    }
    let example = home().join("../examples/hello.py");
    for ranks in [1, 3] {
        let mut command = Command::new(launcher());
        command.args(["run", "-n", &ranks.to_string(), "--", "python3"]).arg(&example);
        let output = command.arg(built().join("libearlybird_capi.so")).output().unwrap();
        let said = text(&output);
        assert!(output.status.success() && said.matches("all is right").count() == ranks, "{said}");
    }
}
