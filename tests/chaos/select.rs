//! The options of the long form, and the forms and kinds that `--only` leaves.

use crate::forms::{FORMS, Form};
use crate::kinds::{KINDS, Kind};
use crate::worker::form_names;
use std::time::Duration;

/// The kinds and forms that may be drawn.
pub struct Selection {
    pub forms: Vec<&'static Form>,
    pub kinds: Vec<&'static Kind>,
}

impl Selection {
    /// The forms whose names begin so and the kinds with this name, words between commas; of neither all where none is named.
    pub fn of(only: &str) -> Result<Selection, String> {
        let words: Vec<&str> = only.split(',').filter(|word| !word.is_empty()).collect();
        let is_form = |form: &Form, word: &str| form.name.starts_with(word);
        for word in &words {
            if !FORMS.iter().any(|form| is_form(form, word)) && !KINDS.iter().any(|kind| kind.name == *word) {
                let kinds: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
                let forms: Vec<&str> = form_names().collect();
                return Err(format!("--only {word}: no such form or kind; kinds: {kinds:?}; forms: {forms:?}"));
            }
        }
        let mut forms: Vec<_> = FORMS.iter().filter(|form| words.iter().any(|word| is_form(form, word))).collect();
        let mut kinds: Vec<_> = KINDS.iter().filter(|kind| words.contains(&kind.name)).collect();
        if forms.is_empty() {
            forms = FORMS.iter().collect();
        }
        if kinds.is_empty() {
            kinds = KINDS.iter().collect();
        }
        Ok(Selection { forms, kinds })
    }
}

/// The arguments of `tests/long/chaos`.
pub struct Options {
    pub seconds: Duration,
    pub runs: u64,
    /// The seed of the first run; the next one has the next number.
    pub seed: u64,
    pub only: String,
}

impl Options {
    pub fn parse(args: &str) -> Result<Options, String> {
        let seed = std::time::UNIX_EPOCH.elapsed().map_or(1, |since| since.as_nanos() as u64 % 1_000_000_000);
        let mut options = Options { seconds: Duration::from_secs(60), runs: u64::MAX, seed, only: String::new() };
        let mut words = args.split_whitespace();
        while let Some(option) = words.next() {
            let value = words.next().ok_or(format!("{option} needs a value"))?;
            let number = || value.parse().map_err(|_| format!("{option} {value}: not a number"));
            match option {
                "--seconds" => options.seconds = Duration::from_secs(number()?),
                "--runs" => (options.runs, options.seconds) = (number()?, Duration::MAX),
                "--seed" => options.seed = number()?,
                "--only" => options.only = value.to_owned(),
                _ => return Err(format!("{option}: use --seconds N, --runs N, --seed N, --only NAME[,NAME...]")),
            }
        }
        Selection::of(&options.only).map(|_| options)
    }
}
