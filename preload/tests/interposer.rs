//! Programs in C under the interposer: what is taken over is right, and what is not reaches MPI with a reason.

mod support;

use support::{Program, RANKS, has_mpi, taken_over};

#[test]
fn every_type_and_operator_of_allreduce() {
    if !has_mpi() {
        return;
    }
    let program = Program::compile("allreduce.c");
    for &ranks in RANKS.iter().filter(|&&ranks| ranks <= 3) {
        let said = program.is_right(ranks, &["carried"]);
        assert!(taken_over(&said, "MPI_Allreduce") > 900 && said.contains("to MPI: 0\n"), "{said}");
        let said = program.is_right(ranks, &["other"]);
        for reason in ["1 (4 B) a communicator of one rank", "1 (4 B) an operator of the user", "1 (16 B) a type and"] {
            assert!(said.contains(reason), "{said}");
        }
    }
}

#[test]
fn a_setting_that_is_refused_ends_the_job() {
    if !has_mpi() {
        return;
    }
    let program = Program::compile("allreduce.c");
    let outcome = program.run(2, true, &["carried"], &[("EARLYBIRD_INTERPOSE", "maybe")]);
    let named = outcome.said.contains("EB_USAGE EARLYBIRD_INTERPOSE") && outcome.said.contains("on, off, profile");
    assert!(named && outcome.code != Some(0) && outcome.code != Some(124), "{outcome:?}");
    // Switched off it says nothing, and the program is right.
    let outcome = program.run(2, true, &["carried"], &[("EARLYBIRD_INTERPOSE", "off")]);
    assert!(outcome.code == Some(0) && !outcome.said.contains("earlybird"), "{outcome:?}");
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
            assert!(taken_over(&said, &format!("{function} ")) > 0, "{function}: {said}");
        }
        assert!(said.contains("an intercommunicator") && said.contains("an operator of the user"), "{said}");
    }
}
