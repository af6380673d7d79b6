//! The time of a step in which a bucket of gradients is summed: by a blocking call after the computation, or by one that is
//! started before it, on private memory and on a shared buffer, which is summed whole without the ranks that still compute. The
//! forms take turns from step to step; medians of the slowest rank's time, where ranks begin alike and where one is late.
//!
//! `earlybird run -n 2 -- target/release/examples/overlap_bucket [MIB [COMPUTE_MS [LATE_MS [STEPS]]]]`
use earlybird::{CollectiveArgs, Communicator, Error, Op, SharedBuffer};
use std::time::{Duration, Instant};

/// Stands for computation that lasts so many milliseconds.
fn compute(ms: u64) {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(ms) {
        std::hint::spin_loop();
    }
}

struct Buckets<'c> {
    comm: &'c Communicator,
    private: Vec<f32>,
    shared: Option<SharedBuffer<f32>>,
}

impl Buckets<'_> {
    fn blocking(&mut self, ms: u64) -> Result<(), Error> {
        compute(ms);
        self.comm.all_reduce_in_place(&mut self.private, Op::Average)
    }

    fn blocking_shared(&mut self, ms: u64) -> Result<(), Error> {
        compute(ms);
        self.shared.as_mut().map_or(Ok(()), |bucket| self.comm.all_reduce_shared_in_place(bucket, Op::Average))
    }

    fn started(&mut self, ms: u64) -> Result<(), Error> {
        let sum = self.comm.start(CollectiveArgs::all_reduce(std::mem::take(&mut self.private), Op::Average))?;
        compute(ms);
        self.private = sum.wait()?;
        Ok(())
    }

    fn started_shared(&mut self, ms: u64) -> Result<(), Error> {
        let Some(bucket) = self.shared.take() else { unreachable!("given back by each step") };
        let sum = self.comm.start(CollectiveArgs::all_reduce(bucket, Op::Average))?;
        compute(ms);
        self.shared = Some(sum.wait()?);
        Ok(())
    }
}

type Form<'c> = (&'static str, fn(&mut Buckets<'c>, u64) -> Result<(), Error>);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let given = std::env::args().skip(1).map(|arg| arg.parse()).collect::<Result<Vec<u64>, _>>()?;
    let given = |i: usize, default| given.get(i).copied().unwrap_or(default);
    let (mib, ms, late_ms, steps) = (given(0, 25), given(1, 20), given(2, 10), given(3, 50));
    let comm = Communicator::from_env()?;
    let count = (mib as usize) << 18;
    let mut buckets = Buckets { comm: &comm, private: vec![1.0; count], shared: Some(comm.alloc(count)?) };
    let forms: [Form<'_>; 4] = [
        ("blocking, private memory", Buckets::blocking),
        ("blocking, shared buffer", Buckets::blocking_shared),
        ("started, private memory", Buckets::started),
        ("started, shared buffer", Buckets::started_shared),
    ];
    for (pattern, late_ms) in [("all begin alike", 0), ("rank 1 begins late", late_ms)] {
        let mut times = vec![Vec::new(); forms.len()];
        for step in 0..=steps {
            for ((_, run), times) in forms.iter().zip(&mut times) {
                comm.barrier()?;
                let begun = Instant::now();
                compute(if comm.rank() == 1 { late_ms } else { 0 });
                run(&mut buckets, ms)?;
                let mut slowest = [begun.elapsed().as_secs_f64() * 1e3];
                comm.all_reduce_in_place(&mut slowest, Op::Max)?;
                if step > 0 {
                    times.push(slowest[0]);
                }
            }
        }
        for ((form, _), times) in forms.iter().zip(&mut times) {
            times.sort_by(f64::total_cmp);
            if comm.rank() == 0 {
                println!("{pattern:<20} {form:<25} {:6.1} ms", times[times.len() / 2]);
            }
        }
    }
    Ok(())
}
