//! The data that the demonstration learns from: measurements of wines and how tasters rated them.
//!
//! Source: P. Cortez, A. Cerdeira, F. Almeida, T. Matos and J. Reis, "Modeling wine preferences by data mining from
//! physicochemical properties", Decision Support Systems 47(4), 2009; UCI Machine Learning Repository, "Wine Quality"
//! (red wines), as it ships in the crate `linfa-datasets`.

/// The source of the data, as printed.
pub const SOURCE: &str = "P. Cortez et al., Modeling wine preferences by data mining from physicochemical properties,\n\
                          \x20         Decision Support Systems 47(4), 2009; UCI Machine Learning Repository, Wine Quality";

/// Measurements per wine.
pub const FEATURES: usize = 11;

/// One wine.
#[derive(Debug, Clone, PartialEq)]
pub struct Example {
    /// Measurements, each scaled to mean 0 and deviation 1 over all wines.
    pub features: [f32; FEATURES],
    /// Index of its rating among the ratings that occur.
    pub class: usize,
}

/// The wines, split once and for all.
pub struct Wines {
    /// The training examples.
    pub training: Vec<Example>,
    /// Every fifth wine, never learned from.
    pub held_out: Vec<Example>,
    /// Number of different ratings.
    pub classes: usize,
}

impl Wines {
    /// Reads the data that is compiled in.
    pub fn load() -> Wines {
        let dataset = linfa_datasets::winequality();
        let mut ratings: Vec<usize> = dataset.targets.iter().copied().collect();
        ratings.sort();
        ratings.dedup();
        let scales: Vec<(f64, f64)> = (0..FEATURES)
            .map(|feature| {
                let column = dataset.records.column(feature);
                let mean = column.iter().sum::<f64>() / column.len() as f64;
                let variance = column.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / column.len() as f64;
                (mean, variance.sqrt())
            })
            .collect();
        let example = |index: usize| Example {
            features: std::array::from_fn(|feature| {
                let (mean, deviation) = scales[feature];
                ((dataset.records[(index, feature)] - mean) / deviation) as f32
            }),
            class: ratings.partition_point(|&rating| rating < dataset.targets[index]),
        };
        let (held_out, training): (Vec<usize>, Vec<usize>) =
            (0..dataset.targets.len()).partition(|index| index % 5 == 0);
        Wines {
            training: training.into_iter().map(example).collect(),
            held_out: held_out.into_iter().map(example).collect(),
            classes: ratings.len(),
        }
    }

    /// The wines that `rank` of `ranks` learns from: every one belongs to exactly one rank.
    pub fn shard(&self, rank: usize, ranks: usize) -> Vec<Example> {
        self.training.iter().skip(rank).step_by(ranks).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_is_the_published_one() {
        let wines = Wines::load();
        assert_eq!((wines.training.len(), wines.held_out.len(), wines.classes), (1279, 320, 6));
        // Ratings 3 to 8 of 1599 wines occur 10, 53, 681, 638, 199 and 18 times.
        let mut counts = [0; 6];
        wines.training.iter().chain(&wines.held_out).for_each(|wine| counts[wine.class] += 1);
        assert_eq!(counts, [10, 53, 681, 638, 199, 18]);
    }

    #[test]
    fn shards_share_the_data_out() {
        let wines = Wines::load();
        let shards: Vec<_> = (0..4).map(|rank| wines.shard(rank, 4)).collect();
        assert_eq!(shards.iter().map(Vec::len).sum::<usize>(), wines.training.len());
        assert_eq!((&shards[0][1], &shards[3][0]), (&wines.training[4], &wines.training[3]));
    }
}
