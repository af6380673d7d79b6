//! The places at which ranks meet, and what dead jobs left there.

use super::finding::{Finding, State};
use earlybird::{Config, Error, probe};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const SECTION: &str = "meeting";

/// All of the section, under these settings.
pub fn findings(config: &Result<Config, Error>) -> Vec<Finding> {
    let dir = config.as_ref().ok().and_then(|config| config.dir.as_deref());
    let mut found = vec![settings(config), sockets(), directory(dir)];
    found.extend(leftovers(dir));
    found
}

fn settings(config: &Result<Config, Error>) -> Finding {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.starts_with("EARLYBIRD_")).collect();
    names.sort();
    let value = if names.is_empty() { "none".into() } else { names.join(", ") };
    let effect = "ranks started from here find these settings";
    match config {
        Ok(_) => Finding::ok(SECTION, "EARLYBIRD_ variables", value, effect),
        Err(error) => {
            Finding::ok(SECTION, "EARLYBIRD_ variables", error.to_string(), "every rank fails with this error")
                .judged(State::Broken, "unset or correct the variable")
        }
    }
}

fn sockets() -> Finding {
    let namespace = std::fs::read_link("/proc/self/ns/net").map_or("unknown".into(), |it| it.display().to_string());
    let effect =
        "ranks in one network namespace find each other by them; EARLYBIRD_DIR is for those that are in several";
    match probe::try_out(None) {
        Ok(()) => Finding::ok(SECTION, "abstract sockets", format!("work, network namespace {namespace}"), effect),
        Err(error) => Finding::ok(SECTION, "abstract sockets", error.to_string(), effect)
            .judged(State::Broken, "allow Unix sockets in the container's system call filter"),
    }
}

fn directory(dir: Option<&Path>) -> Finding {
    let (name, effect) = ("EARLYBIRD_DIR", "ranks meet at a socket in it as well");
    let Some(dir) = dir else {
        return Finding::ok(SECTION, name, "not set", "no file is written: ranks meet at abstract sockets");
    };
    match probe::try_out(Some(dir)) {
        Ok(()) => Finding::ok(SECTION, name, format!("{} works", dir.display()), effect),
        Err(error) => Finding::ok(SECTION, name, error.to_string(), "no job can start")
            .judged(State::Broken, "name a directory of your own with mode 0700, or one that does not exist yet"),
    }
}

/// Sockets of dead jobs in the rendezvous directory and in those of /dev/shm, the usual place for them.
fn leftovers(dir: Option<&Path>) -> Vec<Finding> {
    let entries = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let mut dirs: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    dirs.extend(dir.map(Path::to_path_buf));
    dirs.sort();
    dirs.dedup();
    // A directory that is not this user's alone is nobody's rendezvous that this user could join.
    let dead: Vec<PathBuf> = dirs.iter().filter_map(|dir| probe::leftovers(dir).ok()).flatten().collect();
    let effect = "no memory is held by them, and no job is disturbed";
    if dead.is_empty() {
        return vec![Finding::ok(SECTION, "leftovers of dead jobs", "none", effect)];
    }
    let finding = |path: PathBuf| {
        let owner = path.symlink_metadata().map_or("unknown".into(), |meta| meta.uid().to_string());
        Finding::ok(SECTION, "leftovers of dead jobs", format!("{} of user {owner}", path.display()), effect)
            .judged(State::Note, "nothing: the next job that meets in this directory removes it")
    };
    dead.into_iter().map(finding).collect()
}
