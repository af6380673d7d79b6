//! The choices of calls over several nodes, for explanations: of a communicator, or of a job that does not run.

use super::choice::{Chosen, Exchange, Exchanges};
use super::config_check;
use super::segments::segment;
use super::topology::Topology;
use crate::{Collective, Config, DType, Error, FoldOrder, Op};

/// The choice of exchanges between leaders.
pub(crate) struct LeaderChoice {
    exchanges: Exchanges,
    endpoints: usize,
    outnumbers_cpus: bool,
}

impl LeaderChoice {
    /// The choice in a communicator. `outnumbers_cpus` is that of its transport between leaders.
    pub(super) fn of(exchanges: &Exchanges, topology: &Topology, outnumbers_cpus: bool) -> Self {
        LeaderChoice {
            exchanges: exchanges.of_group(topology.nodes()),
            endpoints: topology.endpoints(),
            outnumbers_cpus,
        }
    }

    /// The choice in a job with so many ranks on each node, over a network or one machine's memory. `lacks_cpus` is whether
    /// the ranks of that machine outnumber the CPUs of their masks, and those that they may use at a time.
    ///
    /// # Errors
    /// [`Error::Usage`] for nodes without ranks.
    pub(crate) fn planned(
        config: &Config,
        sizes: &[usize],
        over_network: bool,
        lacks_cpus: [bool; 2],
    ) -> Result<Self, Error> {
        let [outnumbers_cpus, is_oversubscribed] = lacks_cpus;
        let chosen = Chosen::new(config);
        let fitting = config_check::fitting_endpoints(is_oversubscribed, over_network);
        let agreed = config_check::agreed_endpoints(&config_check::words(config.endpoints, &chosen, fitting))?;
        let endpoints = Topology::contiguous(sizes, 0)?.with_endpoints(agreed).endpoints();
        let exchanges = Exchanges::new(sizes.len(), over_network, chosen);
        Ok(LeaderChoice { exchanges, endpoints, outnumbers_cpus: outnumbers_cpus && !over_network })
    }

    /// The exchange of leaders in a call on so many bytes.
    ///
    /// # Errors
    /// [`Error::Usage`] while another thread is inside a call.
    pub(crate) fn exchange(
        &self,
        collective: Collective,
        (bytes, order): (usize, FoldOrder),
        (dtype, op): (DType, Op),
        asked: Option<&'static str>,
    ) -> Result<Exchange, Error> {
        self.exchanges.decide(collective, Some((dtype, op)), (bytes, order), asked)
    }

    /// The plans for an allreduce by their expected seconds, the fastest first; none without a cost model.
    pub(crate) fn ranking(&self, bytes: usize, call: (DType, Op), order: FoldOrder) -> Vec<(&'static str, f64)> {
        self.exchanges.ranking(bytes, call, order)
    }

    /// Segments of a blocking call on so many bytes of elements of `size`, and the ranks of each node that exchange them.
    pub(crate) fn segments(&self, collective: Collective, bytes: usize, size: usize) -> (usize, usize) {
        let elements = bytes / size;
        match collective {
            Collective::AllReduce => {
                let segments = elements.div_ceil(segment(elements, size, self.outnumbers_cpus, self.endpoints)).max(1);
                (segments, self.endpoints.min(segments))
            }
            _ => (1, 1),
        }
    }
}
