//! Calls over several nodes that can be posted: refused here, as on one node, if their buffers have not the lengths they need.

use super::Across;
use crate::hierarchy::Prepared;
use crate::{Element, Error, Op};
use earlybird_shm::{Collective, Owned};

impl Across<'_> {
    /// A call that can be posted: as on one node, refused here if its buffers have not the lengths that it needs.
    pub(in crate::communicator) fn prepared<T: Element>(
        &self,
        collective: Collective,
        op: Op,
        root: Option<usize>,
        owned: Owned<T>,
    ) -> Result<Prepared, Error> {
        if let Some(root) = root {
            self.root(root)?;
        }
        if collective.folds() {
            T::DTYPE.must_have(op)?;
        }
        let (send, recv, size) = (owned.send.len(), owned.recv.len(), self.comm.size());
        let gets_all = root.is_none_or(|root| root == self.comm.rank());
        let (block, expected) = match collective {
            _ if owned.is_in_place() => (recv, [0, recv]),
            Collective::AllReduce | Collective::Reduce => (send, [send, if gets_all { send } else { 0 }]),
            Collective::AllGather | Collective::Gather => (send, [send, if gets_all { self.of_all(send)? } else { 0 }]),
            Collective::Scatter => (recv, [if gets_all { self.of_all(recv)? } else { 0 }, recv]),
            Collective::ReduceScatter => (recv, [self.of_all(recv)?, recv]),
            Collective::AllToAll if !send.is_multiple_of(size) => {
                return Err(Error::usage(format!(
                    "a buffer of {send} elements does not divide among {size} ranks; give a multiple"
                )));
            }
            Collective::AllToAll => (send / size, [send, send]),
            _ => (recv, [0, recv]),
        };
        self.lengths([send, recv], expected)?;
        let signature = self.call::<T>(collective, op, block, root).signature.posted();
        Ok(Prepared::new((collective, op, root), signature, owned))
    }
}
