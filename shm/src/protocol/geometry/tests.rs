//! Every element reaches its reader once, however a call is cut.

use super::*;
use crate::protocol::collective::Prefix;
use crate::protocol::window::{Window, announced_stride};

const COLLECTIVES: [Collective; 9] = [
    Collective::Broadcast,
    Collective::Gather,
    Collective::AllGather,
    Collective::Scatter,
    Collective::AllToAll,
    Collective::ReduceScatter,
    Collective::Reduce,
    Collective::Scan,
    Collective::ExclusiveScan,
];

#[test]
fn a_deposit_that_nobody_reads_is_known() {
    for (collective, ranks) in COLLECTIVES.into_iter().flat_map(|c| (1..6).map(move |ranks| (c, ranks))) {
        for (root, depositor) in (0..ranks).flat_map(|root| (0..ranks).map(move |depositor| (root, depositor))) {
            let x = Exchange::new(collective, root, ranks, Lens::Equal(1));
            let by = |reader: usize, own| x.receives(reader, depositor) && (own || reader != depositor);
            for own in [false, true].into_iter().filter(|_| x.depositors.has(depositor)) {
                let expected = (0..ranks).any(|reader| by(reader, own));
                assert_eq!(x.is_read(depositor, own), expected, "{x:?}, {depositor}, {own}");
            }
        }
    }
}

/// Plays all windows on plain vectors; every element a reader should get comes exactly once and from its place.
fn play(x: &Exchange<'_>, ranks: usize, window_bytes: usize) {
    let mut got: Vec<Vec<Vec<(usize, usize)>>> = (0..ranks).map(|r| vec![vec![]; x.recv_count(r)]).collect();
    for w in x.windows(8, window_bytes) {
        assert!(w.deposit_most() * 8 <= window_bytes, "{w:?}");
        for depositor in (0..ranks).filter(|r| x.depositors.has(*r)) {
            let mut deposit = vec![None; w.deposit(depositor)];
            for (_, at, from) in w.blocks(depositor) {
                for (i, slot) in at.enumerate() {
                    assert!(deposit[slot].replace(from + i).is_none(), "{w:?}");
                }
            }
            for (reader, result) in got.iter_mut().enumerate() {
                for (i, at) in w.part(depositor, reader).enumerate() {
                    let sent = deposit[at].expect("a reader receives what was written");
                    result[w.place_of(depositor) + i].push((depositor, sent));
                }
            }
        }
    }
    for (reader, result) in got.iter_mut().enumerate() {
        for (i, sources) in result.iter_mut().enumerate() {
            sources.sort_unstable();
            let mut expected = Vec::new();
            for depositor in x.sources(reader) {
                let from = if x.traits.in_parts { x.start(reader, true) } else { 0 };
                let len = x.len(depositor, reader);
                let at = x.place_of(depositor);
                (at..at + len).contains(&i).then(|| expected.push((depositor, from + i - at)));
            }
            assert_eq!(sources, &expected, "{x:?} reader {reader} element {i}");
            let is_first = x.traits.prefix == Some(Prefix::Exclusive) && reader == 0;
            assert!(!expected.is_empty() || is_first, "{x:?} reader {reader} element {i} comes from nowhere");
        }
    }
}

/// As [`play`] for blocks that differ for every pair: each rank cuts by what it knows itself.
#[test]
fn every_element_of_every_pair_reaches_its_reader_once() {
    for ranks in [1, 2, 3, 5, 9] {
        let count = |from: usize, to: usize| [3, 0, 700, 1, 64, 0, 130][(from * 3 + to) % 7];
        let rows: Vec<[Vec<usize>; 2]> = (0..ranks)
            .map(|r| [(0..ranks).map(|to| count(r, to)).collect(), (0..ranks).map(|from| count(from, r)).collect()])
            .collect();
        let starts: Vec<[Vec<usize>; 2]> = rows
            .iter()
            .map(|row| [0, 1].map(|side| (0..=ranks).map(|r| row[side][..r].iter().sum()).collect()))
            .collect();
        let most = rows.iter().flat_map(|row| &row[0]).copied().max().unwrap();
        let exchanges: Vec<_> = (0..ranks)
            .map(|me| {
                let ([send, recv], [send_starts, recv_starts]) = (&rows[me], &starts[me]);
                let lens = Lens::Pairs(Pairs { me, most: Some(most), send, send_starts, recv, recv_starts });
                Exchange::new(Collective::AllToAll, 0, ranks, lens)
            })
            .collect();
        for window_bytes in [64, 512, 4096, 1 << 20] {
            let windows: Vec<Vec<_>> = exchanges.iter().map(|x| x.windows(8, window_bytes).collect()).collect();
            assert!(windows.iter().all(|w| w.len() == windows[0].len()), "all ranks make as many operations");
            let mut got: Vec<_> = (0..ranks).map(|r| vec![None; exchanges[r].recv_count(r)]).collect();
            for (depositor, theirs) in windows.iter().enumerate() {
                for (i, w) in theirs.iter().enumerate() {
                    let mut deposit = vec![None; w.deposit(depositor)];
                    assert!(deposit.len() <= w.deposit_most() && deposit.len() * 8 <= window_bytes);
                    for (_, at, from) in w.blocks(depositor) {
                        at.enumerate().for_each(|(k, slot)| deposit[slot] = Some((depositor, from + k)));
                    }
                    for (reader, result) in got.iter_mut().enumerate() {
                        let w = &windows[reader][i];
                        for (k, at) in w.part(depositor, reader).enumerate() {
                            assert!(result[w.place_of(depositor) + k].replace(deposit[at].unwrap()).is_none());
                        }
                    }
                }
            }
            for (reader, result) in got.iter().enumerate() {
                let expected = (0..ranks).flat_map(|from| {
                    let first = starts[from][0][reader];
                    (first..first + count(from, reader)).map(move |k| Some((from, k)))
                });
                assert_eq!(*result, expected.collect::<Vec<_>>(), "{ranks} ranks, rank {reader}");
            }
        }
    }
}

/// The same where no rank knows more than its own lengths: each cuts its first deposit by its own largest block, and a reader finds its
/// part in it by that. Long blocks that were to be read where they lie reach it, too, if that was refused.
#[test]
fn every_element_of_announced_lengths_reaches_its_reader_once() {
    let cases = [(2, 4096), (3, 512), (3, 4096), (5, 1 << 20), (9, 512)];
    for ((ranks, window_bytes), read) in cases.into_iter().flat_map(|case| [(case, false), (case, true)]) {
        let stride = announced_stride(ranks, 8, window_bytes);
        let read = read && stride > 0;
        let count = |from: usize, to: usize| [3, 0, 700, 1, 64, 0, 130][(from * 3 + to) % 7];
        let row = |r: usize, sent: bool| -> Vec<usize> {
            (0..ranks).map(|other| if sent { count(r, other) } else { count(other, r) }).collect()
        };
        let starts = |lens: &[usize]| -> Vec<usize> { (0..=ranks).map(|r| lens[..r].iter().sum()).collect() };
        let rows: Vec<[Vec<usize>; 4]> = (0..ranks)
            .map(|r| {
                let (send, recv) = (row(r, true), row(r, false));
                let of = [starts(&send), starts(&recv)];
                let [send_starts, recv_starts] = of;
                [send, send_starts, recv, recv_starts]
            })
            .collect();
        let exchange = |me: usize, most: Option<usize>| {
            let [send, send_starts, recv, recv_starts] = &rows[me];
            let lens = Lens::Pairs(Pairs { me, most, send, send_starts, recv, recv_starts });
            Exchange::new(Collective::AllToAll, 0, ranks, lens)
        };
        let unknown: Vec<_> = (0..ranks).map(|me| exchange(me, None)).collect();
        let all = unknown.iter().fold(Lengths::default(), |all, x| all.and(x.own_lengths()));
        assert_eq!(all.difference, 0);
        let known: Vec<_> = (0..ranks).map(|me| exchange(me, Some(all.largest))).collect();
        // The windows of a reader for a depositor, and those of the depositor.
        let windows = |me: usize, depositor: usize| -> Vec<Window<'_>> {
            let announced = unknown[me].announced(stride, read);
            let first = announced.narrowed(unknown[depositor].own_lengths().largest, 8);
            assert!(first.deposit_most() * 8 <= window_bytes && announced.announces());
            assert_eq!(announced.stride() > 0, ranks * 64 <= window_bytes);
            let left = (all.largest > announced.stride()).then(|| match announced.reads(all.largest) {
                // They could not be read, and are deposited after all.
                true => known[me].whole().of_blocks(announced.stride(), usize::MAX),
                false => known[me].beginning_with(announced.stride()),
            });
            std::iter::once(first).chain(left.into_iter().flat_map(|left| left.parts(8, window_bytes))).collect()
        };
        for reader in 0..ranks {
            let mut got = vec![None; unknown[reader].recv_count(reader)];
            for from in (0..ranks).filter(|from| *from != reader) {
                for (w, theirs) in windows(reader, from).iter().zip(windows(from, from)) {
                    let mut deposit = vec![None; theirs.deposit(from)];
                    for (_, at, first) in theirs.blocks(from) {
                        at.enumerate().for_each(|(k, slot)| deposit[slot] = Some((from, first + k)));
                    }
                    for (k, at) in w.part(from, reader).enumerate() {
                        assert!(got[w.place_of(from) + k].replace(deposit[at].unwrap()).is_none());
                    }
                }
            }
            let (first, to, len) = unknown[reader].own_block().unwrap_or_default();
            (0..len).for_each(|k| assert!(got[to + k].replace((reader, first + k)).is_none()));
            let expected = (0..ranks).flat_map(|from| {
                let first = rows[from][1][reader];
                (first..first + count(from, reader)).map(move |k| Some((from, k)))
            });
            assert_eq!(got, expected.collect::<Vec<_>>(), "{ranks} ranks, rank {reader}");
        }
    }
}

/// A result is folded from all ranks in one window, however large the elements are.
#[test]
fn what_is_folded_comes_from_all_ranks_at_once() {
    for (ranks, element_bytes, window_bytes) in [(9, 64, 576), (9, 100, 1000), (100, 8, 4096), (3, 1, 4096)] {
        let x = Exchange::new(Collective::ReduceScatter, 0, ranks, Lens::Equal(40));
        for w in x.windows(element_bytes, window_bytes) {
            assert!(w.deposit_most() * element_bytes <= window_bytes);
            assert!((0..ranks).all(|from| (0..ranks).all(|to| !w.part(from, to).is_empty())), "{w:?}");
        }
    }
}

#[test]
fn every_element_reaches_its_reader_once() {
    for collective in COLLECTIVES {
        for ranks in [1, 2, 3, 5, 9] {
            let lens: Vec<usize> = (0..ranks).map(|r| [3, 0, 700, 1, 64][r % 5]).collect();
            let starts: Vec<usize> = (0..=ranks).map(|r| lens[..r].iter().sum()).collect();
            for root in [0, ranks - 1] {
                for window_bytes in [64, 512, 4096, 1 << 20] {
                    for len in [0, 1, 13, 1000] {
                        play(&Exchange::new(collective, root, ranks, Lens::Equal(len)), ranks, window_bytes);
                    }
                    let traits = collective.traits();
                    if traits.joins() != traits.in_parts {
                        let lens = Lens::Each(&lens, &starts);
                        play(&Exchange::new(collective, root, ranks, lens), ranks, window_bytes);
                    }
                }
            }
        }
    }
}
