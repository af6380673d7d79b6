//! The job's one error where ranks share no memory: a notice tells it to all ranks, in the same words.

use super::transport::MessageTransport;
use crate::Error;
use earlybird_hier::exec::{Failure, Transport};
use earlybird_shm::Collective;
use earlybird_shm::channel::Peer;
use earlybird_shm::channel::{Fault, FaultRecord};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time that a rank which is no leader waits for its leader's error before it reports its own.
const WORD_OF_LEADER: Duration = Duration::from_secs(2);

/// The transport over all ranks of the job, of which leaders send packets and all ranks read notices.
#[derive(Debug)]
pub(crate) struct MessageLine {
    transport: MessageTransport,
    peers: Vec<Peer>,
    call: (Collective, u64),
    /// By rank, the number in the job, where that is another.
    job_ranks: Option<Arc<[usize]>>,
}

impl MessageLine {
    pub(crate) fn new(transport: MessageTransport, peers: Vec<Peer>) -> Self {
        MessageLine { transport, peers, call: (Collective::Barrier, 0), job_ranks: None }
    }

    /// The line of a group of the ranks `group`, in which this rank is `me`. All ranks call it.
    pub(crate) fn split(&mut self, group: &[usize], me: Option<usize>) -> Result<Option<MessageLine>, Error> {
        let place = me.map(|me| (group[0], me));
        let transport = self.transport.split(place).map_err(|failure| self.error_of(&failure))?;
        let peers = group.iter().map(|rank| self.peers[*rank].clone()).collect();
        Ok(transport.map(|transport| MessageLine::new(transport, peers)))
    }

    /// The text that errors add to the numbers of ranks.
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

    /// Fails the job, unless it has failed already; the error that stands. Who is no leader has no better knowledge than
    /// its leader, and lets it speak first.
    pub(crate) fn report(&mut self, fault: &Fault, leads: bool) -> Error {
        let since = Instant::now();
        for passes in 1.. {
            if let Err(stands) = self.transport.idle(passes) {
                return self.error_of(&stands);
            }
            if leads || since.elapsed() > WORD_OF_LEADER {
                break;
            }
        }
        let FaultRecord { poison, details } = FaultRecord::new(fault, self.transport.rank(), self.call.0, self.call.1);
        let mut words = [poison; 13];
        words[1..].copy_from_slice(&details);
        let stands = self.transport.raise(Failure::Reported { words });
        self.error_of(&stands)
    }

    /// A failure of the transport in the library's words.
    pub(crate) fn error_of(&self, failure: &Failure) -> Error {
        match failure {
            Failure::Reported { words: [poison, details @ ..] } => {
                let verdict = FaultRecord { poison: *poison, details: *details };
                verdict.error(self.peers.len(), self.job_ranks.as_deref(), |rank| self.peers[rank].clone())
            }
            other => Error::Poisoned { cause: other.to_string() },
        }
    }
}
