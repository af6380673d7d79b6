//! Every rank finds a different number of results; the root collects them all, in rank order.
//!
//! `cargo run --release --features cli -- run -n 4 -- target/release/examples/gather_results`
use earlybird::Communicator;

fn main() -> Result<(), earlybird::Error> {
    let comm = Communicator::from_env()?;
    let root = comm.process_at_rank(0);
    // The prime numbers in this rank's part of the first thousand.
    let share = 1000 / comm.size() as u64 + 1;
    let first = share * comm.rank() as u64;
    let is_prime = |n: &u64| *n > 1 && (2..*n).take_while(|d| d * d <= *n).all(|d| !n.is_multiple_of(d));
    let mine: Vec<u64> = (first..first + share).filter(|n| *n < 1000).filter(is_prime).collect();

    let mut counts = vec![0u64; comm.size()];
    comm.all_gather_into(&[mine.len() as u64], &mut counts)?;
    let counts: Vec<usize> = counts.iter().map(|count| *count as usize).collect();
    if comm.rank() == root.rank() {
        let mut all = vec![0; counts.iter().sum()];
        root.gather_varcount_into_root(&mine, &mut all, &counts)?;
        assert!(all.is_sorted() && all.len() == 168);
        println!("{} primes below 1000, found as {counts:?}; the last is {}", all.len(), all[all.len() - 1]);
    } else {
        // Leaves at once, however late the root comes.
        root.gather_varcount_into(&mine, &counts)?;
    }
    Ok(())
}
