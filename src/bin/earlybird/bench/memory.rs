//! The memory that the buffers of a benchmark take: a size that this machine cannot hold is refused before anything starts.

use crate::chart::in_bytes;
use earlybird::{Collective, Error, probe};

/// Refuses sizes whose buffers do not fit into the memory that is available; blocks are up to `skew` per cent longer.
///
/// # Errors
/// [`Error::Usage`] with the largest size, what it needs and what there is.
pub fn must_suffice(op: Collective, sizes: &[u64], ranks: usize, skew: u8) -> Result<(), Error> {
    let Some(largest) = sizes.iter().copied().max() else { return Ok(()) };
    let traits = op.traits();
    let blocks = [traits.in_parts, traits.joins()].map(|all| if all { ranks as u64 } else { 1 });
    let block = largest.saturating_add(largest / 100 * u64::from(skew));
    let needed = block.saturating_mul(blocks.iter().sum()).saturating_mul(ranks as u64);
    match probe::node_available_bytes() {
        Some(available) if needed > available => {
            let [size, needed, available] = [largest, needed, available].map(|bytes| in_bytes(bytes as f64));
            Err(Error::usage(format!(
                "--sizes {size}: the buffers of {ranks} ranks take {needed} bytes and {available} are available; give smaller sizes"
            )))
        }
        _ => Ok(()),
    }
}
