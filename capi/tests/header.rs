//! The header against the sources and the library: numbers, prototypes, exported symbols, version. Each check refuses a header
//! that differs.

mod support;

use earlybird_capi::{codes, errors};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use support::{built, home};

/// The functions by name, with their prototypes.
type Table = BTreeMap<String, String>;

fn read(path: &str) -> String {
    std::fs::read_to_string(home().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn header() -> String {
    read("include/earlybird.h")
}

/// Removes comments.
fn code(c: &str) -> String {
    let mut parts = c.split("/*");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |code, part| code + part.split_once("*/").expect("a comment ends").1)
}

/// Reads the enumeration `name` of a header.
fn enumeration(c: &str, name: &str) -> Vec<(i32, String)> {
    let code = code(c);
    let body = code.split(&format!("typedef enum {name} {{")).nth(1).unwrap_or_default();
    let entries = body.split('}').next().unwrap_or_default().split(',');
    let pair = |entry: &str| entry.split_once('=').map(|(n, v)| (v.trim().parse().unwrap(), n.trim().to_owned()));
    entries.filter_map(pair).collect()
}

fn enumeration_complaints(c: &str) -> Vec<String> {
    let errors = errors::ERRORS.iter().map(|(number, name)| (*number, name.to_str().unwrap().to_owned())).collect();
    let tables =
        [("eb_error", errors), ("eb_type", codes::dtypes()), ("eb_op", codes::ops()), ("eb_order", codes::orders())];
    let differs = |(name, ours): &(&str, Vec<(i32, String)>)| {
        let theirs = enumeration(c, name);
        (theirs != *ours).then(|| format!("{name}: the header has {theirs:?}, the library {ours:?}"))
    };
    tables.iter().filter_map(differs).collect()
}

/// Reduces white space to one blank between words, and none beside punctuation.
fn squeezed(text: &str) -> String {
    let mut out = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for sign in ["*", "(", ")", ","] {
        out = out.replace(&format!(" {sign}"), sign).replace(&format!("{sign} "), sign);
    }
    out.replace(",)", ")")
}

/// Reads the prototypes of a header: the result and the types of the arguments of each function.
fn prototypes(c: &str) -> Table {
    let code = code(c);
    let code: String = code.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect();
    let statements = code.split(';').map(squeezed).filter(|s| !s.contains("typedef") && s.contains("eb_"));
    let parse = |statement: String| {
        let (before, arguments) = statement.trim_end_matches(')').split_once('(')?;
        let at = before.find("eb_")?;
        let result = before[..at].rsplit(['{', '}']).next()?.trim();
        let of =
            |argument: &str| argument.trim_end_matches(|c: char| c.is_alphanumeric() || c == '_').trim().to_owned();
        let types: Vec<String> = arguments.split(',').filter(|a| *a != "void").map(of).collect();
        Some((before[at..].to_owned(), format!("{result}({})", types.join(","))))
    };
    statements.filter_map(parse).collect()
}

/// Converts a type of the sources to C.
fn in_c(rust: &str) -> &str {
    match rust {
        "*const Comm" => "const eb_comm*",
        "*mut *mut Comm" => "eb_comm**",
        "*const Operator" => "const eb_operator*",
        "*mut Request" => "eb_request*",
        "*mut *mut Request" => "eb_request**",
        "*const *mut c_void" => "void*const*",
        "*mut Buffer" => "eb_buffer*",
        "*mut *mut Buffer" => "eb_buffer**",
        "*mut *mut c_void" => "void**",
        "*mut *const c_void" => "const void**",
        "*const View" => "const eb_view*",
        "*mut *mut View" => "eb_view**",
        "*mut c_int" => "int*",
        "*const c_void" => "const void*",
        "*mut c_void" => "void*",
        "*const c_char" => "const char*",
        "*mut *const c_char" => "const char**",
        "*const *const c_char" => "const char*const*",
        "*const usize" => "const size_t*",
        "*mut usize" => "size_t*",
        "usize" => "size_t",
        "i64" => "int64_t",
        other => other,
    }
}

/// Converts an argument of the sources to its type in C.
fn in_prototype(argument: &str) -> &str {
    match argument.split_once(": ").unwrap() {
        ("dtype", "c_int") => "eb_type",
        ("op", "c_int") => "eb_op",
        ("order", "c_int") => "eb_order",
        (_, "c_int") => "int",
        (_, rust) => in_c(rust),
    }
}

/// Reads the exported functions of the sources, as prototypes.
fn exported() -> Table {
    let mut all = Table::new();
    for entry in std::fs::read_dir(home().join("src")).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for part in text.split("fn eb_").skip(1) {
            let (name, rest) = part.split_once('(').unwrap();
            let (arguments, rest) = rest.split_once(')').unwrap();
            let result = rest.split(['{', '|']).next().unwrap().trim().trim_start_matches("-> ");
            let types = |arguments: &str| -> Vec<String> {
                let each = arguments.split(',').map(str::trim).filter(|argument| !argument.is_empty());
                each.map(|argument| in_prototype(argument).to_owned()).collect()
            };
            let result = if result.is_empty() { "int" } else { in_c(result) };
            // Three names: the forms of `export_forms`, with a communicator before these arguments, and a request after those
            // of the last two. Six: those of `export_reductions`, first by an operator of the library's.
            let names: Vec<&str> = name.split(',').map(|name| name.trim().trim_start_matches("eb_")).collect();
            let (first, last) = arguments.split_once(';').unwrap_or((arguments, ""));
            let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<String>>();
            for (form, name) in names.iter().enumerate() {
                let operator = match (names.len(), form) {
                    (6, 0..3) => owned(&["eb_type", "eb_op"]),
                    (6, _) => owned(&["size_t", "const eb_operator*"]),
                    _ => Vec::new(),
                };
                let comm = if names.len() > 1 { owned(&["const eb_comm*"]) } else { Vec::new() };
                let request = if form % 3 > 0 { owned(&["eb_request**"]) } else { Vec::new() };
                let types = [comm, types(first), operator, types(last), request].concat();
                all.insert(format!("eb_{name}"), format!("{result}({})", types.join(",")));
            }
        }
    }
    all
}

fn prototype_complaints(c: &str) -> Vec<String> {
    let (theirs, ours) = (prototypes(c), exported());
    let names: BTreeSet<&String> = theirs.keys().chain(ours.keys()).collect();
    let differs = |name: &&String| theirs.get(*name) != ours.get(*name);
    let tell = |name: &String| format!("{name}: header {:?}, library {:?}", theirs.get(name), ours.get(name));
    names.into_iter().filter(differs).map(tell).collect()
}

/// Compares the symbols that the library exports, listed by `nm`, with the functions of the header.
fn symbol_complaints(c: &str) -> Vec<String> {
    let library = built().join("libearlybird_capi.so");
    let output = Command::new("nm").args(["-D", "--defined-only", "--format=posix"]).arg(library).output().unwrap();
    assert!(output.status.success(), "{}", support::text(&output));
    let listed = String::from_utf8(output.stdout).unwrap();
    let exported: BTreeSet<String> = listed.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
    let declared = prototypes(c).into_keys().collect::<BTreeSet<_>>();
    let only = |who: &str, names: Vec<&String>| names.iter().map(|name| format!("{name} only {who}")).collect();
    let complaints: [Vec<String>; 2] = [
        only("in the library", exported.difference(&declared).collect()),
        only("in the header", declared.difference(&exported).collect()),
    ];
    complaints.concat()
}

fn version_complaints(c: &str) -> Vec<String> {
    let numbers = ["MAJOR", "MINOR", "PATCH"].map(|part| {
        let name = format!("#define EB_VERSION_{part} ");
        c.lines().find_map(|line| line.strip_prefix(&name)).unwrap_or("?").to_owned()
    });
    match numbers.join(".") == env!("CARGO_PKG_VERSION") {
        true => Vec::new(),
        false => vec![format!("the header is of version {numbers:?}, the library of {}", env!("CARGO_PKG_VERSION"))],
    }
}

fn complaints(c: &str) -> Vec<String> {
    [enumeration_complaints(c), prototype_complaints(c), symbol_complaints(c), version_complaints(c)].concat()
}

#[test]
fn the_header_is_that_of_the_library() {
    let header = header();
    assert!(prototypes(&header).len() > 30 && enumeration(&header, "eb_type").len() == 19, "the header is not read");
    let complaints = complaints(&header);
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn a_header_that_differs_is_refused() {
    let header = header();
    for (was, is, expected) in [
        ("EB_TIMEOUT = 2,", "EB_TIMEOUT = 3,", "eb_error"),
        ("EB_I8 = 7,", "", "eb_type"),
        ("EB_MIN = 3,", "EB_MINIMUM = 3,", "eb_op"),
        ("EB_ORDER_RANK = 1", "EB_ORDER_RANK = 1, EB_ORDER_ANY = 2", "eb_order"),
        ("int eb_barrier(const eb_comm *comm);", "", "eb_barrier only in the library"),
        ("int eb_barrier(const eb_comm *comm);", "int eb_barrier(eb_comm *comm);", "eb_barrier"),
        ("int eb_barrier(const eb_comm *comm);", "void eb_barrier(const eb_comm *comm);", "eb_barrier"),
        ("int eb_barrier(", "int eb_fence(const eb_comm *comm);\nint eb_barrier(", "eb_fence only in the header"),
        ("size_t count, eb_type type, size_t root);", "int count, eb_type type, size_t root);", "eb_broadcast"),
        ("eb_type type, eb_op op, size_t root);", "eb_op op, eb_type type, size_t root);", "eb_reduce"),
        ("int eb_barrier_init(const eb_comm *comm, ", "int eb_barrier_init(", "eb_barrier_init"),
        ("#define EB_VERSION_MINOR ", "#define EB_VERSION_MINOR 9", "version"),
    ] {
        let changed = header.replacen(was, is, 1);
        assert_ne!(changed, header, "{was} is not in the header");
        let complaints = complaints(&changed);
        assert!(complaints.iter().any(|complaint| complaint.contains(expected)), "{is}: {complaints:?}");
    }
}

#[test]
fn every_error_of_the_library_has_a_number() {
    let source = read("../shm/src/error.rs");
    let codes =
        source.split("=> \"").skip(1).filter_map(|rest| rest.split('"').next()).filter(|c| c.starts_with("EB_"));
    let codes: BTreeSet<&str> = codes.collect();
    let numbered = errors::ERRORS.iter().map(|(_, name)| name.to_str().unwrap());
    let numbered: BTreeSet<&str> = numbered.filter(|name| !["EB_OK", "EB_INTERNAL"].contains(name)).collect();
    assert!(codes.len() >= 10 && codes == numbered, "{codes:?} against {numbered:?}");
}
