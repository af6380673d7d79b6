//! Data-parallel training: every rank computes the gradient of its shard, allreduce adds them up, all take the same
//! step. And the same in one process, which is what the parallel result is held against.

use super::data::Wines;
use super::model::Model;
use crate::bench::{Sample, Samples};
use crate::lineup::{Lineup, thread_cpu_ns};
use earlybird::{Algorithm, Communicator, Error, Op};
use itertools::Itertools;
use std::collections::BTreeSet;
use std::time::Duration;

/// The rank that comes late in a step: they take turns.
pub fn late_rank(step: usize, ranks: usize) -> usize {
    step % ranks
}

/// Calls before the first step.
const WARM_UP: usize = 3;

/// The results of one training run.
pub struct Run {
    /// The algorithm that was asked for.
    pub algorithm: Algorithm,
    /// The algorithms that ran.
    pub chosen: BTreeSet<&'static str>,
    /// Arrivals and exits of every rank in every step.
    pub samples: Samples,
    /// Processor time of this rank's gradient in every step.
    pub gradients_us: Vec<f64>,
    /// The model of this rank after the last step.
    pub model: Model,
    /// The parameters of all ranks after the last step, one rank after the other, as bits.
    pub parameter_bits: Vec<i64>,
}

/// Trains with one algorithm; collective. `after_step` is called when a step is done.
///
/// # Errors
/// The errors of the collectives.
pub fn train(
    comm: &Communicator,
    lineup: &Lineup,
    wines: &Wines,
    algorithm: Algorithm,
    steps: usize,
    delay: Duration,
    after_step: impl Fn(),
) -> Result<Run, Error> {
    let (rank, ranks) = (comm.rank(), comm.size());
    comm.set_algorithm(algorithm)?;
    let shard = wines.shard(rank, ranks);
    let mut model = Model::new(wines.classes);
    let (mut words, mut gradients_us) = (Vec::new(), Vec::new());
    let mut chosen = BTreeSet::new();
    // The first calls of a kind reserve memory; they are no part of a step's time, nor of the model.
    for _ in 0..WARM_UP {
        comm.all_reduce_in_place(&mut model.gradient(&shard), Op::Sum)?;
    }
    lineup.wait_until(lineup.agree_on_start_ns()?);
    for step in 0..steps {
        let before_ns = thread_cpu_ns();
        let mut gradient = model.gradient(&shard);
        gradients_us.push((thread_cpu_ns() - before_ns) as f64 / 1e3);
        if late_rank(step, ranks) == rank {
            std::thread::sleep(delay);
        }
        let (sample, ()) = Sample::of(|| comm.all_reduce_in_place(&mut gradient, Op::Sum))?;
        words.extend(sample.to_words());
        chosen.extend(comm.last_call().map(|call| call.algorithm.name()));
        model.step(&gradient, wines.training.classes.len());
        after_step();
    }
    let samples = Samples::from_words(&lineup.gather(&words)?, ranks)?;
    let parameter_bits = lineup.gather(&bits(&model))?;
    Ok(Run { algorithm, chosen, samples, gradients_us, model, parameter_bits })
}

/// The same training in this process alone: the gradients of the same shards, added in rank order.
pub fn train_alone(wines: &Wines, ranks: usize, steps: usize) -> Model {
    let shards: Vec<_> = (0..ranks).map(|rank| wines.shard(rank, ranks)).collect();
    let mut model = Model::new(wines.classes);
    for _ in 0..steps {
        let mut gradients = shards.iter().map(|shard| model.gradient(shard));
        let mut total = gradients.next().expect("there is at least one rank");
        gradients.for_each(|gradient| total.iter_mut().zip(&gradient).for_each(|(total, value)| *total += value));
        model.step(&total, wines.training.classes.len());
    }
    model
}

/// Ranks whose parameters are not those of the model, bit for bit.
pub fn ranks_that_differ(run: &Run, model: &Model) -> Vec<usize> {
    let wanted = bits(model);
    run.parameter_bits.chunks(wanted.len()).positions(|bits| *bits != wanted).collect()
}

fn bits(model: &Model) -> Vec<i64> {
    model.parameters().iter().map(|value| i64::from(value.to_bits())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bit_in_one_rank_is_a_difference() {
        let wines = Wines::load();
        let model = train_alone(&wines, 2, 1);
        let samples = Samples::from_words(&[0; 4 * Sample::WORDS], 2).expect("whole samples");
        let parameter_bits = bits(&model).repeat(2);
        let algorithm = Algorithm::Auto;
        let (chosen, gradients_us) = (BTreeSet::new(), Vec::new());
        let mut run = Run { algorithm, chosen, samples, gradients_us, model: model.clone(), parameter_bits };
        assert_eq!(ranks_that_differ(&run, &model), [0; 0]);
        run.parameter_bits[model.parameters().len() + 100] ^= 1;
        assert_eq!(ranks_that_differ(&run, &model), [1]);
    }

    #[test]
    fn another_order_of_folding_gives_other_bits() {
        // Otherwise the comparison would show nothing.
        let wines = Wines::load();
        assert_ne!(train_alone(&wines, 4, 5).parameters(), train_alone(&wines, 3, 5).parameters());
    }
}
