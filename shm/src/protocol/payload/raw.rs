//! Buffers of elements of which only the size is known.

use super::Buffers;
use crate::Error;
use crate::op::ElementType;

impl<'a> Buffers<'a> {
    /// What is given, unless it lies in `recv`, and the place of what is got, each of its own length.
    ///
    /// # Errors
    /// [`Error::Usage`] for a buffer that is no whole number of elements.
    pub fn raw(send: Option<&'a [u8]>, recv: &'a mut [u8], element: ElementType) -> Result<Self, Error> {
        let bytes = element.size();
        for len in [send.map_or(0, <[u8]>::len), recv.len()] {
            if !len.is_multiple_of(bytes) {
                return Err(Error::usage(format!(
                    "a buffer of {len} bytes is no whole number of elements of {bytes} bytes"
                )));
            }
        }
        let buffers = match send {
            Some(send) => Self::two(send, recv, element),
            None => Self::one(recv, element),
        };
        let Buffers { count, send_count, recv_count, .. } = buffers;
        Ok(Buffers { count: count / bytes, send_count: send_count / bytes, recv_count: recv_count / bytes, ..buffers })
    }
}
