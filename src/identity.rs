//! The identity of this process in its job: its rank, the number of ranks, and the key under which the ranks of its job meet.
//!
//! It is read from environment variables of the launcher. Variables of which some are missing are an error that names them, never a
//! guess: ranks that disagree about their number would wait for each other for ever, and ranks that each believe
//! to be alone would return wrong results.

mod ancestry;
#[cfg(test)]
mod tests;

use crate::Error;
use ancestry::Process;

/// The variable by which `earlybird run` distinguishes its ranks from those of other jobs; no other program sets it.
pub(crate) const LAUNCHER: &str = "EARLYBIRD_LAUNCHER";

/// The launcher of the ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Launcher {
    /// `earlybird run`.
    Earlybird,
    /// `torchrun`, or another program that sets the same variables.
    Torchrun,
    /// Open MPI's `mpirun`, versions 4 and 5.
    OpenMpi,
    /// Hydra, the launcher of MPICH and Intel MPI, or another one that sets `PMI_RANK`.
    Pmi,
    /// Slurm's `srun`.
    Slurm,
    /// The launcher of the program's MPI: the communicator was made from MPI's.
    Mpi,
    /// No launcher: this process is the whole job.
    Alone,
    /// No launcher: the program named its job itself, by [`Identity::named`].
    Named,
}

/// The place of this process in its job. All ranks of the job are on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// `0 .. size`.
    pub rank: usize,
    /// Ranks of the job, at least 1.
    pub size: usize,
    /// The same on all ranks of the job and different from that of any other job running on this node under this
    /// user. Letters, digits and `-._=` only, at most 160 bytes: fit for a file name.
    pub key: String,
    /// The launcher that this was read from.
    pub launcher: Launcher,
}

impl Identity {
    /// The identity that the launcher of this process gave it; without one, a job of one rank.
    ///
    /// Reads the environment and, where the launcher names no job, `/proc` up to the process that started the
    /// ranks (wrapper scripts between are passed over).
    ///
    /// # Errors
    /// [`Error::Usage`] if variables are half set, not numbers or contradict each other, naming them;
    /// [`Error::Unsupported`] if the job has ranks on other nodes; [`Error::System`] if `/proc` cannot be read.
    pub fn detect() -> Result<Identity, Error> {
        let lookup = |name: &str| {
            let value = std::env::var_os(name)?;
            Some(value.into_string().unwrap_or_else(|raw| raw.to_string_lossy().into_owned()))
        };
        Self::from_vars(lookup, ancestry::starter)
    }

    /// Rank `rank` of the `size` processes of this user on this node that join under the name `job`, whatever started them.
    ///
    /// # Errors
    /// [`Error::Usage`] for an empty name and for a rank that is not below `size`.
    pub fn named(job: &str, rank: usize, size: usize) -> Result<Identity, Error> {
        if job.is_empty() {
            return Err(Error::usage("the job has no name; give all its ranks one that no other job of this user has"));
        }
        if rank >= size {
            return Err(Error::usage(format!("rank {rank} does not exist among {size} ranks; ranks count from 0")));
        }
        Ok(Identity { rank, size, key: key(&["named", job]), launcher: Launcher::Named })
    }

    /// The key under which the ranks meet that `earlybird run` starts with this value of `EARLYBIRD_LAUNCHER`.
    #[doc(hidden)]
    pub fn launched_key(launcher: &str) -> String {
        key(&["run", launcher])
    }

    /// The name that was given to a launched job for each rank, if it was launched by `earlybird run`.
    pub(crate) fn launched_job(&self) -> Option<String> {
        let launched = self.launcher == Launcher::Earlybird && self.key.starts_with("run-");
        launched.then(|| std::env::var_os("EARLYBIRD_JOB")).flatten().map(|job| job.to_string_lossy().into_owned())
    }

    /// Returns the identity of [`Identity::detect`], from these variables; `starter(name)` is the nearest ancestor that does not itself
    /// have the variable `name`: the process that started the ranks. `starter("")` is this process.
    pub(crate) fn from_vars(
        lookup: impl Fn(&str) -> Option<String>,
        starter: impl Fn(&str) -> Result<Process, Error>,
    ) -> Result<Identity, Error> {
        let vars = Variables { lookup: &lookup };
        let started_by = |marker| starter(marker).map(|process| process.to_string());
        // Innermost first: a launcher that starts one process per node may start another launcher there.
        if vars.any(&["EARLYBIRD_RANK", "EARLYBIRD_SIZE", "EARLYBIRD_JOB"]) {
            let job = vars.text("EARLYBIRD_JOB")?;
            // The rendezvous of one launcher is the same whatever was set for each rank, and a difference is found there.
            let launcher = vars.get(LAUNCHER);
            let key = launcher.as_ref().map_or(["eb", &job], |launcher| ["run", launcher]);
            return vars.identity(Launcher::Earlybird, "EARLYBIRD_RANK", "EARLYBIRD_SIZE", Local::All, &key);
        }
        if vars.any(&["TORCHELASTIC_RUN_ID"]) {
            return vars.torchrun(&started_by("TORCHELASTIC_RUN_ID")?);
        }
        let (rank, size) = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
        if vars.any(&[rank, size]) {
            let job = vars.get("PMIX_NAMESPACE").or_else(|| vars.get("OMPI_MCA_ess_base_jobid"));
            let mistake = "is set but PMIX_NAMESPACE is not; let the launcher set both";
            let job = job.ok_or_else(|| Error::usage(format!("environment variable {rank} {mistake}")))?;
            let local = Local::Variable("OMPI_COMM_WORLD_LOCAL_SIZE");
            return vars.identity(Launcher::OpenMpi, rank, size, local, &["ompi", &job]);
        }
        if vars.any(&["PMI_RANK", "PMI_SIZE"]) {
            let local = if vars.in_slurm_step() && !vars.any(&["MPI_LOCALNRANKS"]) {
                Local::OneOfNodes("SLURM_STEP_NUM_NODES")
            } else {
                Local::Variable("MPI_LOCALNRANKS")
            };
            let job = vars.get("I_MPI_HYDRA_UUID").or_else(|| vars.get("PMI_JOBID")).unwrap_or_default();
            let key = ["pmi", &started_by("PMI_RANK")?, &job];
            return vars.identity(Launcher::Pmi, "PMI_RANK", "PMI_SIZE", local, &key);
        }
        if vars.in_slurm_step() {
            let key = ["slurm", &vars.text("SLURM_JOB_ID")?, &vars.text("SLURM_STEP_ID")?];
            let size = ["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"];
            let size = size.into_iter().find(|name| vars.any(&[name])).unwrap_or(size[0]);
            let local = Local::OneOfNodes("SLURM_STEP_NUM_NODES");
            return vars.identity(Launcher::Slurm, "SLURM_PROCID", size, local, &key);
        }
        // Both names are common words, so only the pair counts.
        if vars.any(&["RANK"]) && vars.any(&["WORLD_SIZE"]) {
            return vars.torchrun(&started_by("RANK")?);
        }
        if vars.any(&["PMIX_RANK"]) {
            return Err(Error::Unsupported {
                what: "a launcher that sets PMIX_RANK without saying how many ranks there are".into(),
                hint: "start the ranks with `earlybird run`, mpirun or srun, or set EARLYBIRD_RANK, EARLYBIRD_SIZE and EARLYBIRD_JOB".into(),
            });
        }
        Ok(Identity { rank: 0, size: 1, key: key(&["alone", &started_by("")?]), launcher: Launcher::Alone })
    }
}

/// The source of the number of ranks on this node.
enum Local {
    /// The launcher starts ranks on this node only.
    All,
    /// A variable holds the number of ranks here.
    Variable(&'static str),
    /// A variable holds the number of nodes.
    OneOfNodes(&'static str),
}

struct Variables<'a> {
    lookup: &'a dyn Fn(&str) -> Option<String>,
}

impl Variables<'_> {
    fn get(&self, name: &str) -> Option<String> {
        (self.lookup)(name)
    }

    fn any(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.get(name).is_some())
    }

    /// A variable that must be there because another of its launcher is.
    fn text(&self, name: &str) -> Result<String, Error> {
        match self.get(name) {
            Some(value) if !value.is_empty() => Ok(value),
            Some(_) => Err(Error::usage(format!("environment variable {name} is empty; let the launcher set it"))),
            None => Err(Error::usage(format!(
                "environment variable {name} is missing although others of its launcher are set; set all of them or none"
            ))),
        }
    }

    fn number(&self, name: &str) -> Result<usize, Error> {
        let value = self.text(name)?;
        let digits = value.bytes().all(|b| b.is_ascii_digit());
        value.parse().ok().filter(|_| digits).ok_or_else(|| {
            Error::usage(format!("environment variable {name}={value:?} is not a whole number from 0 on"))
        })
    }

    fn identity(
        &self,
        launcher: Launcher,
        rank_name: &str,
        size_name: &str,
        local: Local,
        key_parts: &[&str],
    ) -> Result<Identity, Error> {
        let (rank, size) = (self.number(rank_name)?, self.number(size_name)?);
        if rank >= size {
            return Err(Error::usage(format!(
                "environment variables {rank_name}={rank} and {size_name}={size} contradict each other; ranks count from 0"
            )));
        }
        let elsewhere = match local {
            _ if size == 1 => None,
            Local::All => None,
            Local::Variable(name) => {
                let here = self.number(name)?;
                (here != size).then(|| format!("{size_name}={size} ranks with {name}={here} of them on this node"))
            }
            Local::OneOfNodes(name) => {
                let nodes = self.number(name)?;
                (nodes != 1).then(|| format!("{size_name}={size} ranks on {name}={nodes} nodes"))
            }
        };
        match elsewhere {
            Some(what) => Err(Error::Unsupported {
                what,
                hint: "start the job on a single node, or join the ranks by Communicator::from_mpi (feature mpi)"
                    .into(),
            }),
            None => Ok(Identity { rank, size, key: key(key_parts), launcher }),
        }
    }

    /// The agent starts the ranks of one node and starts them again, with a higher count, after a failure.
    fn torchrun(&self, agent: &str) -> Result<Identity, Error> {
        let (run, restarts) = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT");
        let (run, restarts) = (self.get(run).unwrap_or_default(), self.get(restarts).unwrap_or_default());
        let (address, port) = (self.text("MASTER_ADDR")?, self.text("MASTER_PORT")?);
        let key = ["torch", agent, &restarts, &port, &address, &run];
        self.identity(Launcher::Torchrun, "RANK", "WORLD_SIZE", Local::Variable("LOCAL_WORLD_SIZE"), &key)
    }

    /// Returns true if `srun` started this process: batch scripts and interactive shells have step ids from a reserved
    /// range at the top (slurm.h), and the number of tasks they see is not theirs.
    fn in_slurm_step(&self) -> bool {
        const FIRST_RESERVED_STEP: u32 = 0xffff_fff0;
        let step = self.get("SLURM_STEP_ID").and_then(|id| id.parse::<u32>().ok());
        self.any(&["SLURM_PROCID"]) && step.is_some_and(|id| id < FIRST_RESERVED_STEP)
    }
}

/// The parts joined so that different parts give different keys: other bytes than letters, digits and `._`
/// become `=` and two hexadecimal digits. What would be too long is shortened to its 64-bit FNV-1a hash.
fn key(parts: &[&str]) -> String {
    const MAX_BYTES: usize = 160;
    let mut key = String::new();
    for (i, part) in parts.iter().enumerate() {
        if i > 0 {
            key.push('-');
        }
        for byte in part.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' => key.push(char::from(byte)),
                other => key.push_str(&format!("={other:02x}")),
            }
        }
    }
    if key.len() <= MAX_BYTES {
        return key;
    }
    let hash = fingerprint(&key);
    key.truncate(MAX_BYTES - 17);
    format!("{key}-{hash:016x}")
}

/// FNV-1a of a text: the same on all ranks, whatever built them.
pub(crate) fn fingerprint(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}
