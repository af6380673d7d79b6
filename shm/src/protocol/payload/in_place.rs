//! The parts of a buffer in place that are a rank's own: what it sends of it, and what it receives in it.

use super::Buffers;
use crate::protocol::geometry::Exchange;

impl Buffers<'_> {
    /// The same buffers as rank `rank` of `exchange` uses them: nothing else of a buffer in place is sent or written. Buffers apart
    /// stay as they are.
    pub fn own_parts(self, exchange: &Exchange<'_>, rank: usize) -> Self {
        if !self.are_in_place() {
            return self;
        }
        let own = exchange.block_of(rank).filter(|own| own.end <= self.count);
        let traits = exchange.traits;
        match own {
            _ if !exchange.depositors.has(rank) => self.without_send(),
            _ if !exchange.readers.has(rank) => self.without_recv(),
            // A rank that both sends and receives a block for each has all of the buffer as its own.
            Some(own) if traits.joins() && !traits.in_parts => self.with_own_send(own),
            Some(own) if traits.in_parts && !traits.joins() => self.with_own_recv(own),
            _ => self,
        }
    }
}
