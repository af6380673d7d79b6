//! Flags beside the directory of a job: files by which ranks, and the test that started them (`Job::raise`), tell each other how far
//! they are without the library under test. A test that depends on an order of ranks makes it by a flag, never by a time.

use earlybird::Communicator;
use std::path::PathBuf;
use std::time::Duration;

fn flag(name: &str) -> PathBuf {
    PathBuf::from(std::env::var("EARLYBIRD_DIR").unwrap()).with_extension(name)
}

/// Raises a flag, as a rank.
pub fn raise(name: &str) {
    std::fs::write(flag(name), "").unwrap();
}

pub fn is_raised(name: &str) -> bool {
    flag(name).exists()
}

/// Waits in a rank until a flag is raised.
pub fn wait_for(name: &str) {
    while !is_raised(name) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Raises a flag of this rank's own and waits for those of the others: all are here before any goes on.
pub fn meet(name: &str, comm: &Communicator) {
    let own = |rank: usize| format!("{name}-{rank}");
    raise(&own(comm.rank()));
    (0..comm.size()).for_each(|rank| wait_for(&own(rank)));
}
