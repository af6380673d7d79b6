//! Ranks as a grid: a communicator per row and one per column, each summing on its own.
//!
//! `cargo build --release --example rows_and_columns`, then
//! `cargo run --release --features cli -- run -n 6 -- target/release/examples/rows_and_columns`
use earlybird::{Communicator, Op};

/// Columns of the grid.
const WIDTH: usize = 3;

fn main() -> Result<(), earlybird::Error> {
    let comm = Communicator::from_env()?;
    let (row, column) = (comm.rank() / WIDTH, comm.rank() % WIDTH);
    let along_row = comm.split(Some(row as u32), 0)?.expect("every rank gave a color");
    let along_column = comm.split(Some(column as u32), 0)?.expect("every rank gave a color");
    let mut sums = [[comm.rank() as u64], [comm.rank() as u64]];
    along_row.all_reduce_in_place(&mut sums[0], Op::Sum)?;
    along_column.all_reduce_in_place(&mut sums[1], Op::Sum)?;
    println!("rank {} at ({row}, {column}): row sum {}, column sum {}", comm.rank(), sums[0][0], sums[1][0]);
    Ok(())
}
