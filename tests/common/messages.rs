//! Receives of messages whose bytes a test reads afterwards: the library keeps the buffer of a receive until that has ended.

use earlybird::{Delivery, Error, PointToPoint, Transfer};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The bytes of a message, once its receive has ended.
#[derive(Default, Clone)]
pub struct Received(Arc<Mutex<Vec<u8>>>);

impl Received {
    pub fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}

/// The buffer of a receive, which gives its bytes away when the library drops it.
struct Filling(Received, Vec<u8>);

impl AsMut<[u8]> for Filling {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.1
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        *self.0.0.lock().unwrap() = std::mem::take(&mut self.1);
    }
}

/// Starts a receive of so many bytes.
pub fn receive(
    messages: &PointToPoint,
    from: Option<usize>,
    tag: u32,
    length: usize,
) -> Result<(Transfer, Received), Error> {
    let received = Received::default();
    let transfer = messages.receive(from, tag, Filling(received.clone(), vec![0; length]))?;
    Ok((transfer, received))
}

/// Waits until a transfer has ended.
pub fn end(messages: &PointToPoint, transfer: &Transfer) -> Result<Delivery, Error> {
    loop {
        if let Some(delivery) = messages.wait(transfer, Duration::from_secs(60))? {
            return Ok(delivery);
        }
    }
}
