//! Findings of `earlybird doctor` as data, and the one place that turns them into text or JSON.

use crate::output::{AnswerFormat, json};
use serde::Serialize;

/// Judgement of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Right, or of no weight.
    Ok,
    /// Works, with a restriction that a user may want to know.
    Note,
    /// Jobs fail.
    Broken,
}

/// One fact about the system or about a process.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// The group it is shown in.
    pub section: &'static str,
    pub name: String,
    pub value: String,
    pub state: State,
    /// The use that earlybird makes of it.
    pub effect: String,
    /// Advice, where something can be gained by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<String>,
}

impl Finding {
    /// A finding that is as it should be.
    pub fn ok(section: &'static str, name: &str, value: impl Into<String>, effect: impl Into<String>) -> Finding {
        let (name, value, effect) = (name.to_owned(), value.into(), effect.into());
        Finding { section, name, value, state: State::Ok, effect, change: None }
    }

    /// The same finding with another judgement, and advice.
    pub fn judged(self, state: State, change: impl Into<String>) -> Finding {
        Finding { state, change: Some(change.into()), ..self }
    }

    /// The same finding with a note and advice where `holds`.
    pub fn noted_if(self, holds: bool, change: impl Into<String>) -> Finding {
        if holds { self.judged(State::Note, change) } else { self }
    }
}

#[derive(Serialize)]
struct Answer<'a> {
    broken: usize,
    notes: usize,
    findings: &'a [Finding],
}

/// The text of all findings.
pub fn rendered(findings: &[Finding], format: AnswerFormat) -> String {
    let count = |state| findings.iter().filter(|finding| finding.state == state).count();
    let (broken, notes) = (count(State::Broken), count(State::Note));
    if format == AnswerFormat::Json {
        return json(&Answer { broken, notes, findings });
    }
    let mut text = String::new();
    for (at, finding) in findings.iter().enumerate() {
        if at == 0 || findings[at - 1].section != finding.section {
            let gap = if at == 0 { "" } else { "\n" };
            text += &format!("{gap}{}\n", finding.section);
        }
        let state = match finding.state {
            State::Ok => "ok",
            State::Note => "note",
            State::Broken => "BROKEN",
        };
        text += &format!("  {state:<6}  {}: {}\n", finding.name, finding.value);
        for more in [Some(&finding.effect), finding.change.as_ref()].into_iter().flatten() {
            let lead = if Some(more) == finding.change.as_ref() { "> " } else { "" };
            text += &format!("          {lead}{more}\n");
        }
    }
    text + &format!("\n{broken} broken, {notes} to note.\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_and_counts_are_shown_and_json_has_the_same() {
        let findings = [
            Finding::ok("memory", "/dev/shm", "tmpfs", "not used"),
            Finding::ok("memory", "memfd", "refused", "no job can start").judged(State::Broken, "allow it"),
            Finding::ok("processes", "ptrace", "1", "nothing").noted_if(true, "set 0").noted_if(false, "set 1"),
        ];
        let expected = "memory\n  ok      /dev/shm: tmpfs\n          not used\n  BROKEN  memfd: refused\n          no job can start\n          \
                        > allow it\n\nprocesses\n  note    ptrace: 1\n          nothing\n          > set 0\n\n1 broken, 1 to note.\n";
        assert_eq!(rendered(&findings, AnswerFormat::Table), expected);
        let json: serde_json::Value = serde_json::from_str(&rendered(&findings, AnswerFormat::Json)).unwrap();
        assert_eq!((&json["broken"], &json["findings"][1]["state"]), (&1.into(), &"broken".into()));
        assert!(json["findings"][0].get("change").is_none());
    }
}
