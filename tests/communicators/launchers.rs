//! Identities under the launchers that are installed here: each starts this test binary again as its ranks.

use earlybird::Identity;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Names the directory in which each rank leaves its identity. Files, because launchers forward output in pieces and
/// the lines of several ranks may be cut into each other.
const IDENTITIES: &str = "LAUNCHERS_TEST_IDENTITIES";

/// What the ranks do.
#[test]
#[ignore = "run by the other tests as a rank of a launcher"]
fn rank_leaves_its_identity() {
    let identity = Identity::detect().unwrap();
    let line = format!("{} {} {} {:?}", identity.rank, identity.size, identity.key, identity.launcher);
    let directory = PathBuf::from(std::env::var_os(IDENTITIES).expect("started by another test"));
    std::fs::write(directory.join(std::process::id().to_string()), line).unwrap();
}

/// Ranks, keys and launcher names of the ranks that this command starts; `None` if the launcher is not installed.
fn identities(launcher: &[&str], wrapped: bool) -> Option<(BTreeSet<String>, BTreeSet<String>, BTreeSet<String>)> {
    let mut command = Command::new(launcher[0]);
    // A launcher around this test must not be taken for that of the ranks.
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_none_or(|n| ["PMI", "OMPI", "EARLYBIRD_"].iter().any(|prefix| n.starts_with(prefix))) {
            command.env_remove(name);
        }
    }
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1").args(&launcher[1..]);
    let own = std::env::current_exe().unwrap();
    if wrapped {
        // The last command keeps the shell from replacing itself by the program.
        command.args(["sh", "-c", "\"$0\" \"$@\"; exit $?"]);
    }
    static JOBS: AtomicUsize = AtomicUsize::new(0);
    let name = format!("launchers.{}.{}", std::process::id(), JOBS.fetch_add(1, Ordering::Relaxed));
    let directory = std::env::temp_dir().join(name);
    std::fs::create_dir(&directory).unwrap();
    command.env(IDENTITIES, &directory);
    command.arg(own).args(["--ignored", "--exact", "launchers::rank_leaves_its_identity", "--nocapture"]);
    let mut started = match command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("{} is not installed: not tested", launcher[0]);
            std::fs::remove_dir(&directory).unwrap();
            return None;
        }
        other => other.unwrap(),
    };
    // Kept open: MPICH's mpiexec passes an end of input on to ranks that may have ended, and dies of the broken pipe.
    let input = started.stdin.take();
    let output = started.wait_with_output().unwrap();
    drop(input);
    let said = |stream: &[u8]| String::from_utf8_lossy(stream).into_owned();
    let (out, err) = (said(&output.stdout), said(&output.stderr));
    assert!(output.status.success(), "{launcher:?}: {}: {out}{err}", output.status);
    let files = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path());
    let texts: Vec<String> = files.map(|path| std::fs::read_to_string(path).unwrap()).collect();
    std::fs::remove_dir_all(&directory).unwrap();
    let lines: Vec<Vec<&str>> = texts.iter().map(|text| text.split(' ').collect()).collect();
    assert!(lines.iter().all(|l| l.len() == 4), "{texts:?}");
    let column = |f: &dyn Fn(&Vec<&str>) -> String| lines.iter().map(f).collect();
    Some((column(&|l| format!("{}/{}", l[0], l[1])), column(&|l| l[2].into()), column(&|l| l[3].into())))
}

fn check(launcher: &[&str], expected: &str) {
    let mut seen = BTreeSet::new();
    for wrapped in [false, true, false] {
        let Some((ranks, keys, names)) = identities(launcher, wrapped) else { return };
        assert_eq!(ranks.into_iter().collect::<Vec<_>>(), ["0/3", "1/3", "2/3"], "{launcher:?}");
        assert_eq!(keys.len(), 1, "{launcher:?}, wrapped in a shell: {wrapped}: {keys:?}");
        assert_eq!(names.into_iter().collect::<Vec<_>>(), [expected]);
        assert!(seen.insert(keys), "two jobs of {launcher:?} had the same key");
    }
}

#[test]
fn open_mpi() {
    check(&["mpirun.openmpi", "--oversubscribe", "-np", "3"], "OpenMpi");
}

#[test]
fn mpich() {
    check(&["mpirun.mpich", "-np", "3"], "Pmi");
}

#[test]
fn the_comparison_notices_ranks_without_a_launcher() {
    let started_apart = std::panic::catch_unwind(|| check(&["env", "-u", "RANK"], "Alone"));
    assert!(started_apart.is_err(), "one rank alone passed for three");
}
