//! A small neural network with one hidden layer, and its gradient: enough to have something worth reducing.

use super::data::{Example, FEATURES};

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

    /// Gradient of the cross-entropy, summed over the examples in their order.
    pub fn gradient(&self, examples: &[Example]) -> Vec<f32> {
        let mut gradient = vec![0.0; self.parameters.len()];
        let (hidden_gradient, output_gradient) = gradient.split_at_mut(OUTPUT);
        for example in examples {
            let (hidden, mut error) = self.forward(example);
            error[example.class] -= 1.0;
            let mut back = [0.0f32; HIDDEN];
            for (class, (&error, row)) in error.iter().zip(self.output_weights()).enumerate() {
                for unit in 0..HIDDEN {
                    output_gradient[class * HIDDEN + unit] += error * hidden[unit];
                    back[unit] += error * row[unit];
                }
                output_gradient[self.classes * HIDDEN + class] += error;
            }
            for unit in 0..HIDDEN {
                let slope = back[unit] * (1.0 - hidden[unit] * hidden[unit]);
                for (feature, value) in example.features.iter().enumerate() {
                    hidden_gradient[unit * FEATURES + feature] += slope * value;
                }
                hidden_gradient[HIDDEN * FEATURES + unit] += slope;
            }
        }
        gradient
    }

    /// Loss and accuracy on some examples.
    pub fn quality(&self, examples: &[Example]) -> Quality {
        let mut quality = Quality { loss: 0.0, accuracy: 0.0 };
        for example in examples {
            let (_, probabilities) = self.forward(example);
            let best = probabilities.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map(|(class, _)| class);
            quality.loss -= probabilities[example.class].max(f32::MIN_POSITIVE).ln();
            quality.accuracy += if best == Some(example.class) { 1.0 } else { 0.0 };
        }
        let count = examples.len() as f32;
        Quality { loss: quality.loss / count, accuracy: quality.accuracy / count }
    }

    fn output_weights(&self) -> impl Iterator<Item = &[f32]> {
        self.parameters[OUTPUT..OUTPUT + self.classes * HIDDEN].chunks(HIDDEN)
    }

    /// Hidden values and class probabilities.
    fn forward(&self, example: &Example) -> ([f32; HIDDEN], Vec<f32>) {
        let offsets = &self.parameters[HIDDEN * FEATURES..OUTPUT];
        let hidden = std::array::from_fn(|unit| {
            let weights = &self.parameters[unit * FEATURES..(unit + 1) * FEATURES];
            dot(weights, &example.features, offsets[unit]).tanh()
        });
        let offsets = &self.parameters[OUTPUT + self.classes * HIDDEN..];
        let mut scores: Vec<f32> =
            self.output_weights().zip(offsets).map(|(weights, &offset)| dot(weights, &hidden, offset)).collect();
        let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        scores.iter_mut().for_each(|score| *score = (*score - largest).exp());
        let total: f32 = scores.iter().sum();
        scores.iter_mut().for_each(|score| *score /= total);
        (hidden, scores)
    }
}

fn dot(a: &[f32], b: &[f32], offset: f32) -> f32 {
    a.iter().zip(b).fold(offset, |sum, (a, b)| sum + a * b)
}

#[cfg(test)]
mod tests {
    use super::super::data::Wines;
    use super::*;

    #[test]
    fn the_gradient_is_the_slope_of_the_loss() {
        let wines = Wines::load();
        let examples = &wines.training[..50];
        let model = Model::new(wines.classes);
        let gradient = model.gradient(examples);
        let loss = |model: &Model| f64::from(model.quality(examples).loss) * examples.len() as f64;
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
            model.step(&gradient, wines.training.len());
        }
        let after = model.quality(&wines.training);
        assert!(after.loss < 0.8 * before.loss && after.accuracy > before.accuracy, "{before:?} {after:?}");
    }
}
