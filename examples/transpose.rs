//! A matrix lies in strips of rows, one strip per rank; an alltoall turns it into its transpose, again in strips.
//!
//! `cargo run --release --features cli -- run -n 4 -- target/release/examples/transpose`
use earlybird::Communicator;

fn main() -> Result<(), earlybird::Error> {
    let comm = Communicator::from_env()?;
    let (rank, ranks) = (comm.rank(), comm.size());
    let rows = 3; // of a strip
    let n = rows * ranks; // of the matrix, which is square
    let element = |row: usize, column: usize| (row * n + column) as f64;

    // For every rank the block of its columns, column by column: what it will hold as rows.
    let mut send = Vec::with_capacity(rows * n);
    for column in 0..n {
        send.extend((0..rows).map(|row| element(rank * rows + row, column)));
    }
    let mut blocks = vec![0.0; send.len()];
    comm.all_to_all_into(&send, &mut blocks)?;

    // Block by block the parts of this rank's rows of the transpose.
    for (from, block) in blocks.chunks(rows * rows).enumerate() {
        for (row, part) in block.chunks(rows).enumerate() {
            for (i, found) in part.iter().enumerate() {
                assert_eq!(*found, element(from * rows + i, rank * rows + row));
            }
        }
    }
    if rank == 0 {
        println!("a {n} x {n} matrix transposed on {ranks} ranks");
    }
    Ok(())
}
