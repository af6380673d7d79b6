//! Times to make a plan, to verify it, and to select one.

use criterion::{Criterion, criterion_group, criterion_main};
use earlybird_hier::cost::Model;
use earlybird_hier::schedule::{self, Params};
use earlybird_hier::select::select;
use earlybird_hier::verify::{Consistency, OpTraits, verify};
use std::hint::black_box;

fn plans(c: &mut Criterion) {
    for (name, ranks) in [
        ("butterfly", 48),
        ("butterfly", 300),
        ("ring", 48),
        ("ring", 300),
        ("pre-reduced-ring", 48),
        ("recursive-doubling", 300),
    ] {
        let params = Params::ranks(ranks);
        c.bench_function(&format!("build {name} {ranks}"), |b| b.iter(|| schedule::build(name, black_box(&params))));
        let plan = schedule::build(name, &params).expect("defined for all ranks");
        c.bench_function(&format!("verify {name} {ranks}"), |b| {
            b.iter_batched(|| plan.clone(), verify, criterion::BatchSize::LargeInput);
        });
    }
}

fn selections(c: &mut Criterion) {
    let model = Model::linear(3e-5, 1e-8, 2e-10);
    let op = OpTraits { commutative: true, exact: true };
    for ranks in [48, 127, 1024, 5040, 7560, 9973, 10_000] {
        c.bench_function(&format!("select {ranks}"), |b| {
            b.iter(|| select(black_box(ranks), 65536.0, op, Consistency::Identical, &model));
        });
    }
}

criterion_group!(benches, plans, selections);
criterion_main!(benches);
