//! The failure words of a mapped control segment.

use super::*;
use crate::memory::control_map::ControlMap;

#[test]
fn the_first_error_stands_and_a_dead_writers_is_replaced() {
    let (control, _file) = ControlMap::create().unwrap();
    let (first, second) = (Error::usage("first ".repeat(3000)), Error::usage("second"));
    assert_eq!(control.failure(), None);
    control.header.failure.store(WRITING | 7, Relaxed);
    assert_eq!(control.fail(1, &first, Some(3)), first, "rank 7 is about to say what stands");
    assert_eq!(control.failure(), None);
    let stands = control.fail(1, &first, Some(7));
    assert!(
        matches!(&stands, Error::Poisoned { cause } if cause.starts_with("first first") && cause.len() == FAILURE_BYTES)
    );
    assert_eq!((control.fail(2, &second, None), control.failure()), (stands.clone(), Some(stands)));
}
