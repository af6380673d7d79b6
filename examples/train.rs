//! Data-parallel training: every rank computes the gradient of its part of the examples, one allreduce of about 400 KiB adds
//! them up, and all take the same step. In every step another rank computes 5 ms longer.
//!
//! `cargo build --release --example train`, then `cargo run --release --features cli -- run -n 2 -- target/release/examples/train`
use earlybird::{Algorithm, Communicator, Error, FoldOrder, Op};
use std::time::{Duration, Instant};

/// A network with one hidden layer.
const INPUTS: usize = 784;
const HIDDEN: usize = 128;
const CLASSES: usize = 10;
const OUTPUT: usize = HIDDEN * INPUTS;
const PARAMETERS: usize = OUTPUT + CLASSES * HIDDEN;

/// Examples of all ranks together; a prototype with noise for each class.
const EXAMPLES: usize = 80;
const STEPS: usize = 40;
const LATE: Duration = Duration::from_millis(5);

fn main() -> Result<(), Error> {
    let comm = Communicator::from_env()?;
    // Gradients are added in the order of ranks, so that both trainings give the same bits.
    comm.set_order(FoldOrder::Rank)?;
    let mut trained = Vec::new();
    for algorithm in [Algorithm::StaticLeader, Algorithm::Auto] {
        comm.set_algorithm(algorithm)?;
        let begun = Instant::now();
        let (model, losses) = train(&comm)?;
        if comm.rank() == 0 {
            let step = begun.elapsed() / STEPS as u32;
            let bytes = 4 * PARAMETERS;
            println!(
                "{algorithm}: {STEPS} steps of {step:?} with an allreduce of {bytes} bytes, loss {:.3} -> {:.3}",
                losses[0],
                losses[STEPS - 1]
            );
            assert!(losses[STEPS - 1] < losses[0] / 2.0, "it learns");
        }
        trained.push(model);
    }
    assert!(trained[0] == trained[1], "the same parameters, bit for bit, whoever reduced");
    Ok(())
}

/// The trained model, and the mean loss before each step.
fn train(comm: &Communicator) -> Result<(Vec<f32>, Vec<f32>), Error> {
    let mut model: Vec<f32> = (0..PARAMETERS).map(|index| 0.05 * noise(index as u64)).collect();
    let mut losses = Vec::new();
    for step in 0..STEPS {
        // The last value is the loss.
        let mut sums = vec![0.0f32; PARAMETERS + 1];
        for example in (comm.rank()..EXAMPLES).step_by(comm.size()) {
            add_gradient(&model, example, &mut sums);
        }
        if step % comm.size() == comm.rank() {
            std::thread::sleep(LATE);
        }
        comm.all_reduce_in_place(&mut sums, Op::Sum)?;
        losses.push(sums[PARAMETERS] / EXAMPLES as f32);
        model.iter_mut().zip(&sums).for_each(|(weight, slope)| *weight -= 0.1 * slope / EXAMPLES as f32);
    }
    Ok((model, losses))
}

/// Adds the gradient of the cross-entropy of one example, and its loss.
fn add_gradient(model: &[f32], example: usize, sums: &mut [f32]) {
    let class = example % CLASSES;
    let pixel = |at: usize| noise((class * INPUTS + at) as u64) + 0.5 * noise(((example + 99) * INPUTS + at) as u64);
    let input: Vec<f32> = (0..INPUTS).map(pixel).collect();
    let (first, second) = model.split_at(OUTPUT);
    let hidden: Vec<f32> = first.chunks(INPUTS).map(|weights| dot(weights, &input).tanh()).collect();
    let scores: Vec<f32> = second.chunks(HIDDEN).map(|weights| dot(weights, &hidden)).collect();
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let total: f32 = scores.iter().map(|score| (score - largest).exp()).sum();
    let mut back = vec![0.0; HIDDEN];
    for (of_class, score) in scores.iter().enumerate() {
        let probability = (score - largest).exp() / total;
        let error = probability - f32::from(u8::from(of_class == class));
        let from = OUTPUT + of_class * HIDDEN;
        add(&mut sums[from..from + HIDDEN], error, &hidden);
        add(&mut back, error, &model[from..from + HIDDEN]);
    }
    for (unit, value) in hidden.iter().enumerate() {
        add(&mut sums[unit * INPUTS..][..INPUTS], back[unit] * (1.0 - value * value), &input);
    }
    sums[PARAMETERS] += total.ln() + largest - scores[class];
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(sums: &mut [f32], factor: f32, values: &[f32]) {
    sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += factor * value);
}

/// A value from -1 to 1, the same for the same draw on every rank.
fn noise(draw: u64) -> f32 {
    (earlybird::pattern::mix(draw) >> 40) as f32 / (1u64 << 23) as f32 - 1.0
}
