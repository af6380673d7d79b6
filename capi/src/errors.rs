//! Errors in C: a number, its name, and the last message of the thread.

use earlybird::{Error, panic_text};
use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// No error.
pub const OK: c_int = 0;
/// A panic inside the library.
pub const INTERNAL: c_int = 11;

/// Every number with its name, which for errors of the library is [`Error::code`]. Numbers never change.
pub const ERRORS: &[(c_int, &CStr)] = &[
    (OK, c"EB_OK"),
    (1, c"EB_PEER_DIED"),
    (2, c"EB_TIMEOUT"),
    (3, c"EB_MISMATCH"),
    (4, c"EB_POISONED"),
    (5, c"EB_OPERATOR_PANICKED"),
    (6, c"EB_NO_SPACE"),
    (7, c"EB_FORKED"),
    (8, c"EB_UNSUPPORTED"),
    (9, c"EB_USAGE"),
    (10, c"EB_SYSTEM"),
    (INTERNAL, c"EB_INTERNAL"),
];

/// The last error of a thread.
struct LastError {
    /// `None` before the first error.
    message: Option<CString>,
    rank: i64,
}

thread_local! {
    static LAST: RefCell<LastError> = const { RefCell::new(LastError { message: None, rank: -1 }) };
}

/// Returns the number of an error.
pub fn number(error: &Error) -> c_int {
    let code = error.code().as_bytes();
    ERRORS.iter().find(|(_, name)| name.to_bytes() == code).map_or(INTERNAL, |(number, _)| *number)
}

/// Returns the name of an error number.
pub fn name(number: c_int) -> Option<&'static CStr> {
    ERRORS.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
}

/// Returns the rank that an error names, -1 if it names none.
fn rank(error: &Error) -> i64 {
    let rank = match error {
        Error::PeerDied { rank, .. } | Error::OperatorPanicked { rank, .. } => Some(*rank),
        Error::Timeout { missing, .. } => missing.first().copied(),
        Error::Mismatch { rank_b, .. } => Some(*rank_b),
        _ => None,
    };
    rank.and_then(|rank| i64::try_from(rank).ok()).unwrap_or(-1)
}

/// Runs the body of an exported function. Returns the number of its error, and catches panics.
#[inline]
pub fn guard(call: impl FnOnce() -> Result<(), Error>) -> c_int {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => OK,
        Ok(Err(error)) => record(number(&error), error.to_string(), rank(&error)),
        Err(panic) => internal(panic),
    }
}

#[cold]
fn internal(panic: Box<dyn Any + Send>) -> c_int {
    let text = panic_text(&*panic).unwrap_or_default();
    let message = format!("earlybird panicked, which is a fault of the library; please report it: {text}");
    // Dropping the payload could panic.
    std::mem::forget(panic);
    record(INTERNAL, message, -1)
}

#[cold]
fn record(number: c_int, mut message: String, rank: i64) -> c_int {
    message.retain(|c| c != '\0');
    let message = CString::new(message).ok();
    // While the thread ends, its storage may already be gone.
    let _ = LAST.try_with(|last| last.replace(LastError { message, rank }));
    number
}

/// Returns the last message of this thread, empty before the first error; valid until its next one.
pub fn last_message() -> *const c_char {
    let message = |last: &RefCell<LastError>| last.borrow().message.as_ref().map(|message| message.as_ptr());
    LAST.try_with(message).ok().flatten().unwrap_or(c"".as_ptr())
}

/// Returns the rank that the last error of this thread names.
pub fn last_rank() -> i64 {
    LAST.try_with(|last| last.borrow().rank).unwrap_or(-1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last() -> String {
        let message = LAST.with(|last| last.borrow().message.clone());
        message.unwrap().into_string().unwrap()
    }

    #[test]
    fn an_error_has_a_number_a_message_and_a_rank() {
        let died = Error::PeerDied { rank: 3, pid: 7, host: "h".into(), during: "barrier 2".into() };
        assert_eq!(guard(|| Err(died.clone())), 1);
        assert_eq!((last(), last_rank()), (died.to_string(), 3));
        assert_eq!(guard(|| Err(Error::usage("a zero \0 inside"))), 9);
        assert_eq!((last().as_str(), last_rank()), ("a zero  inside", -1));
        assert_eq!(guard(|| Ok(())), OK);
        assert_eq!(last(), "a zero  inside", "success leaves the last error");
    }

    #[test]
    fn a_panic_becomes_an_error() {
        assert_eq!(guard(|| panic!("number {}", 5)), INTERNAL);
        assert!(last().contains("number 5"), "{}", last());
        assert_eq!(guard(|| std::panic::panic_any(7u8)), INTERNAL);
    }

    #[test]
    fn numbers_and_names_are_different() {
        for (i, (number, name)) in ERRORS.iter().enumerate() {
            assert_eq!((*number as usize, super::name(*number)), (i, Some(*name)));
        }
        assert_eq!([name(-1), name(ERRORS.len() as c_int)], [None, None]);
    }
}
