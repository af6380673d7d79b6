//! The joining of a rank of a benchmark: as the job that this program started, or as MPI's ranks.

use super::args::{BenchArgs, no_exchange};
use super::data::{ROOT, Value};
use super::ranks::Ranks;
use super::variant::Variant;
use crate::job::without_selection;
use crate::lineup::Lineup;
use earlybird::{Choice, Collective, Communicator, Config, Error, FoldOrder};

/// The communicators of a rank that measures.
pub struct Session {
    pub comm: Communicator,
    /// The same ranks, a node of its own each: a plan between these nodes is one over all ranks.
    pub flat: Option<Communicator>,
    pub lineup: Lineup,
    /// The order of folding of the measured calls.
    pub order: FoldOrder,
    // Dropped after the communicators.
    ranks: Ranks,
}

impl Session {
    /// Joins. Collective.
    ///
    /// # Errors
    /// The errors of joining, and [`Error::Usage`] for ranks or nodes that were not started.
    pub fn open(args: &BenchArgs) -> Result<Session, Error> {
        let mut config = Config::from_env()?;
        config.order = args.order.unwrap_or(config.order);
        let order = config.order;
        config.wait = args.wait.unwrap_or(config.wait);
        let ranks = Ranks::detect(args.by_mpi())?;
        let comm = ranks.join(ranks.placed(config.clone(), args.ranks, args.nodes.as_deref())?, "")?;
        // Lining up over all ranks at once shows the measured nodes nothing.
        let mut plain = without_selection(config.clone());
        plain.ranks_per_node = None;
        let lineup = Lineup::over(ranks.join(plain, "-lineup")?)?;
        let mut session = Session { comm, flat: None, lineup, order, ranks };
        let variants = args.variants();
        if session.comm.nodes() > 1 && variants.iter().any(|variant| variant.is_flat_plan()) {
            config.ranks_per_node = Some("1".parse()?);
            session.flat = Some(session.ranks.join(config, "-flat")?);
        }
        if session.comm.nodes() == 1
            && let Some(variant) = variants.iter().find(|variant| matches!(variant, Variant::Exchange(_)))
        {
            return Err(no_exchange(*variant));
        }
        Ok(session)
    }

    /// The communicator that carries out such calls; none for MPI's own.
    pub fn carrier(&self, variant: Variant) -> Option<&Communicator> {
        match &self.flat {
            _ if variant.is_mpi() => None,
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
            Variant::Composed(_) | Variant::Mpi { .. } => Choice::default(),
        };
        self.carrier(variant).map_or(Ok(()), |comm| comm.set_algorithm(choice))
    }

    /// A call of the MPI library; if there is something to do `meanwhile`, one that is started and then waited for.
    ///
    /// # Errors
    /// [`Error::Usage`] without one.
    pub fn call_mpi<T: Value>(
        &self,
        op: Collective,
        send: &mut [T],
        receive: &mut [T],
        meanwhile: Option<&mut dyn FnMut()>,
    ) -> Result<(), Error> {
        match &self.ranks {
            Ranks::Mpi(mpi) => mpi.call(op, ROOT, send, receive, meanwhile),
            Ranks::Started(_) => Err(Error::usage("mpi: the ranks were not started by an MPI launcher")),
        }
    }
}
