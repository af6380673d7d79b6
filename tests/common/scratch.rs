//! The directory of one job: where its ranks meet and what they write; and the check that they left nothing else.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub struct Scratch {
    path: PathBuf,
    before: BTreeSet<String>,
}

impl Scratch {
    pub fn new() -> Scratch {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("eb-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        Scratch { path, before: segments() }
    }

    pub fn key(&self) -> String {
        self.path.file_name().unwrap().to_string_lossy().into_owned()
    }

    pub fn meet(&self) -> PathBuf {
        self.path.join("meet")
    }

    pub fn log(&self, rank: usize) -> PathBuf {
        self.path.join(format!("log-{rank}"))
    }

    pub fn said(&self, rank: usize) -> PathBuf {
        self.path.join(format!("said-{rank}"))
    }

    /// What `rank` has said so far.
    pub fn lines(&self, rank: usize) -> Vec<String> {
        let text = std::fs::read_to_string(self.said(rank)).unwrap_or_default();
        text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).map(str::to_owned).collect()
    }

    /// Fails if the job, which has ended, left a name in its meeting directory or in /dev/shm.
    ///
    /// Other jobs may be meeting meanwhile: a segment of theirs loses its name soon, one that was left never does.
    pub fn must_be_clean(&self) {
        if let Ok(entries) = std::fs::read_dir(self.meet()) {
            let left: Vec<_> = entries.map(|e| e.unwrap().file_name()).collect();
            assert!(left.is_empty(), "the job left {left:?} in its meeting directory");
        }
        let mut left: BTreeSet<String> = segments().difference(&self.before).cloned().collect();
        let began = Instant::now();
        while !left.is_empty() {
            assert!(began.elapsed() < Duration::from_secs(10), "left in /dev/shm: {left:?}");
            std::thread::sleep(Duration::from_millis(2));
            left = left.intersection(&segments()).cloned().collect();
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Names of control segments that exist now.
fn segments() -> BTreeSet<String> {
    let entries = std::fs::read_dir("/dev/shm").unwrap();
    let names = entries.filter_map(|e| e.ok()?.file_name().into_string().ok());
    // Not the default meeting directory, which ends with a user number instead of 32 digits.
    names.filter(|n| n.strip_prefix("earlybird-").is_some_and(|token| token.len() == 32)).collect()
}
