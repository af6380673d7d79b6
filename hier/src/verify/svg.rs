//! A drawing of a verified plan: the state of every rank between rounds, and the messages.
//!
//! Time runs to the right. Each column is a state, each line in it one buffer of a rank, each cell a block: white if
//! undefined, darker the more ranks have contributed, green when it holds the result. A frame shows how
//! the cell got its value in the round before, a bar that it is sent in the round after; the blocks of a message are
//! written at the start of its arrow. Plans of up to nine ranks name the contributors. A long plan goes on below, where
//! the last state is repeated.

use super::Verified;
use super::symbol::SymbolicState;
use crate::plan::{Action, Blocks, Collective, Message, Plan, PlanError, match_steps};
use crate::schedule::bad;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Most cells drawn; beyond that no one can follow them.
const MAX_CELLS: usize = 200_000;
const LINE_HEIGHT: usize = 14;
const RANK_GAP: usize = 10;
const ARROW_WIDTH: usize = 80;
/// Rounds that would go beyond this width go on below.
const WIDTH: usize = 1600;
const LEFT: usize = 64;
const TOP: usize = 74;
/// Longest list of blocks written beside an arrow; the tooltip has all of it.
const MAX_LABEL: usize = 24;

const REDUCED: &str = "#c0392b";
const COPIED: &str = "#1f6fd0";
const LOCAL: &str = "#b9770e";
const PLAIN: &str = "#cccccc";

/// The plan as an SVG document. An error if it would have more than 200 000 cells.
pub fn svg(plan: &Verified<Plan>) -> Result<String, PlanError> {
    let plan: &Plan = plan;
    let cells = (plan.rounds + 1) * plan.ranks() * plan.buffers * plan.blocks;
    if cells > MAX_CELLS {
        let expected = format!("at most {MAX_CELLS}; take fewer ranks, or format table or json");
        return Err(bad(&plan.algorithm, "format", format!("svg with {cells} cells"), expected));
    }
    let pairs = match_steps(plan)?;
    let mut machine = SymbolicState::new(plan, &pairs);
    let mut states = Vec::with_capacity(plan.rounds + 1);
    for round in -1..plan.rounds as i32 {
        machine.run_round(round)?;
        states.push(DrawnState::of(plan, &machine));
    }
    let messages = plan.messages()?;
    let rounds: Vec<&[Message]> = messages.chunk_by(|a, b| a.round == b.round).collect();
    let of = |round: i32| rounds.iter().find(|ms| ms[0].round == round).copied().unwrap_or_default();
    let mut drawing = Drawing::of(plan, &states, &messages);
    let mut out = String::new();
    drawing.open(&mut out);
    for band in 0..drawing.bands() {
        let last = drawing.start(&mut out, band, of);
        for column in drawing.first..=last {
            let previous = column.checked_sub(1).map(|c| &states[c]);
            let frames = frames(&states[column], previous, of(column as i32 - 1));
            drawing.state(&mut out, column, &states[column], &frames);
            if column < last {
                drawing.messages(&mut out, column, of(column as i32));
            }
        }
    }
    out.push_str("</svg>\n");
    Ok(out)
}

/// Rank, buffer, block.
type CellIndex = (usize, usize, usize);

/// The ranks that have contributed to each cell.
struct DrawnState(BTreeMap<CellIndex, Vec<usize>>);

impl DrawnState {
    fn of(plan: &Plan, machine: &SymbolicState<'_>) -> Self {
        let blocks = |(rank, buffer)| (0..plan.blocks).map(move |block| (rank, buffer, block));
        let lines = (0..plan.ranks()).flat_map(|rank| (0..plan.buffers).map(move |buffer| (rank, buffer)));
        Self(lines.flat_map(blocks).map(|c| (c, machine.contributors(c.0, c.1, c.2))).collect())
    }
}

/// The distance of all messages of a round, if it is the same for all ranks: the exponent in KZ's t^d.
fn shift(ranks: usize, messages: &[Message]) -> Option<isize> {
    let by = |m: &Message| (m.to + ranks - m.from) % ranks;
    let first = by(messages.first()?);
    let is_uniform = messages.len() >= ranks && messages.iter().all(|m| by(m) == first);
    is_uniform.then_some(if 2 * first > ranks { first as isize - ranks as isize } else { first as isize })
}

/// The frame colour of each cell that changed: reduced, copied or changed locally.
fn frames(state: &DrawnState, previous: Option<&DrawnState>, arrived: &[Message]) -> BTreeMap<CellIndex, &'static str> {
    let mut frames = BTreeMap::new();
    if let Some(previous) = previous {
        let changed = state.0.iter().filter(|(cell, from)| previous.0.get(*cell) != Some(*from));
        frames.extend(changed.map(|(cell, _)| (*cell, LOCAL)));
    }
    for m in arrived {
        frames.extend(m.blocks.iter().map(|block| ((m.to, m.target, block), color(m.action))));
    }
    frames
}

struct Drawing<'a> {
    plan: &'a Plan,
    named: bool,
    cell: usize,
    gutter: usize,
    column: usize,
    rounds_per_band: usize,
    // where the band being drawn starts
    first: usize,
    top: usize,
}

impl<'a> Drawing<'a> {
    fn of(plan: &'a Plan, states: &[DrawnState], messages: &[Message]) -> Self {
        let named = plan.ranks() <= 9;
        let longest = states.iter().flat_map(|s| s.0.values()).map(|from| name(from, plan.ranks()).len()).max();
        let cell = if named { 6 * longest.unwrap_or(0) + 8 } else { 8 };
        let gutter = 6 + 5 * messages.iter().map(|m| label(&[&m.blocks]).chars().count()).max().unwrap_or(0);
        let column = cell * plan.blocks + gutter + ARROW_WIDTH;
        let rounds_per_band = (WIDTH.saturating_sub(LEFT + cell * plan.blocks) / column).max(1);
        Self { plan, named, cell, gutter, column, rounds_per_band, first: 0, top: TOP }
    }

    fn bands(&self) -> usize {
        self.plan.rounds.div_ceil(self.rounds_per_band).max(1)
    }

    fn band_height(&self) -> usize {
        self.plan.ranks() * (self.plan.buffers * LINE_HEIGHT + RANK_GAP) + 24
    }

    /// Starts a band, with its headings; the last of its states.
    fn start<'m>(&mut self, out: &mut String, band: usize, of: impl Fn(i32) -> &'m [Message]) -> usize {
        (self.first, self.top) = (band * self.rounds_per_band, TOP + band * self.band_height());
        let last = (self.first + self.rounds_per_band).min(self.plan.rounds);
        self.headings(out, last, of);
        last
    }

    fn y(&self, rank: usize, buffer: usize) -> usize {
        self.top + rank * (self.plan.buffers * LINE_HEIGHT + RANK_GAP) + buffer * LINE_HEIGHT
    }

    fn x(&self, column: usize, block: usize) -> usize {
        LEFT + (column - self.first) * self.column + block * self.cell
    }

    fn open(&self, out: &mut String) {
        let plan = self.plan;
        let title = format!("{} {}, {} ranks, {} rounds", plan.algorithm, plan.collective, plan.ranks(), plan.rounds);
        let mut facts: Vec<String> = plan.parameters.iter().map(|(n, v)| format!("{n} = {v}")).collect();
        facts.push(format!("operands {}", plan.order));
        facts
            .push(if plan.consistent { "identical bits on all ranks" } else { "bits may differ between ranks" }.into());
        let facts = facts.join(" · ");
        let legend =
            "frame: reduced, copied, changed locally · bar: sent next · green: complete · a..b: blocks a to b - 1";
        // a letter of the headings takes 8 and 6.7 units at most
        let text = (8 * title.chars().count()).max(7 * facts.chars().count()).max(7 * legend.chars().count());
        let width = (self.x(self.rounds_per_band.min(plan.rounds), plan.blocks) + 10).max(16 + text);
        let height = TOP + self.bands() * self.band_height() - 20;
        let _ = write!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" font-family=\"monospace\" font-size=\"9\">\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n<defs>{}{}</defs>\n\
             <text x=\"8\" y=\"16\" font-size=\"13\">{}</text>\n<text x=\"8\" y=\"31\" font-size=\"11\">{}</text>\n\
             <text x=\"8\" y=\"45\" font-size=\"11\">frame: <tspan fill=\"{REDUCED}\">reduced</tspan>, \
             <tspan fill=\"{COPIED}\">copied</tspan>, <tspan fill=\"{LOCAL}\">changed locally</tspan> · bar: sent \
             next · <tspan fill=\"#1e6b3a\">green</tspan>: complete · a..b: blocks a to b - 1</text>\n",
            marker("r", REDUCED),
            marker("c", COPIED),
            escape(&title),
            escape(&facts),
        );
    }

    /// Names of ranks, buffers and rounds; a round that looks the same from every rank ρ is named by its shift.
    fn headings<'m>(&self, out: &mut String, last: usize, of: impl Fn(i32) -> &'m [Message]) {
        let plan = self.plan;
        for rank in 0..plan.ranks() {
            let _ = writeln!(out, "<text x=\"8\" y=\"{}\">rank {rank}</text>", self.y(rank, 0) + 10);
            for buffer in (0..plan.buffers).filter(|_| plan.buffers > 1) {
                let y = self.y(rank, buffer) + 9;
                let _ = writeln!(
                    out,
                    "<text x=\"{}\" y=\"{y}\" font-size=\"7\" text-anchor=\"end\" fill=\"#777777\"><title>buffer \
                     {buffer}</title>b{buffer}</text>",
                    LEFT - 4,
                );
            }
        }
        for round in self.first..last {
            let x = self.x(round, plan.blocks) + (self.gutter + ARROW_WIDTH) / 2;
            let shift = shift(plan.ranks(), of(round as i32)).map(|d| format!(": ρ → ρ{d:+}")).unwrap_or_default();
            let y = self.top - 6;
            let _ = writeln!(out, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">round {round}{shift}</text>");
        }
    }

    fn state(&self, out: &mut String, column: usize, state: &DrawnState, frames: &BTreeMap<CellIndex, &str>) {
        for block in (0..self.plan.blocks).filter(|_| self.named) {
            let x = self.x(column, block) + self.cell / 2;
            let y = self.top - 4;
            let _ = writeln!(
                out,
                "<text x=\"{x}\" y=\"{y}\" font-size=\"7\" text-anchor=\"middle\" fill=\"#777777\">{block}</text>"
            );
        }
        for (cell, from) in &state.0 {
            let (rank, buffer, block) = *cell;
            let (x, y) = (self.x(column, block), self.y(rank, buffer));
            let (fill, ink) = colors(from, self.plan.ranks(), done(self.plan, *cell, from));
            let frame = frames.get(cell).copied();
            let _ = write!(
                out,
                "<g><title>rank {rank}, buffer {buffer}, block {block}: {}</title><rect x=\"{x}\" y=\"{y}\" \
                 width=\"{}\" height=\"{}\" fill=\"{fill}\" stroke=\"{}\" stroke-width=\"{}\"/>",
                if from.is_empty() { "undefined".to_string() } else { join(from, ", ") },
                self.cell - 2,
                LINE_HEIGHT - 3,
                frame.unwrap_or(PLAIN),
                if frame.is_some() { "1.5" } else { "0.5" },
            );
            if self.named && !from.is_empty() {
                let (x, y, text) = (x + self.cell / 2 - 1, y + 9, name(from, self.plan.ranks()));
                let _ = write!(out, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\" fill=\"{ink}\">{text}</text>");
            }
            out.push_str("</g>\n");
        }
    }

    /// Draws the messages of a round: bars under the blocks sent, their names beside the line of each sender, arrows.
    fn messages(&self, out: &mut String, column: usize, sent: &[Message]) {
        let mut labels: BTreeMap<(usize, usize), Vec<&Blocks>> = BTreeMap::new();
        let middle = LINE_HEIGHT / 2 - 1;
        let x = self.x(column, self.plan.blocks) + 2;
        for m in sent {
            let (mark, color, verb) = match m.action {
                Action::Reduce(_) => ("r", REDUCED, "reduce"),
                Action::Copy => ("c", COPIED, "copy"),
            };
            let line = labels.entry((m.from, m.source)).or_default();
            if !line.contains(&&m.blocks) {
                line.push(&m.blocks);
            }
            for run in m.blocks.runs() {
                let (first, end) = (self.x(column, run.first as usize), self.x(column, run.end as usize));
                let y = self.y(m.from, m.source) + LINE_HEIGHT - 4;
                let width = end - first - 2;
                let _ =
                    writeln!(out, "<rect x=\"{first}\" y=\"{y}\" width=\"{width}\" height=\"3\" fill=\"{color}\"/>");
            }
            let _ = writeln!(
                out,
                "<g><title>round {}: rank {} to rank {}, blocks {}, {verb}</title><line x1=\"{}\" y1=\"{}\" \
                 x2=\"{}\" y2=\"{}\" stroke=\"{color}\" marker-end=\"url(#{mark})\"/></g>",
                m.round,
                m.from,
                m.to,
                m.blocks,
                x + self.gutter,
                self.y(m.from, m.source) + middle,
                x + self.gutter + ARROW_WIDTH - 6,
                self.y(m.to, m.target) + middle,
            );
        }
        for ((rank, buffer), blocks) in labels {
            let (x, y, text) = (x + self.gutter - 4, self.y(rank, buffer) + middle + 3, label(&blocks));
            let _ = writeln!(out, "<text x=\"{x}\" y=\"{y}\" font-size=\"8\" text-anchor=\"end\">{text}</text>");
        }
    }
}

fn color(action: Action) -> &'static str {
    match action {
        Action::Reduce(_) => REDUCED,
        Action::Copy => COPIED,
    }
}

fn marker(name: &str, color: &str) -> String {
    format!(
        "<marker id=\"{name}\" markerWidth=\"7\" markerHeight=\"7\" refX=\"6\" refY=\"3\" orient=\"auto\">\
         <path d=\"M0,0 L6,3 L0,6 z\" fill=\"{color}\"/></marker>"
    )
}

/// Header text may come from a file.
fn escape(text: &str) -> String {
    let legal = text.chars().filter(|c| !c.is_control()).collect::<String>();
    legal.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The blocks that leave one line, shortened.
fn label(blocks: &[&Blocks]) -> String {
    let text = blocks.iter().map(|b| b.to_string()).collect::<Vec<_>>().join(" | ");
    match text.char_indices().nth(MAX_LABEL) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text,
    }
}

fn join(ranks: &[usize], gap: &str) -> String {
    ranks.iter().map(usize::to_string).collect::<Vec<_>>().join(gap)
}

fn name(from: &[usize], ranks: usize) -> String {
    if ranks > 2 && from.len() == ranks { "all".to_string() } else { join(from, "") }
}

/// Fill and text: white for nothing, then from light to dark blue with the share of ranks, green when complete.
fn colors(from: &[usize], ranks: usize, done: bool) -> (String, &'static str) {
    if done || from.is_empty() {
        return if done { ("#1e6b3a".to_string(), "white") } else { ("white".to_string(), "black") };
    }
    let share = if ranks <= 1 { 0.0 } else { (from.len() - 1) as f64 / (ranks - 1) as f64 };
    let mix = |light: f64, dark: f64| (light + (dark - light) * share).round() as u8;
    let fill = format!("#{:02x}{:02x}{:02x}", mix(230.0, 40.0), mix(238.0, 80.0), mix(248.0, 135.0));
    (fill, if share > 0.55 { "white" } else { "black" })
}

/// True if the block holds the result of the collective.
fn done(plan: &Plan, (rank, buffer, block): CellIndex, from: &[usize]) -> bool {
    let owner = block / (plan.blocks / plan.ranks()).max(1);
    buffer == plan.result
        && match plan.collective {
            Collective::Allreduce | Collective::Barrier => from.len() == plan.ranks(),
            Collective::Reduce => rank == plan.root && from.len() == plan.ranks(),
            Collective::ReduceScatter => rank == owner && from.len() == plan.ranks(),
            Collective::Broadcast => from == [plan.root],
            Collective::Allgather => from == [owner],
        }
}
