//! The messages of a job whose ranks share no memory, with its one error: a notice reports the error to all ranks.

use super::transport::MessageTransport;
use crate::Error;
use earlybird_hier::exec::{Failure, Transport};
use earlybird_shm::Collective;
use earlybird_shm::channel::Peer;
use earlybird_shm::channel::{Fault, FaultRecord};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time that a rank which is no leader waits for its leader's error before it reports its own.
const LEADER_FIRST: Duration = Duration::from_secs(2);

/// The transport over all ranks of the job, of which leaders send packets and all ranks read notices.
#[derive(Debug)]
pub(crate) struct JobTransport {
    transport: MessageTransport,
    peers: Vec<Peer>,
    call: (Collective, u64),
    /// The number in the job by rank, where it is another.
    job_ranks: Option<Arc<[usize]>>,
}

impl JobTransport {
    pub(crate) fn new(transport: MessageTransport, peers: Vec<Peer>) -> Self {
        JobTransport { transport, peers, call: (Collective::Barrier, 0), job_ranks: None }
    }

    /// The transport of a group of the ranks `group`, in which this rank is `me`. All ranks call it.
    pub(crate) fn split(&mut self, group: &[usize], me: Option<usize>) -> Result<Option<JobTransport>, Error> {
        let place = me.map(|me| (group[0], me));
        let transport = self.transport.split(place).map_err(|failure| self.error_of(&failure))?;
        let peers = group.iter().map(|rank| self.peers[*rank].clone()).collect();
        Ok(transport.map(|transport| JobTransport::new(transport, peers)))
    }

    /// Sets the numbers in the job, which errors add to the numbers of ranks.
    pub(crate) fn set_job_ranks(&mut self, job_ranks: Arc<[usize]>) {
        self.job_ranks = Some(job_ranks);
    }

    pub(crate) fn transport(&mut self) -> &mut MessageTransport {
        &mut self.transport
    }

    pub(crate) fn packet_bytes(&self) -> usize {
        self.transport.packet_bytes()
    }

    pub(crate) fn begin_call(&mut self, collective: Collective, number: u64) {
        self.call = (collective, number);
    }

    /// Fails the job, unless it has failed already. Returns the job's first error. A rank that is no leader waits for the report of
    /// its leader, which knows at least as much.
    pub(crate) fn report(&mut self, fault: &Fault, leads: bool) -> Error {
        let since = Instant::now();
        for passes in 1.. {
            if let Err(failure) = self.transport.idle(passes) {
                return self.error_of(&failure);
            }
            if leads || since.elapsed() > LEADER_FIRST {
                break;
            }
        }
        let FaultRecord { poison, details } = FaultRecord::new(fault, self.transport.rank(), self.call.0, self.call.1);
        let mut words = [poison; 13];
        words[1..].copy_from_slice(&details);
        let failure = self.transport.raise(Failure::Reported { words });
        self.error_of(&failure)
    }

    /// A failure of the transport as an error of the library.
    pub(crate) fn error_of(&self, failure: &Failure) -> Error {
        match failure {
            Failure::Reported { words: [poison, details @ ..] } => {
                let record = FaultRecord { poison: *poison, details: *details };
                record.error(self.peers.len(), self.job_ranks.as_deref(), |rank| self.peers[rank].clone())
            }
            other => Error::Poisoned { cause: other.to_string() },
        }
    }
}
