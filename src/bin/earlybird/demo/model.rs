//! A small neural network with one hidden layer, and its gradient: enough to have something worth reducing.

use super::data::{Examples, FEATURES};
use ndarray::{Array2, ArrayView1, ArrayView2, Axis};

/// Hidden units.
pub const HIDDEN: usize = 32;

/// The network's shape and parameters: hidden weights, hidden offsets, output weights, output offsets, in one array
/// because that is what is reduced.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    classes: usize,
    parameters: Vec<f32>,
    velocity: Vec<f32>,
}

/// The quality of a model on a set of examples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quality {
    /// Mean cross-entropy, in nats.
    pub loss: f32,
    /// Share of examples whose most probable class is the right one.
    pub accuracy: f32,
}

const OUTPUT: usize = HIDDEN * (FEATURES + 1);
const RATE: f32 = 0.1;
const MOMENTUM: f32 = 0.9;

impl Model {
    /// The same small starting values on every rank.
    pub fn new(classes: usize) -> Model {
        let count = OUTPUT + classes * (HIDDEN + 1);
        let start = |index: usize| {
            let unit = (earlybird::pattern::mix(index as u64) >> 40) as f32 / (1 << 24) as f32;
            (unit - 0.5) * 0.5
        };
        Model { classes, parameters: (0..count).map(start).collect(), velocity: vec![0.0; count] }
    }

    /// The learned parameters.
    pub fn parameters(&self) -> &[f32] {
        &self.parameters
    }

    /// One step of gradient descent with momentum; `gradient` is the sum over `examples` examples.
    pub fn step(&mut self, gradient: &[f32], examples: usize) {
        let scale = RATE / examples as f32;
        for ((parameter, velocity), gradient) in self.parameters.iter_mut().zip(&mut self.velocity).zip(gradient) {
            *velocity = MOMENTUM * *velocity - scale * gradient;
            *parameter += *velocity;
        }
    }

    /// Gradient of the cross-entropy, summed over the examples.
    pub fn gradient(&self, examples: &Examples) -> Vec<f32> {
        let (hidden, mut error) = self.forward(examples);
        examples.classes.iter().enumerate().for_each(|(example, &class)| error[(example, class)] -= 1.0);
        let (output_weights, _) = layer(&self.parameters[OUTPUT..], self.classes);
        let back = error.dot(&output_weights) * hidden.mapv(|value| 1.0 - value * value);
        let layers = [(&back, &examples.features), (&error, &hidden)];
        let of_layer = |(error, inputs): (&Array2<f32>, &Array2<f32>)| {
            error.t().dot(inputs).into_iter().chain(error.sum_axis(Axis(0)))
        };
        layers.into_iter().flat_map(of_layer).collect()
    }

    /// Loss and accuracy on some examples.
    pub fn quality(&self, examples: &Examples) -> Quality {
        let (_, probabilities) = self.forward(examples);
        let mut quality = Quality { loss: 0.0, accuracy: 0.0 };
        for (row, &class) in probabilities.rows().into_iter().zip(&examples.classes) {
            quality.loss -= row[class].max(f32::MIN_POSITIVE).ln();
            quality.accuracy += f32::from(u8::from(row.iter().all(|other| *other <= row[class])));
        }
        let count = examples.classes.len() as f32;
        Quality { loss: quality.loss / count, accuracy: quality.accuracy / count }
    }

    /// Hidden values and class probabilities, a row for each example.
    fn forward(&self, examples: &Examples) -> (Array2<f32>, Array2<f32>) {
        let (weights, offsets) = layer(&self.parameters[..OUTPUT], HIDDEN);
        let hidden = (examples.features.dot(&weights.t()) + offsets).mapv(f32::tanh);
        let (weights, offsets) = layer(&self.parameters[OUTPUT..], self.classes);
        let mut probabilities = hidden.dot(&weights.t()) + offsets;
        for mut scores in probabilities.rows_mut() {
            let largest = scores.fold(f32::NEG_INFINITY, |largest, score| largest.max(*score));
            scores.mapv_inplace(|score| (score - largest).exp());
            scores /= scores.sum();
        }
        (hidden, probabilities)
    }
}

/// The weights, a row for each unit, and the offsets of a layer of so many units.
fn layer(parameters: &[f32], units: usize) -> (ArrayView2<'_, f32>, ArrayView1<'_, f32>) {
    let (weights, offsets) = parameters.split_at(parameters.len() - units);
    let shape = (units, weights.len() / units);
    (ArrayView2::from_shape(shape, weights).expect("a row for each unit"), ArrayView1::from(offsets))
}

#[cfg(test)]
mod tests {
    use super::super::data::Wines;
    use super::*;

    #[test]
    fn the_gradient_is_the_slope_of_the_loss() {
        let wines = Wines::load();
        let examples = &wines.training.part(|example| example < 50);
        let model = Model::new(wines.classes);
        let gradient = model.gradient(examples);
        let loss = |model: &Model| f64::from(model.quality(examples).loss) * examples.classes.len() as f64;
        for index in [0, 5, HIDDEN * FEATURES + 3, OUTPUT + 1, OUTPUT + 100, model.parameters.len() - 1] {
            let moved = |by: f32| {
                let mut model = model.clone();
                model.parameters[index] += by;
                loss(&model)
            };
            let slope = (moved(0.01) - moved(-0.01)) / 0.02;
            let difference = (slope - f64::from(gradient[index])).abs();
            assert!(difference < 0.02 * slope.abs().max(1.0), "{index}: {slope} against {}", gradient[index]);
        }
    }

    #[test]
    fn learning_lowers_the_loss() {
        let wines = Wines::load();
        let mut model = Model::new(wines.classes);
        let before = model.quality(&wines.training);
        for _ in 0..30 {
            let gradient = model.gradient(&wines.training);
            model.step(&gradient, wines.training.classes.len());
        }
        let after = model.quality(&wines.training);
        assert!(after.loss < 0.8 * before.loss && after.accuracy > before.accuracy, "{before:?} {after:?}");
    }
}
