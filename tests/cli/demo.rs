//! `earlybird demo`: it learns, its parameters are checked, its picture is written.

use crate::{Scratch, earlybird, text};

#[test]
fn the_demonstration_ends_well_and_draws() {
    for ranks in ["2", "4"] {
        let scratch = Scratch::new(&format!("demo{ranks}"));
        let svg = scratch.file("picture.svg");
        let path = svg.to_str().expect("utf-8");
        let args = ["demo", "--ranks", ranks, "--steps", "20", "--delay", "0.001", "--svg", path];
        let output = earlybird(&args).output().expect("start earlybird");
        let stdout = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{stdout}{}", text(&output.stderr));
        for algorithm in ["static-leader", "auto"] {
            let equal = format!("{algorithm}: the parameters of all ranks equal those of one process, bit for bit");
            assert!(stdout.contains(&equal), "{stdout}");
        }
        assert!(stdout.contains("Cortez") && stdout.contains("tail"), "{stdout}");
        let svg = std::fs::read_to_string(svg).expect("the picture");
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        for rank in 0..ranks.parse().expect("a number") {
            assert_eq!(svg.matches(&format!("\nrank {rank}\n")).count(), 2, "one row for each algorithm");
        }
    }
}

#[test]
fn mistakes_are_said_before_anything_starts() {
    for (args, part) in [
        (&["demo", "--svg", "/nonexistent/picture.svg"][..], "/nonexistent is not a directory"),
        (&["demo", "--ranks", "1"], "2..=64"),
        (&["demo", "--steps", "0"], "16..=100000"),
        (&["demo", "--delay", "x"], "number of seconds"),
    ] {
        let output = earlybird(args).output().expect("start earlybird");
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output.stderr).contains(part), "{args:?}: {}", text(&output.stderr));
        assert!(output.stdout.is_empty());
    }
}
