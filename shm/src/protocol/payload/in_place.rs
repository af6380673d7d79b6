//! Which part of a buffer that a rank gives for both is its own: what it sends of it, and what it receives in it.

use super::Buffers;
use crate::protocol::geometry::Exchange;
use crate::protocol::signature::Collective;

impl Buffers<'_> {
    /// The same buffers as rank `rank` of `exchange` uses them, which is that of `collective`: nothing else of a buffer in place
    /// is sent or written. Buffers apart stay as they are.
    pub fn own_parts(self, collective: Collective, exchange: &Exchange<'_>, rank: usize) -> Self {
        if !self.are_in_place() {
            return self;
        }
        let own = exchange.block_of(rank).filter(|own| own.end <= self.count);
        match (collective, own) {
            (Collective::Broadcast, _) if !exchange.depositors.has(rank) => self.without_send(),
            (Collective::Reduce, _) if !exchange.readers.has(rank) => self.without_recv(),
            (Collective::AllGather | Collective::Gather, Some(own)) => self.with_own_send(own),
            (Collective::Scatter | Collective::ReduceScatter, Some(own)) => self.with_own_recv(own),
            _ => self,
        }
    }
}
