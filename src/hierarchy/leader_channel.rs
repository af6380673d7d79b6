//! The channel between the nodes: the transport between their endpoints, and the error of the whole job, which every rank can report
//! and read.

use super::Topology;
use crate::Error;
use crate::choice;
use crate::plans::GroupTransport;
use crate::transport::{receive_packet, send_packet};
use earlybird_hier::exec::{Failure, PacketDecision, PacketHeader, Transport};
use earlybird_shm::Collective;
use earlybird_shm::Progress;
use earlybird_shm::Signature;
use earlybird_shm::channel::{CallDescription, Fault, MemoryBudget, Rings};
use earlybird_shm::shrink::Membership;
use std::sync::Arc;
use std::time::Duration;

/// One rank's end of the channel. Between the endpoints of one number it is a transport whose ranks are the numbers of nodes.
#[derive(Debug)]
pub(crate) struct LeaderChannel {
    transport: LeaderTransport,
    /// The ranks that this one exchanges with, by node; of its own node itself, unless it exchanges nothing.
    peers: Vec<usize>,
    node: usize,
    leads: bool,
    me: usize,
    deadline: Option<Duration>,
    /// The call that is under way, or was last.
    call: Option<Signature>,
    error: Option<Error>,
    /// The number in the job by rank, where it is another.
    job_ranks: Option<Arc<[usize]>>,
}

#[derive(Debug)]
pub(crate) enum LeaderTransport {
    /// All ranks of the job on one machine.
    Rings(Box<Rings>),
    /// Ranks that reach each other by job.
    Messages(Box<crate::messages::JobTransport>),
}

impl LeaderTransport {
    /// Returns whether messages may cross a network.
    pub(crate) fn is_a_network(&self) -> bool {
        !matches!(self, LeaderTransport::Rings(_))
    }
}

impl LeaderChannel {
    pub(crate) fn new(transport: LeaderTransport, topology: &Topology, deadline: Option<Duration>) -> Self {
        let (node, leads, me) = (topology.node(), topology.leads(), topology.rank());
        let (peers, call, error, job_ranks) = (Vec::new(), None, None, None);
        let mut channel = LeaderChannel { transport, peers, node, leads, me, deadline, call, error, job_ranks };
        channel.set_peers(topology);
        channel
    }

    /// Exchanges from here on with the peers that `topology` has, the same on all ranks and between two calls.
    pub(crate) fn set_peers(&mut self, topology: &Topology) {
        self.peers = topology.peers();
        if let LeaderTransport::Rings(rings) = &mut self.transport {
            rings.exchange_among(&self.peers);
        }
    }

    /// Adds the numbers in the job to the ranks that errors name, where the ranks `group` of `parent` are those of this channel.
    pub(super) fn number_as_in(&mut self, parent: &LeaderChannel, group: &[usize]) {
        let in_job = |rank: &usize| parent.job_ranks.as_ref().map_or(*rank, |ranks| ranks[*rank]);
        let job_ranks: Arc<[usize]> = group.iter().map(in_job).collect();
        match &mut self.transport {
            LeaderTransport::Rings(rings) => rings.set_job_ranks(job_ranks.clone()),
            LeaderTransport::Messages(job) => job.set_job_ranks(job_ranks.clone()),
        }
        self.job_ranks = Some(job_ranks);
    }

    /// All ranks of all nodes, if they share memory.
    pub(super) fn membership(&self) -> Option<Membership> {
        let LeaderTransport::Rings(rings) = &self.transport else { return None };
        Some(rings.membership())
    }

    /// Sets the ranks that this one waits for, all of `ranks` and any of `any_of`: the end of others fails none of its waits. By
    /// messages, a test for a message of a rank that is gone fails by itself.
    pub(crate) fn wait_for(&mut self, ranks: &[usize], any_of: Vec<usize>) {
        if let LeaderTransport::Rings(rings) = &mut self.transport {
            rings.wait_for(ranks, any_of);
        }
    }

    /// Returns whether a rank is known to have left.
    pub(crate) fn has_left(&self, rank: usize) -> bool {
        matches!(&self.transport, LeaderTransport::Rings(rings) if rings.has_left(rank))
    }

    /// Returns whether this rank exchanges with other nodes.
    fn is_endpoint(&self) -> bool {
        self.peers[self.node] == self.me
    }

    /// Begins a call on this rank, from which on other nodes may wait for this rank.
    pub(crate) fn begin_call(&mut self, collective: Collective, number: u64, signature: Signature) {
        self.call = Some(signature);
        let is_endpoint = self.is_endpoint();
        match &mut self.transport {
            LeaderTransport::Rings(rings) => {
                rings.name_call(collective, number, description(signature));
                if is_endpoint {
                    rings.begin(true);
                }
            }
            LeaderTransport::Messages(job) => job.begin_call(collective, number),
        }
    }

    /// Completes the exchange of the call on this rank: the end of its process fails the call no more.
    pub(crate) fn complete_call(&mut self) {
        if self.is_endpoint()
            && let LeaderTransport::Rings(rings) = &mut self.transport
        {
            rings.complete_exchange();
        }
    }

    /// Ends call `number` on this rank. By messages, deaths are noticed by their library.
    pub(crate) fn end_call(&mut self, number: u64) {
        if let LeaderTransport::Rings(rings) = &self.transport {
            rings.end_call(number);
        }
    }

    /// Compares this rank's calls with those of ranks that have closed the communicator, as far as they share memory.
    pub(super) fn close(&mut self, calls: u64, history: u32) -> Result<(), Error> {
        let LeaderTransport::Rings(rings) = &self.transport else { return Ok(()) };
        rings.healthy()?;
        match rings.close(calls, history) {
            Some(other) => Err(self.report(self.mismatch([self.me, other], self.call))),
            None => Ok(()),
        }
    }

    /// The same as [`LeaderTransport::is_a_network`].
    pub(crate) fn is_a_network(&self) -> bool {
        self.transport.is_a_network()
    }

    /// Returns whether the ranks are known to outnumber the CPUs that all of them share, so that nodes and leaders cannot work at the
    /// same time: the same on all ranks.
    pub(super) fn outnumbers_cpus(&self) -> bool {
        matches!(&self.transport, LeaderTransport::Rings(rings) if rings.outnumbers_cpus())
    }

    /// The transport between the nodes of a group of the ranks `group`, in which this rank is `me`, if that is MPI. All ranks
    /// call it.
    pub(crate) fn split(&mut self, group: &[usize], me: Option<usize>) -> Result<Option<LeaderTransport>, Error> {
        let LeaderTransport::Messages(job) = &mut self.transport else { return Ok(None) };
        Ok(job.split(group, me)?.map(|part| LeaderTransport::Messages(Box::new(part))))
    }

    /// Returns whether this thread may make calls.
    pub(crate) fn may_call(&mut self) -> Result<(), Error> {
        let LeaderTransport::Messages(job) = &mut self.transport else { return Ok(()) };
        job.transport().may_call().map_err(|failure| Error::usage(failure.to_string()))
    }

    /// Returns whether this thread, which waits in another call, may make progress in the started calls of this channel.
    pub(crate) fn may_be_driven(&mut self, was_here_last: bool) -> bool {
        let LeaderTransport::Messages(job) = &mut self.transport else { return true };
        job.transport().may_be_driven(was_here_last)
    }

    /// A rank among `ranks` that will not come to their rendezvous, that of the number `joining` if it has one.
    pub(super) fn absent(&mut self, ranks: &[usize], joining: Option<u64>) -> Option<usize> {
        match &mut self.transport {
            LeaderTransport::Rings(rings) => rings.absent(ranks, joining),
            // A rank that cannot come has failed the job.
            LeaderTransport::Messages(_) => self.progress().err().and(ranks.first().copied()),
        }
    }

    /// Announces that this rank has given up joining a group of this number. Groups of messages are formed by their library.
    pub(super) fn give_up(&mut self, joining: u64) {
        if let LeaderTransport::Rings(rings) = &self.transport {
            rings.give_up(joining);
        }
    }

    /// Fails the job, unless it has failed already. Returns the first error of the job, the same for all ranks.
    pub(crate) fn report(&mut self, fault: Fault) -> Error {
        let error = match &mut self.transport {
            LeaderTransport::Rings(rings) => rings.raise(fault),
            LeaderTransport::Messages(job) => job.report(&fault, self.leads),
        };
        self.error.get_or_insert(error).clone()
    }

    /// The fault of two ranks that make different calls, this one the call `mine`; each is described as far as it is known here.
    pub(super) fn mismatch(&self, ranks: [usize; 2], mine: Option<Signature>) -> Fault {
        match &self.transport {
            // A started call is described by leaders only, when they come to it.
            LeaderTransport::Rings(rings) if mine.is_some_and(|call| !call.is_started()) => rings.mismatch(ranks),
            _ => Fault::Mismatch { ranks, calls: [mine.filter(|_| ranks[0] == self.me).map(description), None] },
        }
    }

    /// Checks whether the job has failed and, after `passes` passes of a wait, whether its peers live, for a caller that rests by itself.
    pub(crate) fn check(&mut self, passes: u32) -> Result<(), Failure> {
        match &mut self.transport {
            LeaderTransport::Rings(rings) if passes > 0 => rings.look(passes).map_err(|error| self.keep_error(error)),
            _ => self.progress(),
        }
    }

    /// Sets the budget from which the rings between nodes take their memory.
    pub(crate) fn set_memory_budget(&mut self, memory_budget: MemoryBudget) {
        if let LeaderTransport::Rings(rings) = &mut self.transport {
            rings.set_memory_budget(memory_budget);
        }
    }

    pub(crate) fn set_progress(&mut self, progress: Option<Progress>) {
        match &mut self.transport {
            LeaderTransport::Rings(rings) => rings.set_progress(progress),
            LeaderTransport::Messages(job) => job.transport().set_progress(progress),
        }
    }

    /// Records the failure that the transport of messages returned, if another rank has reported it to all. A death is reported at
    /// once, because the rank's number is that of no node.
    fn keep_failure(&mut self, failure: Failure) -> Failure {
        match (failure, &self.transport) {
            (Failure::PeerDied { rank }, LeaderTransport::Messages(_)) => {
                let error = self.report(Fault::PeerDied { rank });
                self.keep_error(error)
            }
            (failure @ Failure::Reported { .. }, LeaderTransport::Messages(job)) => {
                self.error.get_or_insert(job.error_of(&failure));
                failure
            }
            (failure, _) => failure,
        }
    }

    /// Keeps the first error of the job. Returns it as a failure of the transport.
    fn keep_error(&mut self, error: Error) -> Failure {
        let failure = Failure::Transport(error.to_string());
        self.error.get_or_insert(error);
        failure
    }
}

/// The description of a call of this signature.
pub(super) fn description(signature: Signature) -> CallDescription {
    CallDescription::new(signature, choice::plan_marked(signature.number_within()))
}

impl GroupTransport for LeaderChannel {
    /// The deadline over messages; rings have their own.
    fn deadline(&self) -> Option<Duration> {
        self.deadline.filter(|_| self.is_a_network()).map(|deadline| 3 * deadline)
    }

    /// The error that the job failed with, as far as this rank knows.
    fn error(&self) -> Option<&Error> {
        self.error.as_ref()
    }
}

impl Transport for LeaderChannel {
    fn rank(&self) -> usize {
        self.node
    }

    fn size(&self) -> usize {
        self.peers.len()
    }

    fn packet_bytes(&self) -> usize {
        match &self.transport {
            LeaderTransport::Rings(rings) => rings.packet_bytes(),
            LeaderTransport::Messages(job) => job.packet_bytes(),
        }
    }

    fn post_send(
        &mut self,
        to: usize,
        head: PacketHeader,
        bytes: usize,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<bool, Failure> {
        let to = self.peers[to];
        match &mut self.transport {
            LeaderTransport::Rings(rings) => {
                send_packet(rings, to, head, bytes, write).map_err(|error| self.keep_error(error))
            }
            LeaderTransport::Messages(job) => {
                job.transport().post_send(to, head, bytes, write).map_err(|failure| self.keep_failure(failure))
            }
        }
    }

    fn post_receive(&mut self, from: usize, bytes: usize) -> Result<(), Failure> {
        let LeaderTransport::Messages(job) = &mut self.transport else { return Ok(()) };
        job.transport().post_receive(self.peers[from], bytes)
    }

    fn receive(
        &mut self,
        from: usize,
        take: impl FnOnce(PacketHeader, &[u8]) -> PacketDecision,
    ) -> Result<bool, Failure> {
        let from = self.peers[from];
        match &mut self.transport {
            LeaderTransport::Rings(rings) => receive_packet(rings, from, take).map_err(|error| self.keep_error(error)),
            LeaderTransport::Messages(job) => {
                job.transport().receive(from, take).map_err(|failure| self.keep_failure(failure))
            }
        }
    }

    fn is_flushed(&mut self) -> Result<bool, Failure> {
        let LeaderTransport::Messages(job) = &mut self.transport else { return Ok(true) };
        job.transport().is_flushed().map_err(|failure| self.keep_failure(failure))
    }

    fn progress(&mut self) -> Result<(), Failure> {
        match &mut self.transport {
            LeaderTransport::Rings(rings) => rings.healthy().map_err(|error| self.keep_error(error)),
            LeaderTransport::Messages(job) => job.transport().progress().map_err(|failure| self.keep_failure(failure)),
        }
    }

    fn idle(&mut self, passes: u32) -> Result<(), Failure> {
        match &mut self.transport {
            LeaderTransport::Rings(rings) => rings.idle(passes).map_err(|error| self.keep_error(error)),
            LeaderTransport::Messages(job) => {
                job.transport().idle(passes).map_err(|failure| self.keep_failure(failure))
            }
        }
    }

    fn raise(&mut self, failure: Failure) -> Failure {
        let peer = |node: usize| self.peers[node.min(self.peers.len() - 1)];
        // Described by this rank's call where it is one of the two.
        let differ = |a: usize, b: usize| {
            let (a, b) = (peer(a), peer(b));
            let ranks = if b == self.me { [b, a] } else { [a, b] };
            self.mismatch(ranks, self.call)
        };
        let fault = match failure {
            Failure::PeerDied { rank } => Fault::PeerDied { rank: peer(rank) },
            Failure::Timeout { missing, after } => {
                // The time waited is a multiple of the deadline.
                let after = self.deadline.unwrap_or(after);
                Fault::Timeout { missing: peer(missing), after_ns: earlybird_shm::nanoseconds(after) }
            }
            Failure::Mismatch { rank_a, rank_b } => differ(rank_a, rank_b),
            // Neither rings nor MPI lose packets, so these belong to another call.
            Failure::Lost { from, to, .. } => differ(from, to),
            Failure::Reported { .. } => Fault::Corrupt,
            Failure::Transport(text) => Fault::Other(text),
        };
        let error = self.report(fault);
        self.keep_error(error)
    }
}
