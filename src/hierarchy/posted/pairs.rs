//! The posted alltoall of blocks that differ for every pair: as the blocking one in `../pairs.rs`. Counts are given in the
//! posting call, data once all counts have been compared, so that a rank must come back to the communicator for its data to
//! go out.

use super::calls::{both, from_leader, gets, in_place, parts_of};
use super::steps::{Operation, Steps};
use super::{Begun, Work};
use crate::Error;
use crate::hierarchy::alltoallv::{PairCounts, Table, difference, first_of, parts_of_words, told_words, totals};
use earlybird_shm::Collective;

/// The counts of one rank, kept.
#[derive(Debug, Clone)]
pub(crate) struct OwnedPairCounts {
    pub send: Vec<usize>,
    pub recv: Vec<usize>,
    pub element_bytes: usize,
}

/// What to do with these bytes to send.
pub(super) fn begin(counts: &OwnedPairCounts, given: Vec<u8>, steps: Steps) -> Begun {
    let counts = counts.clone();
    let work: Work = Box::pin(async move {
        match exchange(&steps, &counts, given).await {
            // Nothing was moved, and the communicator goes on.
            Ok(Err(differ)) => Err(differ),
            Ok(Ok(got)) => Ok(Some(got)),
            Err(error) => steps.end(Err(error)),
        }
    });
    (work, "direct")
}

/// What came, or what differs.
async fn exchange(steps: &Steps, counts: &OwnedPairCounts, given: Vec<u8>) -> Result<Result<Vec<u8>, Error>, Error> {
    let (topology, leads) = (steps.topology(), steps.topology().leads());
    let OwnedPairCounts { send, recv, element_bytes } = counts;
    let words = PairCounts { send, recv, element_bytes: *element_bytes }.words();
    let room = vec![0u64; if leads { words.len() * topology.here().len() } else { 0 }];
    let to_leader = Operation::new(Collective::Gather, earlybird_shm::Op::Sum, Some(0));
    let all = steps.give(to_leader, both(words, room)).await?;
    let mut told = vec![0u64; told_words(topology)];
    let table = leads.then(|| Table::new(topology, &all, *element_bytes));
    if let Some(table) = &table {
        let (ours, mut theirs) = (table.given(), table.room());
        steps.swap_first(&mut parts_of_words(&ours, &mut theirs)).await?;
        theirs[topology.node()].clone_from(&ours[topology.node()]);
        let verdicts = vec![table.judge(&theirs).to_vec(); topology.nodes()];
        let mut of_all = verdicts.clone();
        steps.swap_first(&mut parts_of_words(&verdicts, &mut of_all)).await?;
        told = table.told(first_of(&of_all));
    }
    let told = steps.take_first(from_leader(), if leads { in_place(told) } else { gets(told) }).await?;
    if let Some(differ) = difference(&told) {
        steps.pass_exchange();
        steps.take::<u8>(None).await?;
        return Ok(Err(differ));
    }
    let (gives, takes) = totals(&told, *element_bytes);
    let room = vec![0; if leads { gives.iter().sum() } else { 0 }];
    let given = steps.take_first(Operation::of_parts(Collective::Gather, gives), both(given, room)).await?;
    let mut got = Vec::new();
    if let Some(table) = &table {
        let (mut ours, mut theirs) = (table.pack(&given), table.rooms());
        drop(given);
        steps.swap(&mut parts_of(&ours, &mut theirs)).await?;
        std::mem::swap(&mut ours[topology.node()], &mut theirs[topology.node()]);
        got = table.unpack(&theirs);
    }
    let room = vec![0; takes[topology.local()]];
    Ok(Ok(steps.take(Some((Operation::of_parts(Collective::Scatter, takes), both(got, room)))).await?))
}
