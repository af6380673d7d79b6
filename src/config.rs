//! The configuration of a job: every `EARLYBIRD_` variable is read here, and none is ever ignored.
//!
//! An unknown variable and an unknown value are errors, because a setting that silently does nothing is worse than a refusal.

#[cfg(test)]
mod tests;

use crate::interpose::{Carriers, Interpose};
use crate::size_table::{SizeTable, Tables};
use crate::trace::TracedProcess;
use crate::tuning::Tuning;
use crate::units::{located, parse_size, parse_time};
use crate::{Choice, Error, FoldOrder, RanksPerNode, WaitPreset};
use earlybird_shm::channel::RingOptions;
use earlybird_shm::named::did_you_mean;
use earlybird_shm::{Collective, JoinOptions};
use std::path::PathBuf;
use std::time::Duration;

/// The settings of one communicator. [`Config::default`] is that of an empty environment; change the fields that are to differ.
///
/// ```
/// let mut config = earlybird::Config::default();
/// config.order = earlybird::FoldOrder::Rank;
/// config.ranks_per_node = Some("2".parse()?);
/// let comm = earlybird::Communicator::builder().config(config).connect()?;
/// # Ok::<(), earlybird::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Config {
    /// The algorithm by which the ranks of a node carry out an operation (`EARLYBIRD_ALGORITHM`, default `auto`).
    pub algorithm: Choice,
    /// The algorithms of single operations by message size (`EARLYBIRD_ALLREDUCE` and so on); they go before
    /// `algorithm`.
    pub tables: Tables,
    /// The measured best algorithms on one node and the measured costs of messages between nodes (`EARLYBIRD_TUNE`, a file that `earlybird
    /// tune` writes); the first apply where neither `tables` nor `algorithm` are set, the second, the same on all ranks,
    /// where `exchange` is not.
    pub tuning: Tuning,
    /// The order of folding (`EARLYBIRD_ORDER`, default `arrival`).
    pub order: FoldOrder,
    /// The waiting preset: a waiting rank's use of its processor (`EARLYBIRD_WAIT`, default `balanced`).
    pub wait: WaitPreset,
    /// Most time that a call may wait for living ranks (`EARLYBIRD_TIMEOUT`, seconds, or with a unit as in `500ms`, `10s`,
    /// `2min`; default `none`: for ever).
    pub timeout: Option<Duration>,
    /// The most shared memory that the ranks of a node may take, all communicators together, in bytes
    /// (`EARLYBIRD_ARENA_MAX`, rank 0's counts; the default is four times what one communicator can use), rings of plans
    /// included. The
    /// communicator of the whole job takes at most half of it.
    pub arena_max_bytes: Option<u64>,
    /// The directory in which ranks meet that share no network namespace (`EARLYBIRD_DIR`, absolute, the same on all ranks;
    /// default: none).
    pub dir: Option<PathBuf>,
    /// Virtual nodes (`EARLYBIRD_RANKS_PER_NODE`, such as `2` or `5,3,1`; default: all ranks are one node).
    pub ranks_per_node: Option<RanksPerNode>,
    /// The plan between nodes (`EARLYBIRD_EXCHANGE`, a schedule: `ring`, `butterfly:r=1`; default `auto`: by size).
    pub exchange: Option<Choice>,
    /// Ranks of each node that exchange messages above 512 KiB with the other nodes, a part each (`EARLYBIRD_ENDPOINTS`, from
    /// 1, the same on all ranks; default `auto`: 4 where every rank has a CPU of its own, else 2 for virtual nodes
    /// that share memory and 1 over MPI). At most as many as the smallest node has ranks.
    pub endpoints: Option<usize>,
    /// Most time that joining may take, if different from `timeout`; no variable sets it.
    pub join_timeout: Option<Duration>,
    /// The mode of the interposer for MPI programs (`EARLYBIRD_INTERPOSE`, default `on`), which only the interposer reads.
    #[doc(hidden)]
    pub interpose: Interpose,
    /// The choices of `EARLYBIRD_INTERPOSE` between earlybird and MPI, by operation and size.
    #[doc(hidden)]
    pub carriers: Carriers,
    /// Writes the chosen algorithms and the reasons to standard error (`EARLYBIRD_VERBOSE`, default `off`).
    pub verbose: bool,
    /// Records every call of this rank in a file of this name with its rank behind it, for `earlybird trace`
    /// (`EARLYBIRD_TRACE`, default: no trace).
    pub trace: Option<PathBuf>,
    /// The size of that file in bytes but for its head: 64 for each call, of which it holds the last ones
    /// (`EARLYBIRD_TRACE_SIZE`, default 16 MiB; rounded down to a power of two).
    pub trace_bytes: Option<u64>,
    /// This process in the trace, where its communicators do not tell: a communicator of MPI may have some of the ranks.
    #[doc(hidden)]
    pub traced_process: Option<TracedProcess>,
    /// True if the CPUs of this communicator's ranks are wanted by more processes of the program than there are, some of them not
    /// members: then no rank spins, even if the members alone have a CPU each.
    #[doc(hidden)]
    pub shares_cpus: bool,
}

/// Sets a field by the value of its variable.
type Setter = fn(&mut Config, &str) -> Result<(), Error>;

const PREFIX: &str = "EARLYBIRD_";

/// Every variable but the tables of collectives, by its name without the prefix; those without a setter are read elsewhere.
static KNOWN: &[(&str, Option<Setter>)] = &[
    ("RANK", None),
    ("SIZE", None),
    ("JOB", None),
    ("LAUNCHER", None),
    ("ALGORITHM", Some(|config, value| value.parse().map(|v| config.algorithm = v))),
    ("ORDER", Some(|config, value| value.parse().map(|v| config.order = v))),
    ("WAIT", Some(|config, value| value.parse().map(|v| config.wait = v))),
    ("TIMEOUT", Some(timeout)),
    ("ARENA_MAX", Some(|config, value| parse_size(value).map(|v| config.arena_max_bytes = Some(v)))),
    ("DIR", Some(dir)),
    ("VERBOSE", Some(verbose)),
    ("RANKS_PER_NODE", Some(|config, value| value.parse().map(|v| config.ranks_per_node = Some(v)))),
    ("EXCHANGE", Some(exchange)),
    ("ENDPOINTS", Some(endpoints)),
    ("TUNE", Some(|config, value| Tuning::read(value).map(|v| config.tuning = v))),
    ("TRACE", Some(trace)),
    ("TRACE_SIZE", Some(|config, value| parse_size(value).map(|v| config.trace_bytes = Some(v)))),
    ("INTERPOSE", Some(|config, value| Interpose::read(value).map(|v| (config.interpose, config.carriers) = v))),
    ("TORCH_OVERLAP", None),
    #[cfg(feature = "fault")]
    ("FAULT", None),
];

impl Config {
    /// The configuration that the environment of this process asks for.
    ///
    /// # Errors
    /// [`Error::Usage`] for an unknown `EARLYBIRD_` variable or value, listing the valid ones.
    pub fn from_env() -> Result<Config, Error> {
        Config::from_env_and([])
    }

    /// Reads the environment like [`Config::from_env`]; the variables of `more` go before those of the environment.
    ///
    /// # Errors
    /// The errors of [`Config::from_env`].
    pub fn from_env_and(more: impl IntoIterator<Item = (String, String)>) -> Result<Config, Error> {
        let mut vars = Vec::new();
        for (name, value) in std::env::vars_os() {
            if !name.as_encoded_bytes().starts_with(PREFIX.as_bytes()) {
                continue;
            }
            let readable = name.into_string().ok().zip(value.into_string().ok());
            vars.push(readable.ok_or_else(|| {
                Error::usage(format!("an environment variable whose name begins with {PREFIX} is not valid UTF-8"))
            })?);
        }
        vars.extend(more);
        Config::from_vars(vars)
    }

    /// Reads these variables like [`Config::from_env`]; names without the prefix are passed over.
    ///
    /// # Errors
    /// The errors of [`Config::from_env`].
    fn from_vars(vars: impl IntoIterator<Item = (String, String)>) -> Result<Config, Error> {
        let mut config = Config::default();
        for (name, value) in vars {
            let Some(short) = name.strip_prefix(PREFIX) else { continue };
            let result = match KNOWN.iter().find(|(known, _)| *known == short) {
                Some((_, Some(set))) => set(&mut config, &value),
                Some((_, None)) => Ok(()),
                None => set_table(&mut config, table_of_variable(short)?, &value),
            };
            result.map_err(|error| located(name, error))?;
        }
        match (&config.trace, config.trace_bytes) {
            (None, Some(_)) => {
                Err(Error::usage("EARLYBIRD_TRACE_SIZE without EARLYBIRD_TRACE; name the file there too"))
            }
            _ => Ok(config),
        }
    }

    /// The options for joining as this identity, where all ranks are one node.
    pub(crate) fn joining(&self, identity: &crate::Identity) -> JoinOptions {
        JoinOptions {
            rank: identity.rank,
            size: identity.size,
            key: identity.key.clone(),
            dir: self.dir.clone(),
            wait: self.wait,
            timeout: self.timeout,
            join_timeout: self.join_timeout,
            arena_max_bytes: self.arena_max_bytes,
            oversubscribed: self.shares_cpus,
            settings: self.rendezvous_settings(identity),
        }
    }

    /// The options of rings between the ranks of this identity, whose rendezvous is its key with `name`.
    pub(crate) fn rings(&self, identity: &crate::Identity, name: &str) -> RingOptions {
        RingOptions {
            rank: identity.rank,
            size: identity.size,
            key: format!("{}-{name}", identity.key),
            dir: self.dir.clone(),
            wait: self.wait,
            timeout: self.timeout,
            ..RingOptions::default()
        }
    }

    /// Names and values of the settings that decide where ranks meet, and with which others: equal on all ranks of a job.
    pub(crate) fn rendezvous_settings(&self, identity: &crate::Identity) -> Vec<(String, String)> {
        let settings = [
            ("DIR", self.dir.as_ref().map(|dir| dir.display().to_string())),
            ("RANKS_PER_NODE", self.ranks_per_node.as_ref().map(ToString::to_string)),
            ("JOB", identity.launched_job()),
        ];
        settings.into_iter().filter_map(|(name, value)| Some((format!("{PREFIX}{name}"), value?))).collect()
    }
}

fn unknown(short: &str) -> Error {
    let others = KNOWN.iter().map(|(name, _)| (*name).to_owned());
    let valid = others.chain(Collective::PUBLIC.iter().map(|collective| table_variable(*collective)));
    let valid: Vec<String> = valid.map(|name| format!("{PREFIX}{name}")).collect();
    let given = format!("{PREFIX}{short}");
    let meant = did_you_mean(&given, valid.iter().map(String::as_str));
    Error::usage(format!(
        "environment variable {given} is not known{meant}; unset it, or use one of: {}",
        valid.join(", ")
    ))
}

fn unknown_value(value: &str, valid: &str) -> Error {
    Error::usage(format!("{value:?} is not known; use one of: {valid}"))
}

/// The variable of a collective's [`SizeTable`], without the prefix.
fn table_variable(collective: Collective) -> String {
    collective.name().to_uppercase().replace('-', "_")
}

/// The collective whose table this variable sets, which is no other one.
fn table_of_variable(short: &str) -> Result<Collective, Error> {
    let collective = Collective::PUBLIC.iter().find(|collective| table_variable(**collective) == short);
    collective.copied().ok_or_else(|| unknown(short))
}

fn set_table(config: &mut Config, collective: Collective, value: &str) -> Result<(), Error> {
    config.tables = std::mem::take(&mut config.tables).with(collective, SizeTable::of(collective, value)?);
    Ok(())
}

fn exchange(config: &mut Config, value: &str) -> Result<(), Error> {
    config.exchange = match value {
        "auto" => None,
        _ => Some(format!("plan:{value}").parse()?),
    };
    Ok(())
}

fn endpoints(config: &mut Config, value: &str) -> Result<(), Error> {
    config.endpoints = match (value, value.parse()) {
        ("auto", _) => None,
        (_, Ok(endpoints @ 1..)) => Some(endpoints),
        _ => return Err(Error::usage(format!("{value:?} is neither a number of ranks from 1 nor auto"))),
    };
    Ok(())
}

fn timeout(config: &mut Config, value: &str) -> Result<(), Error> {
    config.timeout = match (value, parse_time(value)) {
        ("none", _) => None,
        (_, Ok(after)) if !after.is_zero() => Some(after),
        _ => {
            let refusal = format!("{value:?} is neither a time above 0, such as 10, 10s, 500ms or 2min, nor none");
            return Err(Error::usage(refusal));
        }
    };
    Ok(())
}

/// Absolute, because ranks may stand in different directories and must still meet.
fn dir(config: &mut Config, value: &str) -> Result<(), Error> {
    let path = PathBuf::from(value);
    if !path.is_absolute() {
        return Err(Error::usage(format!("{value:?} is not an absolute path")));
    }
    config.dir = Some(path);
    Ok(())
}

fn trace(config: &mut Config, value: &str) -> Result<(), Error> {
    if value.is_empty() || value.ends_with('/') {
        return Err(Error::usage(format!("{value:?} is not the name of a file")));
    }
    config.trace = Some(value.into());
    Ok(())
}

fn verbose(config: &mut Config, value: &str) -> Result<(), Error> {
    config.verbose = match value {
        "1" | "on" | "true" | "yes" => true,
        "0" | "off" | "false" | "no" => false,
        _ => return Err(unknown_value(value, "on, off, true, false, yes, no, 1, 0")),
    };
    Ok(())
}
