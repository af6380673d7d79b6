//! Forms of the reductions by operators of users: products of matrices, which do not commute.

use crate::common::matrix::{Matrix, matrices, product, serial_product};
use crate::draw::Rng;
use crate::forms::{Checked, Failure, Way, complete, prepare};
use crate::started;
use earlybird::{BytesOp, CollectiveArgs, Communicator, UserOp};
use std::sync::Arc;

/// The contribution of this rank and the serial product.
fn products(comm: &Communicator, rng: &mut Rng, count: usize) -> (Vec<Matrix>, Vec<Matrix>) {
    let seed = rng.next();
    (matrices(seed, comm.rank(), count), serial_product(seed, comm.size(), count))
}

fn check(got: &[Matrix], want: &[Matrix], what: &str) -> Checked {
    match (0..want.len()).find(|i| got.get(*i) != Some(&want[*i])) {
        None if got.len() == want.len() => Ok(()),
        first => Err(Failure::Wrong(format!("{what} of {} matrices: wrong from {first:?} on", want.len()))),
    }
}

pub fn all_reduce_with(comm: &Communicator, rng: &mut Rng, way: Way) -> Checked {
    let count = rng.count(size_of::<Matrix>(), 1);
    let ((send, want), op, in_place) = (products(comm, rng, count), Arc::new(UserOp::ordered(product)), rng.flip());
    prepare(comm, rng, way)?;
    let mut recv = vec![[7; 4]; count];
    match way {
        Way::Into => comm.all_reduce_into(&send, &mut recv, &op)?,
        Way::InPlace => {
            recv.copy_from_slice(&send);
            comm.all_reduce_in_place(&mut recv, &op)?;
        }
        Way::Immediate if in_place => recv = complete(comm.start(CollectiveArgs::all_reduce(send, &op))?, rng)?,
        _ => recv = started!(way rng; comm, CollectiveArgs::all_reduce((send, recv), &op)).1,
    }
    check(&recv, &want, "all_reduce_with")
}

pub fn reduce_with(comm: &Communicator, rng: &mut Rng, way: Way) -> Checked {
    let count = rng.count(size_of::<Matrix>(), 1);
    let ((send, want), op) = (products(comm, rng, count), Arc::new(UserOp::ordered(product)));
    let root = comm.process_at_rank(rng.below(comm.size()));
    let is_root = root.rank() == comm.rank();
    prepare(comm, rng, way)?;
    let mut recv = vec![[7; 4]; count];
    match way {
        Way::InPlace => {
            recv.copy_from_slice(&send);
            root.reduce_in_place(&mut recv, &op)?;
        }
        Way::Into if is_root => root.reduce_into_root(&send, &mut recv, &op)?,
        Way::Into => root.reduce_into(&send, &op)?,
        _ if is_root => recv = started!(way rng; comm, CollectiveArgs::reduce(root.rank(), (send, recv), &op)).1,
        _ => drop(started!(way rng; comm, CollectiveArgs::reduce(root.rank(), (send, Vec::new()), &op))),
    }
    if is_root { check(&recv, &want, "reduce_with") } else { Ok(()) }
}

pub fn reduce_scatter_with(comm: &Communicator, rng: &mut Rng, way: Way) -> Checked {
    let count = rng.count(size_of::<Matrix>(), comm.size());
    let ((send, want), op) = (products(comm, rng, count * comm.size()), Arc::new(UserOp::ordered(product)));
    prepare(comm, rng, way)?;
    let mut recv = vec![[7; 4]; count];
    match way {
        Way::Into => comm.reduce_scatter_block_into(&send, &mut recv, &op)?,
        _ => recv = started!(way rng; comm, CollectiveArgs::reduce_scatter((send, recv), &op)).1,
    }
    check(&recv, &want[comm.rank() * count..][..count], "reduce_scatter_with")
}

/// The same product of elements of which the library knows the size only.
pub fn raw(comm: &Communicator, rng: &mut Rng, way: Way) -> Checked {
    let count = rng.count(size_of::<Matrix>(), 1);
    let (send, want) = products(comm, rng, count);
    let op = Arc::new(BytesOp::new(size_of::<Matrix>(), false, |left, right| {
        let (left, right): (&[Matrix], &mut [Matrix]) = (bytemuck::cast_slice(left), bytemuck::cast_slice_mut(right));
        left.iter().zip(right).for_each(|(a, b)| *b = product(a, b));
    })?);
    prepare(comm, rng, way)?;
    let mut recv = vec![[7; 4]; count];
    match way {
        Way::Into => comm.all_reduce_into(bytemuck::cast_slice(&send), bytemuck::cast_slice_mut(&mut recv), &op)?,
        Way::InPlace => {
            recv.copy_from_slice(&send);
            comm.all_reduce_in_place(bytemuck::cast_slice_mut(&mut recv), &op)?;
        }
        _ => {
            let (send, space) = (bytemuck::cast_slice(&send).to_vec(), vec![0; count * size_of::<Matrix>()]);
            let mut call = comm.init(CollectiveArgs::all_reduce((send, space), &op))?;
            call.run()?;
            recv = bytemuck::pod_collect_to_vec(&call.into_buffers()?.1);
        }
    }
    check(&recv, &want, "raw")
}
