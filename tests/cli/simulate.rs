//! `earlybird simulate` from outside: the three formats, the exit codes, a preset, many ranks.

use crate::{Scratch, earlybird, text};

const HEADER: &str = "algorithm,parameters,ranks,bytes,pattern,time_us,rounds";
const COSTS: &str = "--alpha 3e-5 --beta 1e-8 --gamma 2e-10";

fn simulate(arguments: &str) -> (Option<i32>, String, String) {
    let arguments: Vec<&str> = std::iter::once("simulate").chain(arguments.split_whitespace()).collect();
    let output = earlybird(&arguments).output().expect("start earlybird");
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn shown(arguments: &str) -> String {
    let (code, stdout, stderr) = simulate(arguments);
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{arguments}");
    stdout
}

#[test]
fn rows_are_what_the_closed_forms_say() {
    let line = format!("--algorithms ring,recursive-doubling --ranks 8,16 --bytes 1Ki,64Ki {COSTS} --format csv");
    let csv = shown(&line);
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some(HEADER));
    let mut count = 0;
    for line in lines {
        let cells: Vec<&str> = line.split(',').collect();
        let [algorithm, _, ranks, bytes, pattern, time, rounds] = cells[..] else { panic!("{line}") };
        let (p, m): (f64, f64) = (ranks.parse().unwrap(), bytes.parse().unwrap());
        let (steps, sent, reduced) = match algorithm {
            "ring" => (2.0 * (p - 1.0), 2.0 * (p - 1.0) / p, (p - 1.0) / p),
            _ => (p.log2(), p.log2(), p.log2()),
        };
        let expected = (steps * 3e-5 + sent * m * 1e-8 + reduced * m * 2e-10) * 1e6;
        let time: f64 = time.parse().unwrap();
        assert!((time - expected).abs() < 1e-6 * expected, "{line}: {expected}");
        assert_eq!((pattern, rounds.parse::<f64>().unwrap()), ("balanced", steps));
        count += 1;
    }
    assert_eq!(count, 8);
}

#[test]
fn a_table_and_a_picture_show_the_same_algorithms() {
    let line = format!("--algorithms butterfly:r=2,three-phase:fold=chain --ranks 24 --bytes 8,4Ki,1Mi {COSTS}");
    let line =
        format!("{line} --ranks-per-node 4 --inside-alpha 1e-6 --inside-beta 1e-10 --pattern one-late --delay 1e-3");
    let table = shown(&line);
    assert!(table.contains("24 ranks") && table.contains("fold=chain") && table.contains("one-late"), "{table}");
    let picture = shown(&format!("{line} --format svg"));
    let document = roxmltree::Document::parse(&picture).expect("well-formed");
    let words: Vec<&str> = document.descendants().filter_map(|node| node.text()).map(str::trim).collect();
    for word in ["butterfly:r=2", "three-phase:fold=chain", "bytes", "time in µs"] {
        assert!(words.contains(&word), "{word}: {words:?}");
    }
}

#[test]
fn a_preset_needs_nothing_else() {
    let csv = shown("--preset kolmakov-10 --format csv");
    assert!(csv.starts_with(HEADER));
    // eight step counts of four sizes
    assert_eq!(csv.lines().count(), 1 + 32);
    assert!(csv.contains("butterfly,group=cyclic;r=7,127,425,balanced,"), "{csv}");
    assert_eq!(csv, shown("--preset kolmakov-10 --format csv"), "simulations repeat");
}

#[test]
fn logarithmic_schedules_run_over_many_ranks() {
    let line = format!("--algorithms butterfly,binomial --ranks 20000 --bytes 1Mi --format csv {COSTS}");
    let csv = shown(&format!("{line} --pattern random --delay 1e-3 --jitter 1e-6"));
    assert!(csv.contains("butterfly,group=cyclic;r=0,20000,1048576,random,") && csv.contains("binomial,"), "{csv}");
}

#[test]
fn a_tree_of_switches_comes_from_a_file_too() {
    let scratch = Scratch::new("simulate-tree");
    let file = scratch.file("tree.toml");
    let machine =
        |name: &str, ranks: &str| format!("[[machine]]\nname = \"{name}\"\nswitch = \"s\"\nranks = [{ranks}]\n");
    let tree = format!("[[switch]]\nname = \"s\"\n{}{}", machine("a", "0, 2"), machine("b", "1, 3"));
    std::fs::write(&file, tree).expect("write");
    let line =
        |topology: &str| format!("--algorithms ring --ranks 4 --bytes 4Mi --format csv {COSTS} --topology {topology}");
    let from_file = shown(&line(file.to_str().expect("a path")));
    // the ring follows the machines, so that no link carries two messages
    assert!(from_file.contains("order=given"), "{from_file}");
    let time = |csv: &str| csv.lines().nth(1).and_then(|l| l.split(',').nth(5)).map(str::to_string);
    assert_eq!(time(&from_file), time(&shown(&line("star:2"))));
    let (code, _, stderr) = simulate(&line(file.to_str().expect("a path")).replace("--ranks 4", "--ranks 5"));
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("has 4 ranks"), "{stderr}");
}

#[test]
fn mistakes_are_usage_errors_that_say_what_could_be_said() {
    for (arguments, parts) in [
        ("", &["--algorithms", "--bytes", "--alpha"][..]),
        ("--algorithms rong --ranks 4 --bytes 1 --alpha 1 --beta 1 --gamma 1", &["butterfly", "three-phase"]),
        ("--algorithms ring --ranks 4 --bytes 1 --alpha -1 --beta 1 --gamma 1", &["-1"]),
        ("--algorithms ring --ranks 9999 --bytes 1 --alpha 1 --beta 1 --gamma 1", &["1 to 1024"]),
        ("--algorithms ring --ranks 4 --bytes 1 --alpha 1 --beta 1 --gamma 1 --pattern random", &["--delay"]),
        ("--preset kolmakov-99", &["kolmakov-1", "alizadeh"]),
    ] {
        let (code, stdout, stderr) = simulate(arguments);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{arguments}: {stderr}");
        assert!(parts.iter().all(|part| stderr.contains(part)), "{arguments}: {stderr}");
    }
}
