//! One name, one concept: within a crate no two types that other files can see share a name, the glossary names types that
//! exist, and no identifier contains a word that the glossary has retired. Computed from the sources.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use syn::visit::Visit;
use syn::{Ident, Item, Visibility};

/// Crates and programs by the directory of their sources, and a directory that is a program of its own.
const SOURCES: [(&str, Option<&str>); 7] = [
    ("shm/src", None),
    ("hier/src", None),
    ("src", Some("src/bin")),
    ("src/bin/earlybird", None),
    ("capi/src", None),
    ("preload/src", None),
    ("python/src", None),
];

/// Files of which a build has only one.
const ALTERNATIVES: [[&str; 2]; 1] = [["bench/mpi.rs", "bench/no_mpi.rs"]];

/// Sources without retired words.
const PLAIN: [&str; 6] = ["shm/src", "hier/src", "src", "capi/src", "preload/src", "python/src"];

/// Types by name, with the files that define them where others can see them.
type Types = BTreeMap<String, Vec<PathBuf>>;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn rust_files(directory: &Path, without: Option<&Path>, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap_or_else(|e| panic!("{}: {e}", directory.display())) {
        let path = entry.unwrap().path();
        if path.is_dir() && Some(path.as_path()) != without {
            rust_files(&path, without, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn is_visible(visibility: &Visibility) -> bool {
    !matches!(visibility, Visibility::Inherited)
}

/// Adds the types of `items` that other files can see.
fn collect(items: &[Item], file: &Path, types: &mut Types) {
    for item in items {
        let (visibility, name) = match item {
            Item::Struct(item) => (&item.vis, &item.ident),
            Item::Enum(item) => (&item.vis, &item.ident),
            Item::Union(item) => (&item.vis, &item.ident),
            Item::Trait(item) => (&item.vis, &item.ident),
            Item::Type(item) => (&item.vis, &item.ident),
            Item::Mod(item) if is_visible(&item.vis) => {
                item.content.iter().for_each(|(_, items)| collect(items, file, types));
                continue;
            }
            _ => continue,
        };
        let files = types.entry(name.to_string()).or_default();
        // Alternatives of one file depend on the configuration.
        if is_visible(visibility) && !files.iter().any(|known| known == file) {
            files.push(file.to_path_buf());
        }
    }
}

fn types_of(directory: &str, without: Option<&str>) -> Types {
    let (mut files, mut types) = (Vec::new(), Types::new());
    rust_files(&root().join(directory), without.map(|path| root().join(path)).as_deref(), &mut files);
    assert!(!files.is_empty(), "no sources in {directory}");
    for file in files {
        let parsed = syn::parse_file(&std::fs::read_to_string(&file).unwrap());
        collect(&parsed.unwrap_or_else(|e| panic!("{}: {e}", file.display())).items, &file, &mut types);
    }
    types
}

/// Names that several files define.
fn shared_names(types: &Types) -> Vec<String> {
    let replace_each_other = |files: &[PathBuf]| {
        ALTERNATIVES.iter().any(|pair| files.iter().all(|file| pair.iter().any(|name| file.ends_with(name))))
    };
    let shared = types.iter().filter(|(_, files)| files.len() > 1 && !replace_each_other(files));
    shared.map(|(name, files)| format!("{name}: {files:?}")).collect()
}

/// The types in the last column of the glossary's table that do not exist.
fn unknown_terms(glossary: &str, known: &[Types]) -> Vec<String> {
    let last = |row: &str| row.trim().trim_end_matches('|').rsplit('|').next().unwrap_or_default().to_owned();
    let rows = glossary.lines().filter(|line| line.starts_with("| ")).skip(2).map(last);
    let names = rows.flat_map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>());
    names.filter(|name| !known.iter().any(|types| types.contains_key(name))).collect()
}

fn glossary() -> String {
    std::fs::read_to_string(root().join("docs/glossary.md")).unwrap()
}

/// The words in the glossary's table of retired words, several in a cell or joined by an underscore.
fn retired_words(glossary: &str) -> Vec<String> {
    let (_, section) = glossary.split_once("\n## Retired words\n").expect("the glossary has a table of retired words");
    let rows = section.lines().filter(|line| line.starts_with("| ")).skip(2);
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    cells.flat_map(|cell| cell.split(',').map(|word| word.trim().to_owned())).collect()
}

/// The identifiers of a file outside of macros.
#[derive(Default)]
struct Identifiers(BTreeSet<String>);

impl<'ast> Visit<'ast> for Identifiers {
    fn visit_ident(&mut self, ident: &'ast Ident) {
        self.0.insert(ident.to_string());
    }
}

/// The words of an identifier in lower case, with an underscore before, between and after them.
fn words(identifier: &str) -> String {
    let mut words = String::from("_");
    let mut is_lower = false;
    for letter in identifier.chars() {
        if letter.is_uppercase() && is_lower {
            words.push('_');
        }
        is_lower = letter.is_lowercase() || letter.is_numeric();
        words.extend(letter.to_lowercase());
    }
    words + "_"
}

/// The identifiers of a Rust source that contain a retired word.
fn retired_identifiers(source: &str, retired: &[String]) -> Vec<String> {
    let mut found = Identifiers::default();
    found.visit_file(&syn::parse_file(source).unwrap());
    let is_retired = |name: &String| retired.iter().any(|word| words(name).contains(&format!("_{word}_")));
    found.0.into_iter().filter(is_retired).collect()
}

#[test]
fn no_identifier_contains_a_retired_word() {
    let retired = retired_words(&glossary());
    assert!(retired.len() > 20, "{retired:?}");
    for directory in PLAIN {
        let mut files = Vec::new();
        rust_files(&root().join(directory), None, &mut files);
        assert!(!files.is_empty(), "no sources in {directory}");
        for file in files {
            let found = retired_identifiers(&std::fs::read_to_string(&file).unwrap(), &retired);
            assert!(found.is_empty(), "{}: {found:?}; docs/glossary.md has the words to use", file.display());
        }
    }
}

#[test]
fn no_two_types_of_a_crate_share_a_name() {
    let found: Vec<String> =
        SOURCES.iter().flat_map(|(directory, without)| shared_names(&types_of(directory, *without))).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_glossary_names_types_that_exist() {
    let known: Vec<Types> = SOURCES.iter().map(|(directory, without)| types_of(directory, *without)).collect();
    let glossary = glossary();
    assert!(glossary.lines().filter(|line| line.starts_with("| ")).count() > 20, "the glossary has a table");
    assert_eq!(unknown_terms(&glossary, &known), [""; 0]);
}

#[test]
fn the_checks_refuse_bad_samples() {
    let mut types = Types::new();
    let parse = |text: &str| syn::parse_file(text).unwrap().items;
    collect(&parse("pub(crate) struct Entry; mod private { pub struct Sealed; }"), Path::new("a.rs"), &mut types);
    collect(&parse("#[cfg(x)] pub type Handle = u8; #[cfg(y)] pub type Handle = u16;"), Path::new("a.rs"), &mut types);
    collect(&parse("struct Handle; mod private { pub struct Sealed; }"), Path::new("b.rs"), &mut types);
    assert_eq!(shared_names(&types), [""; 0]);
    collect(&parse("pub mod inner { pub(super) enum Entry {} }"), Path::new("b.rs"), &mut types);
    assert!(shared_names(&types)[0].starts_with("Entry: "), "{types:?}");
    let table = "| term | meaning | type |\n| --- | --- | --- |\n| an entry | one | `Entry` |\n| other | two | `Missing`, `Handle` |\n";
    assert_eq!(unknown_terms(table, &[types]), ["Missing"]);
    let retired = retired_words(
        "# Words\n\n## Retired words\n\n| retired | use |\n| --- | --- |\n| told, wish | a |\n| let_go | b |\n",
    );
    let sample =
        "struct PeerTold { wish: u8, TOLD: u8 } fn untold(let_go: u8) { let told_s = ask(|wishes| wishes.let_it_go); }";
    assert_eq!(retired_identifiers(sample, &retired), ["PeerTold", "TOLD", "let_go", "told_s", "wish"]);
}
