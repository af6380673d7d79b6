//! Numbers sorted across ranks: each has some, and sends those of every range to the rank that keeps the range. How many
//! those are differs for every pair of ranks.
//!
//! `cargo run --release --features cli -- run -n 4 -- target/release/examples/sort`
use earlybird::{Communicator, Op};

fn main() -> Result<(), earlybird::Error> {
    let comm = Communicator::from_env()?;
    let (rank, ranks) = (comm.rank(), comm.size());
    let width = 1 << 16; // of a rank's range
    let mut mine: Vec<u64> = (0..5_000 + 1_000 * rank as u64)
        .map(|i| (i * 7_919 + rank as u64 * 104_729) % (width * ranks as u64))
        .collect();
    mine.sort_unstable();

    let mut counts = vec![0; ranks];
    mine.iter().for_each(|number| counts[(number / width) as usize] += 1);
    // What others send here, one count from each; then the numbers.
    let mut coming = vec![0u64; ranks];
    comm.all_to_all_into(&counts.iter().map(|n| *n as u64).collect::<Vec<_>>(), &mut coming)?;
    let coming: Vec<usize> = coming.iter().map(|n| *n as usize).collect();
    let mut kept = vec![0; coming.iter().sum()];
    comm.all_to_all_varcount_into(&mine, &counts, &mut kept, &coming)?;
    kept.sort_unstable();

    assert!(kept.iter().all(|number| (number / width) as usize == rank));
    let mut totals = [mine.len() as u64, kept.len() as u64];
    comm.all_reduce_in_place(&mut totals, Op::Sum)?;
    assert_eq!(totals[0], totals[1]);
    if rank == 0 {
        println!("{} numbers sorted on {ranks} ranks", totals[0]);
    }
    Ok(())
}
