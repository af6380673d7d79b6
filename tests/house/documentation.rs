//! Promises of the documentation: links lead somewhere, files and tests that are named exist, commands have the options that they are
//! shown with, and the list of environment variables is that of the library.

use earlybird::Config;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A text file: its path from the root of the repository, and its text.
type Page = (String, String);

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The text files of the repository with one of these extensions, and those without any, which are scripts.
fn files(extensions: &[&str]) -> Vec<Page> {
    fn walk(directory: &Path, extensions: &[&str], found: &mut Vec<Page>) {
        for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
            let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
            let kind = entry.file_type().unwrap();
            if kind.is_dir() && !name.starts_with('.') && !["target", "book", "out", "__pycache__"].contains(&&*name) {
                walk(&path, extensions, found);
            } else if kind.is_file() && extensions.contains(&path.extension().map_or("", |e| e.to_str().unwrap())) {
                let Ok(text) = std::fs::read_to_string(&path) else { continue };
                found.push((path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned(), text));
            }
        }
    }
    let mut found = Vec::new();
    walk(root(), extensions, &mut found);
    found.sort();
    found
}

fn pages() -> Vec<Page> {
    files(&["md"])
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn none(complaints: Vec<String>) {
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

/// The lines of a page that are no code, and those of its code blocks.
fn prose_and_code(text: &str) -> (Vec<&str>, Vec<&str>) {
    let (mut prose, mut code, mut fenced) = (Vec::new(), Vec::new(), false);
    for line in text.lines() {
        match line.trim_start().starts_with("```") {
            true => fenced = !fenced,
            false if fenced || line.starts_with("    ") => code.push(line.trim()),
            false => prose.push(line),
        }
    }
    (prose, code)
}

/// The targets of `[text](target)` in a line, without what stands in backticks.
fn targets(line: &str) -> Vec<String> {
    let text: String = line.split('`').step_by(2).collect();
    let ends = text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0.to_owned()));
    ends.collect()
}

/// The anchors of a page: its headings as web pages of the repository name them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose_and_code(text).0.into_iter().filter_map(|line| line.strip_prefix('#'));
    let slug = |heading: &str| {
        let words = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = words.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(slug).collect()
}

/// The path of a target that is relative to a page, or nothing if it is an address elsewhere.
fn resolve(page: &str, target: &str) -> Option<(PathBuf, Option<String>)> {
    if target.contains("://") {
        return None;
    }
    let (path, anchor) =
        target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor.to_owned())));
    let directory = root().join(page).parent().unwrap().to_owned();
    Some((if path.is_empty() { root().join(page) } else { directory.join(path) }, anchor))
}

fn broken_links((page, text): &Page) -> Vec<String> {
    let (prose, _) = prose_and_code(text);
    let found = prose.iter().flat_map(|line| targets(line));
    let broken = found.filter(|target| match resolve(page, target) {
        None => false,
        Some((path, None)) => !path.exists(),
        Some((path, Some(anchor))) => !std::fs::read_to_string(path).is_ok_and(|text| anchors(&text).contains(&anchor)),
    });
    broken.map(|target| format!("{page}: {target} leads nowhere")).collect()
}

/// Files of the repository that a page, or a comment of a source, names by their path from its root.
fn missing_files((page, text): &Page) -> Vec<String> {
    let is_read = |line: &&str| !page.ends_with(".rs") || line.trim_start().starts_with("//");
    let text = text.lines().filter(is_read).collect::<Vec<_>>().join("\n");
    let is_path = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let words = text.split(|c| !is_path(c)).map(|word| word.trim_end_matches('.').trim_start_matches("./"));
    let known = ["docs", "src", "shm", "hier", "capi", "preload", "python", "tests", "benches", "examples"];
    let ends = ["rs", "md", "toml", "c", "h", "py", "svg", "txt"];
    let named = words.filter(|word| {
        let (first, last) = (word.split('/').next().unwrap_or_default(), word.rsplit('.').next().unwrap_or_default());
        known.contains(&first) && word.contains('/') && ends.contains(&last)
    });
    // Names in a crate's own files may be relative to the crate.
    let member = page.split('/').next().unwrap_or_default();
    let missing = named.filter(|name| !root().join(name).exists() && !root().join(member).join(name).exists());
    missing.map(|name| format!("{page}: there is no {name}")).collect()
}

/// Tests that a page names as `FILE::TEST` in backticks and that are no function of that file.
fn missing_tests((page, text): &Page) -> Vec<String> {
    let quoted = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let named = quoted.filter_map(|name| name.split_once(".rs::").map(|(file, test)| (format!("{file}.rs"), test)));
    let missing = named.filter(|(file, test)| {
        !std::fs::read_to_string(root().join(file)).is_ok_and(|source| source.contains(&format!("fn {test}(")))
    });
    missing.map(|(file, test)| format!("{page}: {file} has no {test}")).collect()
}

/// The arguments of a line that calls `earlybird`, up to the program that it starts, a comment or another command.
fn arguments(line: &str) -> Option<Vec<String>> {
    let mut words = line.split_whitespace().skip_while(|word| word.contains('=') && word.starts_with("EARLYBIRD_"));
    let command = words.next()?;
    if command != "earlybird" {
        return None;
    }
    let words = words.take_while(|word| !["--", "#", "|", ">", "&", "&&", ";", "..."].contains(word));
    Some(words.map(str::to_owned).collect())
}

/// Complains of a call whose options the command line does not have.
fn refused((page, text): &Page) -> Vec<String> {
    let calls = prose_and_code(text).1.into_iter().filter_map(|line| Some((line, arguments(line)?)));
    let refused = calls.filter_map(|(line, mut arguments)| {
        arguments.push("--help".into());
        let output = Command::new(env!("CARGO_BIN_EXE_earlybird")).args(&arguments).output().unwrap();
        (!output.status.success())
            .then(|| format!("{page}: {line}: {}", String::from_utf8_lossy(&output.stderr).trim()))
    });
    refused.collect()
}

/// Names and examples in the tables of the page on variables.
fn documented(page: &str) -> Vec<(String, Option<String>)> {
    let quoted = |cell: &str| Some(cell.trim().strip_prefix('`')?.strip_suffix('`')?.to_owned());
    let rows = page.lines().filter(|line| line.starts_with("| `EARLYBIRD_"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').collect();
        (quoted(cells[1]).unwrap(), quoted(cells[4]))
    })
    .collect()
}

/// The variables that the library names when it refuses one, without that of the tests.
fn known() -> BTreeSet<String> {
    let refusal = Config::from_env_and([("EARLYBIRD_UNKNOWN".to_owned(), String::new())]).unwrap_err().to_string();
    let (_, list) = refusal.split_once("use one of: ").expect("the error lists the variables");
    list.split(", ").filter(|name| *name != "EARLYBIRD_FAULT").map(str::to_owned).collect()
}

#[test]
fn links_lead_to_pages_and_headings() {
    let pages = pages();
    assert!(pages.len() > 20, "only {} pages were found", pages.len());
    none(pages.iter().flat_map(broken_links).collect());
}

#[test]
fn files_that_pages_and_sources_name_exist() {
    let mut named = files(&["md", "rs", "toml", "c", "h", "py", ""]);
    // The pages by date speak of the files of their day.
    named.retain(|(path, _)| !path.starts_with("docs/results/2"));
    none(named.iter().flat_map(missing_files).collect());
}

#[test]
fn tests_that_pages_name_exist() {
    none(pages().iter().flat_map(missing_tests).collect());
}

#[test]
fn commands_have_the_options_that_pages_show() {
    let called = pages()
        .iter()
        .map(|(_, text)| prose_and_code(text).1.iter().filter_map(|l| arguments(l)).count())
        .sum::<usize>();
    assert!(called > 20, "only {called} calls were found");
    none(pages().iter().filter(|(page, _)| !page.starts_with("docs/results/2")).flat_map(refused).collect());
}

#[test]
fn the_list_of_variables_is_complete_and_its_examples_are_accepted() {
    let documented = documented(&read("docs/environment.md"));
    let names: BTreeSet<String> = documented.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(names, known());
    for (name, example) in documented {
        let mut variables: Vec<_> = example.map(|example| (name.clone(), example)).into_iter().collect();
        if name == "EARLYBIRD_TRACE_SIZE" {
            variables.push(("EARLYBIRD_TRACE".into(), "run1".into()));
        }
        Config::from_env_and(variables).unwrap_or_else(|error| panic!("the example of {name}: {error}"));
    }
}

/// The messages in the headings of the page on troubleshooting: a piece for each part between dots.
fn messages(page: &str) -> Vec<String> {
    let headings = page.lines().filter(|line| line.starts_with("### `"));
    let quoted = headings.flat_map(|line| line.split('`').nth(1).unwrap().split("..."));
    quoted.map(|piece| piece.trim().to_owned()).collect()
}

/// A source as one line, in which long texts are in one piece.
fn joined(source: &str) -> String {
    source.split("\\\n").map(str::trim_start).collect()
}

#[test]
fn the_messages_that_are_explained_are_those_of_the_library() {
    let sources = files(&["rs"]).into_iter().filter(|(path, _)| path.starts_with("src/") || path.contains("/src/"));
    let sources: Vec<String> = sources.map(|(_, text)| joined(&text)).collect();
    let messages = messages(&read("docs/troubleshooting.md"));
    assert!(messages.len() > 15, "only {} messages were found", messages.len());
    let unknown = messages.into_iter().filter(|message| !sources.iter().any(|source| source.contains(message)));
    none(unknown.map(|message| format!("no source has {message:?}")).collect());
}

/// Pages that the book does not list exactly once.
fn book_complaints(listed: Vec<String>, written: BTreeSet<String>) -> Vec<String> {
    let times = |page: &String| listed.iter().filter(|l| *l == page).count();
    let known: BTreeSet<&String> = written.iter().chain(&listed).collect();
    let wrong = known.into_iter().filter(|page| times(page) != 1);
    wrong.map(|page| format!("the book lists {page} {} times", times(page))).collect()
}

#[test]
fn the_book_has_every_page_once() {
    let listed = read("docs/SUMMARY.md").lines().flat_map(targets).map(|target| format!("docs/{target}")).collect();
    let written = pages().into_iter().map(|(page, _)| page).filter(|page| page.starts_with("docs/"));
    none(book_complaints(listed, written.filter(|page| page != "docs/SUMMARY.md").collect()));
}

#[test]
fn the_checks_refuse_bad_samples() {
    let page = |text: &str| ("docs/sample.md".to_owned(), text.to_owned());
    assert!(broken_links(&page("[a](../README.md) [b](https://example.org) `[c](d)`\n```\n[e](f)\n```")).is_empty());
    assert_eq!(broken_links(&page("[a](nowhere.md), [b](../README.md#nothing)")).len(), 2);
    assert!(missing_files(&page("`src/lib.rs`, see docs/guide.md.")).is_empty());
    assert_eq!(missing_files(&page("`src/nothing.rs`, see docs/nothing.md.")).len(), 2);
    let listed = |pages: &[&str]| pages.iter().map(|page| page.to_string()).collect::<Vec<_>>();
    assert_eq!(
        book_complaints(listed(&["a", "a", "b"]), BTreeSet::from(["a".into(), "b".into(), "c".into()])).len(),
        2
    );
    let source = ("src/a.rs".to_owned(), "// docs/nothing.md\nlet path = \"docs/nothing.md\";".to_owned());
    assert_eq!(missing_files(&source).len(), 1);
    assert!(missing_tests(&page("`tests/house/names.rs::the_checks_refuse_bad_samples`")).is_empty());
    assert_eq!(missing_tests(&page("`tests/house/names.rs::nothing`, `tests/nothing.rs::rank`")).len(), 2);
    assert!(refused(&page("    EARLYBIRD_WAIT=power earlybird run -n 2 -- program --no-option\n")).is_empty());
    assert_eq!(refused(&page("```sh\nearlybird run --no-option -- program\n```")).len(), 1);
    assert_eq!(messages("### `one ... two`\n### Other\n"), ["one", "two"]);
    assert_eq!(joined("a \\\n   b"), "a b");
    assert_eq!(documented("| `EARLYBIRD_A` | b | c | `e` |"), [("EARLYBIRD_A".into(), Some("e".into()))]);
}
