//! Room for descriptors beyond the limit of a process that has none left, so that it can still tell the other ranks.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A guard that raises the process's soft limit on descriptors (`ulimit -n`) to its hard limit while it lives.
pub(super) struct Headroom(());

/// The number of guards, and the limit before the first.
struct Raised {
    users: usize,
    before: Option<Rlimit>,
}

static RAISED: Mutex<Raised> = Mutex::new(Raised { users: 0, before: None });

fn raised() -> MutexGuard<'static, Raised> {
    RAISED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Headroom {
    pub fn take() -> Headroom {
        let mut raised = raised();
        raised.users += 1;
        if raised.users == 1 {
            let limit = getrlimit(Resource::Nofile);
            let higher = Rlimit { current: limit.maximum, ..limit };
            raised.before = setrlimit(Resource::Nofile, higher).is_ok().then_some(limit);
        }
        Headroom(())
    }
}

impl Drop for Headroom {
    fn drop(&mut self) {
        let mut raised = raised();
        raised.users -= 1;
        if raised.users == 0
            && let Some(limit) = raised.before.take()
        {
            let _ = setrlimit(Resource::Nofile, limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever drops last restores the limit.
    #[test]
    fn the_limit_comes_back() {
        let before = getrlimit(Resource::Nofile);
        let lower = before.current.map(|files| files - 1);
        setrlimit(Resource::Nofile, Rlimit { current: lower, ..before }).unwrap();
        let first = Headroom::take();
        let second = Headroom::take();
        assert_eq!(getrlimit(Resource::Nofile).current, before.maximum);
        drop(first);
        assert_eq!(getrlimit(Resource::Nofile).current, before.maximum);
        drop(second);
        assert_eq!(getrlimit(Resource::Nofile).current, lower);
        setrlimit(Resource::Nofile, before).unwrap();
    }
}
