//! A rank: joins, makes the calls that the seed says, checks every result, and looks at what it still holds afterwards.

use crate::common::mix;
use crate::draw::{Rng, Scenario, plans};
use crate::forms::{Checked, FORMS, Failure, Form, check, prepare};
use crate::kinds::{Act, Expect, Load};
use crate::said::{now, say, say_error};
use crate::select::Selection;
use crate::violence;
use earlybird::{Communicator, Error, Identity, Op};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use std::time::Duration;

/// Runs a rank: called by the test `rank` in a process that the driver has started.
pub fn play() {
    let Ok(seed) = std::env::var("CHAOS_SEED") else { return };
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let parent = getppid().map(|pid| pid.as_raw_nonzero().to_string());
    assert_eq!(parent, std::env::var("CHAOS_DRIVER").ok(), "the driver is gone");
    let selection = Selection::of(&std::env::var("CHAOS_ONLY").unwrap()).unwrap();
    let scenario = Scenario::new(seed.parse().unwrap(), &selection.kinds);
    let rank = std::env::var("EARLYBIRD_RANK").unwrap().parse().unwrap();
    let worker = Worker { is_victim: scenario.victims.contains(&rank), scenario, forms: selection.forms };
    if worker.is_victim {
        violence::limit(&worker.scenario);
    }
    // The process outlives its first job where nothing ends that.
    let lives = if worker.scenario.kind.name == "none" { 2 } else { 1 };
    (0..lives).for_each(|life| worker.live(life, life + 1 == lives));
}

struct Worker {
    scenario: Scenario,
    forms: Vec<&'static Form>,
    is_victim: bool,
}

impl Worker {
    /// Takes part in a job from joining to leaving.
    fn live(&self, life: u64, is_last: bool) {
        let before = holdings();
        match self.take_part(life) {
            Ok(()) if is_last => say("done"),
            Ok(()) => {}
            Err(Failure::Library { error, at }) => say_error(&error, at),
            Err(Failure::Wrong(text)) => say(&format!("wrong {}", text.replace('\n', " "))),
        }
        if self.is_victim && self.scenario.kind.act == Act::CloseRange {
            return violence::check_users_file();
        }
        let after = holdings();
        if after != before {
            say(&format!("leak after leaving: {after:?}, before joining: {before:?}"));
        }
    }

    fn take_part(&self, life: u64) -> Checked {
        let mut identity = Identity::detect()?;
        identity.key += &format!("-{life}");
        say(&format!("joining {}", now()));
        say("call joining");
        let world = Communicator::builder().identity(identity).connect()?;
        say("joined");
        if self.is_victim {
            violence::prepare(&self.scenario);
        }
        match self.scenario.kind.load {
            Load::Nested => self.nested(&world),
            _ => self.mixed(world, life),
        }
    }

    /// Returns whether all ranks have made their calls and nothing more is going to be done to them.
    fn is_over(&self, world: &Communicator, index: u64) -> Result<bool, Error> {
        if self.scenario.kind.expect == Expect::Death || index < self.scenario.calls || !index.is_multiple_of(20) {
            return Ok(false);
        }
        world.set_algorithm(earlybird::Algorithm::Auto)?;
        let mut unfinished = [u64::from(!std::path::Path::new(&std::env::var("CHAOS_OVER").unwrap()).exists())];
        world.all_reduce_in_place(&mut unfinished, Op::Max)?;
        Ok(unfinished == [0])
    }

    /// Calls of all forms, in the job's communicator and in up to four parts of it.
    fn mixed(&self, world: Communicator, life: u64) -> Checked {
        let mut parts: Vec<Option<Communicator>> = Vec::new();
        for index in 0.. {
            if self.is_over(&world, index)? {
                break;
            }
            sabotage(index)?;
            if self.is_victim && violence::is_forked_here(&self.scenario, index) {
                drop(parts);
                drop(world);
                violence::end_child();
            }
            let mut rng = Rng::new(self.scenario.seed, 1 + life * 1_000_000 + index);
            let turn = rng.below(24);
            // Half of the calls are the job's.
            let at = rng.below(2 * (1 + parts.len()));
            let comm = if at < parts.len() { parts[at].as_ref() } else { Some(&world) };
            if turn == 0 && parts.len() < 4 {
                let part = comm.map(|comm| make_part(comm, &mut rng)).transpose()?;
                parts.push(part.flatten());
            } else if turn == 1 && at < parts.len() {
                parts.swap_remove(at);
            } else if let (form, Some(comm)) = (rng.pick(&self.forms), comm) {
                call(form, comm, &mut rng)?;
            }
        }
        Ok(())
    }

    /// New communicators all the time, each with the first call of its plans.
    fn nested(&self, world: &Communicator) -> Checked {
        for index in 0.. {
            if self.is_over(world, index)? {
                break;
            }
            let mut rng = Rng::new(self.scenario.seed, 1 + index);
            if let Some(part) = make_part(world, &mut rng)? {
                say("call first plan");
                part.set_algorithm(rng.pick(&plans()))?;
                let mut sums = [1u64; 100];
                part.all_reduce_in_place(&mut sums, Op::Sum)?;
                check(&sums, &[part.size() as u64; 100], "first call of a plan")?;
            }
        }
        Ok(())
    }
}

fn call(form: &Form, comm: &Communicator, rng: &mut Rng) -> Checked {
    say(&format!("call {}", form.name));
    match (form.run)(comm, rng) {
        // A plan is not for every operator and every number of ranks.
        Err(Failure::Library { error: Error::Unsupported { .. }, .. }) if rng.plan => {
            say("call refused plan");
            Ok(())
        }
        other => other,
    }
}

/// A duplicate, or a part by random colors and keys, whose members are checked.
fn make_part(parent: &Communicator, rng: &mut Rng) -> Result<Option<Communicator>, Failure> {
    prepare(parent, rng, crate::forms::Way::Immediate)?;
    let (duplicates, seed) = (rng.below(3) == 0, rng.next());
    let wish = |rank: usize| match mix(seed ^ rank as u64) {
        _ if duplicates => (Some(0), 0),
        random => ((!random.is_multiple_of(5)).then_some(random as u32 & 1), (random >> 8) as i64 % 3),
    };
    let (color, key) = wish(parent.rank());
    say(if duplicates { "call duplicate" } else { "call split" });
    let part = if duplicates { Some(parent.duplicate()?) } else { parent.split(color, key)? };
    let mut members: Vec<usize> = (0..parent.size()).filter(|rank| wish(*rank).0 == color).collect();
    members.sort_by_key(|rank| wish(*rank).1);
    let want: Vec<usize> = members.iter().map(|rank| parent.job_ranks()[*rank]).collect();
    let got = part.as_ref().map(|part| part.job_ranks().to_vec());
    match got == color.map(|_| want.clone()) {
        true => Ok(part),
        false => Err(Failure::Wrong(format!("split {color:?} {key}: {got:?} should be {want:?}"))),
    }
}

/// The library's things that the process has: open descriptors, and mappings of shared memory.
fn holdings() -> Vec<String> {
    let entries = std::fs::read_dir("/proc/self/fd").map(|all| all.flatten().collect::<Vec<_>>()).unwrap_or_default();
    let targets = entries.iter().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let mut held: Vec<String> = targets.map(|target| target.display().to_string()).collect();
    // The directory that was read just now.
    held.retain(|target| !target.ends_with("/fd"));
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let ours = |line: &&str| line.contains("memfd:") || line.contains("/dev/shm/");
    held.extend(maps.lines().filter(ours).map(|line| format!("map {}", &line[line.find('/').unwrap_or(0)..])));
    held.sort();
    held
}

/// Makes the mistake that a test of the checker asks for.
fn sabotage(index: u64) -> Checked {
    let Ok(what) = std::env::var("CHAOS_SABOTAGE") else { return Ok(()) };
    match (what.as_str(), index) {
        ("wrong", 5) => check(&[1u8, 2], &[1, 3], "sabotage"),
        ("hang", 5) => loop {
            std::thread::sleep(Duration::from_secs(1));
        },
        ("leak", 5) => {
            let name = std::path::Path::new(&std::env::var("EARLYBIRD_DIR").unwrap()).join("left");
            std::mem::forget(std::fs::File::create(name).unwrap());
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The names of all forms.
pub fn form_names() -> impl Iterator<Item = &'static str> {
    FORMS.iter().map(|form| form.name)
}
