//! Joining for messages between two ranks: over rings of their own where all ranks share memory, else over messages of their own.

use super::Communicator;
use super::point_to_point::PointToPoint;
use crate::Error;
use crate::hierarchy::LeaderTransport;
use earlybird_shm::Collective;
use earlybird_shm::channel::{RingOptions, Rings};
use std::sync::{Arc, PoisonError};

impl Communicator {
    /// Messages between the ranks of this communicator: the same at every call. All ranks make the first call, which joins them;
    /// memory for the messages of two ranks is taken at the first one.
    ///
    /// # Errors
    /// The errors of [`Communicator::split`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// let comm = earlybird::Communicator::from_env()?;
    /// let (rank, size) = (comm.rank(), comm.size());
    /// if size > 1 {
    ///     let messages = comm.point_to_point()?;
    ///     let sent = messages.send((rank + 1) % size, 0, [rank as u8])?;
    ///     let received = messages.receive(Some((rank + size - 1) % size), 0, [0u8])?;
    ///     while messages.wait(&received, Duration::from_secs(1))?.is_none() {}
    ///     while messages.wait(&sent, Duration::from_secs(1))?.is_none() {}
    /// }
    /// # Ok::<(), earlybird::Error>(())
    /// ```
    pub fn point_to_point(&self) -> Result<Arc<PointToPoint>, Error> {
        let mut joined = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(joined) = &*joined {
            return Ok(joined.clone());
        }
        let transport = match self.across() {
            Some(across) => across.connect_messages()?,
            None => {
                self.plans.begin_other_call();
                let key = format!("{}-messages", self.plans.name());
                let options = RingOptions { key, ..self.plans.options.clone() };
                let rings =
                    self.join_between_barriers(Collective::Connect, |absent| Rings::join_within(&options, absent));
                LeaderTransport::Rings(Box::new(self.done(rings)?))
            }
        };
        let made = Arc::new(PointToPoint::over(transport, self.rank, self.size, self.plans.options.timeout)?);
        *joined = Some(made.clone());
        Ok(made)
    }
}
