//! Reading another process's private memory through the kernel, with proof that it is the right process.
//!
//! A process number may mean another process: one of another pid namespace, or a new one after the owner's death. So every
//! read also fetches a word that holds the owner's random number, in the same system call and hence from the same memory.
#![allow(unsafe_code)]

use crate::protocol::board::Exposed;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

/// The random number of this process; never 0.
static TOKEN: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(std::process::id()) | 1);

/// The words by which others read `buffer`, and in `starts` where their blocks begin.
pub fn expose(buffer: &[u8], starts: &[usize]) -> Exposed {
    let token: &u64 = &TOKEN;
    Exposed {
        address: buffer.as_ptr().addr() as u64,
        starts: starts.as_ptr().addr() as u64,
        token_address: std::ptr::from_ref(token).addr() as u64,
        token: *token,
    }
}

/// Fills `to` from what process `pid` has exposed, beginning `offset` bytes into it; returns whether that was possible.
pub fn read(pid: u32, exposed: Exposed, offset: usize, to: &mut [u8]) -> bool {
    let Ok(pid) = i32::try_from(pid) else { return false };
    let address = |value: u64| std::ptr::without_provenance_mut::<libc::c_void>(value as usize);
    let mut done = 0;
    while done < to.len() {
        let mut token = 0u64;
        let left = &mut to[done..];
        let local = [
            libc::iovec { iov_base: (&raw mut token).cast(), iov_len: size_of::<u64>() },
            libc::iovec { iov_base: left.as_mut_ptr().cast(), iov_len: left.len() },
        ];
        let from = exposed.address.wrapping_add((offset + done) as u64);
        let remote = [
            libc::iovec { iov_base: address(exposed.token_address), iov_len: size_of::<u64>() },
            libc::iovec { iov_base: address(from), iov_len: left.len() },
        ];
        // SAFETY: V: the local ranges are borrowed exclusively; the kernel checks the remote ones.
        let got = unsafe { libc::process_vm_readv(pid, local.as_ptr(), 2, remote.as_ptr(), 2, 0) };
        match usize::try_from(got).ok().and_then(|got| got.checked_sub(size_of::<u64>())) {
            Some(more) if more > 0 && token == exposed.token => done += more,
            _ => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::{expose, read};

    #[test]
    fn a_buffer_is_read_whole_and_in_part() {
        let sent: Vec<u8> = (0..5_000_000u32).map(|i| (i % 251) as u8).collect();
        let mut got = vec![0; sent.len() - 7];
        assert!(read(std::process::id(), expose(&sent, &[]), 7, &mut got));
        assert!(got == sent[7..]);
        assert!(read(std::process::id(), expose(&sent, &[]), 0, &mut []), "nothing to read");
        let mut start = [0; size_of::<usize>()];
        assert!(read(std::process::id(), expose(&sent, &[5, 77]).list(), size_of::<usize>(), &mut start));
        assert_eq!(usize::from_ne_bytes(start), 77);
    }

    #[test]
    fn another_process_and_a_place_that_is_none_are_refused() {
        let (sent, mut got) = ([1u8; 64], [0u8; 64]);
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(!read(other.id(), expose(&sent, &[]), 0, &mut got), "read from a process without the token");
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(!read(other.id(), expose(&sent, &[]), 0, &mut got), "read from a process that has ended");
        let own = std::process::id();
        assert!(!read(own, super::Exposed { address: 8, ..expose(&sent, &[]) }, 0, &mut got), "read where nothing is");
        let wrong = super::Exposed { token: expose(&sent, &[]).token ^ 1, ..expose(&sent, &[]) };
        assert!(!read(own, wrong, 0, &mut got), "read although the token differs");
        assert!(!read(u32::MAX, expose(&sent, &[]), 0, &mut got), "read from no process");
    }
}
