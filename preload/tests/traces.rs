//! Traces of MPI programs: what the library carries out, and what MPI does.

mod support;

use earlybird::Collective;
use earlybird::trace::{CallOutcome, Trace, TracedCall, calls};
use std::path::PathBuf;
use support::{Outcome, Program, RANKS, has_mpi, intercepted};

/// A program with a trace of its own.
struct TracedProgram {
    program: Program,
    directory: PathBuf,
}

impl TracedProgram {
    fn compile(source: &str, name: &str) -> TracedProgram {
        let directory = std::env::temp_dir().join(format!("earlybird-mpi-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        TracedProgram { program: Program::compile(source), directory }
    }

    /// Runs it with these variables, and reads its trace.
    fn run(&self, ranks: usize, vars: &[(&str, &str)]) -> (Outcome, Trace, Vec<TracedCall>) {
        let path = self.directory.join("job");
        let outcome =
            self.program.run(ranks, true, &[], &[vars, &[("EARLYBIRD_TRACE", path.to_str().unwrap())]].concat());
        assert_eq!((outcome.code, outcome.said.matches(" right").count()), (Some(0), ranks), "{outcome:?}");
        let trace = Trace::read(&path).unwrap();
        assert_eq!((trace.size, trace.ranks.len()), (ranks, ranks));
        let calls = calls(&trace, |_, _| 0);
        (outcome, trace, calls)
    }
}

impl Drop for TracedProgram {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

const ALL_TAKEN_OVER: &str = "profile,from-call=1,allreduce=earlybird,reduce=earlybird,broadcast=earlybird,barrier=earlybird,\
                              allgather=earlybird,gather=earlybird,scatter=earlybird,alltoall=earlybird";

#[test]
fn calls_are_traced_by_ranks_of_the_world() {
    if !has_mpi() {
        return;
    }
    let (program, ranks) = (TracedProgram::compile("collectives.c", "trace"), RANKS[RANKS.len() / 2]);
    for nodes in [None, Some("1,2")].into_iter().filter(|nodes| nodes.is_none() || ranks == 3) {
        let vars = nodes.map(|nodes| ("EARLYBIRD_RANKS_PER_NODE", nodes));
        let vars: Vec<_> = vars.into_iter().chain([("EARLYBIRD_INTERPOSE", ALL_TAKEN_OVER)]).collect();
        let (outcome, trace, calls) = program.run(ranks, &vars);
        assert!(calls.iter().all(|call| call.is_whole), "{:?}", calls.iter().find(|call| !call.is_whole));
        let some = calls.iter().filter(|call| call.parts.len() < ranks).count();
        assert!(some > 0 || ranks == 2 || nodes.is_some(), "communicators of some of the ranks are there too");
        // The summary is that of rank 0. It counts calls between groups, too, whose ranks have no common order.
        let records = |is_mpi: bool| {
            let rank = &trace.ranks[0];
            rank.records.iter().filter(|record| (rank.algorithm(record) == "mpi") == is_mpi).count() as u64
        };
        let lines = outcome.said.lines().filter_map(|line| line.split_once("earlybird: MPI_")?.1.split_once(' '));
        let counted: u64 = lines.map(|(name, _)| intercepted(&outcome.said, &format!("MPI_{name} "))).sum();
        assert_eq!(records(false), counted, "{outcome:?}");
        assert!(records(true) > 0, "{outcome:?}");
    }
}

#[test]
fn a_program_is_traced_as_it_runs_without_the_library() {
    if !has_mpi() {
        return;
    }
    let (program, ranks) = (TracedProgram::compile("collectives.c", "off"), RANKS[RANKS.len() / 2]);
    let (outcome, trace, calls) = program.run(ranks, &[("EARLYBIRD_INTERPOSE", "off")]);
    assert!(!outcome.said.contains("earlybird"), "{outcome:?}");
    assert!(calls.iter().all(|call| call.is_whole), "{:?}", calls.iter().find(|call| !call.is_whole));
    for rank in &trace.ranks {
        for record in &rank.records {
            assert_eq!(rank.algorithm(record), "mpi", "{record:?}");
            assert!(record.exit > record.arrival, "{record:?}");
        }
        // The program makes some calls that Open MPI refuses.
        let done = rank.records.iter().filter(|record| record.outcome == CallOutcome::Done).count();
        assert!(rank.records.len() - done < 10, "{done} of {} done", rank.records.len());
    }
    let broadcasts = calls.iter().filter(|call| call.collective == Collective::Broadcast);
    assert!(broadcasts.filter(|call| call.parts.len() == ranks && call.bytes > 0).count() > 100);
    assert!(ranks == 2 || calls.iter().any(|call| call.parts.len() < ranks && call.parts.len() > 1));
    // No rank leaves a barrier or an allreduce before the last one has come, by MPI's algorithms too.
    let early = calls.iter().filter(|call| call.synchronizes()).find(|call| {
        let last = call.ends().1.arrival;
        call.parts.iter().any(|part| part.exit.is_some_and(|exit| exit < last))
    });
    assert_eq!(early, None);
}

#[test]
fn a_trace_that_cannot_be_written_ends_the_job() {
    if !has_mpi() {
        return;
    }
    let vars = [("EARLYBIRD_INTERPOSE", "off"), ("EARLYBIRD_TRACE", "/no/such/directory/job")];
    let outcome = Program::compile("collectives.c").run(2, true, &[], &vars);
    assert!(outcome.code != Some(0) && outcome.code != Some(124), "{outcome:?}");
    assert!(outcome.said.contains("EARLYBIRD_TRACE") && outcome.said.contains("/no/such/directory/job"), "{outcome:?}");
}
