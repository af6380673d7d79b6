//! Cost models of messages and reductions, level by level, and the file of measured times.
//!
//! ```toml
//! # innermost level first; `ranks` consecutive ranks are one group; the last level has everything else in it
//! [[level]]
//! ranks = 8
//! alpha = 5e-7                                     # seconds per message
//! beta = 1e-10                                     # seconds per byte sent
//! gamma = 2e-10                                    # seconds per byte reduced
//!
//! [[level]]
//! messages = [[1, 3.0e-5], [65536, 6.9e-4]]        # measured: bytes, seconds; in place of alpha and beta
//! gamma = 2e-10
//! port = 1e-5                                      # seconds per port beyond the first (default: an empty message)
//! ```

use super::{Cost, EqualRounds};
use crate::plan::PlanError;
use serde::Deserialize;

/// A cost model of messages and reductions, in seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// Start of a message.
    pub alpha_s: f64,
    /// Per byte sent.
    pub beta_s_per_byte: f64,
    /// Per byte reduced.
    pub gamma_s_per_byte: f64,
    /// For every port beyond the first, per round.
    pub port_s: f64,
    /// Measured (bytes, seconds) of one message, ascending; in place of alpha and beta if it has two points or more.
    /// Between points times are interpolated, beyond them extended by the nearest slope.
    pub message_table: Vec<(f64, f64)>,
}

impl Model {
    /// A linear model. An extra port costs a message start: nothing is gained by ports until measured otherwise.
    pub fn linear(alpha_s: f64, beta_s_per_byte: f64, gamma_s_per_byte: f64) -> Self {
        Self { alpha_s, beta_s_per_byte, gamma_s_per_byte, port_s: alpha_s, message_table: Vec::new() }
    }

    /// A model of measured messages, as (bytes, seconds).
    ///
    /// # Errors
    /// The fault: a negative or infinite time, fewer than two points, bytes that do not ascend, or a last point that is
    /// faster than the one before, which would make infinite messages free.
    pub fn measured(table: Vec<(f64, f64)>, port_s: f64, gamma_s_per_byte: f64) -> Result<Self, String> {
        let times = table.iter().flat_map(|(bytes, seconds)| [*bytes, *seconds]).chain([port_s, gamma_s_per_byte]);
        all_are_times(times)?;
        if table.len() < 2 || !table.is_sorted_by(|a, b| a.0 < b.0) {
            return Err("messages: expected at least two points [bytes, seconds], bytes ascending".to_string());
        }
        if table[table.len() - 1].1 < table[table.len() - 2].1 {
            return Err("messages: expected the last point not to be faster than the one before".to_string());
        }
        Ok(Self { port_s, message_table: table, ..Self::linear(0.0, 0.0, gamma_s_per_byte) })
    }

    /// True if messages cost alpha and beta, so that only the sum of their sizes matters.
    pub fn is_linear(&self) -> bool {
        self.message_table.len() < 2
    }

    /// Time of one message.
    pub fn message_s(&self, bytes: f64) -> f64 {
        let table = &self.message_table;
        if self.is_linear() {
            return self.alpha_s + bytes * self.beta_s_per_byte;
        }
        let upper = table.partition_point(|point| point.0 < bytes).clamp(1, table.len() - 1);
        let ((x0, y0), (x1, y1)) = (table[upper - 1], table[upper]);
        (y0 + (bytes - x0) * (y1 - y0) / (x1 - x0)).max(0.0)
    }

    /// Time of a round in which a rank sends `bytes` in all to `ports` others.
    pub fn round_s(&self, bytes: f64, ports: usize) -> f64 {
        self.message_s(bytes) + (ports - 1) as f64 * self.port_s
    }

    /// Predicted time of a schedule over `bytes`, round by round.
    pub fn predict_s(&self, cost: &Cost, bytes: f64) -> f64 {
        let unit = bytes / cost.blocks as f64;
        let round = |r: &EqualRounds| r.count as f64 * self.round_s(r.sent as f64 * unit, r.ports);
        cost.profile.iter().map(round).sum::<f64>() + cost.reduced as f64 * unit * self.gamma_s_per_byte
    }
}

/// One level of a machine: the size of its groups of consecutive ranks, and the cost of messages inside a group.
#[derive(Debug, Clone, PartialEq)]
pub struct Level {
    /// Consecutive ranks per group; none on the outermost level, which has all of them.
    pub ranks: Option<usize>,
    /// Costs of messages between ranks of one group that no inner group joins.
    pub model: Model,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LevelsFile {
    level: Vec<LevelEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LevelEntry {
    ranks: Option<usize>,
    alpha: Option<f64>,
    beta: Option<f64>,
    gamma: f64,
    port: Option<f64>,
    messages: Option<Vec<(f64, f64)>>,
}

/// Reads levels from TOML (see the module), innermost first. An error if a time is negative, a table has fewer than two
/// points or does not ascend, or the groups of a level are not made of whole groups of the level inside.
pub fn levels_from_toml(text: &str) -> Result<Vec<Level>, PlanError> {
    let parse = |reason: String| PlanError::Parse { what: "times", reason };
    let file: LevelsFile = toml::from_str(text).map_err(|e| parse(e.to_string()))?;
    let mut levels: Vec<Level> = Vec::new();
    let last = file.level.len();
    for (i, entry) in file.level.into_iter().enumerate() {
        let wrong = |reason: &str| parse(format!("level {}: {reason}", i + 1));
        let inside = levels.last().and_then(|l| l.ranks).unwrap_or(1);
        match entry.ranks {
            None if i + 1 < last => return Err(wrong("expected `ranks`; only the last level goes without")),
            Some(_) if i + 1 == last => return Err(wrong("expected no `ranks` on the last level, which has all")),
            Some(n) if n < 2 || n == inside || !n.is_multiple_of(inside) => {
                return Err(wrong(&format!("ranks = {n}: expected a larger multiple of {inside}")));
            }
            _ => {}
        }
        levels.push(Level { ranks: entry.ranks, model: entry.model().map_err(|reason| wrong(&reason))? });
    }
    if levels.is_empty() {
        return Err(parse("expected at least one [[level]]".to_string()));
    }
    Ok(levels)
}

impl LevelEntry {
    fn model(self) -> Result<Model, String> {
        all_are_times([self.alpha, self.beta, self.port].into_iter().flatten().chain([self.gamma]))?;
        let mut model = match (self.alpha, self.beta, self.messages) {
            (Some(alpha), Some(beta), None) => Model::linear(alpha, beta, self.gamma),
            (None, None, Some(table)) => Model::measured(table, 0.0, self.gamma)?,
            _ => return Err("expected alpha and beta, or messages = [[bytes, seconds], …]".to_string()),
        };
        model.port_s = self.port.unwrap_or_else(|| model.message_s(0.0));
        Ok(model)
    }
}

fn all_are_times(values: impl IntoIterator<Item = f64>) -> Result<(), String> {
    match values.into_iter().all(|x| x.is_finite() && x >= 0.0) {
        true => Ok(()),
        false => Err("expected finite times and sizes of at least 0".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_the_module_is_read() {
        let text = "[[level]]\nranks = 8\nalpha = 5e-7\nbeta = 1e-10\ngamma = 2e-10\n\
                    [[level]]\nmessages = [[0, 3e-5], [100, 5e-5], [200, 9e-5]]\ngamma = 0\nport = 1e-5\n";
        let levels = levels_from_toml(text).unwrap();
        assert_eq!(levels[0], Level { ranks: Some(8), model: Model::linear(5e-7, 1e-10, 2e-10) });
        let outer = &levels[1].model;
        assert_eq!((levels[1].ranks, outer.port_s, outer.is_linear()), (None, 1e-5, false));
        let close = |bytes, seconds: f64| assert!((outer.message_s(bytes) - seconds).abs() < 1e-12, "{bytes}");
        close(0.0, 3e-5);
        close(50.0, 4e-5);
        close(150.0, 7e-5);
        close(300.0, 13e-5);
        // without a port, that of an empty message
        let plain = levels_from_toml("[[level]]\nmessages = [[0, 3e-5], [100, 5e-5]]\ngamma = 0\n").unwrap();
        assert_eq!(plain[0].model.port_s, 3e-5);
    }

    #[test]
    fn files_without_sense_are_refused() {
        for (text, part) in [
            ("", "level"),
            ("level = []", "at least one"),
            ("[[level]]\ngamma = 0", "alpha and beta"),
            ("[[level]]\ngamma = 0\nalpha = 1", "alpha and beta"),
            ("[[level]]\ngamma = 0\nalpha = 1\nbeta = 1\nmessages = [[1, 1], [2, 2]]", "alpha and beta"),
            ("[[level]]\ngamma = -1\nalpha = 1\nbeta = 1", "at least 0"),
            ("[[level]]\ngamma = nan\nalpha = 1\nbeta = 1", "finite"),
            ("[[level]]\ngamma = 0\nmessages = [[1, 1]]", "two points"),
            ("[[level]]\ngamma = 0\nmessages = [[2, 1], [1, 2]]", "ascending"),
            ("[[level]]\ngamma = 0\nmessages = [[1, 2], [2, 1]]", "faster"),
            ("[[level]]\nranks = 2\ngamma = 0\nalpha = 1\nbeta = 1", "last level"),
            ("[[level]]\ngamma = 0\nalpha = 1\nbeta = 1\n[[level]]\ngamma = 0\nalpha = 1\nbeta = 1", "level 1"),
            (
                "[[level]]\nranks = 4\ngamma = 0\nalpha = 1\nbeta = 1\n[[level]]\nranks = 6\ngamma = 0\nalpha = 1\n\
                 beta = 1\n[[level]]\ngamma = 0\nalpha = 1\nbeta = 1",
                "multiple of 4",
            ),
            ("[[level]]\ngama = 0", "gama"),
        ] {
            let refused = levels_from_toml(text).expect_err(text).to_string();
            assert!(refused.contains(part), "{text}: {refused}");
        }
    }
}
