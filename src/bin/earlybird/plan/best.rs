//! `earlybird plan --best`: which allreduce is the fastest for given costs, and the commands that print the candidates.

use super::args::{PlanArgs, PlanFormat, params, read, usage};
use comfy_table::{Table, presets};
use earlybird_hier::cost::{Level, Model, levels_from_toml};
use earlybird_hier::select::{Levels, PredictedPlan, RankedSchedule, ranking};
use earlybird_hier::{OpTraits, PlanError};

/// Candidates shown.
pub(super) const SHOWN: usize = 10;

pub(super) fn best(args: &PlanArgs) -> Result<String, PlanError> {
    let mut given = params(args).given();
    given.retain(|name| *name != "ranks-per-node" || args.inside_alpha.is_none());
    given.extend(args.contract.map(|_| "contract"));
    given.extend(args.root.map(|_| "root"));
    given.extend(args.topology.as_ref().map(|_| "topology"));
    given.extend(args.elements.map(|_| "elements"));
    if let Some(parameter) = given.first() {
        return Err(usage(parameter, "given", "nothing beside --best, which tries all of them"));
    }
    if args.ranks == 0 {
        return Err(usage("ranks", 0, "at least 1"));
    }
    let bytes = args.bytes.ok_or_else(|| usage("best", "no size", "--bytes"))?;
    let levels = levels(args)?;
    let consistency = args.consistency.unwrap_or_default();
    // a sum of floating-point numbers, the common case: commutative, and it rounds
    let op = OpTraits { commutative: true, exact: false };
    let [Level { model, .. }] = &levels[..] else {
        let found = Levels::new(levels)?.ranking(args.ranks, bytes as f64, op, consistency)?;
        return predictions(args, bytes, &found);
    };
    let choices = ranking(args.ranks, bytes as f64, op, consistency, model, SHOWN);
    match args.format {
        PlanFormat::Table => Ok(choices_table(args, bytes, &choices)),
        PlanFormat::Json => Ok(choices_json(&choices)),
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
    Ok(match (args.inside_alpha.zip(args.inside_beta), args.ranks_per_node) {
        (Some((alpha, beta)), ranks) => vec![Level { ranks, model: Model::linear(alpha, beta, gamma) }, outer],
        (None, _) => vec![outer],
    })
}

fn command(choice: &RankedSchedule) -> String {
    format!("earlybird plan {} {}", choice.algorithm, choice.params.to_arguments())
}

fn choices_table(args: &PlanArgs, bytes: u64, choices: &[RankedSchedule]) -> String {
    let mut rows = Table::new();
    rows.load_preset(presets::NOTHING);
    rows.set_header(["predicted us", "rounds", "sent (of m)", "reduced (of m)", "ports", "command"]);
    for choice in choices {
        let c = &choice.cost;
        let share = |blocks: usize| format!("{:.3}", blocks as f64 / c.blocks as f64);
        rows.add_row([
            format!("{:.1}", choice.seconds * 1e6),
            c.rounds.to_string(),
            share(c.sent),
            share(c.reduced),
            c.ports.to_string(),
            command(choice),
        ]);
    }
    format!("allreduce of {bytes} bytes over {} ranks, fastest first\n{rows}\n", args.ranks)
}

fn predictions(args: &PlanArgs, bytes: u64, found: &[PredictedPlan]) -> Result<String, PlanError> {
    let command = |p: &PredictedPlan| format!("earlybird plan {} {}", p.algorithm, p.params.to_arguments());
    match args.format {
        PlanFormat::Svg => Err(usage("format", "svg", "table or json with --best")),
        PlanFormat::Json => {
            let entry = |p: &PredictedPlan| serde_json::json!({ "algorithm": p.algorithm, "command": command(p), "seconds": p.seconds });
            Ok(format!("{}\n", serde_json::Value::from(found.iter().map(entry).collect::<Vec<_>>())))
        }
        PlanFormat::Table => {
            let mut rows = Table::new();
            rows.load_preset(presets::NOTHING).set_header(["predicted us", "command"]);
            for p in found {
                rows.add_row([format!("{:.1}", p.seconds * 1e6), command(p)]);
            }
            Ok(format!("allreduce of {bytes} bytes over {} ranks level by level, fastest first\n{rows}\n", args.ranks))
        }
    }
}

fn choices_json(choices: &[RankedSchedule]) -> String {
    let entry = |choice: &RankedSchedule| {
        let c = &choice.cost;
        serde_json::json!({
            "algorithm": choice.algorithm,
            "command": command(choice),
            "seconds": choice.seconds,
            "rounds": c.rounds,
            "blocks": c.blocks,
            "critical_blocks_sent": c.sent,
            "critical_blocks_reduced": c.reduced,
            "ports": c.ports,
        })
    };
    format!("{}\n", serde_json::Value::from(choices.iter().map(entry).collect::<Vec<_>>()))
}
