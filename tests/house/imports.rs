//! Imports between files, computed from the sources: no file imports itself through others, and no folder a higher one.
//!
//! A file imports another one if it names something that is defined there, by `use` or by a path, directly or through a
//! re-export. `mod` lines and re-exports do not count by themselves: they say what belongs together, not what needs what.
//! `cargo test --test house imports -- --nocapture` prints what was found.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree, Visibility};

/// The crates, and the command line program, by their directories.
const CRATES: [&str; 7] = ["shm", "hier", ".", "capi", "preload", "python", "src/bin/earlybird"];

/// The folders of crates whose files import from their own or an earlier folder only, from the lowest on. Files that lie in no
/// folder serve all.
const FOLDERS: [(&str, &[&str]); 2] = [
    ("hier", &["plan", "schedule", "verify", "cost", "select", "exec", "sim"]),
    (".", &["launch", "trace", "messages", "hierarchy", "communicator", "mpi"]),
];

/// A module by its names from the crate's root.
type Module = Vec<String>;

#[derive(Default)]
struct Source {
    file: PathBuf,
    /// Items defined here.
    defined: BTreeSet<String>,
    /// Re-exported names, and modules of which all is re-exported.
    exported: BTreeMap<String, Module>,
    exported_whole: Vec<Module>,
    /// Paths that are named here, as they stand, without re-exports.
    named: Vec<Vec<String>>,
}

type Crate = BTreeMap<Module, Source>;

fn is_test(attributes: &[Attribute]) -> bool {
    let is_cfg = |a: &&Attribute| a.path().is_ident("cfg");
    attributes.iter().filter(is_cfg).any(|a| a.parse_args::<syn::Path>().is_ok_and(|p| p.is_ident("test")))
}

/// Every path that a tree of a `use` names; a glob ends in `*`.
fn paths_of(tree: &UseTree, before: &[String], found: &mut Vec<Vec<String>>) {
    let with = |name: String| [before, &[name]].concat();
    match tree {
        UseTree::Path(path) => paths_of(&path.tree, &with(path.ident.to_string()), found),
        UseTree::Name(name) if name.ident == "self" => found.push(before.to_vec()),
        UseTree::Name(name) => found.push(with(name.ident.to_string())),
        UseTree::Rename(name) => found.push(with(name.ident.to_string())),
        UseTree::Glob(_) => found.push(with("*".into())),
        UseTree::Group(group) => group.items.iter().for_each(|tree| paths_of(tree, before, found)),
    }
}

struct Reader<'a> {
    source: &'a mut Source,
    exports: Vec<Vec<String>>,
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Mod(item) => &item.attrs,
            Item::Fn(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            _ => &Vec::new(),
        };
        if !is_test(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let paths = match item.vis {
            Visibility::Inherited => &mut self.source.named,
            _ => &mut self.exports,
        };
        paths_of(&item.tree, &[], paths);
    }

    /// Skips visibility: a path in it uses nothing.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        // A word by itself that is no type's may be a variable.
        if names.len() > 1 || names[0].starts_with(char::is_uppercase) {
            self.source.named.push(names);
        }
        visit::visit_path(self, path);
    }
}

fn name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        _ => return None,
    };
    Some(name.to_string())
}

/// The beginning of `names`, written in `module`: the module that the first of them is looked up in, and the rest.
fn begin<'a>(krate: &Crate, module: &Module, names: &'a [String]) -> Option<(Module, &'a [String])> {
    let mut at = module.clone();
    let mut rest = names;
    match names.first()?.as_str() {
        "crate" => (at, rest) = (Vec::new(), &rest[1..]),
        "self" => rest = &rest[1..],
        "super" => {
            while rest.first().is_some_and(|name| name == "super") {
                at.pop()?;
                rest = &rest[1..];
            }
        }
        name => {
            let child = [&at[..], &[name.to_owned()]].concat();
            // A name by itself, without a path, is what this file imports, or re-exports.
            let known = names.len() > 1 && krate.contains_key(&child) || krate[module].exported.contains_key(name);
            known.then_some(())?;
        }
    }
    Some((at, rest))
}

/// The module that defines what `names` say from `at` on.
fn resolve(krate: &Crate, mut at: Module, mut rest: &[String], depth: usize) -> Option<Module> {
    while let Some(name) = rest.first() {
        let child = [&at[..], std::slice::from_ref(name)].concat();
        if krate.contains_key(&child) {
            (at, rest) = (child, &rest[1..]);
            continue;
        }
        let source = krate.get(&at)?;
        if depth > 8 || name == "*" || source.defined.contains(name) {
            return Some(at);
        }
        if let Some(target) = source.exported.get(name) {
            let (from, path) = begin(krate, &at, target)?;
            return resolve(krate, from, path, depth + 1);
        }
        let whole = source.exported_whole.iter().filter_map(|target| {
            let (from, path) = begin(krate, &at, target)?;
            resolve(krate, from, path, depth + 1)
        });
        return whole.into_iter().find(|module| krate[module].defined.contains(name)).or(Some(at));
    }
    Some(at)
}

fn read(krate: &mut Crate, module: Module, file: &Path, text: &str) {
    let parsed = syn::parse_file(text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let mut source = Source { file: file.to_owned(), ..Source::default() };
    source.defined = parsed.items.iter().filter_map(name_of).collect();
    let mut reader = Reader { source: &mut source, exports: Vec::new() };
    reader.visit_file(&parsed);
    for path in reader.exports {
        let last = path.last().cloned().unwrap_or_default();
        match last.as_str() {
            "*" => source.exported_whole.push(path[..path.len() - 1].to_vec()),
            _ => drop(source.exported.insert(last, path)),
        }
    }
    krate.insert(module.clone(), source);
    let directory = match file.file_name().and_then(|name| name.to_str()) {
        Some("lib.rs" | "mod.rs" | "main.rs") => file.parent().unwrap().to_owned(),
        _ => file.with_extension(""),
    };
    for item in &parsed.items {
        let Item::Mod(item) = item else { continue };
        if is_test(&item.attrs) || item.content.is_some() {
            continue;
        }
        let name = item.ident.to_string();
        let candidates = [directory.join(format!("{name}.rs")), directory.join(&name).join("mod.rs")];
        if let Some(path) = candidates.iter().find(|path| path.exists()) {
            let child = [&module[..], &[name]].concat();
            read(krate, child, path, &std::fs::read_to_string(path).unwrap());
        }
    }
}

/// For every file the files that it imports.
fn imports(krate: &Crate) -> BTreeMap<PathBuf, BTreeSet<PathBuf>> {
    let mut edges: BTreeMap<PathBuf, BTreeSet<PathBuf>> = BTreeMap::new();
    for (module, source) in krate {
        let from = edges.entry(source.file.clone()).or_default();
        for names in &source.named {
            let target = begin(krate, module, names).and_then(|(at, rest)| resolve(krate, at, rest, 0));
            if let Some(target) = target.filter(|target| *target != *module) {
                from.insert(krate[&target].file.clone());
            }
        }
    }
    edges
}

/// The sets of files that import each other in a circle.
fn circles(edges: &BTreeMap<PathBuf, BTreeSet<PathBuf>>) -> Vec<Vec<PathBuf>> {
    let reaches = |from: &PathBuf| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(file) = next.pop() {
            for to in edges.get(file).into_iter().flatten() {
                if seen.insert(to) {
                    next.push(to);
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&PathBuf, BTreeSet<&PathBuf>> = edges.keys().map(|file| (file, reaches(file))).collect();
    let mut found = BTreeSet::new();
    for (file, others) in &reached {
        let circle: Vec<PathBuf> = others
            .iter()
            .filter(|other| reached.get(**other).is_some_and(|back| back.contains(file)))
            .map(|f| (*f).clone())
            .collect();
        if circle.len() > 1 {
            found.insert(circle);
        }
    }
    found.into_iter().collect()
}

/// Imports from a folder by one before it in `order`.
fn upward(edges: &BTreeMap<PathBuf, BTreeSet<PathBuf>>, sources: &Path, order: &[&str]) -> Vec<String> {
    let place = |file: &PathBuf| {
        let folder = file.strip_prefix(sources).unwrap().iter().next().unwrap();
        order.iter().position(|name| folder == *name)
    };
    let mut found = Vec::new();
    for (file, imported) in edges {
        for other in imported.iter().filter(|other| place(file).is_some_and(|of| Some(of) < place(other))) {
            found.push(format!("{} imports {}", file.display(), other.display()));
        }
    }
    found
}

fn load(directory: &Path) -> Crate {
    let library = directory.join("src/lib.rs");
    let root = if library.exists() { library } else { directory.join("main.rs") };
    let mut krate = Crate::new();
    read(&mut krate, Vec::new(), &root, &std::fs::read_to_string(&root).unwrap());
    krate
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut complaints = Vec::new();
    for name in CRATES {
        let directory = root.join(name);
        let edges = imports(&load(&directory));
        let count: usize = edges.values().map(BTreeSet::len).sum();
        assert!(edges.len() > 10 && count > edges.len(), "{name}: the imports were not found");
        let found = circles(&edges);
        println!("{name}: {} files, {count} imports, {} circles", edges.len(), found.len());
        let short = |file: &PathBuf| file.strip_prefix(&directory).unwrap().display().to_string();
        complaints.extend(found.iter().map(|circle| {
            format!("{name}: these import each other: {}", circle.iter().map(short).collect::<Vec<_>>().join(", "))
        }));
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn no_folder_imports_from_a_higher_one() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (name, order) in FOLDERS {
        let edges = imports(&load(&root.join(name)));
        let sources = root.join(name).join("src");
        assert!(order.iter().all(|folder| sources.join(folder).is_dir()), "{name}: a folder is missing");
        let found = upward(&edges, &sources, order);
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
}

#[test]
fn a_circle_is_found_through_re_exports_and_paths() {
    let directory = std::env::temp_dir().join(format!("earlybird-imports-{}", std::process::id()));
    std::fs::create_dir_all(directory.join("src/deep")).unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.join("src").join(name), text).unwrap();
    write("lib.rs", "mod a;\nmod b;\nmod c;\nmod deep;\npub use b::B;\n");
    write("a.rs", "use crate::B;\npub struct A(B);\n");
    write("b.rs", "pub struct B;\nfn f() { let _ = super::a::A; }\n");
    write("c.rs", "pub fn c() {}\n#[cfg(test)]\nmod tests { use crate::deep::inner::D; }\n");
    write("deep/mod.rs", "mod inner;\npub(crate) use inner::D;\n");
    write("deep/inner.rs", "pub struct D;\nuse crate::c::c;\n");
    let edges = imports(&load(&directory));
    let found = circles(&edges);
    let names: Vec<_> =
        found.iter().map(|c| c.iter().map(|f| f.file_name().unwrap().to_owned()).collect::<Vec<_>>()).collect();
    assert_eq!(names, [["a.rs", "b.rs"]], "{edges:#?}");
    let sources = directory.join("src");
    assert_eq!(upward(&edges, &sources, &["deep", "c.rs", "b.rs", "a.rs"]).len(), 2, "deep imports c, b imports a");
    assert_eq!(upward(&edges, &sources, &["c.rs", "deep", "a.rs", "b.rs"]).len(), 1, "a imports b");
    std::fs::remove_dir_all(directory).unwrap();
}
