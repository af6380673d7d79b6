//! `earlybird demo`: the straggler is judged, equal bits are shown, the death names the rank, the picture is written.

use crate::{Scratch, earlybird, text};

#[test]
fn the_demonstration_shows_all_three_and_draws() {
    for ranks in [2, 4] {
        let scratch = Scratch::new(&format!("demo{ranks}"));
        let svg = scratch.file("picture.svg");
        let path = svg.to_str().expect("utf-8");
        let args =
            ["demo", "--ranks", &ranks.to_string(), "--calls", "8", "--delay", "1ms", "--svg", path].map(str::to_owned);
        let output = earlybird(&args.each_ref().map(String::as_str)).output().expect("start earlybird");
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{stdout}{stderr}");
        assert_eq!(stderr, "", "an expected death is no failure");

        for bytes in ["64Ki", "1Mi"] {
            let verdict = stdout.lines().find(|line| line.starts_with(&format!("{bytes}: auto / static-leader ")));
            let verdict = verdict.unwrap_or_else(|| panic!("no verdict on {bytes}: {stdout}"));
            let known = ["faster", "slower", "no difference here"].iter().any(|word| verdict.contains(word));
            assert!(known, "{verdict}");
        }
        let measured = "earlybird bench allreduce --sizes 64Ki,1Mi --patterns one-late --delay 0.001 \
                        --algorithms static-leader,auto --iterations 8";
        assert!(stdout.contains(&format!("{measured} --ranks {ranks}")), "{stdout}");

        assert_eq!(stdout.matches(" on all ranks").count(), 3, "{stdout}");
        let victim = ranks - 1;
        for rank in 0..victim {
            let told = format!("[EB_PEER_DIED] rank {victim} ");
            let line = stdout.lines().find(|line| line.trim_start().starts_with(&format!("rank {rank} ")));
            assert!(line.is_some_and(|line| line.contains(&told)), "rank {rank}: {stdout}");
        }

        let svg = std::fs::read_to_string(svg).expect("the picture");
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        for rank in 0..ranks {
            assert_eq!(svg.matches(&format!(">rank {rank}<")).count(), 2, "one lane for each algorithm");
        }
    }
}

#[test]
fn mistakes_are_said_before_anything_starts() {
    for (args, part) in [
        (&["demo", "--svg", "/nonexistent/picture.svg"][..], "--svg /nonexistent/picture.svg: No such file"),
        (&["demo", "--ranks", "1"], "2..=64"),
        (&["demo", "--calls", "0"], "6..=100000"),
        (&["demo", "--delay", "x"], "write seconds"),
    ] {
        let output = earlybird(args).output().expect("start earlybird");
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output.stderr).contains(part), "{args:?}: {}", text(&output.stderr));
        assert!(output.stdout.is_empty());
    }
}
