//! Bytes of result per second of the kernels, by type, operator, size and instruction-set level.
//!
//! `cargo bench -p earlybird-shm --bench kernels -- FILTER`, for example `add2/avx512/f32/sum`. Two private
//! sources, one private destination, one core: the figure to hold against the "add" floors of the machine.
#![allow(unsafe_code)]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use earlybird_shm::kernels::{Kernels, Level, copy, copy_streaming, kernels, kernels_at};
use earlybird_shm::{DType, Op};
use std::hint::black_box;
use std::time::Duration;

/// Bytes of one operand: one line, a small message, L1, L2, beyond L2, memory.
const SIZES: [usize; 6] = [64, 1 << 10, 16 << 10, 256 << 10, 1 << 20, 64 << 20];

/// Offset of page-aligned buffers of `bytes`, each page touched; every byte is a small normal float or integer.
struct Pages(Vec<u8>, usize);

impl Pages {
    fn new(bytes: usize) -> Self {
        let memory = vec![0x3f; bytes + 4096];
        let start = memory.as_ptr().align_offset(4096);
        Pages(memory, start)
    }
    fn pointer(&mut self) -> *mut u8 {
        self.0[self.1..].as_mut_ptr()
    }
}

fn add2(c: &mut Criterion) {
    for level in Level::ALL {
        for dtype in DType::ALL {
            for op in Op::ALL {
                let Some(kernels) = kernels_at(level, dtype, op) else { continue };
                if kernels.widen.is_some() {
                    // Its left operand is its destination, see `halves`.
                    continue;
                }
                let name = format!("add2/{}/{}/{}", level.name(), dtype.name(), op.name());
                let mut group = c.benchmark_group(name);
                for bytes in SIZES {
                    let (mut d, mut a, mut b) = (Pages::new(bytes), Pages::new(bytes), Pages::new(bytes));
                    let (d, a, b) = (d.pointer(), a.pointer(), b.pointer());
                    group.throughput(Throughput::Bytes(bytes as u64));
                    group.bench_function(BenchmarkId::from_parameter(bytes), |bencher| {
                        // SAFETY: three disjoint buffers of `bytes` bytes, kept alive by the tuple above.
                        bencher.iter(|| unsafe { (kernels.fold)(d, a, b, black_box(bytes / dtype.size())) })
                    });
                }
                group.finish();
            }
        }
    }
}

/// The other forms, on the best level, for `f32` sums: in place, two destinations, a plain copy.
fn forms(c: &mut Criterion) {
    let Kernels { fold, fold_all, .. } = kernels(DType::F32, Op::Sum).expect("f32 has a sum");
    let fold_all = fold_all.expect("f32 sums have vectors");
    for bytes in SIZES {
        let mut pages: Vec<Pages> = (0..3).map(|_| Pages::new(bytes)).collect();
        let p: Vec<*mut u8> = pages.iter_mut().map(Pages::pointer).collect();
        let (to, from) = ([p[0], p[1]], [p[0].cast_const(), p[2]]);
        let count = bytes / 4;
        let mut group = c.benchmark_group(format!("forms/{bytes}"));
        group.throughput(Throughput::Bytes(bytes as u64));
        // SAFETY (all): three disjoint buffers of `bytes` bytes, kept alive by `pages`; dst is a source or apart.
        // SAFETY: see above.
        group.bench_function("in-place", |x| x.iter(|| unsafe { fold(p[0], p[0], p[1], black_box(count)) }));
        // SAFETY: see above.
        group.bench_function("both", |x| x.iter(|| unsafe { fold_all(&to, &[], &from, black_box(count)) }));
        // SAFETY: see above.
        group.bench_function("copy", |x| x.iter(|| unsafe { copy(p[0], p[1], black_box(bytes)) }));
        group.bench_function("both-streaming", |x| {
            // SAFETY: see above; the first destination is the first source, as in the chain.
            x.iter(|| unsafe { fold_all(&to[..1], &to[1..], &from, black_box(count)) })
        });
        // SAFETY: see above.
        group.bench_function("copy-streaming", |x| x.iter(|| unsafe { copy_streaming(p[0], p[1], black_box(bytes)) }));
        group.finish();
    }
}

/// Half types: folded into an accumulator of `f32`, and rounded out of it. Bytes are those of the message.
fn halves(c: &mut Criterion) {
    for level in Level::ALL {
        for dtype in [DType::F16, DType::BF16] {
            let Some(kernels) = kernels_at(level, dtype, Op::Average) else { continue };
            let finish = kernels.finish.expect("half types are rounded");
            let mut group = c.benchmark_group(format!("halves/{}/{}", level.name(), dtype.name()));
            for bytes in SIZES {
                let (mut sum, mut x) = (Pages::new(2 * bytes), Pages::new(bytes));
                let (sum, x, count) = (sum.pointer(), x.pointer(), bytes / 2);
                group.throughput(Throughput::Bytes(bytes as u64));
                group.bench_function(BenchmarkId::new("fold", bytes), |bencher| {
                    // SAFETY: two disjoint buffers of `count` elements, kept alive by the tuple above.
                    bencher.iter(|| unsafe { (kernels.fold)(sum, sum, x, black_box(count)) })
                });
                group.bench_function(BenchmarkId::new("average", bytes), |bencher| {
                    // SAFETY: as above.
                    bencher.iter(|| unsafe { finish(x, sum, black_box(count), 3) })
                });
            }
            group.finish();
        }
    }
}

fn lookup(c: &mut Criterion) {
    c.bench_function("lookup", |x| x.iter(|| kernels(black_box(DType::F32), black_box(Op::Sum)).map(|k| k.fold)));
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).warm_up_time(Duration::from_millis(100)).measurement_time(Duration::from_millis(300));
    targets = add2, forms, halves, lookup
}
criterion_main!(benches);
