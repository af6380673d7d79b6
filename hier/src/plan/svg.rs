//! A drawing in which the data can be followed: the state of every rank between rounds, and the messages.
//!
//! Time runs to the right. Each column is a state, each line in it one buffer of a rank, each cell a block: white if
//! undefined, darker the more ranks have contributed, green frame when complete. Small plans name the contributors.

use super::{Action, Contract, Message, Plan, pair};
use crate::error::PlanError;
use crate::verify::{Machine, Verified};
use std::fmt::Write;

/// Most cells drawn; beyond that no one can follow them.
const MAX_CELLS: usize = 200_000;
const LINE_HEIGHT: usize = 14;
const RANK_GAP: usize = 10;
const ARROW_WIDTH: usize = 90;
const LEFT: usize = 60;
const TOP: usize = 64;

/// The plan as an SVG document. An error if it would have more than 200 000 cells.
pub fn svg(plan: &Verified<Plan>) -> Result<String, PlanError> {
    let plan: &Plan = plan;
    let cells = (plan.rounds + 1) * plan.ranks() * plan.buffers * plan.blocks;
    if cells > MAX_CELLS {
        return Err(PlanError::Parameter {
            algorithm: plan.algorithm.clone(),
            parameter: "format",
            given: format!("svg with {cells} cells"),
            expected: format!("at most {MAX_CELLS}; take fewer ranks, or format table or json"),
        });
    }
    let pairs = pair(plan)?;
    let messages = plan.messages()?;
    let mut machine = Machine::new(plan, &pairs);
    let layout = Layout::of(plan);
    let mut out = String::new();
    layout.open(&mut out, plan);
    machine.run_round(-1)?;
    layout.state(&mut out, plan, &machine, 0);
    for round in 0..plan.rounds {
        machine.run_round(round as i32)?;
        layout.state(&mut out, plan, &machine, round + 1);
        for m in messages.iter().filter(|m| m.round == round as i32) {
            layout.arrow(&mut out, m);
        }
    }
    out.push_str("</svg>\n");
    Ok(out)
}

struct Layout {
    named: bool,
    cell: usize,
    buffers: usize,
    column: usize,
}

impl Layout {
    fn of(plan: &Plan) -> Self {
        let named = plan.ranks() <= 9;
        let cell = if named { 6 * plan.ranks() + 6 } else { 8 };
        Self { named, cell, buffers: plan.buffers, column: cell * plan.blocks + ARROW_WIDTH }
    }

    fn y(&self, rank: usize, buffer: usize) -> usize {
        TOP + rank * (self.buffers * LINE_HEIGHT + RANK_GAP) + buffer * LINE_HEIGHT
    }

    fn open(&self, out: &mut String, plan: &Plan) {
        let width = LEFT + (plan.rounds + 1) * self.column;
        let height = self.y(plan.ranks(), 0) + 10;
        let parameters: Vec<String> = plan.parameters.iter().map(|(n, v)| format!("{n} = {v}")).collect();
        let _ = write!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" font-family=\"monospace\" font-size=\"9\">\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n\
             <defs>\
             <marker id=\"r\" markerWidth=\"7\" markerHeight=\"7\" refX=\"6\" refY=\"3\" orient=\"auto\">\
             <path d=\"M0,0 L6,3 L0,6 z\" fill=\"#c0392b\"/></marker>\
             <marker id=\"c\" markerWidth=\"7\" markerHeight=\"7\" refX=\"6\" refY=\"3\" orient=\"auto\">\
             <path d=\"M0,0 L6,3 L0,6 z\" fill=\"#1e8449\"/></marker></defs>\n\
             <text x=\"8\" y=\"18\" font-size=\"14\">{} {}, {} ranks, {} rounds</text>\n\
             <text x=\"8\" y=\"34\" font-size=\"11\">{} · <tspan fill=\"#c0392b\">reduce</tspan> · \
             <tspan fill=\"#1e8449\">copy</tspan> · operands {} · {}</text>\n",
            plan.algorithm,
            plan.contract,
            plan.ranks(),
            plan.rounds,
            parameters.join(", "),
            plan.order,
            if plan.consistent { "identical bits on all ranks" } else { "bits may differ between ranks" },
        );
        for rank in 0..plan.ranks() {
            let _ = writeln!(out, "<text x=\"8\" y=\"{}\">rank {rank}</text>", self.y(rank, 0) + 10);
        }
        for round in 0..plan.rounds {
            let x = LEFT + round * self.column + self.cell * plan.blocks + ARROW_WIDTH / 2;
            let _ = writeln!(out, "<text x=\"{x}\" y=\"{}\" text-anchor=\"middle\">round {round}</text>", TOP - 10);
        }
    }

    fn state(&self, out: &mut String, plan: &Plan, machine: &Machine<'_>, column: usize) {
        for rank in 0..plan.ranks() {
            for buffer in 0..plan.buffers {
                for block in 0..plan.blocks {
                    let from = machine.contributors(rank, buffer, block);
                    let x = LEFT + column * self.column + block * self.cell;
                    let y = self.y(rank, buffer);
                    let _ = write!(
                        out,
                        "<g><title>rank {rank}, buffer {buffer}, block {block}: {}</title>\
                         <rect x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{}\" fill=\"{}\" stroke=\"{}\"/>",
                        if from.is_empty() { "undefined".to_string() } else { join(&from, ", ") },
                        self.cell - 1,
                        LINE_HEIGHT - 2,
                        fill(&from, plan.ranks()),
                        if done(plan, rank, buffer, block, &from) { "#1e8449" } else { "#cccccc" },
                    );
                    if self.named && !from.is_empty() {
                        let dark = 2 * from.len() > plan.ranks() + 1;
                        let _ = write!(
                            out,
                            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" fill=\"{}\">{}</text>",
                            x + self.cell / 2,
                            y + 9,
                            if dark { "white" } else { "black" },
                            join(&from, ""),
                        );
                    }
                    out.push_str("</g>\n");
                }
            }
        }
    }

    fn arrow(&self, out: &mut String, m: &Message) {
        let (class, color, verb) = match m.action {
            Action::Reduce(_) => ("r", "#c0392b", "reduce"),
            Action::Copy => ("c", "#1e8449", "copy"),
        };
        let x = LEFT + (m.round as usize + 1) * self.column - ARROW_WIDTH;
        let middle = LINE_HEIGHT / 2 - 1;
        let _ = writeln!(
            out,
            "<g><title>round {}: rank {} to rank {}, blocks {}, {verb}</title><line x1=\"{}\" y1=\"{}\" x2=\"{}\" \
             y2=\"{}\" stroke=\"{color}\" marker-end=\"url(#{class})\"/></g>",
            m.round,
            m.from,
            m.to,
            m.blocks,
            x + 2,
            self.y(m.from, m.source) + middle,
            x + ARROW_WIDTH - 4,
            self.y(m.to, m.target) + middle,
        );
    }
}

fn join(ranks: &[usize], gap: &str) -> String {
    ranks.iter().map(usize::to_string).collect::<Vec<_>>().join(gap)
}

/// White for nothing, then from light to dark blue with the share of ranks.
fn fill(from: &[usize], ranks: usize) -> String {
    if from.is_empty() {
        return "white".to_string();
    }
    let share = if ranks <= 1 { 0.0 } else { (from.len() - 1) as f64 / (ranks - 1) as f64 };
    let mix = |light: f64, dark: f64| (light + (dark - light) * share).round() as u8;
    format!("#{:02x}{:02x}{:02x}", mix(226.0, 21.0), mix(236.0, 67.0), mix(247.0, 120.0))
}

/// True if the block is what the contract wants in the end.
fn done(plan: &Plan, rank: usize, buffer: usize, block: usize, from: &[usize]) -> bool {
    let owner = block / (plan.blocks / plan.ranks()).max(1);
    buffer == plan.result
        && match plan.contract {
            Contract::Allreduce | Contract::Barrier => from.len() == plan.ranks(),
            Contract::Reduce => rank == plan.root && from.len() == plan.ranks(),
            Contract::ReduceScatter => rank == owner && from.len() == plan.ranks(),
            Contract::Broadcast => from == [plan.root],
            Contract::Allgather => from == [owner],
        }
}
