//! Back-to-back 8-byte all-reduces in place, for `benches/instructions/run`, which copies this file into a package of its own.

use earlybird::{Communicator, Error, Op};

/// Makes the call whose instructions are counted.
#[inline(never)]
fn measured_call(comm: &Communicator, x: &mut [f64]) -> Result<(), Error> {
    comm.all_reduce_in_place(x, Op::Sum)
}

fn main() -> Result<(), Error> {
    let calls: usize = std::env::args().nth(1).and_then(|a| a.parse().ok()).expect("the number of calls");
    let comm = Communicator::from_env()?;
    let mut x = [1.0];
    for _ in 0..calls {
        x[0] = 1.0;
        measured_call(&comm, &mut x)?;
        assert_eq!(x[0], comm.size() as f64);
    }
    Ok(())
}
