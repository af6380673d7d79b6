//! `earlybird bench`: what is printed is what was asked for, results are right, and nothing outlives a run.

use crate::{earlybird, is_gone, ranks_of, text, wait_until};
use earlybird::{Algorithm, Collective};
use rustix::process::{Pid, Signal, kill_process};
use std::process::Stdio;

const HEADER: &str = "op,ranks,bytes,dtype,pattern,algorithm,iterations,tail_us_median,tail_us_p99,latency_us_median,\
                      call_us_mean,cpu_us_mean,wrong,nodes,mif,delay_us,order,buffers,chosen,compute_us,skew";

/// Runs a benchmark that must succeed and returns its lines, cut into columns, without the header.
fn rows(args: &str) -> Vec<Vec<String>> {
    let args: Vec<&str> = args.split(' ').collect();
    let output = earlybird(&args).output().expect("start earlybird");
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", text(&output.stderr));
    let stdout = text(&output.stdout);
    let mut lines = stdout.lines();
    assert_eq!(lines.next(), Some(HEADER));
    lines.map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

fn column<'a>(row: &'a [String], name: &str) -> &'a str {
    &row[HEADER.split(',').position(|column| column == name).expect("a column of the header")]
}

#[test]
fn every_size_pattern_and_algorithm_has_its_row() {
    let algorithms = [&[Algorithm::Auto], Collective::AllReduce.traits().algorithms].concat();
    let names: Vec<&str> = algorithms.into_iter().map(Algorithm::name).collect();
    let args = format!(
        "bench allreduce --ranks 3 --sizes 0,6,1Ki --patterns balanced,one-late --algorithms {} --iterations 4 --format csv",
        names.join(",")
    );
    let rows = rows(&args);
    assert_eq!(rows.len(), 3 * 2 * names.len());
    let mut row = rows.iter();
    for bytes in ["0", "6", "1024"] {
        for pattern in ["balanced", "one-late"] {
            for &algorithm in &names {
                let row = row.next().expect("counted above");
                let fixed = ["op", "ranks", "bytes", "dtype", "pattern", "algorithm", "iterations", "wrong", "nodes"];
                let wanted = ["allreduce", "3", bytes, "f32", pattern, algorithm, "4", "0", "1"];
                assert_eq!(fixed.map(|name| column(row, name)), wanted);
                assert_eq!(["order", "buffers"].map(|name| column(row, name)), ["arrival", "private"]);
                let chosen = column(row, "chosen");
                assert!(if algorithm == "auto" { chosen != "auto" } else { chosen == algorithm }, "{row:?}");
                let number = |name: &str| column(row, name).parse::<f64>().expect("a number");
                assert!(number("tail_us_median") <= number("tail_us_p99"), "{row:?}");
                assert!(number("tail_us_median") <= number("latency_us_median"), "{row:?}");
                assert_eq!(number("delay_us") == 0.0, pattern == "balanced", "{row:?}");
            }
        }
    }
}

#[test]
fn every_type_adds_up_in_both_orders() {
    for dtype in earlybird::DType::ALL {
        for order in ["arrival", "rank"] {
            let args = format!(
                "bench allreduce --ranks 2 --sizes 425 --patterns random --delay 0.0001 --algorithms auto --iterations 3 \
                 --dtype {} --order {order} --burn --wait power --format csv",
                dtype.name()
            );
            let rows = rows(&args);
            assert_eq!(rows.len(), 1);
            let seen = ["dtype", "order", "wrong", "mif", "delay_us"].map(|name| column(&rows[0], name));
            assert_eq!(seen, [dtype.name(), order, "0", "", "100.0"]);
        }
    }
}

#[test]
fn shared_buffers_are_reduced_where_they_lie() {
    // By `auto` only where no more ranks run than CPUs.
    for (where_they_are, where_they_lie) in [("alloc", "slices"), ("view", "auto")] {
        let rows = rows(&format!(
            "bench allreduce --ranks 3 --sizes 8,64Ki,3Mi --patterns random --delay 0.0001 --algorithms {where_they_lie},chain \
             --iterations 3 --buffers {where_they_are} --format csv",
        ));
        assert_eq!(rows.len(), 6);
        for row in &rows {
            let [bytes, algorithm, wrong, buffers, chosen] =
                ["bytes", "algorithm", "wrong", "buffers", "chosen"].map(|name| column(row, name));
            let expected = match (algorithm, bytes) {
                ("auto", "8") => "flat",
                ("auto", _) => "slices",
                (asked, _) => asked,
            };
            assert_eq!([wrong, buffers, chosen], ["0", where_they_are, expected], "{row:?}");
        }
    }
}

#[test]
fn a_barrier_is_measured_and_lets_nobody_through_early() {
    let rows = rows(
        "bench barrier --ranks 3 --patterns last-late,ascending --algorithms auto,static-leader --delay 0.002 --iterations 5 --format csv",
    );
    assert_eq!(rows.len(), 4);
    for row in &rows {
        assert_eq!(
            ["op", "bytes", "dtype", "wrong", "order"].map(|name| column(row, name)),
            ["barrier", "0", "-", "0", "-"]
        );
        // The first to arrive waits for the last: a lower bound that holds however slow the machine is.
        assert!(column(row, "latency_us_median").parse::<f64>().expect("a number") > 1000.0, "{row:?}");
    }
}

#[test]
fn every_operation_is_measured_and_checked() {
    for (op, algorithms) in [
        ("reduce", "auto,flat,chain,slices,static-leader,static-leader-early"),
        ("broadcast", "auto,flat,chain"),
        ("allgather", "auto,flat,single-copy"),
        ("gather", "auto,flat"),
        ("scatter", "auto,flat,single-copy"),
        ("alltoall", "auto,flat,single-copy"),
        ("reduce-scatter", "auto,flat"),
    ] {
        // Without a list, all that the operation has.
        let rows = rows(&format!("bench {op} --ranks 3 --sizes 8,40Ki --patterns random --iterations 5 --format csv"));
        let names: Vec<&str> = rows.iter().map(|row| column(row, "algorithm")).collect();
        assert_eq!(names.join(","), format!("{algorithms},{algorithms}"));
        for row in &rows {
            assert_eq!(["op", "wrong", "dtype"].map(|name| column(row, name)), [op, "0", "f32"]);
            let order = if op.starts_with("reduce") { "arrival" } else { "-" };
            assert_eq!(column(row, "order"), order);
            assert!(column(row, "call_us_mean").parse::<f64>().expect("a number") > 0.0, "{row:?}");
        }
    }
}

#[test]
fn plans_take_parameters() {
    let ways = "plan:butterfly:r=0,plan:butterfly:r=2:group=2x2,plan:cyclic-shift:radices=4,plan:smp-binomial:ranks-per-node=2";
    let rows = rows(&format!(
        "bench allreduce --ranks 4 --sizes 425 --patterns random --algorithms {ways} --iterations 3 --format csv"
    ));
    let seen: Vec<&str> = rows.iter().map(|row| column(row, "algorithm")).collect();
    assert_eq!(seen.join(","), ways);
    assert!(rows.iter().all(|row| column(row, "chosen") == column(row, "algorithm") && column(row, "wrong") == "0"));
}

#[test]
fn flat_plans_and_exchanges_are_rivals_on_several_nodes() {
    let ways = "auto,static-leader,plan:rsg,plan:recursive-doubling,plan:butterfly:cap=1,exchange:ring";
    let rows = rows(&format!(
        "bench allreduce --ranks 5 --nodes 2 --sizes 64,300Ki --patterns one-late --algorithms {ways} --iterations 3 --format csv"
    ));
    for (bytes, own) in [("64", "plan:elimination-3-2"), ("307200", "plan:halving-doubling")] {
        let of: Vec<_> = rows.iter().filter(|row| column(row, "bytes") == bytes).collect();
        assert_eq!(of.iter().map(|row| column(row, "algorithm")).collect::<Vec<_>>().join(","), ways);
        let chosen: Vec<&str> = of.iter().map(|row| column(row, "chosen")).collect();
        assert_eq!(chosen, [own, own, "plan:rsg", "plan:recursive-doubling", "plan:butterfly:cap=1", "plan:ring"]);
        assert!(of.iter().all(|row| [column(row, "wrong"), column(row, "nodes")] == ["0", "2"]), "{of:?}");
    }
}

/// A launcher kills all ranks at the first failure: if ranks that say nothing failed too, nobody might be told why.
#[test]
fn of_launched_ranks_the_one_that_speaks_fails() {
    for rank in ["0", "1", "2"] {
        for (rank_name, size_name) in [("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE")] {
            let mut command = earlybird(&["bench", "barrier", "--sizes", "8"]);
            let output = command.env(rank_name, rank).env(size_name, "3").output().expect("start earlybird");
            let says = text(&output.stderr).contains("it carries no data");
            let wanted = if rank == "0" { (true, Some(2)) } else { (false, Some(0)) };
            assert_eq!((says, output.status.code()), wanted, "rank {rank}: {}", text(&output.stderr));
        }
    }
}

/// This program as ranks of the launcher of the MPI that it was built with.
#[cfg(feature = "mpi")]
pub fn launcher(ranks: &str) -> std::process::Command {
    let version = mpi::environment::library_version().unwrap_or_default();
    let launcher: &[&str] = match version.contains("Open MPI") {
        true => &["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"],
        false => &["mpiexec.mpich"],
    };
    let mut command = std::process::Command::new(launcher[0]);
    command.args(&launcher[1..]).args(["-n", ranks, env!("CARGO_BIN_EXE_earlybird")]);
    command
}

/// Our calls and the MPI library's own in turn, over the ranks that its launcher started.
#[cfg(feature = "mpi")]
#[test]
fn mpi_is_a_rival_under_its_launcher() {
    let run = |args: &str| {
        let output = launcher("3").arg("bench").args(args.split(' ')).output().expect("start the launcher");
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    };
    for op in earlybird::Collective::PUBLIC.iter().map(|collective| collective.name()) {
        for nodes in ["", " --nodes 2"] {
            let sizes = if op == "barrier" { "" } else { " --sizes 425" };
            let flat = if op == "allreduce" { ",plan:rsg" } else { "" };
            let args = format!(
                "{op}{sizes}{nodes} --algorithms auto,mpi,mpi-started{flat} --iterations 3 --delay 0.0002 --format csv"
            );
            let (ok, stdout, stderr) = run(&args);
            assert!(ok, "{args}: {stderr}");
            let rows: Vec<Vec<String>> =
                stdout.lines().skip(1).map(|line| line.split(',').map(str::to_owned).collect()).collect();
            assert_eq!(rows.len(), if flat.is_empty() { 9 } else { 12 }, "{args}: {stdout}");
            for row in &rows {
                let nodes = if nodes.is_empty() { "1" } else { "2" };
                assert_eq!(["op", "ranks", "wrong", "nodes"].map(|name| column(row, name)), [op, "3", "0", nodes]);
                let [way, ran] = ["algorithm", "chosen"].map(|name| column(row, name));
                assert!(if way == "auto" { ran != "auto" } else { ran == way.trim_end_matches("-started") }, "{row:?}");
            }
        }
    }
    for (args, says) in [
        ("allreduce --ranks 4 --algorithms mpi", "3 ranks were started"),
        ("allreduce --algorithms mpi --dtype f16", "use one of: i8"),
        ("allreduce --algorithms mpi --nodes 4", "1 to 3 nodes"),
    ] {
        let (ok, _, stderr) = run(args);
        assert!(!ok && stderr.contains(says), "{args}: {stderr}");
    }
}

/// What is computed is no time of the call, and lies in all others.
#[test]
fn started_calls_are_measured_beside_a_computation() {
    for (op, sizes) in [("allreduce", " --sizes 8,20Ki"), ("broadcast", " --sizes 425"), ("barrier", "")] {
        for nodes in ["", " --nodes 2"] {
            let args = format!(
                "bench {op} --ranks 3{nodes}{sizes} --patterns balanced --algorithms auto,started --iterations 3"
            );
            for row in rows(&format!("{args} --compute 20ms --format csv")) {
                let number = |name: &str| column(&row, name).parse::<f64>().expect("a number");
                assert_eq!(["wrong", "compute_us"].map(|name| column(&row, name)), ["0", "20000.0"], "{args}");
                assert!(number("tail_us_median").min(number("cpu_us_mean")) >= 20e3, "{args}: {row:?}");
            }
            let args = format!("{args} --compute 100us");
            let output = earlybird(&args.split(' ').collect::<Vec<_>>()).output().expect("start earlybird");
            assert!(text(&output.stdout).contains(" hidden behind the computation, "), "{args}");
        }
    }
}

/// Whether the figures pass is the machine's matter; what is compared, and that results are right, is not.
#[test]
fn guidelines_are_checked_on_what_they_need() {
    for (op, others) in [
        ("allreduce", "reduce+broadcast,reduce-scatter+allgather,persistent,started"),
        ("reduce", "as-allreduce,started"),
        ("broadcast", "as-allreduce,started"),
        ("allgather", "as-allreduce,started"),
        ("gather", "as-allgather,started"),
        ("scatter", "as-broadcast,started"),
        ("alltoall", "started"),
        ("reduce-scatter", "as-allreduce,started"),
        ("scan", "started"),
        ("exscan", "started"),
        ("barrier", "as-allreduce,started"),
    ] {
        let mut args = vec!["bench", op, "--ranks", "3", "--patterns", "random", "--iterations", "5", "--check"];
        if op != "barrier" {
            args.extend(["--sizes", "8,425,20Ki"]);
        }
        args.extend(["--algorithms", "auto", "--format", "csv"]);
        let output = earlybird(&args).output().expect("start earlybird");
        let (stdout, verdict) = (text(&output.stdout), text(&output.stderr));
        let rows: Vec<Vec<String>> =
            stdout.lines().skip(1).map(|line| line.split(',').map(str::to_owned).collect()).collect();
        let sizes = if op == "barrier" { 1 } else { 3 };
        let wanted = vec![format!("auto,{others}"); sizes].join(",");
        assert_eq!(rows.iter().map(|row| column(row, "algorithm")).collect::<Vec<_>>().join(","), wanted, "{verdict}");
        assert!(rows.iter().all(|row| column(row, "wrong") == "0"), "{op}: {stdout}");
        assert!(verdict.contains("auto <= 1.10 x other calls that do its work"), "{op}: {verdict}");
        let refused = verdict.lines().any(|line| line.trim_start().starts_with("violated "));
        assert_eq!(output.status.code(), Some(i32::from(refused)), "{op}: {verdict}");
    }
}

#[test]
fn a_page_has_the_curves_and_the_rows() {
    let path = std::env::temp_dir().join(format!("earlybird-bench-{}.html", std::process::id()));
    let page = path.to_str().expect("utf-8");
    let args =
        ["bench", "allreduce", "--ranks", "2", "--sizes", "8,64", "--iterations", "2", "--check", "--html", page];
    let output = earlybird(&args).output().expect("start");
    assert!(text(&output.stdout).contains("guideline"), "{}", text(&output.stderr));
    let html = std::fs::read_to_string(&path).expect("a page");
    std::fs::remove_file(&path).expect("remove the page");
    assert_eq!(html.matches("<svg").count(), 3);
    assert!(html.contains("reduce+broadcast") && html.contains("<pre>") && html.contains("guideline"), "{html}");
    let nowhere = ["bench", "allreduce", "--ranks", "2", "--html", "/nowhere/at/all"];
    let output = earlybird(&nowhere).output().expect("start");
    assert!(!output.status.success() && text(&output.stderr).contains("/nowhere/at/all"), "{}", text(&output.stderr));
}

#[test]
fn a_preset_runs_the_jobs_of_its_study() {
    let rows = rows("bench --preset alizadeh --sizes 8 --iterations 2 --format csv");
    let seen = |name: &str| {
        let mut values: Vec<&str> = rows.iter().map(|row| column(row, name)).collect();
        values.dedup();
        values.join(",")
    };
    assert_eq!(rows.len(), 2 * 3 * 4);
    assert_eq!([seen("ranks"), seen("mif"), seen("pattern")].join(" "), "4,32 10.0,20.0,50.0,10.0,20.0,50.0 random");
    assert!(rows.iter().all(|row| column(row, "wrong") == "0"));
    let table = earlybird(&["bench", "--preset", "alizadeh", "--ranks", "3", "--sizes", "8", "--iterations", "2"]);
    let table = text(&{ table }.output().expect("start").stdout);
    assert_eq!(table.lines().filter(|line| line.matches("x ").count() == 3).count(), 3, "{table}");
}

#[test]
fn json_and_table_carry_the_same_rows() {
    let args = [
        "bench",
        "allreduce",
        "--ranks",
        "2",
        "--sizes",
        "8",
        "--iterations",
        "3",
        "--algorithms",
        "flat,static-leader",
    ];
    let json = earlybird(&[&args[..], &["--format", "json"]].concat()).output().expect("start");
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("json");
    let rows = json.as_array().expect("an array");
    assert_eq!(rows.len(), 6);
    for row in rows {
        let keys = row.as_object().expect("an object");
        assert_eq!(keys.len(), HEADER.split(',').count());
        assert!(HEADER.split(',').all(|column| keys.contains_key(column)));
    }
    let table = text(&earlybird(&args).output().expect("start").stdout);
    assert_eq!(table.lines().filter(|line| line.contains("one-late") && line.contains(" flat ")).count(), 1, "{table}");
    assert!(table.contains("tail against static-leader in 3 comparisons"), "{table}");
}

/// A benchmark that would take hours, once its ranks are there.
fn endless() -> (std::process::Child, Vec<Pid>) {
    let args = ["bench", "allreduce", "--ranks", "3", "--sizes", "64", "--iterations", "1000000", "--delay", "0.01"];
    let launcher = earlybird(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("start");
    let pid = Pid::from_child(&launcher);
    wait_until("three ranks", || ranks_of(pid).len() == 3);
    (launcher, ranks_of(pid))
}

#[test]
fn a_killed_benchmark_leaves_no_ranks() {
    let (mut launcher, ranks) = endless();
    launcher.kill().expect("kill");
    launcher.wait().expect("wait");
    wait_until("the ranks to be gone", || ranks.iter().all(|&rank| is_gone(rank)));

    let (mut launcher, ranks) = endless();
    kill_process(Pid::from_child(&launcher), Signal::INT).expect("interrupt");
    assert_eq!(launcher.wait().expect("wait").code(), Some(128 + 2));
    assert!(ranks.iter().all(|&rank| is_gone(rank)));
}

#[test]
fn a_killed_rank_ends_the_benchmark_with_1() {
    let (mut launcher, ranks) = endless();
    kill_process(ranks[1], Signal::KILL).expect("kill a rank");
    assert_eq!(launcher.wait().expect("wait").code(), Some(1));
    assert!(ranks.iter().all(|&rank| is_gone(rank)));
}

#[test]
fn blocks_of_two_lengths_are_measured_and_checked() {
    for (op, algorithms) in [
        ("allgather", "auto,flat,single-copy,started"),
        ("gather", "auto,started"),
        ("scatter", "auto,single-copy,started"),
        ("alltoall", "auto,flat,single-copy,started"),
        ("reduce-scatter", "auto,started"),
    ] {
        for skew in ["25", "100"] {
            let args = format!(
                "bench {op} --ranks 4 --sizes 8,100,1Mi --patterns random --iterations 3 --skew {skew} --algorithms {algorithms} --format csv"
            );
            let rows = rows(&args);
            assert_eq!(rows.len(), 3 * algorithms.split(',').count(), "{args}");
            for row in &rows {
                assert_eq!(["op", "wrong", "skew"].map(|name| column(row, name)), [op, "0", skew], "{args}");
            }
        }
    }
}

#[test]
fn usage_errors_exit_with_2_and_list_what_is_valid() {
    for (args, part) in [
        ("bench allreduce", "--ranks"),
        ("bench sort --ranks 2", "allreduce, barrier, reduce, broadcast"),
        ("bench broadcast --ranks 2 --algorithms leader", "use auto, flat, chain"),
        ("bench allgather --ranks 2 --order rank", "leave out --order"),
        ("bench allreduce --ranks 2 --sizes 8K", "whole bytes"),
        ("bench allreduce --ranks 2 --patterns late", "one-late"),
        ("bench allreduce --ranks 2 --algorithms fast", "static-leader-early"),
        (
            "bench allreduce --ranks 2 --algorithms mpi",
            if cfg!(feature = "mpi") { "mpirun" } else { "--features cli,mpi" },
        ),
        ("bench allreduce --ranks 2 --algorithms plan:rings", "plan:ring, plan:butterfly"),
        ("bench allreduce --ranks 2 --algorithms plan:ring:r=1", "it uses: order"),
        ("bench allreduce --ranks 3 --algorithms plan:butterfly:r=3", "3 ranks"),
        ("bench allreduce --ranks 5 --algorithms plan:butterfly:group=2x2", "5 ranks"),
        ("bench allreduce --ranks 3 --algorithms plan:census", "not admitted"),
        ("bench allreduce --ranks 3 --algorithms plan:smp-binomial", "ranks-per-node=4"),
        ("bench allreduce --ranks 3 --algorithms exchange:ring", "one node"),
        ("bench allreduce --ranks 3 --nodes 1 --algorithms exchange:ring", "one node"),
        ("bench reduce --ranks 3 --nodes 3 --algorithms exchange:ring", "not carried out by exchange:ring"),
        ("bench reduce --ranks 2 --algorithms plan:ring", "not carried out by plan:ring"),
        ("bench allreduce --ranks 2 --nodes 3", "1 to 2 nodes"),
        ("bench reduce --ranks 2 --buffers alloc", "leave out --buffers"),
        ("bench broadcast --ranks 2 --buffers view", "leave out --buffers"),
        ("bench --preset alizadeh --html x", "give --ranks"),
        ("bench reduce --ranks 2 --algorithms persistent", "not carried out by persistent"),
        ("bench scan --ranks 2 --algorithms as-allreduce", "not carried out by as-allreduce"),
        ("bench allreduce --ranks 2 --compute 1ms --algorithms auto", "add started to --algorithms"),
        ("bench allreduce --ranks 2 --algorithms as-allreduce", "not carried out by as-allreduce"),
        ("bench reduce --preset alizadeh", "measured allreduce"),
        ("bench --preset alizadeh --mif 3", "cannot be used with"),
        ("bench --preset alizadeh --format json", "give --ranks"),
        ("bench --preset someone", "alizadeh"),
        ("bench", "OP"),
        ("bench allreduce --ranks 2 --dtype f8", "f32, f64"),
        ("bench allreduce --ranks 2 --order late", "arrival, rank"),
        ("bench allreduce --ranks 2 --wait lazy", "latency, balanced, power"),
        ("bench allreduce --ranks 2 --format xml", "table, markdown, csv, json"),
        ("bench allreduce --ranks 2 --iterations 0", "1..=1000000"),
        ("bench allreduce --ranks 2 --mif -1", "from 0 upwards"),
        ("bench allreduce --ranks 2 --mif 3 --delay 1", "cannot be used with"),
        ("bench barrier --ranks 2 --sizes 8", "leave out --sizes"),
        ("bench scan --ranks 2 --skew 25", "leave out --skew"),
        ("bench gather --ranks 2 --skew 25 --algorithms auto,as-allgather", "leave out --skew"),
        ("bench gather --ranks 2 --skew 101", "0..=100"),
    ] {
        let args: Vec<&str> = args.split(' ').collect();
        let output = earlybird(&args).output().expect("start earlybird");
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output.stderr).contains(part), "{args:?}: {}", text(&output.stderr));
    }
    let mut mistaken = earlybird(&["bench", "allreduce", "--ranks", "2"]);
    let output = mistaken.env("EARLYBIRD_WIAT", "power").output().expect("start");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(text(&output.stderr).matches("EARLYBIRD_WIAT").count(), 1, "said once: {}", text(&output.stderr));
}
