//! `earlybird plan`: every schedule in every format, the fastest one, and what is said to requests without sense.

use crate::{earlybird, text};
use serde_json::Value;
use std::collections::BTreeSet;

const NAMES: [&str; 20] = [
    "ring",
    "butterfly",
    "recursive-doubling",
    "halving-doubling",
    "elimination-3-2",
    "elimination-2-1",
    "odd-ring",
    "cyclic-shift",
    "radix",
    "prefix",
    "census",
    "chain",
    "pre-reduced-ring",
    "binomial",
    "rsg",
    "smp-binomial",
    "smp-butterfly",
    "dissemination",
    "bruck",
    "direct",
];

const KEYS: [&str; 19] = [
    "algorithm",
    "parameters",
    "contract",
    "root",
    "ranks",
    "blocks",
    "buffers",
    "result",
    "rounds",
    "ports",
    "max_blocks_sent",
    "max_blocks_reduced",
    "critical_blocks_sent",
    "critical_blocks_reduced",
    "max_message_blocks",
    "messages",
    "order",
    "consistent",
    "steps",
];

const MESSAGE_KEYS: [&str; 8] = ["round", "from", "to", "source", "target", "blocks", "action", "side"];
const LOCAL_KEYS: [&str; 7] = ["round", "rank", "source", "target", "blocks", "action", "side"];

fn plan(arguments: &str) -> (Option<i32>, String, String) {
    let arguments: Vec<&str> = std::iter::once("plan").chain(arguments.split_whitespace()).collect();
    let output = earlybird(&arguments).output().expect("start earlybird");
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn shown(arguments: &str) -> String {
    let (code, stdout, stderr) = plan(arguments);
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{arguments}");
    stdout
}

fn of_six(name: &str) -> String {
    format!("{name} --ranks 6{}", if name.starts_with("smp-") { " --ranks-per-node 3" } else { "" })
}

fn json(arguments: &str) -> Value {
    let text = shown(&format!("{arguments} --format json"));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{arguments}: {e}"))
}

/// The keys of an object.
fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[test]
fn every_name_is_a_table_with_a_row_for_each_message() {
    for name in NAMES {
        let table = shown(&of_six(name));
        let plan = json(&of_six(name));
        let heading = format!("{name} {}, 6 ranks, {} blocks", plan["contract"].as_str().unwrap(), plan["blocks"]);
        assert_eq!(table.lines().next(), Some(heading.as_str()));
        let counts = format!("\n{} rounds, {} messages, ", plan["rounds"], plan["messages"]);
        assert!(table.contains(&counts), "{name}: {table}");
        let rows = table.lines().skip_while(|line| !line.trim_start().starts_with("round ")).skip(1);
        let messages = rows.filter(|row| row.contains(" → ") && !row.contains("itself")).count();
        assert_eq!(plan["messages"], messages, "{name}: {table}");
    }
}

/// Runs an allreduce from its JSON alone: true if every rank ends with every rank's input exactly once in every block.
fn replay(plan: &Value) -> bool {
    let number = |value: &Value, key: &str| value[key].as_u64().expect("a number") as usize;
    let (ranks, blocks, buffers) = (number(plan, "ranks"), number(plan, "blocks"), number(plan, "buffers"));
    // how often each rank's input is in a cell, nothing while it is undefined
    let mut state: Vec<Vec<Vec<Option<Vec<u32>>>>> = vec![vec![vec![None; blocks]; buffers]; ranks];
    for (rank, cells) in state.iter_mut().enumerate() {
        cells[0].fill(Some((0..ranks).map(|other| u32::from(other == rank)).collect()));
    }
    for steps in plan["steps"].as_array().unwrap().chunk_by(|a, b| a["round"] == b["round"]) {
        let start = state.clone();
        for step in steps {
            let (source, target) = (number(step, "source"), number(step, "target"));
            let message = step.get("from").is_some();
            let (from, to) =
                if message { (number(step, "from"), number(step, "to")) } else { [number(step, "rank"); 2].into() };
            let runs = step["blocks"].as_array().unwrap();
            for block in runs.iter().flat_map(|run| run[0].as_u64().unwrap()..run[1].as_u64().unwrap()) {
                let block = block as usize;
                let incoming = if message { &start } else { &state }[from][source][block].clone();
                let own = state[to][target][block].take();
                state[to][target][block] = match (step["action"].as_str(), own, incoming) {
                    (Some("copy"), _, incoming) => incoming,
                    (Some("reduce"), Some(own), Some(incoming)) => {
                        Some(own.iter().zip(incoming).map(|(a, b)| a + b).collect())
                    }
                    _ => return false,
                };
            }
        }
    }
    let result = number(plan, "result");
    state.iter().all(|cells| cells[result].iter().all(|cell| *cell == Some(vec![1; ranks])))
}

#[test]
fn json_says_what_outside_tools_need_to_replay_a_plan() {
    for name in NAMES {
        let plan = json(&of_six(name));
        assert_eq!(keys(&plan), BTreeSet::from(KEYS), "{name}");
        assert_eq!((&plan["algorithm"], &plan["ranks"]), (&Value::from(name), &Value::from(6)));
        let (messages, local): (Vec<&Value>, Vec<&Value>) =
            plan["steps"].as_array().unwrap().iter().partition(|step| step.get("from").is_some());
        assert!(messages.iter().all(|step| keys(step) == BTreeSet::from(MESSAGE_KEYS)), "{name}");
        assert!(local.iter().all(|step| keys(step) == BTreeSet::from(LOCAL_KEYS)), "{name}");
        assert_eq!(plan["messages"], messages.len(), "{name}");
        if plan["contract"] == "allreduce" {
            assert!(replay(&plan), "{name}");
            // the replay can fail: without its last message a plan is not complete
            let mut cut = plan.clone();
            let last = plan["steps"].as_array().unwrap().iter().rposition(|step| step.get("from").is_some());
            cut["steps"].as_array_mut().unwrap().remove(last.unwrap());
            assert!(!replay(&cut), "{name}");
        }
    }
    // 33, 33 and 34 elements: somebody sends all but one block in each half
    let elements = serde_json::json!({ "length": 100, "max_elements_sent": 134, "max_elements_reduced": 67 });
    assert_eq!(json("ring --ranks 3 --elements 100")["elements"], elements);
}

#[test]
fn drawings_are_xml_with_an_arrow_for_each_message() {
    let seven = [0, 1, 3].map(|r| format!("butterfly --ranks 7 --r {r}"));
    for arguments in NAMES.iter().map(|name| of_six(name)).chain(seven) {
        let drawing = shown(&format!("{arguments} --format svg"));
        let document = roxmltree::Document::parse(&drawing).unwrap_or_else(|e| panic!("{arguments}: {e}"));
        assert_eq!(document.root_element().tag_name().name(), "svg");
        let arrows = document.descendants().filter(|n| n.has_tag_name(("http://www.w3.org/2000/svg", "line"))).count();
        assert_eq!(json(&arguments)["messages"], arrows, "{arguments}");
    }
    // KZ's figures 4 to 6: the shifts of the rounds
    for (r, shifts) in [(0, &[-3, -2, -1, 1, 2, 3][..]), (1, &[-3, -2, -1, 2, 3]), (3, &[-3, -2, -1])] {
        let drawing = shown(&format!("butterfly --ranks 7 --r {r} --format svg"));
        for (round, shift) in shifts.iter().enumerate() {
            assert!(drawing.contains(&format!(">round {round}: ρ → ρ{shift:+}<")), "r = {r}, round {round}");
        }
    }
    // the check can fail
    let drawing = shown("ring --ranks 3 --format svg");
    assert!(roxmltree::Document::parse(drawing.trim_end().trim_end_matches("</svg>")).is_err());
}

#[test]
fn the_fastest_one_is_first_and_can_be_asked_for() {
    let costs = "--best --ranks 48 --bytes 64Ki --alpha 3e-5 --beta 1e-8 --gamma 2e-10";
    let found = json(costs);
    let entries = found.as_array().unwrap();
    assert!(entries.len() > 1);
    let seconds: Vec<f64> = entries.iter().map(|e| e["seconds"].as_f64().expect("a time")).collect();
    assert!(seconds.is_sorted() && seconds[0] > 0.0, "{seconds:?}");
    let command = |entry: &Value| entry["command"].as_str().expect("a command").to_string();
    let first = command(&entries[0]).strip_prefix("earlybird plan ").expect("this program").to_string();
    assert_eq!(json(&first)["rounds"], entries[0]["rounds"]);
    let table = shown(costs);
    let places: Vec<usize> = entries.iter().map(|e| table.find(&command(e)).expect("the same candidates")).collect();
    assert!(places.is_sorted(), "{table}");
}

#[test]
fn measured_times_decide_which_one_is_fastest() {
    let folder = std::env::temp_dir().join(format!("earlybird-times-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder");
    let file = folder.join("times.toml");
    let first = |toml: &str| {
        std::fs::write(&file, toml).expect("write");
        let found = json(&format!("--best --ranks 16 --bytes 8Ki --times {}", file.display()));
        found.as_array().unwrap()[0].clone()
    };
    // the same costs as a formula and as a table
    let formula = first("[[level]]\nalpha = 1e-6\nbeta = 1e-9\ngamma = 0.0\n");
    let table = first("[[level]]\nmessages = [[0, 1e-6], [1000, 2e-6]]\ngamma = 0.0\n");
    assert_eq!(formula["command"], table["command"]);
    assert!((formula["seconds"].as_f64().unwrap() - table["seconds"].as_f64().unwrap()).abs() < 1e-12);
    // where messages above 1 KiB are slow, more rounds of smaller ones win
    let jump = first("[[level]]\nmessages = [[0, 1e-6], [1024, 1e-6], [1025, 1e-4]]\ngamma = 0.0\n");
    assert!(jump["rounds"].as_u64() > table["rounds"].as_u64(), "{jump} {table}");
    // free ports
    let ports = first("[[level]]\nalpha = 1e-4\nbeta = 1e-12\ngamma = 0.0\nport = 0.0\n");
    assert!(ports["ports"].as_u64() > Some(1), "{ports}");
    // three levels
    let level = |ranks: &str, alpha: &str| format!("[[level]]\n{ranks}alpha = {alpha}\nbeta = 1e-9\ngamma = 1e-10\n");
    let levels = [("ranks = 4\n", "1e-7"), ("ranks = 8\n", "1e-6"), ("", "1e-5")].map(|(r, a)| level(r, a)).concat();
    assert!(first(&levels)["command"].as_str().is_some());
    std::fs::remove_dir_all(&folder).expect("remove");
}

#[test]
fn the_order_of_arrival_decides_who_acts_last() {
    let plan = json("pre-reduced-ring --ranks 5 --order 3,0,1,4,2 --late 2 --segments 4");
    let first = |rank: u64| {
        let acts = |step: &&Value| step["from"] == rank || step["to"] == rank;
        plan["steps"].as_array().unwrap().iter().find(acts).expect("everybody acts")["round"].as_u64()
    };
    assert_eq!([3, 0, 1].map(first), [Some(0), Some(0), Some(1)]);
    // 3 early ranks fold 4 segments in 5 rounds before the late ones act
    assert_eq!([4, 2].map(first), [Some(5), Some(6)]);
}

#[test]
fn mistakes_are_usage_errors_that_say_what_could_be_said() {
    for (arguments, parts) in [
        ("rong --ranks 4", &NAMES[..]),
        ("ring", &["--ranks"]),
        ("ring --ranks 0", &["1 to 1024"]),
        ("ring --ranks 4 --r 1", &["does not use r", "order"]),
        ("ring --ranks 4 --order 0,1,1,2", &["exactly once"]),
        ("ring --ranks 4 --contract gather", &["reduce-scatter", "barrier"]),
        ("ring --ranks 4 --format png", &["table", "svg", "json"]),
        ("pre-reduced-ring --ranks 4 --late 4", &["1 to 3"]),
        ("pre-reduced-ring --ranks 1 --late 1", &["only one rank"]),
        ("pre-reduced-ring --ranks 4 --segments 0", &["1 to"]),
        ("butterfly --ranks 6 --group 4,3", &["6"]),
        ("--best --ranks 4 --bytes 64K --alpha 1 --beta 1 --gamma 1", &["Ki, Mi or Gi"]),
        ("ring --ranks 4 --bytes 4", &["--best"]),
        ("ring --ranks 4 --alpha 4", &["--best"]),
        ("--best --ranks 4", &["--bytes"]),
        ("--best --ranks 4 --bytes 64", &["--alpha", "--beta", "--gamma", "--times"]),
    ] {
        let (code, stdout, stderr) = plan(arguments);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{arguments}: {stderr}");
        assert!(parts.iter().all(|part| stderr.contains(part)), "{arguments}: {stderr}");
    }
    // a plan that exists but may not be used as asked is no usage error
    let (code, stdout, stderr) = plan("census --ranks 7 --consistency identical");
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert!(stderr.contains("per-rank"), "{stderr}");
}
