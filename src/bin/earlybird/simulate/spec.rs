//! An algorithm as the command line names it: `NAME:KEY=VALUE:KEY=VALUE`.

use earlybird_hier::schedule::{self, Params};
use earlybird_hier::sim::NodeFold;
use std::fmt;
use std::str::FromStr;

/// The simulated schedule.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    text: String,
    pub what: What,
}

#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// The schedule that the cost model predicts to be the fastest.
    Best,
    Schedule(Schedule),
    ThreePhase {
        fold: NodeFold,
        chunks: usize,
        exchange: Schedule,
    },
}

/// A schedule with parameters, some of which are known only when it runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    pub name: String,
    /// Without ranks.
    pub params: Params,
    pub steps: StepCount,
    /// The logical order is the order of arrival.
    pub by_arrival: bool,
}

/// The choice of the number of latency-optimal steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepCount {
    Given,
    /// The best of all numbers, by simulation.
    Best,
    /// The estimate of Kolmakov and Zhang's equation 37.
    Estimated,
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl FromStr for Spec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, pairs) = schedule::key_values(text).map_err(|error| error.to_string())?;
        let what = match name {
            "best" => match pairs.first() {
                Some((key, _)) => return Err(format!("best takes no parameters; leave out {key}")),
                None => What::Best,
            },
            "three-phase" => three_phase(pairs)?,
            name => What::Schedule(Schedule::new(name, &pairs)?),
        };
        Ok(Self { text: text.to_string(), what })
    }
}

fn three_phase(pairs: Vec<(&str, &str)>) -> Result<What, String> {
    let (mut fold, mut chunks, mut exchange) = (NodeFold::Leader, 1, "recursive-doubling");
    let mut rest = Vec::new();
    for (key, value) in pairs {
        match key {
            "fold" => fold = value.parse().map_err(|e| format!("fold={e}"))?,
            "chunks" => chunks = value.parse().map_err(|_| format!("{key}={value}: expected a whole number"))?,
            "exchange" => exchange = value,
            _ => rest.push((key, value)),
        }
    }
    if !(1..=1 << 16).contains(&chunks) {
        return Err(format!("chunks={chunks}: expected 1 to 65536"));
    }
    let exchange = Schedule::new(exchange, &rest)?;
    match exchange.by_arrival || exchange.steps != StepCount::Given {
        true => Err("an exchange between nodes takes r and order as numbers".to_string()),
        false => Ok(What::ThreePhase { fold, chunks, exchange }),
    }
}

impl Schedule {
    fn new(name: &str, pairs: &[(&str, &str)]) -> Result<Self, String> {
        let entry = schedule::algorithm(name).map_err(|error| format!("{error} best three-phase"))?;
        let (mut params, mut steps, mut by_arrival) = (Params::default(), StepCount::Given, false);
        for &(key, value) in pairs {
            match (key, value) {
                ("r", "best") => steps = StepCount::Best,
                ("r", "estimated") => steps = StepCount::Estimated,
                ("order", "arrival") => by_arrival = true,
                _ => params.set(entry, key, value).map_err(|error| error.to_string())?,
            }
        }
        if steps != StepCount::Given && (name != "butterfly" || params.group.is_some()) {
            return Err("r=best and r=estimated are for the butterfly on the cyclic group".to_string());
        }
        if by_arrival && !entry.uses.contains(&"order") {
            return Err(format!("{name} has no order; ring, chain and pre-reduced-ring have one"));
        }
        Ok(Self { name: name.to_string(), params, steps, by_arrival })
    }
}

/// The estimate of Kolmakov and Zhang's equation 37, rounded to the nearest step count of 0 to L - 1, L = ⌈log₂ P⌉.
pub fn estimated_steps(ranks: usize, bytes: f64, alpha_s: f64, beta_s: f64, gamma_s: f64) -> usize {
    let levels = ranks.max(1).next_power_of_two().trailing_zeros() as usize;
    if levels < 2 {
        return 0;
    }
    let copies =
        alpha_s * ranks as f64 / (bytes * (beta_s + 2.0 * gamma_s) * (levels - 1) as f64 * std::f64::consts::LN_2);
    // a vector of no bytes, or bytes without cost, make it infinite: as few rounds as the equation knows
    copies.log2().round().clamp(0.0, (levels - 1) as f64) as usize
}
