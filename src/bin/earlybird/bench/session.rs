//! The joining of a rank of a benchmark: as the job that this program started, or as MPI's ranks.

use super::args::BenchArgs;
use super::data::{ROOT, Value};
use super::mpi::Mpi;
use super::variant::Variant;
use crate::arguments::{check_ranks, with_nodes};
use crate::job::without_selection;
use crate::lineup::Lineup;
use earlybird::{Choice, Collective, Communicator, Config, Error, Identity};

/// The communicators of a rank that measures.
pub struct Session {
    pub comm: Communicator,
    /// The same ranks, a node of its own each: a plan between these nodes is one over all ranks.
    pub flat: Option<Communicator>,
    pub lineup: Lineup,
    // After the communicators: MPI ends when it is dropped.
    mpi: Option<Mpi>,
}

impl Session {
    /// Joins. Collective.
    ///
    /// # Errors
    /// The errors of joining, and [`Error::Usage`] for ranks or nodes that were not started.
    pub fn open(args: &BenchArgs) -> Result<Session, Error> {
        let config = Config { order: args.order(), ..Config::from_env()? };
        let config = Config { wait: args.wait.unwrap_or(config.wait), ..config };
        let plain = without_selection(config.clone());
        let mut session = match args.by_mpi() {
            true => Self::of_mpi(args, config.clone(), plain)?,
            false => {
                let identity = Identity::detect()?;
                check_ranks(args.ranks, identity.size)?;
                let config = with_nodes(config.clone(), args.nodes.as_deref(), identity.size)?;
                let comm = Communicator::connect(config, identity.clone())?;
                // Lining up over all ranks at once shows the measured nodes nothing.
                let lineup = Lineup::connect(Config { ranks_per_node: None, ..plain }, identity)?;
                Session { comm, flat: None, lineup, mpi: None }
            }
        };
        let variants = args.variants();
        if session.comm.nodes() > 1 && variants.iter().any(|variant| variant.is_flat_plan()) {
            session.flat = Some(session.one_rank_nodes(config)?);
        }
        if session.comm.nodes() == 1
            && let Some(variant) = variants.iter().find(|variant| matches!(variant, Variant::Exchange(_)))
        {
            return Err(Error::usage(format!(
                "{variant}: one node has nobody to exchange with; give --nodes or use plan:NAME"
            )));
        }
        Ok(session)
    }

    fn of_mpi(args: &BenchArgs, config: Config, plain: Config) -> Result<Session, Error> {
        let mpi = Mpi::start()?;
        let size = mpi.size();
        check_ranks(args.ranks, size)?;
        let comm = mpi.join(with_nodes(config, args.nodes.as_deref(), size)?)?;
        let lineup = Lineup::over(mpi.join(Config { ranks_per_node: None, ..plain })?)?;
        Ok(Session { comm, flat: None, lineup, mpi: Some(mpi) })
    }

    fn one_rank_nodes(&self, config: Config) -> Result<Communicator, Error> {
        let config = Config { ranks_per_node: Some("1".parse()?), ..config };
        match &self.mpi {
            Some(mpi) => mpi.join(config),
            None => {
                let mut identity = self.comm.identity().clone();
                identity.key.push_str("-flat");
                Communicator::connect(config, identity)
            }
        }
    }

    /// The communicator that carries out such calls; none for MPI's own.
    pub fn carrier(&self, variant: Variant) -> Option<&Communicator> {
        match &self.flat {
            _ if variant == Variant::Mpi => None,
            Some(flat) if variant.is_flat_plan() => Some(flat),
            _ => Some(&self.comm),
        }
    }

    /// Chooses how the calls that follow are carried out.
    ///
    /// # Errors
    /// The errors of [`Communicator::set_algorithm`].
    pub fn choose(&self, variant: Variant) -> Result<(), Error> {
        let choice = match variant {
            Variant::Library(choice) | Variant::Exchange(choice) => choice,
            Variant::Composed(_) | Variant::Mpi => Choice::default(),
        };
        self.carrier(variant).map_or(Ok(()), |comm| comm.set_algorithm(choice))
    }

    /// A call of the MPI library.
    ///
    /// # Errors
    /// [`Error::Usage`] without one.
    pub fn call_mpi<T: Value>(&self, op: Collective, send: &mut [T], receive: &mut [T]) -> Result<(), Error> {
        let mpi =
            self.mpi.as_ref().ok_or_else(|| Error::usage("mpi: the ranks were not started by an MPI launcher"))?;
        mpi.call(op, ROOT, send, receive)
    }
}
