//! Operators of users on plain data of theirs: what the library must know of one, and how it is called on raw bytes.
//!
//! Invariant **U**: `T: Pod`, so that any bytes are a value and a value is any bytes; elements are read and written at
//! any alignment, each read before it is written.
#![allow(unsafe_code)]

use crate::Error;
use crate::op::OpIdentity;
use bytemuck::Pod;
use std::fmt;
use std::marker::PhantomData;

/// An operator of the user's own: an associative function of two elements.
///
/// It must give the same bits for the same operands on every rank. A panic in it ends the group with
/// [`Error::OperatorPanicked`] on every rank. It must not call the communicator that it works for. It is `Send` and `Sync` if
/// its function is.
///
/// ```
/// use earlybird_shm::UserOp;
/// let longest = UserOp::commutative(|a: &[u32; 2], b: &[u32; 2]| if a[0] >= b[0] { *a } else { *b });
/// // Operands of an ordered operator stand in rank order, whatever the algorithm and the order of arrival.
/// let product = UserOp::ordered(|a: &[f64; 4], b: &[f64; 4]| {
///     [a[0] * b[0] + a[1] * b[2], a[0] * b[1] + a[1] * b[3], a[2] * b[0] + a[3] * b[2], a[2] * b[1] + a[3] * b[3]]
/// });
/// # let _ = (longest, product);
/// ```
#[derive(Clone, Copy)]
pub struct UserOp<T, F> {
    fold: F,
    ordered: bool,
    tag: u8,
    elements: PhantomData<fn(T, T) -> T>,
}

impl<T, F> fmt::Debug for UserOp<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserOp").field("ordered", &self.ordered).field("tag", &self.tag).finish_non_exhaustive()
    }
}

impl<T: Pod, F: Fn(&T, &T) -> T + Sync> UserOp<T, F> {
    /// An operator for which `f(a, b)` and `f(b, a)` are the same: operands are folded as they come, or by rank under
    /// [`FoldOrder::Rank`](crate::FoldOrder::Rank).
    pub fn commutative(f: F) -> Self {
        UserOp { fold: f, ordered: false, tag: 0, elements: PhantomData }
    }

    /// An operator that is not commutative: operands are folded by rank, in every algorithm and order.
    pub fn ordered(f: F) -> Self {
        UserOp { fold: f, ordered: true, tag: 0, elements: PhantomData }
    }

    /// Tags the operator with a number from 0 to 63, which the ranks compare: different tags are an [`Error::Mismatch`]. Closures
    /// cannot be compared, so two operators of one kind are distinguished by their tags only.
    ///
    /// # Errors
    /// [`Error::Usage`] for a number above 63.
    pub fn tagged(self, tag: u8) -> Result<Self, Error> {
        check_tag(tag)?;
        Ok(UserOp { tag, ..self })
    }

    /// The identity of the operator, as ranks compare it.
    pub fn identity(&self) -> OpIdentity {
        OpIdentity::User { ordered: self.ordered, tag: self.tag }
    }
}

/// Refuses a number that no operator can be marked with.
///
/// # Errors
/// [`Error::Usage`].
pub(crate) fn check_tag(tag: u8) -> Result<(), Error> {
    match tag < OpIdentity::TAGS {
        true => Ok(()),
        false => Err(Error::usage(format!("the tag {tag} of an operator is not below {}", OpIdentity::TAGS))),
    }
}

/// Refuses elements of `bytes` bytes that no user's operator can reduce.
///
/// # Errors
/// [`Error::Usage`] for elements without size, [`Error::Unsupported`] for elements of 16 MiB or more.
pub(crate) fn check_element_bytes(bytes: usize) -> Result<(), Error> {
    match bytes {
        0 => Err(Error::usage("the element has no size; there is nothing to reduce")),
        bytes if bytes >= 1 << 24 => Err(Error::Unsupported {
            what: format!("an element of {bytes} bytes"),
            hint: "elements must be smaller than 16 MiB; reduce its parts".into(),
        }),
        _ => Ok(()),
    }
}

/// A reduction operator on the bytes of elements that only it understands.
pub trait ReduceFn: Sync {
    /// The identity of the operator, as ranks compare it.
    fn identity(&self) -> OpIdentity;

    /// Bytes of one element.
    fn element_bytes(&self) -> usize;

    /// `dst[i] = a[i] op b[i]`, `a` being the left operand.
    ///
    /// # Safety
    /// All three buffers hold `count` elements of the operator's type, at any alignment; `dst` equals `a`, equals `b`,
    /// or is disjoint from them; nothing else writes them meanwhile.
    unsafe fn fold(&self, dst: *mut u8, a: *const u8, b: *const u8, count: usize);
}

impl dyn ReduceFn + '_ {
    /// Makes every element of `left` that of `left` op that of `right`, wherever they lie.
    ///
    /// # Errors
    /// [`Error::Usage`] unless both hold the same whole number of elements.
    pub fn fold_left(&self, left: &mut [u8], right: &[u8]) -> Result<(), Error> {
        let bytes = self.element_bytes();
        if left.len() != right.len() || bytes == 0 || !left.len().is_multiple_of(bytes) {
            return Err(Error::usage(format!(
                "operands of {} and {} bytes do not hold the same whole number of elements of {bytes}",
                left.len(),
                right.len()
            )));
        }
        let (at, count) = (left.as_mut_ptr(), left.len() / bytes);
        // SAFETY: both hold `count` elements, as was checked; the result is the left operand, borrowed exclusively, and apart
        // from the right one.
        unsafe { self.fold(at, at, right.as_ptr(), count) };
        Ok(())
    }

    /// Returns whether operands must stand in rank order.
    pub fn is_ordered(&self) -> bool {
        matches!(self.identity(), OpIdentity::User { ordered: true, .. })
    }
}

impl fmt::Debug for dyn ReduceFn + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a user's operator")
    }
}

impl fmt::Debug for dyn ReduceFn + Send + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a user's operator")
    }
}

impl<T: Pod, F: Fn(&T, &T) -> T + Sync> ReduceFn for UserOp<T, F> {
    fn identity(&self) -> OpIdentity {
        UserOp::identity(self)
    }

    fn element_bytes(&self) -> usize {
        size_of::<T>()
    }

    unsafe fn fold(&self, dst: *mut u8, a: *const u8, b: *const u8, count: usize) {
        let (dst, a, b) = (dst.cast::<T>(), a.cast::<T>(), b.cast::<T>());
        for i in 0..count {
            // SAFETY: the contract of the trait, and U: the elements are copied out, folded, and the result copied in.
            unsafe {
                let folded = (self.fold)(&a.add(i).read_unaligned(), &b.add(i).read_unaligned());
                dst.add(i).write_unaligned(folded);
            }
        }
    }
}
