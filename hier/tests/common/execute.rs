//! Runs plans on threads and returns every rank's result. The operators reveal every mistake with operands: a sum whose rounding depends on the grouping, and maps that do not commute.

use earlybird_hier::exec::{Endpoint, Fold, Geometry, Operation, Transport, compile, wait_all};
use earlybird_hier::plan::{Collective, Order, Plan, Side};
use earlybird_hier::{Consistency, OpTraits, Verified};
use std::sync::Arc;

/// x -> scale·x + shift, composed: associative, not commutative, exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Map {
    pub scale: u32,
    pub shift: u32,
}

impl Map {
    pub fn then(self, right: Map) -> Map {
        let shift = right.scale.wrapping_mul(self.shift).wrapping_add(right.shift);
        Map { scale: self.scale.wrapping_mul(right.scale), shift }
    }

    pub fn to_bytes(self) -> [u8; 8] {
        bytemuck::cast([self.scale, self.shift])
    }

    fn from_bytes(bytes: &[u8]) -> Map {
        let [scale, shift] = bytemuck::pod_read_unaligned(bytes);
        Map { scale, shift }
    }

    /// The contribution of a rank to an element.
    pub fn input(rank: usize, element: usize) -> Map {
        Map { scale: (2 * rank + 3) as u32, shift: (element * 31 + rank * 7 + 1) as u32 }
    }

    /// The composition of the contributions of these ranks, in this order.
    pub fn of(ranks: &[usize], element: usize) -> Map {
        let maps = ranks.iter().map(|r| Map::input(*r, element));
        maps.reduce(Map::then).expect("at least one contribution")
    }
}

/// Operators on 8 bytes, as one type, so that they can be under way together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// f64, with values whose sums are exact.
    Exact,
    /// f64, with values whose sums round.
    Rounding,
    /// [`Map`].
    Compose,
    /// Bits that are or-ed: idempotent.
    Or,
}

impl Operator {
    pub fn input(self, rank: usize, element: usize) -> [u8; 8] {
        match self {
            Operator::Exact => ((rank + 1) as f64 * 0.5 + element as f64).to_ne_bytes(),
            Operator::Rounding => {
                (((rank * 37 + element * 11) % 97) as f64 / 7.0 * 10f64.powi((rank % 7) as i32)).to_ne_bytes()
            }
            Operator::Compose => Map::input(rank, element).to_bytes(),
            Operator::Or => (1u64 << rank).to_ne_bytes(),
        }
    }

    /// The reduction of the contributions of these ranks, in this order, grouped from the left.
    pub fn expected(self, ranks: &[usize], element: usize) -> [u8; 8] {
        let mut inputs = ranks.iter().map(|r| self.input(*r, element));
        let mut left = inputs.next().expect("at least one contribution");
        inputs.for_each(|right| self.fold(&mut left, &right, Side::Right));
        left
    }

    /// The operators that may use a plan.
    pub fn fitting(plan: &Plan) -> Vec<Operator> {
        if plan.collective == Collective::Barrier {
            return vec![Operator::Or];
        }
        let mut fitting = vec![Operator::Exact];
        if plan.consistent {
            fitting.push(Operator::Rounding);
        }
        if plan.order == Order::Ordered {
            fitting.push(Operator::Compose);
        }
        fitting
    }
}

impl Fold for Operator {
    fn element_bytes(&self) -> usize {
        8
    }

    fn traits(&self) -> OpTraits {
        OpTraits { commutative: *self != Operator::Compose, exact: *self != Operator::Rounding }
    }

    fn is_idempotent(&self) -> bool {
        *self == Operator::Or
    }

    fn code(&self) -> u64 {
        *self as u64
    }

    fn fold(&self, target: &mut [u8], incoming: &[u8], side: Side) {
        for (t, i) in target.chunks_exact_mut(8).zip(incoming.chunks_exact(8)) {
            let (left, right) = if side == Side::Left { (i, &*t) } else { (&*t, i) };
            let float = |bytes| bytemuck::pod_read_unaligned::<f64>(bytes);
            let value: [u8; 8] = match self {
                Operator::Exact | Operator::Rounding => (float(left) + float(right)).to_ne_bytes(),
                Operator::Compose => Map::from_bytes(left).then(Map::from_bytes(right)).to_bytes(),
                Operator::Or => {
                    let bits = |bytes| bytemuck::pod_read_unaligned::<u64>(bytes);
                    (bits(left) | bits(right)).to_ne_bytes()
                }
            };
            t.copy_from_slice(&value);
        }
    }
}

/// One run: a plan, elements, bytes of a segment.
pub type Job = (Arc<Verified<Plan>>, usize, usize);

/// Runs one job with all operators that fit it at the same time, twice; what this rank ended with, by operator.
pub fn run_on<T: Transport>(endpoint: &mut Endpoint<T>, (plan, elements, segment_bytes): &Job) -> Vec<Vec<[u8; 8]>> {
    let rank = endpoint.transport().rank();
    let geometry = Geometry { elements: *elements, element_bytes: 8, segment_bytes: *segment_bytes };
    let program = Arc::new(compile(plan, rank, geometry).unwrap());
    let operators = Operator::fitting(plan);
    let mut running: Vec<_> =
        operators.iter().map(|op| Operation::new(program.clone(), *op, Consistency::Identical).unwrap()).collect();
    let mut last = None;
    for _ in 0..2 {
        let mut data: Vec<Vec<[u8; 8]>> =
            operators.iter().map(|op| (0..*elements).map(|e| op.input(rank, e)).collect()).collect();
        for one in &mut running {
            one.start(endpoint).unwrap();
        }
        let mut flights: Vec<_> =
            running.iter_mut().zip(&mut data).map(|(r, d)| (r, bytemuck::cast_slice_mut(d.as_mut_slice()))).collect();
        // Ranks look after their operations in different orders.
        let turn = rank % flights.len();
        flights.rotate_left(turn);
        wait_all(endpoint, &mut flights, Some(std::time::Duration::from_secs(60))).unwrap();
        if let Some(earlier) = last.replace(data.clone()) {
            assert_eq!(earlier, data, "the second run of {} on rank {rank} differs from the first", plan.algorithm);
        }
    }
    last.unwrap()
}

/// The fault in the results of a job on all ranks, judged by its collective and claims.
pub fn judge((plan, elements, _): &Job, results: &[Vec<Vec<[u8; 8]>>]) -> Option<String> {
    let (ranks, everybody) = (plan.ranks(), (0..plan.ranks()).collect::<Vec<_>>());
    for (o, op) in Operator::fitting(plan).into_iter().enumerate() {
        for (rank, result) in results.iter().enumerate() {
            for (element, found) in result[o].iter().enumerate() {
                let block = (0..plan.blocks)
                    .find(|b| element < earlybird_hier::plan::offset(b + 1, plan.blocks, *elements))
                    .unwrap();
                let owner = block * ranks / plan.blocks;
                let (promised, from) = match plan.collective {
                    Collective::Allreduce | Collective::Barrier => (true, &everybody[..]),
                    Collective::Reduce => (rank == plan.root, &everybody[..]),
                    Collective::Broadcast => (true, &everybody[plan.root..=plan.root]),
                    Collective::Allgather => (true, &everybody[owner..=owner]),
                    Collective::ReduceScatter => (rank == owner, &everybody[..]),
                    other => unreachable!("{other:?} has no expected result"),
                };
                if !promised {
                    continue;
                }
                // A rounding sum is right if it is near, and the same everywhere it is promised.
                let expected = op.expected(from, element);
                let (a, b) = (f64::from_ne_bytes(expected), f64::from_ne_bytes(*found));
                let near = op == Operator::Rounding && (a - b).abs() <= a.abs() * 1e-12;
                if *found != expected && !near {
                    return Some(format!("{op:?}, rank {rank}, element {element}: {found:?}, expected {expected:?}"));
                }
                let everywhere =
                    matches!(plan.collective, Collective::Allreduce | Collective::Broadcast | Collective::Allgather);
                if everywhere && *found != results[0][o][element] {
                    return Some(format!("{op:?}, element {element}: the bits of ranks 0 and {rank} differ"));
                }
            }
        }
    }
    None
}
