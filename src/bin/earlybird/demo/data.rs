//! The data that the demonstration learns from: measurements of wines and how tasters rated them.
//!
//! Source: P. Cortez, A. Cerdeira, F. Almeida, T. Matos and J. Reis, "Modeling wine preferences by data mining from
//! physicochemical properties", Decision Support Systems 47(4), 2009; UCI Machine Learning Repository, "Wine Quality"
//! (red wines), as it ships in the crate `linfa-datasets`.

use itertools::Itertools;
use ndarray::{Array2, Axis};

/// The source of the data, as printed.
pub const SOURCE: &str = "P. Cortez et al., Modeling wine preferences by data mining from physicochemical properties,\n\
                          \x20         Decision Support Systems 47(4), 2009; UCI Machine Learning Repository, Wine Quality";

/// Measurements per wine.
pub const FEATURES: usize = 11;

/// Some of the wines.
#[derive(Debug, Clone, PartialEq)]
pub struct Examples {
    /// Measurements, a row for each wine, each scaled to mean 0 and deviation 1 over all wines.
    pub features: Array2<f32>,
    /// Index of each wine's rating among the ratings that occur.
    pub classes: Vec<usize>,
}

impl Examples {
    /// Those whose place among these is taken.
    pub fn part(&self, takes: impl Fn(usize) -> bool) -> Examples {
        let places: Vec<usize> = (0..self.classes.len()).filter(|place| takes(*place)).collect();
        let classes = places.iter().map(|place| self.classes[*place]).collect();
        Examples { features: self.features.select(Axis(0), &places), classes }
    }
}

/// The wines, split once and for all.
pub struct Wines {
    /// The training examples.
    pub training: Examples,
    /// Every fifth wine, never learned from.
    pub held_out: Examples,
    /// Number of different ratings.
    pub classes: usize,
}

impl Wines {
    /// Reads the data that is compiled in.
    pub fn load() -> Wines {
        let dataset = linfa_datasets::winequality();
        let (records, ratings) = (dataset.records, dataset.targets.iter().sorted().dedup().collect_vec());
        let mean = records.mean_axis(Axis(0)).expect("there are wines");
        let features = ((&records - mean) / records.std_axis(Axis(0), 0.0)).mapv(|value| value as f32);
        let class = |rating| ratings.partition_point(|known| *known < rating);
        let all = Examples { features, classes: dataset.targets.iter().map(class).collect() };
        let held_out = all.part(|wine| wine % 5 == 0);
        Wines { training: all.part(|wine| wine % 5 != 0), held_out, classes: ratings.len() }
    }

    /// The wines that `rank` of `ranks` learns from: every one belongs to exactly one rank.
    pub fn shard(&self, rank: usize, ranks: usize) -> Examples {
        self.training.part(|wine| wine % ranks == rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_is_the_published_one() {
        let wines = Wines::load();
        assert_eq!((wines.training.classes.len(), wines.held_out.classes.len(), wines.classes), (1279, 320, 6));
        // Ratings 3 to 8 of 1599 wines occur 10, 53, 681, 638, 199 and 18 times.
        let mut counts = [0; 6];
        wines.training.classes.iter().chain(&wines.held_out.classes).for_each(|class| counts[*class] += 1);
        assert_eq!(counts, [10, 53, 681, 638, 199, 18]);
    }

    #[test]
    fn shards_share_the_data_out() {
        let wines = Wines::load();
        let shards: Vec<_> = (0..4).map(|rank| wines.shard(rank, 4)).collect();
        assert_eq!(shards.iter().map(|shard| shard.classes.len()).sum::<usize>(), wines.training.classes.len());
        let (row, training) = (|shard: usize, wine| shards[shard].features.row(wine), &wines.training.features);
        assert_eq!((row(0, 1), row(3, 0)), (training.row(4), training.row(3)));
    }
}
