//! A stable, line-based text form for people and golden files.

use super::{Action, Plan, Side};
use std::fmt;

/// One header line, then one line per message or local step, round by round. A plan whose messages do not pair up
/// prints its ranks' programs instead, so that a broken plan can still be looked at.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ranks={} blocks={}", self.algorithm, self.collective, self.ranks(), self.blocks)?;
        for (name, value) in &self.parameters {
            write!(f, " {name}={value}")?;
        }
        if self.collective.has_root() {
            write!(f, " root={}", self.root)?;
        }
        writeln!(f, " buffers={} result={} ports={}", self.buffers, self.result, self.ports)?;
        let Ok(movements) = self.movements() else {
            for (rank, program) in self.programs.iter().enumerate() {
                for step in program {
                    writeln!(f, "rank {rank}: {step:?}")?;
                }
            }
            return Ok(());
        };
        for m in movements {
            let (round, source, target, sign, blocks) = (m.round, m.source, m.target, sign(m.action), &m.blocks);
            match m.is_local() {
                true => writeln!(f, "{round}: {}: {source} -> {target} {sign} [{blocks}]", m.from)?,
                false => writeln!(f, "{round}: {}.{source} -> {}.{target} {sign} [{blocks}]", m.from, m.to)?,
            }
        }
        Ok(())
    }
}

fn sign(action: Action) -> &'static str {
    match action {
        Action::Copy => "copy",
        Action::Reduce(Side::Left) => "reduce-left",
        Action::Reduce(Side::Right) => "reduce-right",
    }
}
