//! Published figures and tables, run again: algorithms, parameters and sizes in one place.
//!
//! Costs of the Kolmakov and Zhang presets are those of their table 2; the axes are ours where docs/simulator.md says
//! so. What other presets assume about their machines is in their functions.

use super::figure::{Axis, Figure, Measure, Point};
use super::runner::Runner;
use crate::chart::Failure;
use crate::lateness::{BALANCED, Lateness};
use clap::ValueEnum;
use earlybird::pattern::Pattern;
use earlybird_hier::cost::Topology;
use earlybird_hier::sim::{Costs, Machine};
use itertools::{Itertools, iproduct};

/// α, β and γ of Kolmakov and Zhang's table 2.
const TABLE_2: (f64, f64, f64) = (3e-5, 1e-8, 2e-10);
/// α and β inside a node, for want of published ones.
const INSIDE: (f64, f64) = (5e-7, 1e-10);
/// The number of processes of Kolmakov and Zhang: 2^7 - 1, the worst case of their formulas.
const PROCESSES: usize = 127;
/// The sizes whose step counts they discuss.
const SIZES: [u64; 4] = [425, 9216, 1 << 16, 1 << 20];
const CLASSICAL: [&str; 3] = ["ring", "recursive-doubling", "halving-doubling"];
const ESTIMATED: &str = "butterfly:r=estimated";
const BEST: &str = "butterfly:r=best";

/// A published figure or table that can be simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PublishedFigure {
    /// Classical algorithms over the size, 127 ranks
    #[value(name = "kolmakov-1")]
    Kolmakov1,
    /// Butterfly with estimated and with best r against classical algorithms, 127 ranks, small sizes
    #[value(name = "kolmakov-7")]
    Kolmakov7,
    /// The same, medium sizes
    #[value(name = "kolmakov-8")]
    Kolmakov8,
    /// The same, large sizes
    #[value(name = "kolmakov-9")]
    Kolmakov9,
    /// Every r against the best one, 127 ranks, 425 B to 1 MiB
    #[value(name = "kolmakov-10")]
    Kolmakov10,
    /// Estimated and best r against classical algorithms over the number of ranks, 425 B
    #[value(name = "kolmakov-11")]
    Kolmakov11,
    /// The same, 9216 B
    #[value(name = "kolmakov-12")]
    Kolmakov12,
    /// Odd numbers of ranks: eliminations, odd rings and the classic fold, both protocols
    Rabenseifner,
    /// Ring against butterfly on a tree of switches: 4 machines of 8 ranks
    Patarasuk,
    /// Flat against hierarchical under imbalance: 8 nodes of 4 and of 32 ranks
    Alizadeh,
}

impl PublishedFigure {
    /// Runs it.
    pub fn figure(self, seed: u64) -> Result<Figure, Failure> {
        let powers = |from: u32, to: u32| (from..=to).map(|k| 1u64 << k).collect::<Vec<_>>();
        let with_ours = [&[ESTIMATED, BEST], &CLASSICAL[..]].concat();
        let title = |text: &str| format!("Kolmakov and Zhang, {text}");
        match self {
            PublishedFigure::Kolmakov1 => {
                over_bytes(title("classical algorithms, P = 127"), &CLASSICAL, &powers(3, 26))
            }
            PublishedFigure::Kolmakov7 => over_bytes(title("small sizes, P = 127"), &with_ours, &powers(3, 12)),
            PublishedFigure::Kolmakov8 => over_bytes(title("medium sizes, P = 127"), &with_ours, &powers(10, 18)),
            PublishedFigure::Kolmakov9 => over_bytes(title("large sizes, P = 127"), &with_ours, &powers(16, 26)),
            PublishedFigure::Kolmakov10 => every_step_count(title("every r against the best, P = 127")),
            PublishedFigure::Kolmakov11 => over_ranks(title("425 bytes"), &with_ours, 425),
            PublishedFigure::Kolmakov12 => over_ranks(title("9216 bytes"), &with_ours, 9216),
            PublishedFigure::Rabenseifner => odd_factors(),
            PublishedFigure::Patarasuk => switch_tree(),
            PublishedFigure::Alizadeh => imbalance(seed),
        }
    }
}

/// A machine of one rank per node with the costs of table 2.
fn table_2() -> Machine {
    let (alpha, beta, gamma) = TABLE_2;
    Machine::flat(Costs::linear(alpha, beta, gamma))
}

/// The point of `series` over `x` for an algorithm without lateness.
fn point(runner: &Runner, series: &str, x: f64, algorithm: &str, bytes: u64) -> Result<Point, Failure> {
    let row = runner.row(&algorithm.parse()?, bytes, &BALANCED)?;
    Ok(Point { series: series.to_string(), x, y: row.time_us, row })
}

fn figure(title: impl Into<String>, axis: Axis, points: Vec<Point>) -> Figure {
    Figure { title: title.into(), axis, relative: false, points, measure: Measure::Time }
}

fn over_bytes(title: String, algorithms: &[&str], sizes: &[u64]) -> Result<Figure, Failure> {
    let runner = Runner::new(PROCESSES, table_2());
    let points = iproduct!(algorithms, sizes);
    let points = points.map(|(algorithm, bytes)| point(&runner, algorithm, *bytes as f64, algorithm, *bytes));
    Ok(figure(title, Axis::Bytes, points.collect::<Result<_, _>>()?))
}

fn over_ranks(title: String, algorithms: &[&str], bytes: u64) -> Result<Figure, Failure> {
    // a ring of that many short messages would only flatten the others
    let points = algorithms.iter().filter(|name| **name != "ring").cartesian_product(2..=160);
    let points = points.map(|(name, ranks)| point(&Runner::new(ranks, table_2()), name, ranks as f64, name, bytes));
    Ok(figure(title, Axis::Ranks, points.collect::<Result<_, _>>()?))
}

fn every_step_count(title: String) -> Result<Figure, Failure> {
    let runner = Runner::new(PROCESSES, table_2());
    let mut points = Vec::new();
    for bytes in SIZES {
        let best_us = point(&runner, BEST, 0.0, BEST, bytes)?.y;
        for r in 0..=7 {
            let series = format!("{bytes} bytes");
            let point = point(&runner, &series, f64::from(r), &format!("butterfly:r={r}"), bytes)?;
            points.push(Point { y: point.y / best_us, ..point });
        }
    }
    Ok(Figure { relative: true, ..figure(title, Axis::Steps, points) })
}

/// 8 bytes with whole vectors, 1 MiB with split ones; costs as in table 2 of Kolmakov and Zhang, for want of others.
fn odd_factors() -> Result<Figure, Failure> {
    let mut points = Vec::new();
    let protocols = [(8, "latency", "recursive-doubling"), (1 << 20, "bandwidth", "halving-doubling")];
    let names = ["elimination-3-2", "elimination-2-1", "odd-ring", "classic fold"];
    for ((bytes, protocol, classic), name, ranks) in iproduct!(protocols, names, 2..=33) {
        let (runner, series) = (Runner::new(ranks, table_2()), format!("{name}, {protocol}"));
        let own = format!("{name}:protocol={protocol}");
        let algorithm = if name == "classic fold" { classic } else { &own };
        points.push(point(&runner, &series, ranks as f64, algorithm, bytes)?);
    }
    Ok(figure("Rabenseifner, odd factors: 8 bytes (latency), 1 MiB (bandwidth)", Axis::Ranks, points))
}

/// Links as fast as ports, messages inside a machine cheap, no reductions: what is compared is the network.
fn switch_tree() -> Result<Figure, Failure> {
    const RANKS: usize = 32;
    let (alpha, beta, _) = TABLE_2;
    let tree = Topology::star(RANKS, 8)?;
    let machine =
        Machine { inside: Costs::linear(INSIDE.0, INSIDE.1, 0.0), ..Machine::flat(Costs::linear(alpha, beta, 0.0)) };
    let runner = Runner::new(RANKS, machine).on(&tree, beta)?;
    // every machine in turn: neighbours in the ring are on different machines
    let apart: Vec<String> = (0..RANKS).map(|i| (i % 4 * 8 + i / 4).to_string()).collect();
    let mut points = Vec::new();
    let algorithms = [
        ("ring, depth first", "ring"),
        ("ring, machines in turn", &format!("ring:order={}", apart.join("x"))),
        ("halving-doubling, near first", "halving-doubling:distance=doubling"),
        ("halving-doubling, far first", "halving-doubling:distance=halving"),
        ("butterfly", "butterfly"),
        ("smp-binomial", "smp-binomial:ranks-per-node=8"),
        ("smp-butterfly", "smp-butterfly:ranks-per-node=8"),
    ];
    for ((series, algorithm), power) in iproduct!(algorithms, (10..=26).step_by(2)) {
        points.push(point(&runner, series, f64::from(1 << power), algorithm, 1 << power)?);
    }
    Ok(figure("Ring against butterfly on 4 machines of 8 ranks at one switch", Axis::Bytes, points))
}

/// 64 KiB between 8 nodes of 4 and of 32 ranks, each node with one link to a switch. Delays are multiples (MIF) of the
/// balanced time of the hierarchy that waits for all before it folds; random lateness, the mean of 20 calls.
fn imbalance(seed: u64) -> Result<Figure, Failure> {
    const NODES: usize = 8;
    const BYTES: u64 = 1 << 16;
    let algorithms = [
        ("flat binomial", "binomial"),
        ("flat rsg", "rsg"),
        ("flat halving-doubling", "halving-doubling"),
        ("static leader", "three-phase:fold=static-leader:exchange=halving-doubling"),
        ("first arriver leads", "three-phase:fold=leader:exchange=halving-doubling"),
        ("chain", "three-phase:fold=chain:exchange=halving-doubling"),
    ];
    let mut points = Vec::new();
    for per_node in [4, 32] {
        let inside = Costs::linear(INSIDE.0, INSIDE.1, TABLE_2.2);
        let machine = Machine { inside, ranks_per_node: per_node, ..table_2() };
        let ranks = NODES * per_node;
        let tree = Topology::star(ranks, per_node)?;
        // of three phases only one rank per node uses the link, so that the link is its port
        let hierarchical = Runner::new(ranks, machine);
        let balanced_us = point(&hierarchical, "", 0.0, algorithms[3].1, BYTES)?.y;
        for (series, algorithm) in algorithms {
            let mut runner = hierarchical.clone();
            if !algorithm.starts_with("three-phase") {
                runner = runner.on(&tree, TABLE_2.1)?;
            }
            (runner.iterations, runner.seed, runner.measure) = (20, seed, Measure::Tail);
            for mif in [0.0, 1.0, 10.0, 20.0, 50.0] {
                let late = Lateness::Pattern { pattern: Pattern::Random, delay_s: mif * balanced_us * 1e-6 };
                let mut row = runner.row(&algorithm.parse()?, BYTES, &late)?;
                row.parameters += &format!("{}mif={mif}", if row.parameters.is_empty() { "" } else { ";" });
                points.push(Point { series: format!("{series}, {per_node} per node"), x: mif, y: row.time_us, row });
            }
        }
    }
    let title = "Flat against hierarchical under imbalance, 8 nodes, 64 KiB: last arrival to last exit";
    Ok(Figure { measure: Measure::Tail, ..figure(title, Axis::Imbalance, points) })
}
