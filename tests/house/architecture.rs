//! Promises of the sources about themselves: where unsafe code is, how long files are, who depends on whom, who knows which collectives
//! there are.

use std::collections::BTreeSet;
use std::path::Path;

/// Longest file of the library, in lines.
const LONGEST: usize = 450;

/// A Rust source: its path from the root of the repository, and its text.
type Source = (String, String);

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Every Rust source below these directories.
fn sources(directories: &[&str]) -> Vec<Source> {
    fn walk(directory: &Path, found: &mut Vec<Source>) {
        let Ok(entries) = std::fs::read_dir(directory) else { return };
        for entry in entries.map(Result::unwrap) {
            let path = entry.path();
            if entry.file_type().unwrap().is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
                found.push((name, std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    let mut found = Vec::new();
    directories.iter().for_each(|d| walk(&root().join(d), &mut found));
    found.sort();
    found
}

/// Members of the workspace, the root as the empty path, from `members = [...]`.
fn members() -> Vec<String> {
    let manifest = read("Cargo.toml");
    let list = manifest.split_once("members = [").unwrap().1.split_once(']').unwrap().0;
    let names = list.split(',').map(|n| n.trim().trim_matches('"').to_owned()).filter(|n| !n.is_empty());
    std::iter::once(String::new()).chain(names).collect()
}

fn every_source() -> Vec<Source> {
    let kinds = ["src", "tests", "benches", "examples", "build.rs"];
    let directories: Vec<String> = members().iter().flat_map(|m| kinds.map(|k| join(m, k))).collect();
    sources(&directories.iter().map(String::as_str).collect::<Vec<_>>())
}

fn join(member: &str, path: &str) -> String {
    if member.is_empty() { path.to_owned() } else { format!("{member}/{path}") }
}

/// The code of a source, line by line, without comments and without what stands in quotes.
fn code(text: &str) -> Vec<String> {
    let strip = |line: &str| {
        let (mut out, mut quoted, mut escaped) = (String::new(), false, false);
        let mut rest = line.chars().peekable();
        while let Some(c) = rest.next() {
            match c {
                _ if escaped => escaped = false,
                '\\' if quoted => escaped = true,
                '"' => quoted = !quoted,
                '/' if !quoted && rest.peek() == Some(&'/') => break,
                _ if !quoted => out.push(c),
                _ => {}
            }
        }
        out
    };
    text.lines().map(strip).collect()
}

/// Whether `word` stands in `line` as a word of its own.
fn has_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].chars().next_back().is_some_and(part) && !line[at + word.len()..].chars().next().is_some_and(part)
    })
}

/// Paths in backticks in the first column of the tables of a document.
fn listed(document: &str) -> BTreeSet<String> {
    let cells = document.lines().filter_map(|line| line.trim().strip_prefix('|')?.split('|').next());
    let paths = cells.filter_map(|cell| cell.trim().strip_prefix('`')?.strip_suffix('`'));
    paths.filter(|path| path.ends_with(".rs")).map(str::to_owned).collect()
}

/// Complaints about unsafe code: not listed, listed in vain, or without leave from its file or its module.
fn unsafe_complaints(sources: &[Source], document: &str) -> Vec<String> {
    let listed = listed(document);
    let mut complaints = Vec::new();
    let mut found = BTreeSet::new();
    let allows = |text: &str| text.contains("allow(unsafe_code");
    for (path, text) in sources {
        if code(text).iter().any(|line| line.contains("allow(clippy::undocumented_unsafe_blocks")) {
            complaints.push(format!("{path} lets unsafe blocks go without a SAFETY comment"));
        }
        if !code(text).iter().any(|line| has_word(line, "unsafe")) {
            continue;
        }
        found.insert(path.clone());
        let module = path.rsplit_once('/').map(|(directory, _)| format!("{directory}/mod.rs"));
        let leave = sources.iter().any(|(p, t)| Some(p) == module.as_ref() && allows(t));
        if !allows(text) && !leave {
            complaints.push(format!("{path} has unsafe code without allow(unsafe_code)"));
        }
    }
    complaints.extend(
        found.difference(&listed).map(|p| format!("{p} has unsafe code and is not in docs/internals/unsafe.md")),
    );
    complaints.extend(
        listed.difference(&found).map(|p| format!("{p} is in docs/internals/unsafe.md and has no unsafe code")),
    );
    complaints
}

/// Manifests that do not take over the lints which deny unsafe code and undocumented unsafe blocks.
fn lint_complaints(manifests: &[(String, String)]) -> Vec<String> {
    let denies = |text: &str, lint: &str| text.lines().any(|line| line.trim() == format!("{lint} = \"deny\""));
    let mut complaints = Vec::new();
    for lint in ["unsafe_code", "undocumented_unsafe_blocks", "missing_safety_doc"] {
        if !manifests.first().is_some_and(|(_, text)| denies(text, lint)) {
            complaints.push(format!("the workspace does not deny {lint}"));
        }
    }
    for (name, text) in manifests {
        if !text.contains("[lints]\nworkspace = true") {
            complaints.push(format!("{name} does not take over the lints of the workspace"));
        }
    }
    complaints
}

fn length_complaints(sources: &[Source]) -> Vec<String> {
    let long = sources.iter().filter(|(_, text)| text.lines().count() > LONGEST);
    long.map(|(path, text)| format!("{path} has {} lines, more than {LONGEST}", text.lines().count())).collect()
}

/// Which names no source below a directory may use, and why.
const BOUNDARIES: &[(&str, &[&str], &str)] = &[
    ("shm/src/", &["earlybird_hier", "earlybird"], "the node layer knows nothing above it"),
    (
        "shm/src/protocol/",
        &["memory::", "channel::", "mapped::", "comm::", "args::", "layout::", "rustix", "libc", "memmap2"],
        "the protocol sees places and words, never addresses or the system",
    ),
    ("shm/src/protocol/", &["sync::atomic"], "atomics come through crate::sync, so that they can be modelled"),
    (
        "shm/src/memory/",
        &["protocol::", "channel::", "mapped::", "comm::", "args::"],
        "the memory layer knows no protocol",
    ),
    ("shm/src/channel/", &["mapped::", "comm::", "args::"], "rings stand beside the node's operations, not on them"),
    ("shm/src/kernels/", &["protocol::", "memory::", "mapped::", "comm::", "args::"], "kernels are arithmetic only"),
    ("hier/src/", &["earlybird"], "schedules know no communicator"),
    (
        "hier/src/",
        &["memory::", "mapped::", "layout::", "protocol::", "kernels::", "sync::atomic"],
        "schedules use no internals of the node layer",
    ),
    ("src/", &["memory::", "mapped::", "layout::", "protocol::", "kernels::"], "the handle uses the node layer's face"),
];

/// Uses across a boundary. Modules count by their path (`memory::`), crates by their name.
fn boundary_complaints(sources: &[Source]) -> Vec<String> {
    let mut complaints = Vec::new();
    for (below, forbidden, why) in BOUNDARIES {
        for (path, text) in sources.iter().filter(|(path, _)| path.starts_with(below)) {
            for (number, line) in code(text).iter().enumerate() {
                for name in forbidden.iter() {
                    let used = match name.strip_suffix("::") {
                        Some(module) => crosses(line, module),
                        None if name.contains("::") => line.contains(name),
                        None => line.contains(&format!("{name}::")) && has_word(line, name),
                    };
                    if used {
                        complaints.push(format!("{path}:{}: {name}: {why}", number + 1));
                    }
                }
            }
        }
    }
    complaints
}

/// Whether a line of code reaches into `module` of the node layer's root.
fn crosses(line: &str, module: &str) -> bool {
    ["crate", "earlybird_shm"].iter().any(|from| {
        let direct = line.contains(&format!("{from}::{module}::")) || line.contains(&format!("{from}::{module};"));
        let group = line.split_once(&format!("{from}::{{")).is_some_and(|(_, list)| has_word(list, module));
        direct || group
    })
}

/// Files of the library that may name an ordering stronger than relaxed, or a fence, and why; everywhere else an ordered
/// access names its `SyncPoint`, which the models weaken one by one.
const ORDERINGS: &[(&str, &str)] = &[
    ("shm/src/sync.rs", "the table of sync points"),
    ("shm/src/kernels/", "the fence behind stores past the caches, which no atomic orders"),
    ("shm/src/time_stamp.rs", "the fence that orders readings of the counter after loads; no other rank depends on it"),
    ("preload/src/comm_cache.rs", "a table of this process alone, between its threads"),
];

/// Orderings outside those files.
fn ordering_complaints(sources: &[Source]) -> Vec<String> {
    let mut complaints = Vec::new();
    let ours = |path: &str| path.starts_with("src/") || path.contains("/src/");
    let excused = |path: &str| ORDERINGS.iter().any(|(file, _)| path.starts_with(file));
    for (path, text) in sources.iter().filter(|(path, _)| ours(path) && !excused(path)) {
        for (number, line) in code(text).iter().enumerate() {
            let strong = ["Acquire", "Release", "AcqRel", "SeqCst"].into_iter().find(|word| has_word(line, word));
            let fence = line.contains("fence(") && !line.contains("Fence.fence(");
            if let Some(word) = strong.or(fence.then_some("fence")) {
                complaints
                    .push(format!("{path}:{}: {word}: name a SyncPoint, so that a model can weaken it", number + 1));
            }
        }
    }
    complaints
}

/// Files that may name a collective, by a variant of `Collective` or a constructor of `CollectiveArgs`, and why. All others go by
/// the table, so that they stay as they are when a collective is added or removed.
const COLLECTIVES: &[(&str, &[&str])] = &[
    ("the table, and the constructor of each", &["shm/src/protocol/collective.rs", "shm/src/constructors.rs"]),
    (
        "a shorthand for each, under rsmpi's name",
        &["src/communicator/data_movement.rs", "src/communicator/reductions.rs", "src/communicator/root.rs"],
    ),
    (
        "the steps of each over several nodes",
        &[
            "src/hierarchy/alltoallv.rs",
            "src/hierarchy/call.rs",
            "src/hierarchy/collectives.rs",
            "src/hierarchy/data_movement.rs",
            "src/hierarchy/operation.rs",
            "src/hierarchy/phases.rs",
            "src/hierarchy/reductions.rs",
        ],
    ),
    (
        "a function for each in other languages, and the MPI's own beside ours",
        &[
            "capi/src/data_movement.rs",
            "capi/src/reductions.rs",
            "preload/src/reductions.rs",
            "python/src/collectives.rs",
            "python/src/methods.rs",
            "src/bin/earlybird/bench/mpi.rs",
            "src/bin/earlybird/bench/calls.rs",
            "src/bin/earlybird/bench/worker.rs",
        ],
    ),
    (
        "algorithms that only some have",
        &[
            "shm/src/comm/requests.rs",
            "shm/src/protocol/decide.rs",
            "shm/src/protocol/dispatch.rs",
            "src/hierarchy/choice.rs",
            "src/hierarchy/explain.rs",
            "src/hierarchy/started/persistent_allreduce.rs",
        ],
    ),
    (
        "plans, by which only allreduces and barriers are carried out on one node",
        &[
            "src/bin/earlybird/bench/args.rs",
            "src/communicator/across.rs",
            "src/communicator/explain.rs",
            "src/communicator/comm_plans.rs",
            "src/plans.rs",
            "src/size_table.rs",
        ],
    ),
    (
        "forms that only an allreduce has: grouped, in shared memory, with one result for all",
        &[
            "capi/src/call.rs",
            "capi/src/grouped.rs",
            "capi/src/shared.rs",
            "shm/src/checked_args.rs",
            "shm/src/comm/views.rs",
            "shm/src/placed_args.rs",
            "src/communicator/shared.rs",
        ],
    ),
    (
        "the one without data",
        &["shm/src/owned_args.rs", "src/communicator/request.rs", "src/messages/job_transport.rs"],
    ),
    ("those of unequal blocks", &["shm/src/comm/alltoallv.rs", "shm/src/comm/unequal_request.rs"]),
    (
        "agreements of the library's own",
        &[
            "shm/src/comm/listed_scatter.rs",
            "shm/src/comm/outside.rs",
            "shm/src/comm/split.rs",
            "src/communicator/messages.rs",
            "src/communicator/plan_calls.rs",
            "src/communicator/split.rs",
            "src/hierarchy/connect.rs",
        ],
    ),
    (
        "measurements and reports of one of them",
        &[
            "src/bin/earlybird/bench/composed.rs",
            "src/bin/earlybird/bench/preset.rs",
            "src/bin/earlybird/trace/imbalance.rs",
            "src/bin/earlybird/tune.rs",
            "src/bin/earlybird/tune/between.rs",
            "src/trace/calls.rs",
        ],
    ),
];

/// Spellings of the collectives in code, of the enumeration that defines them: `Collective::AllReduce`, `CollectiveArgs::all_reduce`.
fn spellings(definition: &str) -> Vec<String> {
    let body = definition.split_once("pub enum Collective {").unwrap().1.split_once("\n}").unwrap().0;
    let variants = body.lines().filter_map(|line| line.trim().split_once(" = ")).map(|(name, _)| name);
    let constructor = |name: &str| {
        name.char_indices().fold(String::new(), |word, (at, letter)| {
            let line = if letter.is_uppercase() && at > 0 { "_" } else { "" };
            format!("{word}{line}{}", letter.to_lowercase())
        })
    };
    variants
        .flat_map(|name| [format!("Collective::{name}"), format!("CollectiveArgs::{}", constructor(name))])
        .collect()
}

/// The code of a source before its own tests.
fn code_without_tests(text: &str) -> Vec<String> {
    let lines = code(text);
    let is_test =
        |pair: &[String]| pair[0].starts_with("#[cfg(") && pair[0].contains("test") && pair[1].ends_with("tests {");
    let end = lines.windows(2).position(is_test).unwrap_or(lines.len());
    lines[..end].to_vec()
}

/// Files that name a collective and are not listed, and those listed that name none. A plan's own collectives are others.
fn collective_complaints(sources: &[Source], listed: &[&str], spellings: &[String]) -> Vec<String> {
    let names = |line: &String| {
        let line = line.replace("plan::Collective::", "");
        spellings.iter().any(|spelling| has_word(&line, spelling))
    };
    let is_test = |path: &str| path.contains("/tests") || path.ends_with("tests.rs");
    let mut found = BTreeSet::new();
    for (path, text) in sources.iter().filter(|(path, _)| !is_test(path)) {
        if code_without_tests(text).iter().any(names) {
            found.insert(path.as_str());
        }
    }
    let listed: BTreeSet<&str> = listed.iter().copied().collect();
    let unknown = found.difference(&listed).map(|path| {
        format!("{path} names a collective; ask the table (Collective::traits), or list the file with its reason")
    });
    let stale = listed.difference(&found).map(|path| format!("{path} may name a collective and names none"));
    unknown.chain(stale).collect()
}

fn none(complaints: Vec<String>) {
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn unsafe_code_is_where_the_list_says_and_nowhere_else() {
    let sources = every_source();
    assert!(sources.len() > 60, "only {} sources were found", sources.len());
    none(unsafe_complaints(&sources, &read("docs/internals/unsafe.md")));
}

#[test]
fn every_member_denies_unsafe_code_without_leave_and_without_reasons() {
    let manifests: Vec<_> = members().iter().map(|m| join(m, "Cargo.toml")).map(|m| (m.clone(), read(&m))).collect();
    none(lint_complaints(&manifests));
}

#[test]
fn files_are_short() {
    let directories: Vec<String> = members().iter().map(|m| join(m, "src")).collect();
    let sources = sources(&directories.iter().map(String::as_str).collect::<Vec<_>>());
    none(length_complaints(&sources));
}

#[test]
fn nobody_reaches_across_a_boundary() {
    let sources = every_source();
    for (below, ..) in BOUNDARIES {
        assert!(sources.iter().any(|(path, _)| path.starts_with(below)), "{below} has no sources: stale boundary");
    }
    none(boundary_complaints(&sources));
}

#[test]
fn every_ordering_is_a_sync_point() {
    let sources = every_source();
    for (file, _) in ORDERINGS {
        let strong = |line: &String| has_word(line, "Acquire") || has_word(line, "Release") || line.contains("fence");
        let used = sources.iter().any(|(path, text)| path.starts_with(file) && code(text).iter().any(strong));
        assert!(used, "{file} names no ordering: stale exception");
    }
    none(ordering_complaints(&sources));
}

#[test]
fn only_listed_files_know_which_collectives_there_are() {
    let sources = sources(&["src", "shm/src", "capi/src", "preload/src", "python/src"]);
    let listed: Vec<&str> = COLLECTIVES.iter().flat_map(|(_, files)| files.iter().copied()).collect();
    none(collective_complaints(&sources, &listed, &spellings(&read("shm/src/protocol/collective.rs"))));
}

#[test]
fn a_file_that_names_a_collective_must_be_listed() {
    let spellings = spellings("pub enum Collective {\n    /// All.\n    AllReduce = 1,\n    Scan = 10,\n}\n");
    let complaints = |text, listed| collective_complaints(&[source("src/a.rs", text)], listed, &spellings);
    for line in
        ["if what == Collective::AllReduce {", "run(CollectiveArgs::all_reduce(buf, op))", "Collective::Scan => 1"]
    {
        assert!(complaints(line, &[])[0].contains("src/a.rs names a collective"), "{line}");
        assert!(complaints(line, &["src/a.rs"]).is_empty(), "{line}");
    }
    for line in [
        "Collective::PUBLIC.iter()",
        "plan::Collective::AllReduce",
        "Collective::Scanner",
        "// Collective::Scan",
        "#[cfg(test)]\nmod tests {\n    Collective::Scan\n}",
    ] {
        assert!(complaints(line, &[]).is_empty(), "{line}");
        assert!(complaints(line, &["src/a.rs"])[0].contains("names none"), "{line}");
    }
}

fn source(path: &str, text: &str) -> Source {
    (path.to_owned(), text.to_owned())
}

#[test]
fn the_checks_refuse_bad_samples() {
    let list = "| file | why |\n|---|---|\n| `shm/src/a.rs` | it maps |\n";
    let good = source("shm/src/a.rs", "#![allow(unsafe_code)]\nfn f() { unsafe { g() } }\n");
    assert!(unsafe_complaints(std::slice::from_ref(&good), list).is_empty());
    for (sources, expected) in [
        (vec![], "has no unsafe code"),
        (vec![good.clone(), source("src/b.rs", "#![allow(unsafe_code)]\nunsafe impl Send for B {}")], "is not in docs"),
        (vec![source("shm/src/a.rs", "fn f() { unsafe { g() } }")], "without allow(unsafe_code)"),
        (vec![good.clone(), source("b.rs", "#![allow(clippy::undocumented_unsafe_blocks)]")], "SAFETY"),
    ] {
        let complaints = unsafe_complaints(&sources, list);
        assert!(complaints.len() == 1 && complaints[0].contains(expected), "{complaints:?}");
    }
    let words = source("src/c.rs", "// unsafe\nlet a = \"unsafe { \\\" unsafe\"; // unsafe\n#![forbid(unsafe_code)]");
    assert!(unsafe_complaints(&[good, words], list).is_empty());

    assert_eq!(length_complaints(&[source("src/a.rs", &"\n".repeat(LONGEST))]).len(), 0);
    assert_eq!(length_complaints(&[source("src/a.rs", &"\n".repeat(LONGEST + 1))]).len(), 1);

    let workspace = "unsafe_code = \"deny\"\nundocumented_unsafe_blocks = \"deny\"\nmissing_safety_doc = \"deny\"\n";
    let member = "[lints]\nworkspace = true\n";
    let manifests = |a: &str, b: &str| lint_complaints(&[source("Cargo.toml", a), source("shm/Cargo.toml", b)]);
    assert_eq!(manifests(&format!("{workspace}{member}"), member), Vec::<String>::new());
    assert_eq!(manifests(&format!("{workspace}{member}"), "").len(), 1);
    assert_eq!(manifests(&format!("{}{member}", workspace.replacen("deny", "warn", 1)), member).len(), 1);

    for line in [
        "word.load(Ordering::Acquire)",
        "use core::sync::atomic::Ordering::{Relaxed, Release};",
        "before.compare_exchange(0, 1, AcqRel, Relaxed)",
        "fence(order);",
    ] {
        for path in ["shm/src/engine.rs", "src/plans.rs", "capi/src/comm.rs"] {
            assert_eq!(ordering_complaints(&[source(path, line)]).len(), 1, "{path}: {line}");
        }
        assert!(ordering_complaints(&[source("shm/src/sync.rs", line)]).is_empty(), "{line}");
    }
    let fine = "line.load(SyncPoint::DepositAcquire.order()); SyncPoint::SleeperFence.fence(); // Acquire, fence(x)";
    assert!(ordering_complaints(&[source("shm/src/protocol/flat.rs", fine)]).is_empty());

    for (path, line) in [
        ("shm/src/protocol/flat.rs", "use crate::memory::Segment;"),
        ("shm/src/protocol/flat.rs", "use crate::{Error, mapped::Mapped};"),
        ("shm/src/protocol/flat.rs", "use std::sync::atomic::AtomicU64;"),
        ("shm/src/protocol/flat.rs", "    core::sync::atomic::fence(Ordering::SeqCst);"),
        ("shm/src/protocol/wait.rs", "rustix::thread::sched_yield();"),
        ("shm/src/memory/map.rs", "use crate::protocol::board::Board;"),
        ("shm/src/comm/mod.rs", "use earlybird_hier::Plan;"),
        ("shm/src/comm/mod.rs", "earlybird::Config::default()"),
        ("shm/src/kernels/body.rs", "use crate::comm;"),
        ("hier/src/plan.rs", "use earlybird_shm::layout::Layout;"),
        ("src/communicator.rs", "use earlybird_shm::memory::Segment;"),
    ] {
        let complaints = boundary_complaints(&[source(path, line)]);
        assert_eq!(complaints.len(), 1, "{path}: {line}: {complaints:?}");
    }
    for (path, line) in [
        ("shm/src/protocol/flat.rs", "use crate::sync::{Ordering, SyncPoint}; // not std::sync::atomic"),
        ("shm/src/comm/mod.rs", "use crate::memory::Segment;"),
        ("hier/src/plan.rs", "use earlybird_shm::{DType, Error, Op};"),
        ("src/communicator.rs", "use earlybird_shm::{How, JoinOptions, NodeComm};"),
    ] {
        assert!(boundary_complaints(&[source(path, line)]).is_empty(), "{path}: {line}");
    }
}
