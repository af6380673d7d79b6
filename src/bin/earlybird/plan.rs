//! `earlybird plan`: prints a schedule as a table of rounds, a drawing or JSON, or says which one would be fastest.
//!
//! Whatever is printed has passed the verifier. Exit code 0 ok, 1 the plan is refused, 2 the request makes no sense.

mod args;
mod best;

use crate::output::print;
use crate::table::table;
use args::{PlanFormat, read, usage};
use best::best;
use earlybird::{Error, launch};
use earlybird_hier::cost::Topology;
use earlybird_hier::plan::{Action, Side, elements_in};
use earlybird_hier::schedule;
use earlybird_hier::verify::{admit, svg};
use earlybird_hier::{OpTraits, Plan, PlanError, Verified, verify};
use std::fmt::Write as _;

pub use args::PlanArgs;

/// The most steps of a table; JSON has all.
const ROWS: usize = 20_000;

/// Runs the command.
pub fn run(args: &PlanArgs) -> Result<u8, Error> {
    match if args.best { best(args) } else { show(args) } {
        Ok(text) => print(&text).map(|()| 0),
        Err(error @ (PlanError::NotAdmitted { .. } | PlanError::Violation(_))) => {
            launch::say(format_args!("earlybird plan: {error}"));
            Ok(1)
        }
        Err(error) => Err(Error::usage(error.to_string())),
    }
}

fn show(args: &PlanArgs) -> Result<String, PlanError> {
    let name = args.name.as_deref().unwrap_or_default();
    // clap asks for nothing that excludes what is given, and --best excludes a name
    let costs = [args.alpha, args.beta, args.gamma, args.port_cost, args.inside_alpha, args.inside_beta];
    if args.bytes.is_some() || args.times.is_some() || costs.iter().any(Option::is_some) {
        return Err(usage("best", name, "--best instead of a name beside sizes in bytes and costs"));
    }
    let mut params = args.params.clone();
    let topology = args.topology.as_ref().map(|file| Topology::from_toml(&read(file, "topology")?)).transpose()?;
    if let (Some(tree), "ring", None) = (&topology, name, &params.order) {
        params.order = Some(tree.depth_first_order()).filter(|order| order.len() == params.ranks);
    }
    let mut plan = verify::verify(schedule::build(name, &params)?)?;
    if let Some(consistency) = args.consistency {
        // the operator is not known here; rounding is what the option is about
        plan = admit(plan, OpTraits { commutative: true, exact: false }, consistency)?;
    }
    let links = topology.map(|tree| links(&tree, &plan)).transpose()?;
    match args.format {
        PlanFormat::Table => rounds(&plan, args.elements, links.as_deref()),
        PlanFormat::Json | PlanFormat::Svg => {
            if let Some(links) = links {
                eprintln!("{links}");
            }
            match (args.format, args.elements) {
                (PlanFormat::Svg, Some(m)) => Err(usage("elements", m, "no elements with svg; it shows blocks")),
                (PlanFormat::Svg, None) => svg(&plan),
                (_, elements) => Ok(plan.to_json(elements)? + "\n"),
            }
        }
    }
}

fn links(tree: &Topology, plan: &Plan) -> Result<String, PlanError> {
    let found = tree.contention(plan)?;
    let load = found.load_blocks as f64 / plan.blocks as f64;
    Ok(match found.at {
        Some((round, link, up)) if found.most_messages > 1 => format!(
            "links: {} messages at once on the link of {link} {} the root (round {round}); load {load:.2} vectors",
            found.most_messages,
            if up { "towards" } else { "away from" },
        ),
        _ => format!("links: free of contention; load {load:.2} vectors"),
    })
}

fn rounds(plan: &Verified<Plan>, elements: Option<usize>, links: Option<&str>) -> Result<String, PlanError> {
    let mut out = String::new();
    let _ = writeln!(out, "{} {}, {} ranks, {} blocks", plan.algorithm, plan.collective, plan.ranks(), plan.blocks);
    for (name, value) in &plan.parameters {
        let _ = writeln!(out, "  {name}: {value}");
    }
    if plan.collective.has_root() {
        let _ = writeln!(out, "  root: {}", plan.root);
    }
    let bits = if plan.consistent { "identical bits on all ranks" } else { "bits may differ between ranks" };
    let _ = writeln!(out, "verified: operands {}, {bits}", plan.order);
    let (c, ports, buffers) = (plan.counters(), plan.ports, plan.buffers);
    let _ = writeln!(out, "{} rounds, {} messages, {ports} port(s), {buffers} buffer(s)", c.rounds, c.messages);
    let (sent, reduced, largest) = (c.max_blocks_sent, c.max_blocks_reduced, c.max_message_blocks);
    let critical = format!("on the critical path {} and {}", c.critical_blocks_sent, c.critical_blocks_reduced);
    let counts = format!("blocks sent by the busiest rank {sent}, reduced {reduced}; {critical}");
    let _ = writeln!(out, "{counts}; largest message {largest}");
    if let Some(m) = elements {
        let (sent, reduced) = (plan.max_elements_sent(m), plan.max_elements_reduced(m));
        let _ = writeln!(out, "of {m} elements the busiest rank sends {sent} and reduces {reduced}");
    }
    if let Some(links) = links {
        let _ = writeln!(out, "{links}");
    }
    let header = ["round", "from", "to", "buffers", "action", "blocks", "elements"];
    let movements = plan.movements()?;
    let mut last = None;
    let rows = movements.iter().take(ROWS).map(|m| {
        let round = if last.replace(m.round) == Some(m.round) { String::new() } else { m.round.to_string() };
        let to = if m.is_local() { "itself".to_string() } else { m.to.to_string() };
        let buffers = format!("{} → {}", m.source, m.target);
        let mut row = vec![round, m.from.to_string(), to, buffers, action(m.action).to_string(), m.blocks.to_string()];
        row.extend(elements.map(|length| elements_in(&m.blocks, plan.blocks, length).to_string()));
        row
    });
    let _ = writeln!(out, "{}", table(&header[..6 + usize::from(elements.is_some())], rows.collect()));
    if movements.len() > ROWS {
        let _ = writeln!(out, "{} steps more; --format json has all of them", movements.len() - ROWS);
    }
    Ok(out)
}

fn action(action: Action) -> &'static str {
    match action {
        Action::Copy => "copy",
        Action::Reduce(Side::Left) => "incoming ⊕ own",
        Action::Reduce(Side::Right) => "own ⊕ incoming",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: PlanArgs,
    }

    fn answer(line: &str) -> Result<String, String> {
        let args = Line::try_parse_from(format!("plan {line}").split(' ')).map_err(|e| e.to_string())?.args;
        let answer = if args.best { best(&args) } else { show(&args) };
        answer.map_err(|e| e.to_string())
    }

    #[test]
    fn every_format_shows_the_plan() {
        for r in [0, 1, 3] {
            let text = answer(&format!("butterfly --ranks 7 --r {r} --elements 100")).unwrap();
            assert!(text.contains("7 ranks") && text.contains(&format!("{} rounds", 6 - r)), "{text}");
        }
        assert!(answer("ring --ranks 3 --format svg").unwrap().starts_with("<svg"));
        let json = answer("ring --ranks 3 --format json").unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["ranks"], 3);
    }

    #[test]
    fn the_best_command_can_be_run() {
        let line = "--best --ranks 48 --bytes 64Ki --alpha 3e-5 --beta 1e-8 --gamma 2e-10";
        let json: serde_json::Value = serde_json::from_str(&answer(&format!("{line} --format json")).unwrap()).unwrap();
        let entries = json.as_array().unwrap();
        assert_eq!(entries.len(), best::SHOWN);
        for entry in entries {
            let command = entry["command"].as_str().unwrap().strip_prefix("earlybird plan ").unwrap();
            let shown = answer(&format!("{command} --consistency identical")).unwrap();
            assert!(shown.contains(&format!("\n{} rounds", entry["rounds"])), "{command}");
        }
        assert!(answer(line).unwrap().contains("fastest first"));
        let levels = answer(&format!("{line} --ranks-per-node 8 --inside-alpha 5e-7 --inside-beta 1e-10")).unwrap();
        assert!(levels.contains("level by level") && levels.contains("smp-butterfly"), "{levels}");
    }

    #[test]
    fn requests_without_sense_are_refused() {
        for (line, part) in [
            ("--ranks 4", "required"),
            ("ring", "--ranks"),
            ("rong --ranks 4", "there is no algorithm"),
            ("ring --ranks 4 --best --bytes 1 --alpha 1 --beta 1 --gamma 1", "cannot be used"),
            ("--best --ranks 4 --alpha 1", "--bytes"),
            ("--best --ranks 4 --bytes 1K --alpha 1 --beta 1 --gamma 1", "Ki, Mi or Gi"),
            ("--best --ranks 4 --bytes 1 --alpha -1 --beta 1 --gamma 1", "unexpected argument"),
            ("--best --ranks 4 --bytes 1 --alpha nan --beta 1 --gamma 1", "seconds"),
            ("--best --ranks 4 --bytes 1 --alpha 1 --beta 1 --gamma 1 --r 1", "tries all"),
            ("--best --ranks 0 --bytes 1 --alpha 1 --beta 1 --gamma 1", "at least 1"),
            ("--best --ranks 4 --bytes 1 --alpha 1 --beta 1 --gamma 1 --ranks-per-node 2", "tries all"),
            (
                "--best --ranks 4 --bytes 1 --alpha 1 --beta 1 --gamma 1 --inside-alpha 1 --inside-beta 1",
                "--ranks-per-node",
            ),
            ("--best --ranks 4 --bytes 1 --alpha 1", "--times FILE"),
            ("--best --ranks 4 --bytes 1 --times /nowhere/at/all", "cannot read"),
            ("--best --ranks 4 --bytes 1 --times x --alpha 1", "cannot be used"),
            ("ring --ranks 4 --times x", "--best"),
            ("ring --ranks 4 --bytes 4", "--best"),
            ("ring --ranks 4 --r 1", "does not use r"),
            ("ring --ranks 4 --topology /nowhere/at/all", "cannot read"),
            ("ring --ranks 4 --format svg --elements 5", "svg"),
            ("census --ranks 7 --consistency identical", "not admitted"),
            ("ring --ranks 4 --contract gather", "expected allreduce"),
        ] {
            let refused = answer(line).expect_err(line);
            assert!(refused.contains(part), "{line}: {refused}");
        }
        assert!(answer("census --ranks 7 --consistency per-rank").is_ok());
    }
}
