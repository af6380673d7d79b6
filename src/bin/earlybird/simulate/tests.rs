//! The answers of the command to requests, valid and invalid, without starting the program.

use super::*;
use clap::Parser;
use itertools::Itertools;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: SimulateArgs,
}

const COSTS: &str = "--alpha 3e-5 --beta 1e-8 --gamma 2e-10";

fn run_line(line: &str) -> Result<String, String> {
    let words = format!("simulate {line}");
    let args = Line::try_parse_from(words.split_whitespace()).map_err(|error| error.to_string())?.args;
    answer(&args).map_err(|error| error.to_string())
}

/// (algorithm, parameters, ranks, bytes, pattern, time_us, rounds) of each line.
fn rows(line: &str) -> Vec<Vec<String>> {
    let text = run_line(&format!("{line} --format csv")).unwrap_or_else(|error| panic!("{line}: {error}"));
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("algorithm,parameters,ranks,bytes,pattern,time_us,rounds"));
    lines.map(|line| line.split(',').map(str::to_string).collect()).collect()
}

fn times(line: &str) -> Vec<f64> {
    rows(line).iter().map(|row| row[5].parse().expect("a number")).collect()
}

#[test]
fn the_best_r_is_the_published_one_and_the_estimate_is_close() {
    let line =
        format!("--algorithms butterfly:r=best,butterfly:r=estimated --ranks 127 --bytes 425,9216,64Ki,1Mi {COSTS}");
    let found = rows(&line);
    let best: Vec<&str> = found.iter().step_by(2).map(|row| row[1].as_str()).collect();
    assert_eq!(best, ["group=cyclic;r=7", "group=cyclic;r=3", "group=cyclic;r=0", "group=cyclic;r=0"]);
    let estimated: Vec<&str> = found.iter().skip(1).step_by(2).map(|row| row[1].as_str()).collect();
    // equation 37 knows nothing of r = 7
    assert_eq!(estimated[0], "group=cyclic;r=6");
    assert_eq!(estimated[1..], best[1..]);
}

#[test]
fn every_option_of_the_machine_counts() {
    let base = format!("--algorithms halving-doubling --ranks 16 --bytes 64Ki {COSTS}");
    let plain = times(&base)[0];
    for more in [
        "--latency 1e-5",
        "--receive-overhead 1e-5",
        "--gap 1e-3",
        "--half-duplex",
        "--jitter 1e-6",
        "--topology star:8",
        "--topology tree:2x4 --link-beta 1e-7",
        "--pattern first-late --delay 1e-3",
    ] {
        let slower = times(&format!("{base} {more}"))[0];
        assert!(slower > plain, "{more}: {slower} {plain}");
    }
    for more in
        ["--ranks-per-node 4 --inside-alpha 1e-6 --inside-beta 1e-9", "--measure tail --pattern last-late --delay 1e-3"]
    {
        let faster = times(&format!("{base} {more}"))[0];
        assert!(faster < plain * 1.0001, "{more}: {faster} {plain}");
    }
    let late = format!("{base} --pattern random --delay 1e-3");
    assert!(times(&format!("{late} --eager-limit 1Ki"))[0] >= times(&late)[0]);
    assert_ne!(times(&format!("{late} --seed 2")), times(&late));
    assert_ne!(times(&format!("{late} --iterations 5")), times(&late));
    let ports = format!("--algorithms direct --ranks 9 --bytes 64 {COSTS}");
    assert!(times(&format!("{ports} --port-cost 0"))[0] < times(&ports)[0]);
    let cut = format!("--algorithms ring --ranks 9 --bytes 9 {COSTS}");
    // two elements for nine blocks
    assert!(times(&format!("{cut} --element-bytes 4"))[0] != times(&cut)[0]);
}

#[test]
fn algorithms_take_their_parameters() {
    let all = "ring:order=3x0x2x1,butterfly:group=2x2:r=1,cyclic-shift:radices=2x2:rule=cap,elimination-3-2:protocol=mixed-1,\
               chain:segments=3:ports=2:order=arrival,pre-reduced-ring:late=2:order=arrival,binomial:contract=reduce:root=2,\
               butterfly:cap=1,butterfly:rounds=5,radix:target=4,halving-doubling:distance=halving,butterfly:keep-order=true,\
               butterfly:group=xor,smp-butterfly:ranks-per-node=2,best,three-phase:fold=chain:chunks=2:exchange=ring";
    let found = rows(&format!("--algorithms {all} --ranks 4 --bytes 100 --pattern random --delay 1e-4 {COSTS}"));
    assert_eq!(found.len(), 16);
    assert!(found.iter().all(|row| row[4] == "random" && row[5].parse::<f64>().expect("a number") > 0.0));
    let parameters: Vec<&str> = found.iter().map(|row| row[1].as_str()).collect();
    for expected in ["order=given", "protocol=mixed-1", "segments=3;order=arrival", "group=xor;r=0", "distance=halving"]
    {
        assert!(parameters.contains(&expected), "{expected}: {parameters:?}");
    }
    assert!(
        parameters.iter().any(|p| p.starts_with("schedule="))
            && parameters.contains(&"fold=chain;chunks=2;exchange=ring")
    );
}

#[test]
fn an_order_of_arrival_helps_a_chain() {
    let line = format!("--ranks 8 --bytes 1Mi --pattern first-late --delay 1 --measure tail {COSTS}");
    let both = times(&format!("--algorithms chain,chain:order=arrival {line}"));
    assert!(both[1] < both[0], "{both:?}");
}

/// Names of the curves.
fn series(figure: &Figure) -> Vec<&str> {
    figure.points.iter().map(|point| point.series.as_str()).unique().collect()
}

#[test]
fn every_preset_gives_curves() {
    for preset in PublishedFigure::value_variants() {
        let figure = preset.figure(1).unwrap_or_else(|error| panic!("{preset:?}: {error}"));
        let series = series(&figure);
        assert!(series.len() >= 3 && figure.points.len() >= 2 * series.len(), "{preset:?}");
        assert!(figure.points.iter().all(|p| p.y.is_finite() && p.y > 0.0), "{preset:?}");
        let svg = chart::svg(&figure.chart()).expect("a picture");
        assert!(svg.starts_with("<svg") && series.iter().all(|name| svg.contains(name)), "{preset:?}");
    }
}

#[test]
fn presets_show_what_their_sources_say() {
    let y = |figure: &Figure, series: &str, x: f64| {
        figure.points.iter().find(|p| p.series == series && p.x == x).unwrap_or_else(|| panic!("{series} {x}")).y
    };
    for preset in [PublishedFigure::Kolmakov7, PublishedFigure::Kolmakov8, PublishedFigure::Kolmakov9] {
        let figure = preset.figure(1).unwrap();
        for p in figure.points.iter().filter(|p| p.series == "butterfly:r=best") {
            for other in series(&figure) {
                assert!(p.y <= y(&figure, other, p.x) * (1.0 + 1e-9), "{other} at {}", p.x);
            }
        }
    }
    // consecutive ranks make a ring free of contention; far exchanges first are the worst, near ones first the best
    let tree = PublishedFigure::Patarasuk.figure(1).unwrap();
    let large = |series: &str| y(&tree, series, f64::from(1 << 26));
    assert!(large("ring, depth first") < large("ring, machines in turn"));
    assert!(large("halving-doubling, near first") < large("ring, depth first") * 1.01);
    assert!(large("halving-doubling, far first") > 4.0 * large("ring, depth first"));
    assert!(large("butterfly") > 4.0 * large("ring, depth first"));
    // under imbalance, folding early shortens the tail
    let late = PublishedFigure::Alizadeh.figure(1).unwrap();
    for per_node in [4, 32] {
        let at = |series: &str| y(&late, &format!("{series}, {per_node} per node"), 50.0);
        assert!(at("first arriver leads") < at("static leader") && at("chain") < at("static leader"));
        assert!(at("first arriver leads") < at("flat binomial") && at("first arriver leads") < at("flat rsg"));
    }
}

#[test]
fn requests_without_sense_are_refused() {
    for (line, parts) in [
        (String::new(), &["--algorithms", "--ranks", "--bytes"][..]),
        (format!("--algorithms ring --ranks 4 {COSTS}"), &["--bytes"]),
        ("--algorithms ring --ranks 4 --bytes 1 --alpha 1 --beta 1".to_string(), &["--gamma"]),
        (format!("--algorithms rong --ranks 4 --bytes 1 {COSTS}"), &["there is no algorithm `rong`", "three-phase"]),
        (format!("--algorithms ring:r=1 --ranks 4 --bytes 1 {COSTS}"), &["does not use r"]),
        (format!("--algorithms ring:x=1 --ranks 4 --bytes 1 {COSTS}"), &["does not use x"]),
        (format!("--algorithms butterfly:r --ranks 4 --bytes 1 {COSTS}"), &["KEY=VALUE"]),
        (format!("--algorithms butterfly:r=x --ranks 4 --bytes 1 {COSTS}"), &["whole number"]),
        (format!("--algorithms ring:r=best --ranks 4 --bytes 1 {COSTS}"), &["cyclic group"]),
        (format!("--algorithms census:order=arrival --ranks 4 --bytes 1 {COSTS}"), &["has no order"]),
        (format!("--algorithms best:r=1 --ranks 4 --bytes 1 {COSTS}"), &["no parameters"]),
        (format!("--algorithms three-phase:fold=flat --ranks 4 --bytes 1 {COSTS}"), &["static-leader, leader"]),
        (format!("--algorithms three-phase:chunks=0 --ranks 4 --bytes 1 {COSTS}"), &["1 to 65536"]),
        (format!("--algorithms three-phase --ranks 4 --bytes 1 --topology star:2 {COSTS}"), &["--ranks-per-node"]),
        (format!("--algorithms ring --ranks 0 --bytes 1 {COSTS}"), &["at least 1"]),
        (format!("--algorithms ring --ranks 5000 --bytes 1 {COSTS}"), &["1 to 1024"]),
        (format!("--algorithms census --ranks 200000 --bytes 1 {COSTS}"), &["1 to 131072"]),
        (format!("--algorithms census --ranks 5000 --bytes 1 --topology star:2 {COSTS}"), &["1 to 1024"]),
        (format!("--algorithms ring --ranks 4 --bytes 1K {COSTS}"), &["1K"]),
        ("--algorithms ring --ranks 4 --bytes 1 --alpha nan --beta 1 --gamma 1".to_string(), &["expected seconds"]),
        (format!("--algorithms ring --ranks 4 --bytes 1 --pattern late --delay 1 {COSTS}"), &["first-late, last-late"]),
        (format!("--algorithms ring --ranks 4 --bytes 1 --pattern random {COSTS}"), &["--delay"]),
        (format!("--algorithms ring --ranks 4 --bytes 1 --delay 1 {COSTS}"), &["--pattern"]),
        (format!("--algorithms ring --ranks 4 --bytes 1 --topology star:0 {COSTS}"), &["star:K, tree:KxM"]),
        (format!("--algorithms ring --ranks 4 --bytes 1 --topology tree:4 {COSTS}"), &["star:K, tree:KxM"]),
        (format!("--algorithms ring --ranks 4 --bytes 1 --topology /no/file {COSTS}"), &["or a file"]),
        (format!("--algorithms ring --ranks 4 --bytes 1 --link-beta 1 {COSTS}"), &["--topology"]),
        (format!("--algorithms ring --ranks 4 --bytes 1 --ranks-per-node 2 {COSTS}"), &["--inside-alpha"]),
        (
            format!("--algorithms ring --ranks 4 --bytes 1 --inside-alpha 1 --inside-beta 1 {COSTS}"),
            &["--ranks-per-node"],
        ),
        (format!("--algorithms ring --ranks 4 --bytes 1 --iterations 0 {COSTS}"), &["--iterations"]),
        (format!("--algorithms ring --ranks 4 --bytes 1 --format json {COSTS}"), &["svg"]),
        ("--preset kolmakov-2".to_string(), &["kolmakov-12", "patarasuk"]),
        ("--preset alizadeh --alpha 1".to_string(), &["cannot be used with", "--alpha"]),
        ("--preset alizadeh --ranks 4".to_string(), &["cannot be used with"]),
        ("--preset alizadeh --pattern random".to_string(), &["cannot be used with"]),
    ] {
        let refused = run_line(line.trim()).expect_err(&line);
        assert!(parts.iter().all(|part| refused.contains(part)), "{line}: {refused}");
    }
}
