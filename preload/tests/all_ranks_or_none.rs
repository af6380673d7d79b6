//! Ranks that are started differently: one without the library, with other settings or with too few descriptors. No run hangs in silence.

mod support;

use std::time::{Duration, Instant};
use support::{MPI, Outcome, Program, has_mpi, library};

/// Runs a program on two ranks with these variables, of which `rank` runs `prepare` in a shell first.
fn run(program: &Program, rank: usize, prepare: &str, vars: &[(&str, &str)]) -> (Outcome, Duration) {
    let script = format!(
        "[ \"${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}\" != {rank} ] || {{ {prepare}; }}; export LD_PRELOAD=$PRELOADED; exec {}",
        program.path()
    );
    let started = Instant::now();
    // The shell itself runs without the library.
    let library = library().display().to_string();
    let vars = [&[("LD_PRELOAD", ""), ("PRELOADED", &library)], vars].concat();
    (Program::command(&["sh", "-c", &script]).run(2, true, &[], &vars), started.elapsed())
}

/// Returns whether the job was ended before the time limit of `Program::run`.
fn was_ended(outcome: &Outcome) -> bool {
    ![Some(0), Some(124), None].contains(&outcome.code)
}

#[test]
fn a_rank_without_the_library_is_named() {
    if !has_mpi() {
        return;
    }
    let program = &Program::compile("outstanding.c");
    let runs = std::thread::scope(|scope| {
        let runs = [0, 1]
            .map(|rank| scope.spawn(move || (rank, run(program, rank, "PRELOADED=", &[("EARLYBIRD_TIMEOUT", "4")]))));
        runs.map(|run| run.join().unwrap())
    });
    for (rank, (outcome, _)) in runs {
        let named = format!("earlybird: rank {rank} of MPI_COMM_WORLD has not compared settings");
        assert!(outcome.said.contains(&named) && was_ended(&outcome), "{outcome:?}");
    }
}

#[test]
fn a_rank_with_other_settings_ends_the_job() {
    if !has_mpi() {
        return;
    }
    let program = Program::compile("outstanding.c");
    for setting in ["EARLYBIRD_INTERPOSE=off", "EARLYBIRD_ORDER=arrival"] {
        let (outcome, _) = run(&program, 1, &format!("export {setting}"), &[]);
        assert!(outcome.said.contains("variables of rank 1 differ from those of rank 0"), "{setting}: {outcome:?}");
        assert!(was_ended(&outcome), "{setting}: {outcome:?}");
    }
    // An empty word is as good as none; an impossible one is refused.
    let (outcome, _) = run(&program, 1, "export EARLYBIRD_INTERPOSE=", &[]);
    assert!(outcome.code == Some(0) && !outcome.said.contains("earlybird"), "{outcome:?}");
    let outcome = program.run(2, true, &[], &[("EARLYBIRD_RANKS_PER_NODE", "2,3")]);
    assert!(outcome.said.contains("nodes of 2,3 ranks were given for 2 ranks") && was_ended(&outcome), "{outcome:?}");
}

#[test]
fn others_learn_at_once_of_a_rank_without_descriptors() {
    if MPI != "mpich" {
        eprintln!("SKIPPED: Open MPI itself needs more descriptors than this library");
        return;
    }
    // MPICH itself starts with some 30.
    let program = Program::compile("outstanding.c");
    let mut refused = 0;
    for limit in (26..=40).step_by(2) {
        let (outcome, took) = run(&program, 1, &format!("ulimit -n {limit}"), &[]);
        if outcome.code == Some(0) && outcome.said.contains("are forwarded to MPI") {
            refused += 1;
            assert!(took < Duration::from_secs(15), "{limit}: {took:?} {outcome:?}");
        }
    }
    assert!(refused > 0, "no limit is too low for this library alone");
}
