//! The loops of the kernels, written once and compiled once per instruction-set level.
//!
//! A block is loaded whole before it is stored, so the destination may be one of the sources and no run-time
//! overlap check is needed. Blocks are counted from element 0, never from an aligned address: which instructions
//! treat element `i` depends on `i` and the count alone. Everything is `inline(always)`, because only what is
//! inlined into the functions of a level is compiled for its instruction set.
#![allow(unsafe_code)]

use super::hints::{fetch_for_reading, fetch_for_writing};
use super::vector::{Operator, Vector};
use std::marker::PhantomData;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Vectors loaded before the first of them is stored, per turn of the main loop.
const UNROLL: usize = 4;

/// The part of a vector that is in the buffers.
trait Part<V: Vector>: Copy {
    /// # Safety
    /// The part is readable at `from`, and the features of the level are present.
    unsafe fn load(self, from: *const u8) -> V;
    /// # Safety
    /// The part is writable at `to`, and the features of the level are present.
    unsafe fn store(self, to: *mut u8, vector: V);
}

/// Whole vectors, stored by the ordinary way.
#[derive(Clone, Copy)]
struct Whole;
impl<V: Vector> Part<V> for Whole {
    #[inline(always)]
    unsafe fn load(self, from: *const u8) -> V {
        // SAFETY: the caller's contract.
        unsafe { V::load(from) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut u8, vector: V) {
        // SAFETY: the caller's contract.
        unsafe { vector.store(to) }
    }
}

/// Whole vectors, stored past the caches: for an address that the vector's size divides.
#[derive(Clone, Copy)]
struct Streamed;
impl<V: Vector> Part<V> for Streamed {
    #[inline(always)]
    unsafe fn load(self, from: *const u8) -> V {
        // SAFETY: the caller's contract.
        unsafe { V::load(from) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut u8, vector: V) {
        // SAFETY: the caller's contract; `run` and `copy` aligned the address.
        unsafe { vector.stream(to) }
    }
}

/// The first elements only, fewer than a vector has.
#[derive(Clone, Copy)]
struct First(usize);
impl<V: Vector> Part<V> for First {
    #[inline(always)]
    unsafe fn load(self, from: *const u8) -> V {
        // SAFETY: the caller's contract.
        unsafe { V::load_first(from, self.0) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut u8, vector: V) {
        // SAFETY: the caller's contract.
        unsafe { vector.store_first(to, self.0) }
    }
}

/// `K` vectors that follow each other.
///
/// # Safety
/// They are readable, and the features of the level are present.
#[inline(always)]
unsafe fn load<V: Vector, P: Part<V>, const K: usize>(from: *const u8, part: P) -> [V; K] {
    // SAFETY: the caller's contract; K is 1 wherever the part is not whole.
    unsafe {
        let mut block = [part.load(from); K];
        let mut k = 1;
        while k < K {
            block[k] = part.load(from.add(k * V::LANES * V::ELEMENT_BYTES));
            k += 1;
        }
        block
    }
}

/// # Safety
/// As [`load`], for writing.
#[inline(always)]
unsafe fn store<V: Vector, P: Part<V>, const K: usize>(to: *mut u8, part: P, block: [V; K]) {
    let mut k = 0;
    while k < K {
        // SAFETY: the caller's contract.
        unsafe { part.store(to.add(k * V::LANES * V::ELEMENT_BYTES), block[k]) };
        k += 1;
    }
}

/// # Safety
/// The features of the level are present.
#[inline(always)]
unsafe fn combine<V: Vector, F: Operator<V>, const K: usize>(mut left: [V; K], right: [V; K]) -> [V; K] {
    let mut k = 0;
    while k < K {
        // SAFETY: the caller's contract.
        left[k] = unsafe { F::apply(left[k], right[k]) };
        k += 1;
    }
    left
}

/// The work of a kernel on the `K` vectors at byte `at` of its buffers.
trait Step<V: Vector> {
    /// `last` is how the last destination is written, `part` everything else.
    ///
    /// # Safety
    /// They lie within all buffers, and the features of the level are present.
    unsafe fn step<P: Part<V>, L: Part<V>, const K: usize>(&self, at: usize, part: P, last: L);
}

/// Runs `step` over `count` elements; the last destination is written past the caches from the first vector boundary of all in
/// `far` on, where there is one and the level can.
///
/// # Safety
/// Every buffer of the step holds `count` elements, `far` is the last destination, or all of them, and the features of the level
/// are present.
#[inline(always)]
unsafe fn run<V: Vector>(step: impl Step<V>, far: &[*mut u8], count: usize) {
    let bytes = count * V::ELEMENT_BYTES;
    // SAFETY: the ranges lie within the buffers; ordinary stores need no alignment, and at `start` the last destination is aligned.
    unsafe {
        let Some(start) = boundary::<V>(far, bytes) else { return range::<V, Whole>(&step, 0, bytes, Whole) };
        if start > 0 {
            let part = First(start / V::ELEMENT_BYTES);
            step.step::<_, _, 1>(0, part, part);
        }
        range::<V, Streamed>(&step, start, bytes, Streamed);
        V::fence();
    }
}

/// The byte at which streaming to all of `far` begins, if it is one for all, before the end, and between two elements.
#[inline(always)]
fn boundary<V: Vector>(far: &[*mut u8], bytes: usize) -> Option<usize> {
    let [first, others @ ..] = far else { return None };
    let start = head::<V>(*first);
    let suits = V::STREAMS && start < bytes && start.is_multiple_of(V::ELEMENT_BYTES);
    (suits && others.iter().all(|dst| head::<V>(*dst) == start)).then_some(start)
}

/// Bytes before the first vector boundary.
#[inline(always)]
fn head<V: Vector>(at: *mut u8) -> usize {
    (at as usize).wrapping_neg() % (V::LANES * V::ELEMENT_BYTES)
}

/// Runs `step` over the bytes from `at` to `end`: [`UNROLL`] vectors per turn, then single ones, then the part of one.
///
/// # Safety
/// The contract of [`run`]; `last` suits the address of the last destination.
#[inline(always)]
unsafe fn range<V: Vector, L: Part<V>>(step: &impl Step<V>, mut at: usize, end: usize, last: L) {
    let vector_bytes = V::LANES * V::ELEMENT_BYTES;
    while end - at >= UNROLL * vector_bytes {
        // SAFETY: UNROLL vectors at `at` end at or before `end`.
        unsafe { step.step::<_, _, UNROLL>(at, Whole, last) };
        at += UNROLL * vector_bytes;
    }
    while end - at >= vector_bytes {
        // SAFETY: one vector at `at` ends at or before `end`.
        unsafe { step.step::<_, _, 1>(at, Whole, last) };
        at += vector_bytes;
    }
    if at < end {
        let rest = First((end - at) / V::ELEMENT_BYTES);
        // SAFETY: the elements between `at` and `end`, fewer than a vector.
        unsafe { step.step::<_, _, 1>(at, rest, rest) };
    }
}

struct One<F>(*mut u8, *const u8, *const u8, PhantomData<F>);
impl<V: Vector, F: Operator<V>> Step<V> for One<F> {
    #[inline(always)]
    unsafe fn step<P: Part<V>, L: Part<V>, const K: usize>(&self, at: usize, part: P, last: L) {
        let One(dst, a, b, _) = *self;
        // SAFETY: the contract of the trait.
        unsafe {
            let block = combine::<V, F, K>(load(a.add(at), part), load(b.add(at), part));
            store(dst.add(at), last, block);
        }
    }
}

struct Both<F>(*mut u8, *mut u8, *const u8, *const u8, PhantomData<F>);
impl<V: Vector, F: Operator<V>> Step<V> for Both<F> {
    #[inline(always)]
    unsafe fn step<P: Part<V>, L: Part<V>, const K: usize>(&self, at: usize, part: P, last: L) {
        let Both(dst, dst2, a, b, _) = *self;
        // SAFETY: the contract of the trait.
        unsafe {
            let block = combine::<V, F, K>(load(a.add(at), part), load(b.add(at), part));
            store(dst.add(at), part, block);
            store(dst2.add(at), last, block);
        }
    }
}

/// The step of a fold of all ranks; the destinations in `far` are written past the caches.
struct All<'a, F> {
    near: &'a [*mut u8],
    far: &'a [*mut u8],
    srcs: &'a [*const u8],
    operator: PhantomData<F>,
}
impl<V: Vector, F: Operator<V>> Step<V> for All<'_, F> {
    #[inline(always)]
    unsafe fn step<P: Part<V>, L: Part<V>, const K: usize>(&self, at: usize, part: P, last: L) {
        let [first, others @ ..] = self.srcs else { return };
        // SAFETY: the contract of the trait.
        unsafe {
            let mut block: [V; K] = load(first.add(at), part);
            for src in others {
                block = combine::<V, F, K>(block, load(src.add(at), part));
            }
            for dst in self.near {
                store(dst.add(at), part, block);
            }
            for dst in self.far {
                store(dst.add(at), last, block);
            }
        }
    }
}

struct Move(*mut u8, *const u8);
impl<V: Vector> Step<V> for Move {
    #[inline(always)]
    unsafe fn step<P: Part<V>, L: Part<V>, const K: usize>(&self, at: usize, part: P, last: L) {
        // SAFETY: the contract of the trait.
        unsafe { store(self.0.add(at), last, load::<V, P, K>(self.1.add(at), part)) }
    }
}

/// # Safety
/// As [`Kernels::fold`](super::Kernels::fold), with the features of the level.
#[inline(always)]
pub(super) unsafe fn fold<V: Vector, F: Operator<V>>(dst: *mut u8, a: *const u8, b: *const u8, count: usize) {
    // SAFETY: the caller's contract.
    unsafe { run::<V>(One::<F>(dst, a, b, PhantomData), &[], count) }
}

/// # Safety
/// As [`Kernels::fold_all`](super::Kernels::fold_all), with the features of the level.
#[inline(always)]
pub(super) unsafe fn fold_all<V: Vector, F: Operator<V>>(
    near: &[*mut u8],
    far: &[*mut u8],
    srcs: &[*const u8],
    count: usize,
) {
    // SAFETY: the caller's contract.
    unsafe {
        match (near, far, srcs) {
            (&[dst, dst2], [], &[a, b]) | (&[dst], &[dst2], &[a, b]) => {
                run::<V>(Both::<F>(dst, dst2, a, b, PhantomData), far, count);
            }
            _ => run::<V>(All::<F> { near, far, srcs, operator: PhantomData }, far, count),
        }
    }
}

/// A move that asks for the lines that come `AHEAD` bytes later, inside buffers of so many bytes.
struct MoveAhead<const AHEAD: usize>(*mut u8, *const u8, usize);
impl<V: Vector, const AHEAD: usize> Step<V> for MoveAhead<AHEAD> {
    #[inline(always)]
    unsafe fn step<P: Part<V>, L: Part<V>, const K: usize>(&self, at: usize, part: P, last: L) {
        let MoveAhead(dst, src, bytes) = *self;
        let moved = K * V::LANES * V::ELEMENT_BYTES;
        if AHEAD > 0 && at + AHEAD + moved <= bytes {
            for line in (0..moved).step_by(LINE) {
                fetch_for_writing(dst.wrapping_add(at + AHEAD + line));
                fetch_for_reading(src.wrapping_add(at + AHEAD + line));
            }
        }
        // SAFETY: the contract of the trait.
        unsafe { Step::<V>::step::<P, L, K>(&Move(dst, src), at, part, last) }
    }
}

/// Copies by vectors, from the first vector boundary of the destination to the last: past the caches, or asking for lines so many bytes
/// `AHEAD`, if any.
///
/// # Safety
/// The contract of [`copy`](super::copy), with the features of the level.
#[inline(always)]
pub(super) unsafe fn copy<V: Vector, const PAST_CACHES: bool, const AHEAD: usize>(
    dst: *mut u8,
    src: *const u8,
    bytes: usize,
) {
    let vector_bytes = V::LANES * V::ELEMENT_BYTES;
    let (head, Some(last)) = (head::<V>(dst), bytes.checked_sub(vector_bytes)) else {
        // SAFETY: the caller's contract.
        return unsafe { core::ptr::copy_nonoverlapping(src, dst, bytes) };
    };
    let end = head + (bytes - head) / vector_bytes * vector_bytes;
    // SAFETY: all ranges lie within the buffers, which are disjoint, and at `head` the destination is aligned. What is copied twice has the
    // same bytes.
    unsafe {
        if PAST_CACHES {
            // A store past the caches of what they have takes long, so nothing is copied twice.
            core::ptr::copy_nonoverlapping(src, dst, head);
            range::<V, Streamed>(&Move(dst, src), head, end, Streamed);
            V::fence();
            core::ptr::copy_nonoverlapping(src.add(end), dst.add(end), bytes - end);
        } else {
            V::load(src).store(dst);
            range::<V, Whole>(&MoveAhead::<AHEAD>(dst, src, bytes), head, end, Whole);
            V::load(src.add(last)).store(dst.add(last));
        }
    }
}
