//! A program that closes descriptors it did not open, as daemons do, and then opens a file of its own: the file stays as it is.

#![allow(unsafe_code)]

use crate::common::{Job, Player};
use earlybird::{Communicator, Error};
use std::fs::File;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::path::PathBuf;

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[("closes", closes)]);
}

/// Numbers from which a data file takes all.
const NUMBERS: std::ops::Range<i32> = 3..64;
const BYTES: usize = 256 << 10;

/// Closes everything from descriptor 3 on and gives all those numbers to one file of data; its path.
fn replace_descriptors() -> PathBuf {
    // SAFETY: only numbers are closed; what belonged to them is the library's, which has to live with that.
    assert_eq!(unsafe { libc::syscall(libc::SYS_close_range, NUMBERS.start, u32::MAX, 0) }, 0);
    let path = PathBuf::from(std::env::var("EARLYBIRD_DIR").unwrap()).with_extension("data");
    std::fs::write(&path, vec![0xabu8; BYTES]).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let first = file.as_raw_fd();
    for number in NUMBERS.filter(|number| *number != first) {
        // SAFETY: nothing is open under the number, which stays open until the process ends.
        assert_eq!(unsafe { libc::dup2(first, number) }, number);
    }
    let _ = file.into_raw_fd();
    path
}

/// What is left of the file of data, and whether `number` still stands for it.
fn state(path: &PathBuf, number: &str) -> String {
    use std::os::unix::fs::MetadataExt;
    let bytes = std::fs::read(path).unwrap();
    let whole = bytes.len() == BYTES && bytes.iter().all(|byte| *byte == 0xab);
    let stored = std::fs::metadata(path).unwrap().blocks() as usize * 512 >= BYTES;
    let open = std::fs::read_link(format!("/proc/self/fd/{number}")).is_ok_and(|to| to == *path);
    format!("{} bytes, whole {whole}, stored {stored}, open {open}", bytes.len())
}

/// The number of the arena's descriptor.
fn arena() -> String {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path());
    let is_arena =
        |path: &PathBuf| std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains("earlybird-arena"));
    let path = entries.into_iter().find(is_arena).expect("an arena");
    path.file_name().unwrap().to_string_lossy().into_owned()
}

fn closes(player: &Player) {
    let world = Communicator::from_env().unwrap();
    let part = world.duplicate().unwrap();
    let buffer = world.alloc::<u8>(1 << 20).unwrap();
    world.barrier().unwrap();
    if world.rank() != 1 {
        drop((buffer, part));
        player.say("done");
        return;
    }
    let number = arena();
    let path = replace_descriptors();
    match world.alloc::<f32>(1 << 18) {
        Err(Error::System { context, reason, .. }) => player.say(format!("alloc {context}: {reason}")),
        other => player.say(format!("alloc {other:?}")),
    }
    drop(buffer);
    drop(part);
    player.say(format!("parts {}", state(&path, &number)));
    drop(world);
    player.say(format!("all {}", state(&path, &number)));
}

#[test]
fn a_file_that_gets_the_arenas_number_is_left_alone() {
    let said = Job::new("closes", 2).run();
    println!("{:#?}", said[1]);
    assert!(said[1][0].starts_with("alloc using the arena's descriptor: it was closed by this program"), "{said:#?}");
    for (line, when) in said[1][1..].iter().zip(["parts", "all"]) {
        assert_eq!(*line, format!("{when} {BYTES} bytes, whole true, stored true, open true"), "{said:#?}");
    }
}
