//! Joining a job: the settings and the identity that a process brings, and the communicator that it gets.

use super::comm_plans::CommPlans;
use super::settings::Settings;
use super::{Communicator, MultiNodeComm};
use crate::hierarchy::{Groups, Hierarchy};
use crate::messages::{Layout, Messages};
use crate::trace::{CallTrace, Recorder};
use crate::transport::RingOptions;
use crate::{Config, Error, Identity};
use earlybird_shm::engine::Handle;
use earlybird_shm::{NodeComm, refuse};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// The settings and the identity with which a process joins its job ([`Communicator::builder`]). What is not given is
/// read from the environment.
///
/// ```
/// use earlybird::{Communicator, Config, Identity};
///
/// let mut config = Config::from_env()?;
/// config.timeout = Some(std::time::Duration::from_secs(30));
/// // Every process of the job gives the same name, and a rank of its own.
/// let name = format!("example-{}", std::process::id());
/// let comm = Communicator::builder().config(config).identity(Identity::named(&name, 0, 1)?).connect()?;
/// assert_eq!((comm.rank(), comm.size()), (0, 1));
/// # Ok::<(), earlybird::Error>(())
/// ```
#[derive(Debug, Default)]
#[must_use = "no process joins before `connect`"]
pub struct CommunicatorBuilder {
    config: Option<Result<Config, Error>>,
    identity: Option<Identity>,
    messages: Option<(Layout, Box<dyn Messages>)>,
}

impl Communicator {
    /// Joins a job with other settings than those of the environment, or under another identity than the launcher's.
    pub fn builder() -> CommunicatorBuilder {
        CommunicatorBuilder::default()
    }
}

impl CommunicatorBuilder {
    /// Joins with this configuration instead of [`Config::from_env`].
    pub fn config(self, config: Config) -> Self {
        self.try_config(Ok(config))
    }

    /// Joins with a configuration that could be wrong: [`CommunicatorBuilder::connect`] returns its error on all ranks,
    /// where returning it on this one alone would leave the others waiting.
    pub fn try_config(mut self, config: Result<Config, Error>) -> Self {
        self.config = Some(config);
        self
    }

    /// Joins as this rank of this job instead of [`Identity::detect`].
    pub fn identity(mut self, identity: Identity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// Joins ranks on several nodes, which are arranged as `layout` says ([`Config::ranks_per_node`] is not looked at)
    /// and reach each other by `messages`. All ranks give the same layout and configuration, which must be free of errors:
    /// what one rank finds wrong here the others do not hear of.
    pub fn messages(mut self, layout: Layout, messages: impl Messages + 'static) -> Self {
        self.messages = Some((layout, Box::new(messages)));
        self
    }

    /// Joins the job. Returns when all ranks have joined: some milliseconds after the last one came.
    ///
    /// # Errors
    /// The errors of [`Config::from_env`] and [`Identity::detect`], where these are asked. [`Error::PeerDied`] when a rank
    /// dies meanwhile, [`Error::Timeout`] when a deadline was set and ranks are missing, [`Error::NoSpace`] when shared
    /// memory is full, [`Error::Usage`] for settings that cannot be and for a layout that does not name every rank once.
    pub fn connect(self) -> Result<Communicator, Error> {
        let identity = self.identity.map_or_else(Identity::detect, Ok)?;
        let config = self.config.unwrap_or_else(Config::from_env);
        if let Some((layout, messages)) = self.messages {
            let config = config?;
            let recorder = Recorder::open(&config, &identity)?;
            let nodes = Hierarchy::connect_by_messages(&config, &identity, layout, messages)?;
            return Ok(Communicator::assemble(config, identity, nodes.into(), recorder));
        }
        // Ranks that cannot join tell the others why, as far as they know where those are.
        let refuse = |dir: Option<&Path>, error| refuse(dir, &identity.key, identity.rank, identity.size, error);
        let config = config.map_err(|error| {
            let dir = std::env::var_os("EARLYBIRD_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute());
            refuse(dir.as_deref(), error)
        })?;
        let recorder = Recorder::open(&config, &identity).map_err(|error| refuse(config.dir.as_deref(), error))?;
        let sizes = config.ranks_per_node.as_ref().map(|each| each.sizes(identity.size)).transpose();
        let sizes = sizes.map_err(|error| refuse(config.dir.as_deref(), error))?;
        let groups = match sizes.filter(|sizes| sizes.len() > 1) {
            Some(sizes) => Hierarchy::connect(&config, &identity, &sizes)?.into(),
            None => NodeComm::join(&config.joining(&identity))?.into(),
        };
        Ok(Communicator::assemble(config, identity, groups, recorder))
    }

    /// The configuration, if no identity and no messages were given.
    #[cfg(feature = "mpi")]
    pub(crate) fn only_config(self) -> Result<Config, Error> {
        match (&self.identity, &self.messages) {
            (None, None) => self.config.unwrap_or_else(Config::from_env),
            _ => Err(Error::usage("MPI knows the ranks and carries their messages; leave out identity and messages")),
        }
    }
}

impl Communicator {
    /// The handle of a process that has joined.
    pub(crate) fn assemble(
        config: Config,
        identity: Identity,
        Groups { node, between }: Groups,
        recorder: Option<Arc<Recorder>>,
    ) -> Communicator {
        if config.verbose && identity.rank == 0 {
            let counts = |between: &Hierarchy| (between.topology().nodes(), between.topology().endpoints());
            let (nodes, endpoints) = between.as_ref().map_or((1, 1), counts);
            let exchange =
                between.as_ref().map_or_else(String::new, |between| format!("; {} between nodes", between.chooses()));
            earlybird_shm::warn(format_args!(
                "{} rank(s) on {nodes} node(s) of {endpoints} endpoint(s) started by {:?} on {} CPU(s): {} waiting{}; {}; algorithm {}, {:?} order{exchange}",
                identity.size,
                identity.launcher,
                node.allowed_cpus(),
                config.wait,
                if node.size() > node.allowed_cpus() { ", never spinning" } else { "" },
                node.describe_choice(),
                config.algorithm,
                config.order,
            ));
        }
        let settings = Settings::of(&config, between.is_none().then_some(identity.size));
        let rings = RingOptions { memory_budget: Some(node.memory_budget()), ..config.rings(&identity, "rings") };
        let plans = CommPlans::new(rings);
        let trace = recorder.map(|recorder| Box::new(CallTrace::new(recorder, plans.name(), identity.size)));
        if trace.is_some() {
            settings.trace();
        }
        Communicator {
            rank: identity.rank,
            size: identity.size,
            job_ranks: between.as_ref().map(|_| (0..identity.size).collect()),
            node: Handle::new(node),
            between: between.map(|hierarchy| Handle::new(MultiNodeComm::new(hierarchy))),
            identity,
            settings,
            plans,
            drives: None,
            joining: Arc::new(config),
            rounds: Mutex::default(),
            messages: Mutex::default(),
            grouped: Mutex::default(),
            trace,
        }
    }
}
