//! The settings of published studies, and the table that compares as they do.

use super::args::{BenchArgs, Preset};
use super::row::Row;
use super::variant::Variant;
use crate::table::table;
use earlybird::pattern::Pattern;
use earlybird::{Algorithm, Choice, Collective, Error};

/// Sizes of ours, for want of the published ones.
const SIZES: [u64; 4] = [8, 1 << 10, 64 << 10, 1 << 20];

/// The compared algorithms: the baseline first, then the paper's algorithms 1 and 2 as this library has them, then its own choice.
const COMPARED: [Algorithm; 4] = [Algorithm::StaticLeader, Algorithm::Leader, Algorithm::Chain, Algorithm::Auto];

impl Preset {
    /// The numbers of ranks, one job each.
    pub fn ranks(self) -> &'static [usize] {
        match self {
            Preset::Alizadeh => &[4, 32],
        }
    }

    /// Puts in what was not given.
    ///
    /// # Errors
    /// [`Error::Usage`] for another operation than the study's.
    pub fn apply(self, args: &mut BenchArgs) -> Result<(), Error> {
        if args.op() != Collective::AllReduce {
            return Err(Error::usage(format!("the study measured allreduce; leave out {}", args.op().name())));
        }
        args.patterns = vec![Pattern::Random];
        args.mif = vec![10.0, 20.0, 50.0];
        args.sizes.get_or_insert_with(|| SIZES.to_vec());
        let compared = COMPARED.map(|algorithm| Variant::Library(Choice::Node(algorithm)));
        args.algorithms.get_or_insert_default().extend(compared);
        Ok(())
    }

    /// The table of improvements: how many times shorter the tail is than with a static leader.
    pub fn side_by_side(self, rows: &[Row]) -> String {
        let columns = COMPARED[1..].iter().flat_map(|algorithm| [format!("{algorithm} us"), "shorter".into()]);
        let header = ["ranks", "bytes", "MIF", "static-leader us"].map(str::to_owned).into_iter().chain(columns);
        let lines = rows.iter().filter(|row| row.algorithm == COMPARED[0].name()).map(|base| {
            let mif = base.mif.map_or("-".into(), |mif| mif.to_string());
            let mut cells =
                vec![base.ranks.to_string(), base.bytes.to_string(), mif, format!("{:.2}", base.tail_us_median)];
            for algorithm in &COMPARED[1..] {
                let row = rows.iter().find(|row| row.is_comparable_to(base) && row.algorithm == algorithm.name());
                let tail_us = row.map(|row| row.tail_us_median);
                cells.push(tail_us.map_or("-".into(), |us| format!("{us:.2}")));
                cells.push(tail_us.map_or("-".into(), |us| format!("{:.2}x", base.tail_us_median / us)));
            }
            cells
        });
        let table = table(&header.collect::<Vec<String>>(), lines.collect());
        format!(
            "Alizadeh and others, table 3: median tail (last arrival to last exit), how many times shorter than with a static \
             leader\n{table}\nleader and chain are the paper's algorithms 1 and 2; sizes are ours, MIF and ranks the study's.\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::row::tests::row;
    use super::*;

    #[test]
    fn improvements_are_over_the_static_leader_of_the_same_cell() {
        let at = |mif: f64, row: Row| Row { mif: Some(mif), ..row };
        let rows = [
            at(10.0, row(8, "static-leader", 6.0)),
            at(10.0, row(8, "chain", 2.0)),
            at(20.0, row(8, "static-leader", 8.0)),
            at(20.0, row(8, "leader", 16.0)),
            at(20.0, row(8, "auto", 4.0)),
        ];
        let text = Preset::Alizadeh.side_by_side(&rows);
        let lines: Vec<Vec<&str>> =
            text.lines().skip(2).take(2).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], "2 8 10 6.00 - - 2.00 3.00x - -".split(' ').collect::<Vec<_>>());
        assert_eq!(lines[1], "2 8 20 8.00 16.00 0.50x - - 4.00 2.00x".split(' ').collect::<Vec<_>>());
    }
}
