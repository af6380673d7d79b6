//! The summary of many runs, and a line for each that failed.

use crate::draw::Scenario;
use crate::judge::{Class, Outcome};
use std::collections::BTreeMap;

#[derive(Default)]
pub struct Summary {
    runs: u64,
    calls: BTreeMap<String, u64>,
    kinds: BTreeMap<&'static str, Count>,
    detections: Vec<u64>,
    problems: BTreeMap<Class, u64>,
    killed: u64,
    stopped: u64,
}

/// Runs of a kind.
#[derive(Default)]
struct Count {
    runs: u64,
    acted: u64,
    failed: u64,
}

impl Summary {
    pub fn add(&mut self, scenario: &Scenario, only: &str, outcome: &Outcome) {
        self.runs += 1;
        let count = self.kinds.entry(scenario.kind.name).or_default();
        count.runs += 1;
        count.acted += u64::from(outcome.acted);
        count.failed += u64::from(!outcome.problems.is_empty());
        for (form, calls) in &outcome.calls {
            *self.calls.entry(form.clone()).or_default() += calls;
        }
        self.detections.extend(&outcome.detections);
        self.killed += outcome.killed;
        self.stopped += outcome.stopped;
        for (class, _) in &outcome.problems {
            *self.problems.entry(*class).or_default() += 1;
        }
        if !outcome.problems.is_empty() {
            println!("{}", line(scenario, only, outcome));
        }
    }

    /// The number of times that ranks hung, had a wrong element, left something, ended with another error than they must.
    pub fn failures(&self) -> u64 {
        self.problems.iter().filter(|(class, _)| **class != Class::Late).map(|(_, count)| count).sum()
    }

    pub fn print(&mut self) {
        println!("{:9} runs", self.runs);
        println!("{:9} calls made and checked", self.calls.values().sum::<u64>());
        let listed: Vec<String> = self.calls.iter().map(|(form, calls)| format!("{form} {calls}")).collect();
        listed.chunks(6).for_each(|chunk| println!("          {}", chunk.join(", ")));
        for (kind, count) in &self.kinds {
            println!("{:9} runs of {kind}: {} acted, {} failed", count.runs, count.acted, count.failed);
        }
        println!("{:9} processes killed or ended, {} stopped", self.killed, self.stopped);
        self.detections.sort_unstable();
        let ms = |at: usize| self.detections.get(at).map_or(0.0, |ns| *ns as f64 / 1e6);
        let last = self.detections.len().saturating_sub(1);
        println!(
            "{:9} errors of survivors: median {:.1} ms, slowest {:.1} ms",
            self.detections.len(),
            ms(last / 2),
            ms(last)
        );
        for class in [Class::Hang, Class::Wrong, Class::Leak, Class::Error, Class::Late] {
            println!("{:9} {class:?}", self.problems.get(&class).unwrap_or(&0));
        }
    }
}

/// A failed run, and how to repeat it, as JSON.
fn line(scenario: &Scenario, only: &str, outcome: &Outcome) -> serde_json::Value {
    let only = if only.is_empty() { String::new() } else { format!(" --only {only}") };
    serde_json::json!({
        "kind": scenario.kind.name,
        "repeat": format!("tests/long/chaos --seed {} --runs 1{only}", scenario.seed),
        "ranks": scenario.ranks,
        "nodes": scenario.nodes,
        "victims": scenario.victims,
        "settings": scenario.vars.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>(),
        "problems": outcome.problems.iter().map(|(class, text)| format!("{class:?}: {text}")).collect::<Vec<_>>(),
    })
}
