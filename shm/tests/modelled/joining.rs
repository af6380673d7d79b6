//! Models of the words that ranks share besides those of operations: joining, leaving, and the table of regions.

use super::Bound;
use super::pool::Pool;
use earlybird_shm::Error;
use earlybird_shm::model::explore;
use earlybird_shm::model::joining::{ControlModel, DEATH, WRONG_ERROR};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The complaint about survivors that read another decision than was made.
pub const WRONG_DECISION: &str = "another decision than was made";

/// The complaint about ranks that take a rendezvous for failed which has succeeded.
pub const MISSED_END: &str = "a rendezvous that has succeeded failed";

/// The wrong protocol beside `joining_dies_3`: the half-written error of a dead rank is never replaced.
pub const UNREPLACED: JoiningModel = JoiningModel {
    name: "joining_unreplaced_3",
    title: "one of 3 ranks dies while it writes an error, which nobody replaces",
    bound: Some(4),
    body: || dies(false),
};

/// The wrong protocol beside `joining_creator_dies_before_3`: nobody watches the creator.
pub const UNWATCHED: JoiningModel = JoiningModel {
    name: "joining_unwatched_3",
    title: "the creator of 3 ranks dies, which nobody watches",
    bound: Some(2),
    body: || creator_dies(|control| control.die(0), DEATH, |control, rank| Err(control.join_in_vain(rank))),
};

/// A model by name.
pub struct JoiningModel {
    /// Name of the model.
    pub name: &'static str,
    title: &'static str,
    bound: Bound,
    body: fn() -> bool,
}

/// Every model. A body returns whether the execution came to what some of them must come to.
pub const JOINING: &[JoiningModel] = &[
    JoiningModel { name: "joining_2", title: "joining, 2 ranks", bound: None, body: || join(2) },
    JoiningModel { name: "joining_3", title: "joining, 3 ranks", bound: Some(3), body: || join(3) },
    JoiningModel { name: "joining_fails_2", title: "joining fails, 2 ranks", bound: None, body: one_fails },
    JoiningModel { name: "joining_fails_3", title: "joining fails on two of 3 ranks", bound: Some(4), body: two_fail },
    JoiningModel {
        name: "joining_dies_3",
        title: "one of 3 ranks dies while it writes an error",
        bound: Some(4),
        body: || dies(true),
    },
    JoiningModel {
        name: "joining_creator_dies_3",
        title: "the creator dies so, and two ranks see it",
        bound: Some(2),
        body: || creator_dies(|control| control.die_failing(0), DEATH, ControlModel::join_watching),
    },
    JoiningModel {
        name: "joining_dies_before_3",
        title: "one of 3 ranks dies before it has attached",
        bound: Some(3),
        body: || dies_beside_error(false),
    },
    JoiningModel {
        name: "joining_dies_after_3",
        title: "one of 3 ranks dies once it has written an error",
        bound: Some(3),
        body: || dies_beside_error(true),
    },
    JoiningModel {
        name: "joining_creator_dies_before_3",
        title: "the creator dies before all have met, and two ranks see it",
        bound: Some(2),
        body: || creator_dies(|control| control.die(0), DEATH, ControlModel::join_watching),
    },
    JoiningModel {
        name: "joining_creator_dies_after_3",
        title: "the creator dies once it has written an error, and two ranks see it",
        bound: Some(2),
        body: || creator_dies(|control| fail_and_die(control, 0), "0", ControlModel::join_watching),
    },
    JoiningModel {
        name: "joining_creator_leaves_3",
        title: "the creator leaves once all have met, and two ranks look",
        bound: Some(2),
        body: creator_leaves,
    },
    JoiningModel { name: "leaving", title: "a rank leaves", bound: None, body: || leave(ControlModel::leave) },
    JoiningModel { name: "dying", title: "a rank dies", bound: None, body: || leave(ControlModel::die) },
    JoiningModel { name: "table", title: "two ranks allocate and release", bound: Some(3), body: allocate },
    JoiningModel { name: "survivors", title: "a survivor decides, another reads", bound: Some(3), body: agree },
];

/// The model of this name.
pub fn joining(name: &str) -> Option<&'static JoiningModel> {
    JOINING.iter().find(|model| model.name == name)
}

/// Explores the model and prints how far.
pub fn run_joining(model: &JoiningModel) {
    let came = Arc::new(AtomicUsize::new(0));
    let (counted, body) = (came.clone(), model.body);
    explore(model.title, model.bound, move || {
        counted.fetch_add(usize::from(body()), Relaxed);
    });
    assert!(came.load(Relaxed) > 0, "{}: no execution shows it", model.name);
}

fn join(ranks: usize) -> bool {
    let control = ControlModel::new(ranks);
    let guest = |rank| {
        let theirs = control.share();
        loom::thread::spawn(move || theirs.join(rank))
    };
    let guests: Vec<_> = (1..ranks).map(guest).collect();
    control.host();
    guests.into_iter().for_each(|guest| guest.join().unwrap());
    true
}

fn one_fails() -> bool {
    let control = ControlModel::new(2);
    let theirs = control.share();
    let waits = loom::thread::spawn(move || theirs.join_in_vain(1));
    let own = control.fail(0);
    assert_eq!((waits.join().unwrap(), own.to_string().as_str()), (own.clone(), "0"), "{WRONG_ERROR}");
    true
}

fn two_fail() -> bool {
    let control = ControlModel::new(3);
    let (theirs, waiting) = (control.share(), control.share());
    let other = loom::thread::spawn(move || theirs.fail(1));
    let waits = loom::thread::spawn(move || waiting.join_in_vain(2));
    let own = control.fail(0);
    let all = [own, other.join().unwrap(), waits.join().unwrap()].map(|error| error.to_string());
    assert!(
        ["0", "1"].contains(&all[0].as_str()) && all.iter().all(|error| *error == all[0]),
        "{WRONG_ERROR}: {all:?}"
    );
    all[0] == "0"
}

fn dies(knows: bool) -> bool {
    let control = ControlModel::new(3);
    let (theirs, waiting) = (control.share(), control.share());
    let dead = loom::thread::spawn(move || theirs.die_failing(1));
    let waits = loom::thread::spawn(move || waiting.join_in_vain(2));
    let own = control.host_in_vain(1, knows);
    dead.join().unwrap();
    assert_eq!([own, waits.join().unwrap()].map(|error| error.to_string()), [DEATH; 2], "{WRONG_ERROR}");
    true
}

/// Rank 1 dies before it has attached, or once its error stands; the creator sees it die, and rank 2 waits.
fn dies_beside_error(has_failed: bool) -> bool {
    let control = ControlModel::new(3);
    let (theirs, waiting) = (control.share(), control.share());
    let dead = loom::thread::spawn(move || if has_failed { fail_and_die(&theirs, 1) } else { theirs.die(1) });
    let waits = loom::thread::spawn(move || waiting.join_watching(2).expect_err("the rendezvous fails"));
    let own = control.host_in_vain(1, true);
    dead.join().unwrap();
    let stands = if has_failed { "1" } else { DEATH };
    assert_eq!([own, waits.join().unwrap()].map(|error| error.to_string()), [stands; 2], "{WRONG_ERROR}");
    true
}

/// The creator dies, and both others, which join so, get the error that stands then.
fn creator_dies(dies: fn(&ControlModel), stands: &str, join: fn(&ControlModel, usize) -> Result<(), Error>) -> bool {
    let control = ControlModel::new(3);
    let watching = |rank| {
        let theirs = control.share();
        loom::thread::spawn(move || join(&theirs, rank).expect_err("the rendezvous fails").to_string())
    };
    let others = [1, 2].map(watching);
    dies(&control);
    assert_eq!(others.map(|other| other.join().unwrap()), [stands; 2], "{WRONG_ERROR}");
    true
}

fn fail_and_die(control: &ControlModel, rank: usize) {
    control.fail(rank);
    control.die(rank);
}

fn creator_leaves() -> bool {
    let control = ControlModel::new(3);
    let watching = |rank| {
        let theirs = control.share();
        loom::thread::spawn(move || theirs.join_watching(rank))
    };
    let others = [1, 2].map(watching);
    control.host_and_leave();
    assert_eq!(others.map(|other| other.join().unwrap()), [Ok(()), Ok(())], "{MISSED_END}");
    true
}

fn leave(goes: fn(&ControlModel, usize)) -> bool {
    let control = ControlModel::new(2);
    let theirs = control.share();
    let other = loom::thread::spawn(move || goes(&theirs, 1));
    let gone = control.look_at(1);
    other.join().unwrap();
    gone
}

fn allocate() -> bool {
    let pool = Pool::new(false);
    let theirs = pool.share();
    let other = loom::thread::spawn(move || theirs.allocate_and_release(1));
    pool.allocate_and_release(0);
    other.join().unwrap();
    true
}

fn agree() -> bool {
    let pool = Pool::new(true);
    let theirs = pool.share();
    let other = loom::thread::spawn(move || theirs.read_decision());
    let all = [pool.decide(), other.join().unwrap()];
    assert!(all.iter().all(|decision| *decision == (vec![0, 1], true)), "{WRONG_DECISION}: {all:?}");
    true
}
