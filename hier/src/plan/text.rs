//! A stable, line-based text form for people and golden files.

use super::{Action, Plan, Side, Step};
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
        let Ok(messages) = self.messages() else {
            for (rank, program) in self.programs.iter().enumerate() {
                for timed in program {
                    writeln!(f, "rank {rank} round {}: {:?}", timed.round, timed.step)?;
                }
            }
            return Ok(());
        };
        let mut messages = messages.iter().peekable();
        for round in -1..self.rounds as i32 {
            while let Some(m) = messages.next_if(|m| m.round == round) {
                let sign = sign(m.action);
                writeln!(f, "{round}: {}.{} -> {}.{} {sign} [{}]", m.from, m.source, m.to, m.target, m.blocks)?;
            }
            for (rank, program) in self.programs.iter().enumerate() {
                let first = program.partition_point(|t| t.round < round);
                for timed in program[first..].iter().take_while(|t| t.round == round) {
                    match &timed.step {
                        Step::Copy { source, target, blocks } => {
                            writeln!(f, "{round}: {rank}: {source} -> {target} copy [{blocks}]")?;
                        }
                        Step::Reduce { source, target, blocks, side } => {
                            let sign = sign(Action::Reduce(*side));
                            writeln!(f, "{round}: {rank}: {source} -> {target} {sign} [{blocks}]")?;
                        }
                        Step::Send { .. } | Step::Receive { .. } | Step::ReceiveReduce { .. } => {}
                    }
                }
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
