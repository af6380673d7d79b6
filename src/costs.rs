//! The costs of messages between nodes, as `earlybird tune` measures them: the part `between` of the file of `EARLYBIRD_TUNE`.

use crate::Error;
use crate::identity::fingerprint;
use earlybird_hier::cost::Model;
use serde::Deserialize;
use std::fmt;

/// The measured costs by which `auto` chooses the plan between nodes.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "CostsFile")]
pub struct Costs {
    model: Model,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CostsFile {
    messages: Vec<(u64, f64)>,
    port: f64,
    reduced: f64,
}

impl TryFrom<CostsFile> for Costs {
    type Error = Error;

    fn try_from(file: CostsFile) -> Result<Self, Error> {
        Costs::new(&file.messages, file.port, file.reduced)
    }
}

impl Costs {
    /// Costs of `messages`, as bytes and seconds of a round of them, two or more with ascending bytes; of every further message
    /// of a round; and of a byte reduced. Sizes between those are interpolated, others continue the nearest two.
    ///
    /// # Errors
    /// [`Error::Usage`] for times below zero or without end, and for sizes that do not ascend.
    pub fn new(messages: &[(u64, f64)], port_s: f64, reduced_s_per_byte: f64) -> Result<Self, Error> {
        let table = messages.iter().map(|(bytes, seconds)| (*bytes as f64, *seconds)).collect();
        let model = Model::measured(table, port_s, reduced_s_per_byte);
        Ok(Costs { model: model.map_err(Error::usage)? })
    }

    pub(crate) fn model(&self) -> &Model {
        &self.model
    }

    /// A hash that tells these costs from others.
    pub(crate) fn fingerprint(&self) -> u64 {
        fingerprint(&self.to_string())
    }
}

impl fmt::Display for Costs {
    /// The lines of the file, without loss.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Model { message_table, port_s, gamma_s_per_byte, .. } = &self.model;
        let messages: Vec<String> =
            message_table.iter().map(|(bytes, seconds)| format!("[{}, {seconds:e}]", *bytes as u64)).collect();
        writeln!(f, "between.messages = [{}]", messages.join(", "))?;
        writeln!(f, "between.port = {port_s:e}")?;
        writeln!(f, "between.reduced = {gamma_s_per_byte:e}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::usage;

    #[test]
    fn what_is_written_is_read_again() {
        let costs = Costs::new(&[(8, 3.1e-5), (4096, 1.0 / 3e4), (1 << 20, 1.1e-3)], 1.2e-6, 2e-10).unwrap();
        let read: crate::Tuning = costs.to_string().parse().unwrap();
        assert_eq!(read.costs(), Some(&costs));
        let other = Costs::new(&[(8, 3.2e-5), (4096, 1.0 / 3e4), (1 << 20, 1.1e-3)], 1.2e-6, 2e-10).unwrap();
        assert_ne!(costs.fingerprint(), other.fingerprint());
    }

    #[test]
    fn costs_that_cannot_be_meant_are_refused() {
        for (messages, port, reduced) in [
            (&[(8, 1e-5)][..], 0.0, 0.0),
            (&[(8, 1e-5), (8, 2e-5)], 0.0, 0.0),
            (&[(8, 2e-5), (16, 1e-5)], 0.0, 0.0),
            (&[(8, 1e-5), (16, f64::INFINITY)], 0.0, 0.0),
            (&[(8, 1e-5), (16, 2e-5)], -1.0, 0.0),
            (&[(8, 1e-5), (16, 2e-5)], 0.0, f64::NAN),
        ] {
            assert!(usage(Costs::new(messages, port, reduced)).contains("expected"), "{messages:?} {port} {reduced}");
        }
    }
}
