//! The costs of messages between nodes, as `earlybird tune` measures them: three lines in the file of `EARLYBIRD_TUNE`.
//!
//! ```text
//! between messages 8:3.1e-5,4Ki:4.0e-5,1Mi:1.1e-3   # BYTES:SECONDS of a round in which every node sends to one other
//! between port 1.2e-6                                # seconds for every further node that one sends to in a round
//! between reduced 1.1e-10                            # seconds for every byte reduced
//! ```

use crate::Error;
use crate::identity::fingerprint;
use crate::units::parse_size;
use earlybird_hier::cost::Model;
use std::fmt;

/// The word that such a line begins with.
pub(crate) const WORD: &str = "between";

/// The measured costs by which `auto` chooses the plan between nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Costs {
    model: Model,
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
            message_table.iter().map(|(bytes, seconds)| format!("{}:{seconds:e}", *bytes as u64)).collect();
        writeln!(f, "{WORD} messages {}", messages.join(","))?;
        writeln!(f, "{WORD} port {port_s:e}")?;
        writeln!(f, "{WORD} reduced {gamma_s_per_byte:e}")
    }
}

/// The lines read so far.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    messages: Option<Vec<(u64, f64)>>,
    port: Option<f64>,
    reduced: Option<f64>,
}

impl Lines {
    /// Takes `between WHAT VALUE`.
    ///
    /// # Errors
    /// [`Error::Usage`] for what is not known, comes twice or is no time.
    pub(crate) fn take(&mut self, what: &str, value: &str) -> Result<(), Error> {
        let seconds = |text: &str| {
            let seconds = text.parse::<f64>().ok().filter(|seconds| seconds.is_finite() && *seconds >= 0.0);
            seconds.ok_or_else(|| Error::usage(format!("{text:?} is no time in seconds, such as 3.1e-5")))
        };
        let again = match what {
            "messages" => {
                let entries = value.split(',').map(|entry| match entry.split_once(':') {
                    Some((bytes, time)) => Ok((parse_size(bytes)?, seconds(time)?)),
                    None => {
                        Err(Error::usage(format!("{entry:?} is not of the form BYTES:SECONDS, such as 4Ki:4.0e-5")))
                    }
                });
                self.messages.replace(entries.collect::<Result<_, _>>()?).is_some()
            }
            "port" => self.port.replace(seconds(value)?).is_some(),
            "reduced" => self.reduced.replace(seconds(value)?).is_some(),
            _ => return Err(Error::usage(format!("{what:?} is no cost {WORD} nodes; use messages, port or reduced"))),
        };
        match again {
            false => Ok(()),
            true => Err(Error::usage(format!("there is another {WORD} {what}"))),
        }
    }

    /// The costs, if there were any.
    ///
    /// # Errors
    /// [`Error::Usage`] if some are missing, and as [`Costs::new`].
    pub(crate) fn done(self) -> Result<Option<Costs>, Error> {
        match (self.messages, self.port, self.reduced) {
            (None, None, None) => Ok(None),
            (Some(messages), Some(port), Some(reduced)) => Costs::new(&messages, port, reduced).map(Some),
            _ => {
                Err(Error::usage(format!("of {WORD} messages, {WORD} port and {WORD} reduced all or none are needed")))
            }
        }
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
