//! Mistakes on the command line: what `docs/results/mistakes.md` says is said is what is said.

use crate::{Scratch, earlybird, text};
use std::process::{Command, Output, Stdio};

/// Carries out a line as a shell does in an empty directory, with this program as `earlybird`.
fn shell(scratch: &Scratch, line: &str) -> Output {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_earlybird")).parent().expect("a directory");
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("sh");
    command.args(["-c", line]).env("PATH", path).current_dir(&scratch.0).stdin(Stdio::null());
    command.output().expect("start a shell")
}

/// Returns true if the text begins with `pattern`, in which `…` stands for anything.
fn begins_with(text: &str, pattern: &str) -> bool {
    let mut parts = pattern.split('…');
    let first = parts.next().unwrap_or_default();
    let rest = text.strip_prefix(first);
    rest.and_then(|rest| parts.try_fold(rest, |rest, part| Some(rest.split_once(part.trim())?.1))).is_some()
}

#[test]
fn every_mistake_of_the_page_is_answered_as_it_says() {
    let page = include_str!("../../docs/results/mistakes.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |"));
    let scratch = Scratch::new("mistakes");
    let mut count = 0;
    for row in rows {
        let cells: Vec<&str> = row.split(" | ").collect();
        let [line, exit, said] = cells[..] else { panic!("three cells: {row}") };
        let line = line.trim_end_matches('`').replace("\\|", "|");
        let said = said.trim().trim_start_matches("``").trim_end_matches("``").trim();
        let output = shell(&scratch, &line);
        let stderr = text(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
        let seen = if said == "nothing" { stderr.is_empty() } else { begins_with(&stderr, said) };
        assert!(seen, "{line}\n  says  {stderr}\n  page  {said}");
        assert_eq!(output.status.code().map(|code| code.to_string()).as_deref(), Some(exit), "{line}");
        let left = std::fs::read_dir(&scratch.0).expect("the directory").count();
        assert_eq!(left, 0, "{line} leaves files behind");
        count += 1;
    }
    assert!(count >= 25, "{count} rows");
}

#[test]
fn the_wildcard_stands_for_anything_and_nothing_else() {
    for (pattern, seen) in
        [("a b", true), ("a … d", true), ("… d", true), ("b", false), ("a … x", false), ("a … d … b", false)]
    {
        assert_eq!(begins_with("a b c d", pattern), seen, "{pattern}");
    }
}

#[test]
fn a_closed_pipe_ends_every_command_quietly() {
    let scratch = Scratch::new("pipe");
    for line in [
        "earlybird bench allreduce --ranks 2 --sizes 8,64,512 --iterations 6 --format csv",
        "earlybird plan butterfly --ranks 64 --format json",
        "earlybird simulate --algorithms ring --ranks 4 --bytes 64Ki --alpha 3e-5 --beta 1e-8 --gamma 2e-10",
        "earlybird run -n 2 -- yes",
    ] {
        let output = shell(&scratch, &format!("{line} | head -n 1"));
        assert_eq!((text(&output.stderr).as_str(), text(&output.stdout).lines().count()), ("", 1), "{line}");
        let none = shell(&scratch, &format!("{line} | true"));
        assert_eq!(text(&none.stderr), "", "{line}");
    }
}

#[test]
fn unknown_variables_are_refused_by_every_command() {
    for line in [
        "bench allreduce --ranks 2",
        "demo",
        "plan ring --ranks 3",
        "run -n 1 -- true",
        "simulate --algorithms ring --ranks 4 --bytes 8 --alpha 1 --beta 1 --gamma 1",
        "trace report x",
        "tune --ranks 2 -o x",
    ] {
        let args: Vec<&str> = line.split(' ').collect();
        let command = args[0];
        let output = earlybird(&args).env("EARLYBIRD_TIMEUOT", "3").output().expect("start earlybird");
        let said = format!(
            "earlybird {command}: environment variable EARLYBIRD_TIMEUOT is not known (did you mean \"EARLYBIRD_TIMEOUT\"?)"
        );
        assert_eq!(output.status.code(), Some(2), "{command}");
        assert_eq!(text(&output.stderr).matches(&said).count(), 1, "{command}: {}", text(&output.stderr));
    }
}

#[test]
fn every_command_has_a_man_page_and_examples_and_every_shell_its_completions() {
    let scratch = Scratch::new("pages");
    let pages = scratch.file("pages");
    let status = earlybird(&["pages", pages.to_str().expect("utf-8")]).status().expect("start earlybird");
    assert!(status.success());
    for command in ["bench", "demo", "doctor", "plan", "run", "simulate", "topo", "tune", "trace-report"] {
        let page = std::fs::read_to_string(pages.join(format!("earlybird-{command}.1"))).expect(command);
        assert!(page.contains(".SH EXAMPLES\n.nf\n\\&") && !page.contains("EXTRA"), "{command}: {page}");
        let help =
            earlybird(&command.split('-').chain(["--help"]).collect::<Vec<_>>()).output().expect("start earlybird");
        assert!(text(&help.stdout).contains("Examples:\n  "), "{command}: {}", text(&help.stdout));
    }
    for no_page in ["earlybird-pages.1", "earlybird-help.1"] {
        assert!(!pages.join(no_page).exists(), "{no_page}");
    }
    for completions in ["earlybird.bash", "_earlybird", "earlybird.fish"] {
        let text = std::fs::read_to_string(pages.join(completions)).expect(completions);
        assert!(text.contains("patterns"), "{completions}");
    }
}
