//! The smallest program: every rank contributes, every rank gets the sum.
//!
//! `cargo build --release --example quickstart`, then
//! `cargo run --release --features cli -- run -n 4 -- target/release/examples/quickstart`
use earlybird::{Communicator, Op};

fn main() -> Result<(), earlybird::Error> {
    let comm = Communicator::from_env()?;
    let mut gradient = vec![comm.rank() as f32; 1000];
    comm.all_reduce_in_place(&mut gradient, Op::Sum)?;
    println!("rank {} of {}: every element is {}", comm.rank(), comm.size(), gradient[0]);
    Ok(())
}
