//! `earlybird plan --best`: which allreduce is the fastest for given costs, and the commands that print the candidates.

use super::args::{PlanArgs, PlanFormat, read, usage};
use crate::table::table;
use earlybird_hier::cost::{Level, Model, levels_from_toml};
use earlybird_hier::schedule::Params;
use earlybird_hier::select::{Levels, ranking};
use earlybird_hier::{OpTraits, PlanError};
use serde_json::{Value, json};

/// Candidates shown.
pub(super) const SHOWN: usize = 10;

pub(super) fn best(args: &PlanArgs) -> Result<String, PlanError> {
    let mut given = args.params.given();
    given.retain(|name| *name != "ranks-per-node" || args.inside_alpha.is_none());
    given.extend(args.params.collective.map(|_| "contract"));
    given.extend(args.params.root.map(|_| "root"));
    given.extend(args.topology.as_ref().map(|_| "topology"));
    given.extend(args.elements.map(|_| "elements"));
    if let Some(parameter) = given.first() {
        return Err(usage(parameter, "given", "nothing beside --best, which tries all of them"));
    }
    let ranks = args.params.ranks;
    if ranks == 0 {
        return Err(usage("ranks", 0, "at least 1"));
    }
    let bytes = args.bytes.ok_or_else(|| usage("best", "no size", "--bytes"))?;
    let levels = levels(args)?;
    let consistency = args.consistency.unwrap_or_default();
    // a sum of floating-point numbers, the common case: commutative, and it rounds
    let op = OpTraits { commutative: true, exact: false };
    let [Level { model, .. }] = &levels[..] else {
        let entries = Levels::new(levels)?.ranking(ranks, bytes as f64, op, consistency)?.into_iter().map(|plan| {
            let (seconds, command) = (plan.seconds, command(plan.algorithm, &plan.params));
            let cells = vec![micro(seconds), command.clone()];
            (cells, json!({ "algorithm": plan.algorithm, "command": command, "seconds": seconds }))
        });
        let title = format!("allreduce of {bytes} bytes over {ranks} ranks level by level, fastest first");
        return shown(args.format, &title, &["predicted us", "command"], entries);
    };
    let entries = ranking(ranks, bytes as f64, op, consistency, model, SHOWN).into_iter().map(|choice| {
        let (c, seconds, command) = (&choice.cost, choice.seconds, command(choice.algorithm, &choice.params));
        let share = |blocks: usize| format!("{:.3}", blocks as f64 / c.blocks as f64);
        let (rounds, ports) = (c.rounds.to_string(), c.ports.to_string());
        let cells = vec![micro(seconds), rounds, share(c.sent), share(c.reduced), ports, command.clone()];
        let entry = json!({
            "algorithm": choice.algorithm,
            "command": command,
            "seconds": seconds,
            "rounds": c.rounds,
            "blocks": c.blocks,
            "critical_blocks_sent": c.sent,
            "critical_blocks_reduced": c.reduced,
            "ports": c.ports,
        });
        (cells, entry)
    });
    let header = ["predicted us", "rounds", "sent (of m)", "reduced (of m)", "ports", "command"];
    shown(args.format, &format!("allreduce of {bytes} bytes over {ranks} ranks, fastest first"), &header, entries)
}

fn micro(seconds: f64) -> String {
    format!("{:.1}", seconds * 1e6)
}

fn command(algorithm: &str, params: &Params) -> String {
    format!("earlybird plan {algorithm} {}", params.to_arguments())
}

/// The candidates, each a row of the table and an entry of the JSON.
fn shown(
    format: PlanFormat,
    title: &str,
    header: &[&str],
    candidates: impl Iterator<Item = (Vec<String>, Value)>,
) -> Result<String, PlanError> {
    let (rows, entries): (Vec<_>, Vec<_>) = candidates.unzip();
    match format {
        PlanFormat::Table => Ok(format!("{title}\n{}\n", table(header, rows))),
        PlanFormat::Json => Ok(format!("{}\n", Value::from(entries))),
        PlanFormat::Svg => Err(usage("format", "svg", "table or json with --best")),
    }
}

/// The costs asked for, innermost level first.
fn levels(args: &PlanArgs) -> Result<Vec<Level>, PlanError> {
    if let Some(file) = &args.times {
        return levels_from_toml(&read(file, "times")?);
    }
    let (Some(alpha), Some(beta), Some(gamma)) = (args.alpha, args.beta, args.gamma) else {
        return Err(usage("best", "no costs", "--alpha, --beta and --gamma, or --times FILE"));
    };
    let mut model = Model::linear(alpha, beta, gamma);
    model.port_s = args.port_cost.unwrap_or(alpha);
    let outer = Level { ranks: None, model };
    Ok(match (args.inside_alpha.zip(args.inside_beta), args.params.ranks_per_node) {
        (Some((alpha, beta)), ranks) => vec![Level { ranks, model: Model::linear(alpha, beta, gamma) }, outer],
        (None, _) => vec![outer],
    })
}
