//! Programs in C under the interposer: intercepted calls give right results, all others reach MPI with a reason.

mod support;

use support::{MPI, NODES, Program, RANKS, has_mpi, intercepted};

#[test]
fn every_type_and_operator_of_allreduce() {
    if !has_mpi() {
        return;
    }
    let program = Program::compile("allreduce.c");
    for &ranks in RANKS.iter().filter(|&&ranks| ranks <= 3) {
        let said = program.is_right(ranks, &["supported"]);
        assert!(intercepted(&said, "MPI_Allreduce") > 900 && said.contains("forwarded to MPI: 0\n"), "{said}");
        let said = program.is_right(ranks, &["other"]);
        for reason in ["1 (4 B) a communicator of one rank", "1 (8 B) an unsupported pair of type and"] {
            assert!(said.contains(reason), "{said}");
        }
        assert_eq!(intercepted(&said, "MPI_Allreduce"), 5, "{said}");
    }
}

#[test]
fn an_invalid_setting_ends_the_job() {
    if !has_mpi() {
        return;
    }
    let program = Program::compile("allreduce.c");
    // MPICH's launcher loses the words of one abort in ten, unless it is given the time to read them.
    for _ in 0..if MPI == "mpich" { 20 } else { 1 } {
        let outcome = program.run(2, true, &["supported"], &[("EARLYBIRD_INTERPOSE", "maybe")]);
        let named = outcome.said.contains("EB_USAGE EARLYBIRD_INTERPOSE") && outcome.said.contains("on, off, profile");
        assert!(named && outcome.code != Some(0) && outcome.code != Some(124), "{outcome:?}");
    }
    // Switched off it says nothing, and the program is right.
    let outcome = program.run(2, true, &["supported"], &[("EARLYBIRD_INTERPOSE", "off")]);
    assert!(outcome.code == Some(0) && !outcome.said.contains("earlybird"), "{outcome:?}");
}

#[test]
fn calls_are_forwarded_by_settings() {
    if !has_mpi() {
        return;
    }
    let program = Program::compile("collectives.c");
    let left = [("EARLYBIRD_INTERPOSE", "profile,from-call=1,broadcast=mpi:100-,barrier=mpi,allgather=earlybird")];
    let outcome = program.run(2, true, &[], &left);
    assert!(outcome.code == Some(0) && outcome.said.matches(" right").count() == 2, "{outcome:?}");
    let line = |function: &str| outcome.said.lines().find(|line| line.contains(function)).unwrap_or("").to_owned();
    assert!(intercepted(&outcome.said, "MPI_Bcast ") > 1000 && intercepted(&outcome.said, "MPI_Barrier ") == 0);
    for (function, is_left) in [("MPI_Bcast ", true), ("MPI_Barrier ", true), ("MPI_Allgather ", false)] {
        assert_eq!(
            line(function).contains("MPI is faster by measurement, or chosen by a setting"),
            is_left,
            "{outcome:?}"
        );
    }
}

#[test]
fn every_collective_on_every_communicator() {
    if !has_mpi() {
        return;
    }
    let program = Program::compile("collectives.c");
    for &ranks in RANKS {
        let said = program.is_right(ranks, &[]);
        let functions = ["Allreduce", "Reduce", "Bcast", "Barrier", "Allgather", "Reduce_scatter_block"];
        for function in functions.map(|name| format!("MPI_{name}")) {
            assert!(intercepted(&said, &format!("{function} ")) > 0, "{function}: {said}");
        }
        assert!(said.contains("an intercommunicator") && !said.contains("a user-defined operator"), "{said}");
    }
}

/// The functions of `blocks.c`.
const WITH_BLOCKS: [&str; 9] =
    ["Gather", "Gatherv", "Scatter", "Scatterv", "Allgatherv", "Alltoall", "Alltoallv", "Alltoallw", "Reduce_scatter"];

#[test]
fn blocks_of_every_length_on_every_communicator() {
    if !has_mpi() {
        return;
    }
    let program = Program::compile("blocks.c");
    for &ranks in RANKS {
        let said = program.is_right(ranks, &[]);
        for function in WITH_BLOCKS {
            assert!(intercepted(&said, &format!("MPI_{function} ")) > 0, "{function}: {said}");
        }
        assert!(said.contains("an intercommunicator") && !said.contains("setting up"), "{said}");
        if MPI == "openmpi" {
            assert!(said.matches("an invalid argument, which MPI reports").count() >= 5, "{said}");
        }
    }
    // Where each rank knows its own length only no size counts.
    let vars = [(
        "EARLYBIRD_INTERPOSE",
        "profile,from-call=1,gather=mpi:2Ki-,gather=earlybird,scatter=mpi:2Ki-,scatter=earlybird,alltoall=mpi",
    )];
    let outcome = program.run(RANKS[RANKS.len() - 1], true, &[], &vars);
    assert_eq!(
        (outcome.code, outcome.said.matches(" right").count()),
        (Some(0), RANKS[RANKS.len() - 1]),
        "{outcome:?}"
    );
    for function in ["Gatherv", "Scatterv"] {
        let line = outcome.said.lines().find(|line| line.contains(&format!("MPI_{function} "))).unwrap_or("");
        assert!(intercepted(&outcome.said, &format!("MPI_{function} ")) > 0, "{outcome:?}");
        assert!(!line.contains("MPI is faster"), "{outcome:?}");
    }
    assert_eq!(intercepted(&outcome.said, "MPI_Alltoallv "), 0, "{outcome:?}");
}

#[test]
fn user_defined_operators_in_rank_order() {
    if !has_mpi() {
        return;
    }
    for source in ["user_ops.c", "user_ops.f90"] {
        let program = Program::compile(source);
        for &ranks in RANKS {
            let said = program.is_right(ranks, &[]);
            for function in ["Allreduce", "Reduce", "Reduce_scatter_block", "Iallreduce"] {
                assert!(intercepted(&said, &format!("MPI_{function} ")) > 0, "{source} {function}: {said}");
            }
            assert!(!said.contains("a user-defined operator"), "{said}");
            operators_may_be_freed(&program, source, ranks, &ranks.to_string());
        }
        if source == "user_ops.c" {
            let (large, nodes) = (["large"], [("EARLYBIRD_RANKS_PER_NODE", "2,1")]);
            let said = program.is_right(2, &large);
            assert!(said.contains("1 (2097152 B) a user-defined operator on elements that are too large"), "{said}");
            assert!(!program.is_right_with(3, &large, &nodes).contains("a user-defined operator"));
        }
        // Whatever order the settings ask for.
        let arrival = [("EARLYBIRD_ORDER", "arrival"), ("EARLYBIRD_ALLREDUCE", "chain:0-")];
        program.is_right_with(RANKS[RANKS.len() - 1], &[], &arrival);
    }
}

/// Runs a program that frees operators and types while calls use them.
fn operators_may_be_freed(program: &Program, source: &str, ranks: usize, nodes: &str) {
    let said = program.is_right_with(ranks, &["frees"], &[("EARLYBIRD_RANKS_PER_NODE", nodes)]);
    let in_c = ["Ireduce", "Ireduce_scatter_block", "Iscan", "Iexscan"];
    for function in ["Iallreduce"].iter().chain(if source == "user_ops.c" { &in_c[..] } else { &[] }) {
        assert!(intercepted(&said, &format!("MPI_{function} ")) > 0, "{source} {function} on {nodes}: {said}");
    }
    assert!(source != "user_ops.c" || said.contains("Allreduce_init"), "{said}");
}

#[test]
fn messages_under_way_arrive_while_ranks_wait() {
    if !has_mpi() {
        return;
    }
    let program = Program::compile("outstanding.c");
    for &ranks in RANKS.iter().filter(|&&ranks| ranks <= 3) {
        let said = program.is_right(ranks, &[]);
        assert!(intercepted(&said, "MPI_Reduce_scatter_block") > 0, "{said}");
    }
    // Each piece of a message needs both of its ends.
    let by_pieces = [("OMPI_MCA_btl_vader_single_copy_mechanism", "none"), ("UCX_TLS", "posix,self")];
    let outcome = program.run(2, true, &[], &by_pieces);
    assert!(outcome.code == Some(0) && outcome.said.matches(" right").count() == 2, "{outcome:?}");
}

#[test]
fn threads_call_on_communicators_of_their_own() {
    if !has_mpi() {
        return;
    }
    let said = Program::compile("threads.c").is_right(2, &[]);
    assert!(!said.contains("no threads") && intercepted(&said, "MPI_Allreduce") == 1200, "{said}");
}

#[test]
fn communicators_made_and_freed_by_every_function() {
    if !has_mpi() {
        return;
    }
    let program = Program::compile("churn.c");
    for &ranks in RANKS {
        let said = program.is_right(ranks, &[]);
        assert!(intercepted(&said, "MPI_Allreduce") > 200 && set_up(&said)[2] > 200, "{said}");
    }
}

#[test]
fn communicators_are_set_up_when_they_are_worth_it_and_reused() {
    if !has_mpi() {
        return;
    }
    let program = Program::compile("again.c");
    let run = |ranks, what, interpose| {
        let outcome = program.run(ranks, true, &[what], &[("EARLYBIRD_INTERPOSE", interpose)]);
        assert!(outcome.code == Some(0) && outcome.said.matches(" right").count() == ranks, "{outcome:?}");
        outcome.said
    };
    for &ranks in RANKS {
        // 60 communicators of all ranks, one after the other, and a pair that is alive together, of 30 calls each.
        let said = run(ranks, "many", "profile,from-call=11");
        assert_eq!(intercepted(&said, "MPI_Allreduce"), 62 * 20, "{said}");
        assert!(said.contains(&format!("{} ({} B) a first call of a communicator", 62 * 10, 62 * 10 * 8)), "{said}");
        assert_eq!(set_up(&said), [1, 1, 60], "{said}");
        // Too few calls on each.
        let said = run(ranks, "many", "profile,from-call=31");
        assert!(intercepted(&said, "MPI_Allreduce") == 0 && set_up(&said) == [0, 0, 0], "{said}");
        // After a call that failed on all ranks nothing is taken over.
        let said = run(ranks, "failed", "profile,from-call=1");
        assert_eq!(set_up(&said), [1, 3, 0], "{said}");
        // More than are kept.
        let said = run(ranks, "alive", "profile,from-call=2");
        let [joined, formed, taken_over] = set_up(&said);
        assert!(joined == 1 && formed + taken_over == 79 && formed > 40 && taken_over > 0, "{said}");
    }
    // By default MPI_COMM_WORLD is set up by its first call.
    let said = run(2, "world", "profile");
    assert_eq!((intercepted(&said, "MPI_Allreduce"), set_up(&said)), (1, [1, 0, 0]), "{said}");
}

/// The communicators that joined, those that were formed and those that took over a freed one, by the summary.
fn set_up(said: &str) -> [u64; 3] {
    let line = said.lines().find(|line| line.starts_with("earlybird: communicators ")).unwrap_or_default();
    let numbers: Vec<u64> = line.split([' ', ';']).filter_map(|word| word.parse().ok()).collect();
    numbers.try_into().unwrap_or_else(|_| panic!("no line of communicators: {said}"))
}

#[test]
fn ranks_that_are_started_later_join() {
    if MPI != "openmpi" {
        eprintln!("SKIPPED: MPICH as Debian builds it starts none");
        return;
    }
    let program = Program::compile("spawn.c");
    let said = program.is_right(2, &[]);
    let each: Vec<_> = said.lines().filter(|line| line.starts_with("earlybird: MPI_Allreduce ")).collect();
    assert!(each.len() == 2 && each.iter().all(|line| line.contains("intercepted: 40 ")), "{said}");
}

#[test]
fn callbacks_of_mpi_finalize_use_mpi() {
    if !has_mpi() {
        return;
    }
    let program = Program::compile("finalize.c");
    program.is_right(2, &[]);
    program.is_right_with(3, &[], &[("EARLYBIRD_RANKS_PER_NODE", "2,1")]);
}

/// The non-blocking functions that are intercepted.
const NON_BLOCKING: [&str; 17] = [
    "Iallreduce",
    "Ireduce",
    "Ibcast",
    "Ibarrier",
    "Iallgather",
    "Iallgatherv",
    "Igather",
    "Igatherv",
    "Iscatter",
    "Iscatterv",
    "Ialltoall",
    "Ialltoallv",
    "Ialltoallw",
    "Ireduce_scatter_block",
    "Ireduce_scatter",
    "Iscan",
    "Iexscan",
];

#[test]
fn non_blocking_calls_are_made_among_others_and_wait_for_no_other_rank() {
    if !has_mpi() {
        return;
    }
    let program = Program::compile("non_blocking.c");
    let are_intercepted = |said: String| {
        for name in NON_BLOCKING {
            assert!(intercepted(&said, &format!("MPI_{name} ")) > 30, "{name}: {said}");
        }
        said
    };
    for &ranks in RANKS {
        let said = are_intercepted(program.is_right(ranks, &["first"]));
        assert!(said.contains("forwarded to MPI: 1 (4 B) a first call of a communicator"), "{said}");
        program.is_right_with(ranks, &["intercepted"], &[]);
    }
    for &(ranks, nodes) in NODES {
        are_intercepted(program.is_right_with(ranks, &["intercepted"], &[("EARLYBIRD_RANKS_PER_NODE", nodes)]));
    }
    // MPI makes the calls of a program whose threads may be inside MPI at once.
    if MPI == "openmpi" {
        let said = program.is_right_with(3, &[], &[("OMPI_MPI_THREAD_LEVEL", "3")]);
        assert!(intercepted(&said, "MPI_Iallreduce ") == 0 && intercepted(&said, "MPI_Allreduce ") > 0, "{said}");
        assert!(said.contains("of a kind that MPI alone makes"), "{said}");
    }
}

#[test]
fn an_error_of_a_non_blocking_call_reaches_the_program() {
    if MPI != "openmpi" {
        return;
    }
    let program = Program::compile("non_blocking_errors.c");
    for (ranks, nodes) in [(2, "2"), (3, "2,1"), (3, "1,2")] {
        let vars = [("EARLYBIRD_INTERPOSE", "on,from-call=1,allreduce=earlybird"), ("EARLYBIRD_RANKS_PER_NODE", nodes)];
        for handler in ["return", "function"] {
            let outcome = program.run(ranks, true, &[handler], &vars);
            assert_eq!((outcome.code, outcome.said.matches(" right").count()), (Some(0), ranks), "{outcome:?}");
            assert!(outcome.said.contains("earlybird: MPI_Iallreduce: EB_MISMATCH"), "{outcome:?}");
        }
        let outcome = program.run(ranks, true, &["fatal"], &vars);
        let ended = outcome.code != Some(0) && outcome.code != Some(124) && !outcome.said.contains("right");
        assert!(ended && outcome.said.contains("EB_MISMATCH"), "{outcome:?}");
    }
}

#[test]
fn persistent_calls_are_started_again_and_again() {
    if !has_mpi() {
        return;
    }
    // The name of a persistent function, by that of its non-blocking form.
    let prefix = if MPI == "openmpi" { "MPIX_" } else { "MPI_" };
    let named = |name: &str| format!("{prefix}{}{}_init", name[1..2].to_uppercase(), &name[2..]);
    let program = Program::compile("persistent.c");
    for &ranks in RANKS {
        // MPICH's own give wrong results here, and end the program in MPI_Testall.
        if MPI == "openmpi" {
            program.is_right(ranks, &[]);
        }
    }
    let on_one_node = RANKS.iter().map(|&ranks| (ranks, ranks.to_string()));
    for (ranks, nodes) in on_one_node.chain(NODES.iter().map(|(ranks, nodes)| (*ranks, nodes.to_string()))) {
        let said = program.is_right_with(ranks, &["library"], &[("EARLYBIRD_RANKS_PER_NODE", &nodes)]);
        for name in NON_BLOCKING.map(named) {
            assert!(intercepted(&said, &format!("{name} ")) >= 5, "{name} on {nodes}: {said}");
        }
    }
    let macros = ["ALLREDUCE", "BARRIER"].map(|name| format!("-D{name}_INIT={prefix}{name}_INIT"));
    let program = Program::compile_for(MPI, "persistent.F90", &macros.each_ref().map(String::as_str));
    for &ranks in RANKS {
        let said = program.is_right(ranks, &[]);
        assert_eq!(intercepted(&said, &format!("{prefix}Allreduce_init ")), 1, "{said}");
        assert_eq!(intercepted(&said, &format!("{prefix}Barrier_init ")), 1, "{said}");
    }
}

#[test]
fn invalid_arguments_return_the_codes_of_mpi() {
    if !has_mpi() {
        return;
    }
    let program = Program::compile("misuse.c");
    // MPICH as Debian builds it does not look at arguments.
    if MPI == "openmpi" {
        let said = program.is_right(2, &[]);
        assert!(said.contains("an invalid argument, which MPI reports"), "{said}");
    }
    let said = program.is_right_with(2, &["local"], &[]);
    for what in ["MPI_Bcast: a buffer is null", "MPI_Reduce: MPI_IN_PLACE is given instead of a buffer"] {
        assert!(said.contains(what), "{said}");
    }
}

#[test]
fn a_library_for_another_mpi_names_both() {
    let (other, theirs) = if MPI == "mpich" { ("openmpi", "Open MPI") } else { ("mpich", "MPICH") };
    if !has_mpi() || std::process::Command::new(format!("mpicc.{other}")).arg("-show").output().is_err() {
        eprintln!("SKIPPED: there is one MPI only");
        return;
    }
    let program = Program::compile_for(other, "trouble.c", &[]);
    // Switched off too: handles of another MPI cannot be handed on.
    for interpose in ["on", "off"] {
        let outcome = program.run(2, true, &[], &[("EARLYBIRD_INTERPOSE", interpose)]);
        let named = outcome.said.contains("was built for") && outcome.said.contains(&format!("runs on \"{theirs}"));
        let is_explained = named && outcome.said.contains(&format!("MPICC=mpicc.{other} cargo build"));
        assert!(is_explained && ![Some(0), Some(124), None].contains(&outcome.code), "{outcome:?}");
    }
}

#[test]
fn a_rank_that_ends_early_ends_the_job_and_leaves_nothing() {
    if !has_mpi() {
        return;
    }
    let program = Program::compile("trouble.c");
    // On one node, and on two.
    for (ranks, nodes) in [(2, "2"), (3, "2,1")] {
        let vars = [("EARLYBIRD_RANKS_PER_NODE", nodes)];
        for what in ["killed", "abort", "exit"] {
            let outcome = program.run(ranks, true, &[what], &vars);
            assert!(![Some(0), Some(124), None].contains(&outcome.code), "{what} of {ranks}: {outcome:?}");
            let left = support::left_in_shared_memory();
            assert!(left.is_empty(), "{what} of {ranks} left {left:?}");
        }
        let outcome = program.run(ranks, true, &["mismatch"], &vars);
        let all = outcome.said.matches("got errors").count() == ranks;
        assert!(outcome.code == Some(0) && outcome.said.contains("EB_MISMATCH") && all, "{outcome:?}");
        // Under the default error handler that ends the job, and is heard.
        let outcome = program.run(ranks, true, &["fatal"], &vars);
        assert!(![Some(0), Some(124), None].contains(&outcome.code), "{outcome:?}");
        assert!(outcome.said.contains("EB_MISMATCH") && !outcome.said.contains("got errors"), "{outcome:?}");
    }
}

#[test]
fn communicators_of_several_nodes() {
    if !has_mpi() {
        return;
    }
    for source in ["user_ops.c", "user_ops.f90"] {
        let program = Program::compile(source);
        for &(ranks, nodes) in NODES {
            let said = program.is_right_with(ranks, &[], &[("EARLYBIRD_RANKS_PER_NODE", nodes)]);
            for function in ["Allreduce", "Reduce", "Reduce_scatter_block", "Iallreduce"] {
                assert!(intercepted(&said, &format!("MPI_{function} ")) > 0, "{source} {function} on {nodes}: {said}");
            }
            assert!(!said.contains("a user-defined operator"), "{said}");
            operators_may_be_freed(&program, source, ranks, nodes);
        }
    }
    let program = Program::compile("blocks.c");
    for &(ranks, nodes) in NODES {
        let said = program.is_right_with(ranks, &[], &[("EARLYBIRD_RANKS_PER_NODE", nodes)]);
        for function in WITH_BLOCKS {
            assert!(intercepted(&said, &format!("MPI_{function} ")) > 0, "{function} on {nodes}: {said}");
        }
    }
    for source in ["collectives.c", "old.f90", "new.f90", "outstanding.c"] {
        let program = Program::compile(source);
        for &(ranks, nodes) in NODES {
            let said = program.is_right_with(ranks, &[], &[("EARLYBIRD_RANKS_PER_NODE", nodes)]);
            for function in ["Allreduce", "Reduce", "Bcast", "Barrier", "Allgather", "Reduce_scatter_block"] {
                let calls = intercepted(&said, &format!("MPI_{function} "));
                assert!(calls > 0 || source == "outstanding.c", "{source} {function} on {nodes}: {said}");
            }
        }
    }
    let said = Program::compile("allreduce.c").is_right_with(3, &["supported"], &[("EARLYBIRD_RANKS_PER_NODE", "1,2")]);
    assert!(intercepted(&said, "MPI_Allreduce") > 900 && said.contains("forwarded to MPI: 0\n"), "{said}");
    // The reductions that MPI folds: a user-defined operator, long double and its like.
    let said = Program::compile("allreduce.c").is_right_with(3, &["other"], &[("EARLYBIRD_RANKS_PER_NODE", "1,2")]);
    assert_eq!(intercepted(&said, "MPI_Allreduce"), 5, "{said}");
    // A node for every rank is MPI's.
    let outcome = Program::compile("outstanding.c").run(
        2,
        true,
        &[],
        &[("EARLYBIRD_RANKS_PER_NODE", "1"), ("EARLYBIRD_INTERPOSE", "profile")],
    );
    assert!(outcome.code == Some(0) && outcome.said.contains("no two ranks share a node"), "{outcome:?}");
}

#[test]
fn fortran_by_either_module() {
    if !has_mpi() {
        return;
    }
    for source in ["old.f90", "new.f90"] {
        let program = Program::compile(source);
        for &ranks in RANKS {
            let said = program.is_right(ranks, &[]);
            let whole = ["Allreduce", "Reduce", "Bcast", "Barrier", "Allgather", "Reduce_scatter_block"];
            for function in whole.iter().chain(&WITH_BLOCKS).chain(&NON_BLOCKING) {
                assert!(intercepted(&said, &format!("MPI_{function} ")) > 0, "{source} {function}: {said}");
            }
        }
    }
}

#[test]
fn python_with_numpy() {
    let there = |module: &str| {
        let imported =
            std::process::Command::new("/usr/bin/python3").args(["-c", &format!("import {module}")]).status();
        imported.is_ok_and(|status| status.success())
    };
    // Debian's mpi4py is built for Open MPI; tests/long/mpi4py builds it for both.
    if MPI != "openmpi" || !there("numpy") || !there("mpi4py") {
        eprintln!("SKIPPED: Python's client needs Open MPI, python3-mpi4py and python3-numpy");
        return;
    }
    let program =
        Program::command(&["/usr/bin/python3", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/collectives.py")]);
    for &ranks in RANKS {
        let said = program.is_right(ranks, &[]);
        assert!(
            intercepted(&said, "MPI_Allreduce") > 50 && said.contains("an invalid argument, which MPI reports"),
            "{said}"
        );
        for function in WITH_BLOCKS {
            assert!(intercepted(&said, &format!("MPI_{function} ")) > 0, "{function}: {said}");
        }
    }
}

#[test]
fn calls_are_forwarded_if_descriptors_run_out() {
    if !has_mpi() {
        return;
    }
    let said = Program::compile("many.c").is_right(2, &[]);
    // Communicators are formed without descriptors until they have used up the shared memory that they may take.
    assert!(set_up(&said)[1] > 100 && said.contains("setting up the communicator failed"), "{said}");
    assert!(said.matches(" go to MPI: EB_").count() <= 2, "{said}");
}
