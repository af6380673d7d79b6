//! The check of a call's arguments: what does not fit the communicator is refused here, before any other rank is involved.

use crate::Error;
use crate::args::{CallOptions, CollectiveArgs, Counts, Placement};
use crate::config::Algorithm;
use crate::op::{Datatype, FoldOrder, Op};
use crate::protocol::active_request::Blocks as OwnedBlocks;
use crate::protocol::collective::Collective;
use crate::protocol::geometry::{Exchange, Lens, Pairs};
use crate::protocol::payload::Buffers;
use crate::protocol::signature::{Signature, USER_SIZE_SHIFT};
use crate::reduce_op::ReduceOp;
use crate::user_op::check_element_bytes;
use std::borrow::Cow;

/// Elements of the blocks, and where they begin.
#[derive(Debug)]
enum Blocks {
    Uniform(usize),
    /// Sums of the counts before each block, and of all.
    PerRank(Vec<usize>),
    /// Sums of the counts to send and to receive; then the elements of the largest block between two ranks, once all have learnt it.
    PerPair([Vec<usize>; 2], Option<usize>),
}

/// Arguments that fit the communicator; nothing else can be carried out.
#[derive(Debug)]
pub struct CheckedArgs<'a> {
    pub(crate) args: CollectiveArgs<'a>,
    blocks: Blocks,
    rank: usize,
    size: usize,
}

impl<'a> CollectiveArgs<'a> {
    /// Checks the arguments for the call of rank `rank` of `size`.
    ///
    /// # Errors
    /// [`Error::Usage`] for a root that does not exist, for counts and buffers that do not fit each other;
    /// [`Error::Unsupported`] for an operator that does not exist for the datatype, and elements of 16 MiB or more.
    pub fn check(self, rank: usize, size: usize) -> Result<CheckedArgs<'a>, Error> {
        self.check_elements()?;
        self.root.map_or(Ok(()), |root| check_root(root, size))?;
        self.check_in_place(rank)?;
        self.check_placement()?;
        let blocks = self.blocks(rank, size)?;
        let mut checked = CheckedArgs { args: self, blocks, rank, size };
        let whole = std::mem::replace(&mut checked.args.buffers, Buffers::in_place::<u8>(&mut []));
        checked.args.buffers = whole.own_parts(&checked.exchange(), rank);
        checked.check_lengths()?;
        checked.set_options(checked.settings());
        Ok(checked)
    }

    /// Refuses a buffer in place on a rank that has no block of its own in it.
    #[doc(hidden)]
    pub fn check_in_place(&self, rank: usize) -> Result<(), Error> {
        let traits = self.collective.traits();
        match traits.has_blocks_at_root() && self.buffers.are_in_place() && self.root != Some(rank) {
            true => Err(Error::usage(format!(
                "{} in place on rank {rank}, which is not the root; only the root's block can lie in its buffer",
                traits.name
            ))),
            false => Ok(()),
        }
    }

    /// Refuses elements that cannot be, and operators that do not exist for them.
    fn check_elements(&self) -> Result<(), Error> {
        let (datatype, folds) = (self.buffers.datatype(), self.collective.traits().folds);
        match (datatype, self.op) {
            (_, ReduceOp::Builtin(Op::Average)) if self.collective.traits().prefix.is_some() => {
                return Err(Error::Unsupported {
                    what: format!("the operator average in {}", self.collective.name()),
                    hint: "use sum, and divide on each rank by the number of contributions up to it".into(),
                });
            }
            (Datatype::Builtin(dtype), ReduceOp::Builtin(op)) if folds => dtype.must_have(op)?,
            (_, ReduceOp::User(op)) if op.element_bytes() != datatype.size() => {
                return Err(Error::usage(format!(
                    "an operator on elements of {} bytes for elements of {}; give one for this type",
                    op.element_bytes(),
                    datatype.size()
                )));
            }
            (Datatype::Opaque(bytes), ReduceOp::User(_)) => check_element_bytes(bytes)?,
            (Datatype::Opaque(bytes), ReduceOp::Builtin(op)) if folds => {
                return Err(Error::usage(format!(
                    "the operator {} on elements of {bytes} bytes of a user's type; give an operator of your own",
                    op.name()
                )));
            }
            _ => {}
        }
        if !self.buffers.are_whole() {
            let size = datatype.size();
            return Err(Error::usage(format!("a buffer is no whole number of elements of {size} bytes")));
        }
        let count = self.buffers.count();
        match self.op {
            ReduceOp::User(_) if count as u64 >> USER_SIZE_SHIFT != 0 => {
                Err(Error::usage(format!("{count} elements of a user's operator are too many; reduce them in parts")))
            }
            _ => Ok(()),
        }
    }

    /// Bytes of the largest block where no check is worth its time: as [`CheckedArgs::selecting_bytes`], 0 for arguments that
    /// do not fit each other.
    pub fn unchecked_bytes(&self, size: usize) -> usize {
        let elements = match self.counts {
            Counts::PerRank(counts) => counts.iter().copied().max(),
            Counts::PerOwner(_) => Some(self.own_block().1),
            Counts::PerPair { send, recv } => send.iter().chain(recv).copied().max(),
            Counts::Segments(_) => Some(self.buffers.count()),
            Counts::Uniform => self.uniform_block(size).ok(),
        };
        elements.unwrap_or(0).saturating_mul(self.buffers.datatype().size())
    }

    fn blocks(&self, rank: usize, size: usize) -> Result<Blocks, Error> {
        Ok(match self.counts {
            Counts::PerRank(counts) => Blocks::PerRank(starts(counts, size)?),
            Counts::PerPair { send, recv } => Blocks::PerPair([starts(send, size)?, starts(recv, size)?], None),
            Counts::Segments(counts) => Blocks::PerRank(sums(counts)?),
            Counts::PerOwner(_) if !self.collective.traits().has_blocks_at_root() => {
                return Err(Error::usage(format!(
                    "{} of blocks whose lengths their owners know; only gather and scatter have such counts, give those of all ranks",
                    self.collective.name()
                )));
            }
            Counts::PerOwner(counts) if self.root == Some(rank) => Blocks::PerRank(starts(counts, size)?),
            Counts::PerOwner(_) => Blocks::Uniform(self.own_block().1),
            Counts::Uniform => Blocks::Uniform(self.uniform_block(size)?),
        })
    }

    /// Elements of each block where all have one length.
    fn uniform_block(&self, size: usize) -> Result<usize, Error> {
        let (buffers, traits) = (&self.buffers, self.collective.traits());
        match (traits.joins(), traits.in_parts) {
            (true, true) => even_part(buffers.send_count(), size),
            (true, false) | (false, true) if buffers.are_in_place() => even_part(buffers.count(), size),
            (true, false) => Ok(buffers.send_count()),
            (false, true) => Ok(buffers.recv_count()),
            (false, false) => Ok(buffers.count()),
        }
    }
}

impl<'a> CheckedArgs<'a> {
    /// The send buffer as bytes, and the receive buffer. `None` where both are the same bytes; a copy where one is a part of
    /// the other.
    pub fn into_bytes(self) -> (Option<Cow<'a, [u8]>>, &'a mut [u8]) {
        self.args.buffers.into_bytes()
    }

    /// Bytes of each rank's block.
    pub fn block_bytes(&self) -> Vec<usize> {
        let size = self.datatype().size();
        match &self.blocks {
            Blocks::Uniform(block) => vec![block * size; self.size],
            Blocks::PerRank(starts) => starts.windows(2).map(|pair| (pair[1] - pair[0]) * size).collect(),
            Blocks::PerPair(..) => Vec::new(),
        }
    }

    /// Returns whether the arguments were checked for this rank of as many.
    pub(crate) fn is_for(&self, rank: usize, size: usize) -> bool {
        (self.rank, self.size) == (rank, size)
    }

    /// The collective.
    pub fn collective(&self) -> Collective {
        self.args.collective
    }

    /// The operator; of no meaning where the collective does not reduce.
    pub fn op(&self) -> ReduceOp<'a> {
        self.args.op
    }

    /// Returns whether the call is one message, reduced by one of the library's operators if it is reduced, and not where it lies:
    /// what plans carry out.
    pub fn is_plain(&self) -> bool {
        let is_registered = matches!(self.args.placement, Placement::Registered(_));
        matches!((self.args.counts, self.args.op), (Counts::Uniform, ReduceOp::Builtin(_))) && !is_registered
    }

    /// The root; 0 where there is none.
    pub fn root(&self) -> usize {
        self.args.root.unwrap_or(0)
    }

    /// The type of the elements.
    pub fn datatype(&self) -> Datatype {
        self.args.buffers.datatype()
    }

    /// The settings.
    pub fn settings(&self) -> CallOptions {
        self.args.options
    }

    /// Sets the options; a scan always folds in rank order.
    pub fn set_options(&mut self, options: CallOptions) {
        let order = self.collective().traits().fold_order(options.order);
        self.args.options = CallOptions { order, ..options };
    }
}

impl<'a> CheckedArgs<'a> {
    /// The arguments.
    pub(crate) fn args(&self) -> &CollectiveArgs<'a> {
        &self.args
    }

    /// The counts of an alltoall of unequal blocks, which the ranks compare in its first operation.
    pub fn pair_counts(&self) -> Option<[&'a [usize]; 2]> {
        match self.args.counts {
            Counts::PerPair { send, recv } => Some([send, recv]),
            _ => None,
        }
    }

    /// Sets the elements of the largest block between two ranks, which all have learnt.
    pub(crate) fn set_largest_pair(&mut self, elements: usize) {
        if let Blocks::PerPair(_, most) = &mut self.blocks {
            *most = Some(elements);
        }
    }

    /// The same call once all ranks have learnt the elements of each rank's block.
    ///
    /// # Errors
    /// [`Error::Usage`] for counts of more elements than an address space holds.
    pub(crate) fn with_counts_of_all<'b>(self, counts: &'b [usize]) -> Result<CheckedArgs<'b>, Error>
    where
        'a: 'b,
    {
        let blocks = Blocks::PerRank(starts(counts, self.size)?);
        Ok(CheckedArgs { args: self.args.counts(Counts::PerRank(counts)), blocks, ..self })
    }

    fn lens(&self) -> Lens<'_> {
        match (&self.blocks, self.args.counts) {
            (Blocks::PerRank(starts), Counts::PerRank(lens) | Counts::PerOwner(lens) | Counts::Segments(lens)) => {
                Lens::Each(lens, starts)
            }
            (Blocks::PerPair([send_starts, recv_starts], most), Counts::PerPair { send, recv }) => {
                Lens::Pairs(Pairs { me: self.rank, most: *most, send, send_starts, recv, recv_starts })
            }
            (Blocks::Uniform(block), _) => Lens::Equal(*block),
            (Blocks::PerRank(_) | Blocks::PerPair(..), _) => unreachable!("blocks are made from the counts"),
        }
    }

    /// The geometry of the call.
    pub(crate) fn exchange(&self) -> Exchange<'_> {
        let exchange = Exchange::new(self.args.collective, self.root(), self.size, self.lens());
        if self.owners_announce() { exchange.announced_by_owners() } else { exchange }
    }

    /// Returns whether owners announce the lengths of their blocks, of which only the root knows all.
    pub(crate) fn owners_announce(&self) -> bool {
        matches!(self.args.counts, Counts::PerOwner(_))
    }

    /// The address by which a call that its first operation has not ended is known again, if there is such a call.
    pub(crate) fn address(&self) -> Option<usize> {
        match self.args.counts {
            Counts::PerPair { send, .. } => Some(send.as_ptr().addr()),
            Counts::PerOwner(_) if self.args.collective.traits().in_parts => {
                Some(self.args.buffers.address_on(self.args.root == Some(self.rank)))
            }
            _ => None,
        }
    }

    /// The blocks, for a call that keeps them. Those of pairs of ranks are none: they are compared first.
    pub(crate) fn owned_blocks(&self) -> OwnedBlocks {
        match (&self.blocks, self.args.counts) {
            (Blocks::PerRank(starts), Counts::PerRank(lens)) => OwnedBlocks::Each(lens.to_vec(), starts.clone()),
            _ => OwnedBlocks::Equal(self.largest_block()),
        }
    }

    /// Elements of the largest block; of all segments where they are one message.
    pub(crate) fn largest_block(&self) -> usize {
        match self.args.counts {
            Counts::Segments(_) => self.args.buffers.count(),
            // The ranks have nothing in common by which they could select.
            Counts::PerOwner(_) => 0,
            _ => self.exchange().most(),
        }
    }

    /// Bytes of the largest block, by which algorithms are selected.
    pub fn selecting_bytes(&self) -> usize {
        self.largest_block().saturating_mul(self.datatype().size())
    }

    /// The description of the call that ranks compare.
    pub fn signature(&self) -> Signature {
        let CollectiveArgs { collective, op, root, buffers, placement, options, .. } = &self.args;
        let traits = collective.traits();
        let (op, order) =
            if traits.folds { (op.identity(), options.order) } else { (Op::Sum.into(), FoldOrder::Arrival) };
        let algorithm =
            if traits.algorithms.contains(&options.algorithm) { options.algorithm } else { Algorithm::Auto };
        let count = if let Blocks::Uniform(count) = self.blocks { count } else { 0 };
        let signature = Signature::new(*collective, buffers.datatype(), op, order, algorithm, count);
        let signature = match self.lens() {
            _ if self.owners_announce() => signature.unequal(&[]),
            Lens::Equal(_) => signature,
            Lens::Each(lens, _) => signature.unequal(lens),
            // Each rank knows its own; what they announce is compared.
            Lens::Pairs(_) => signature.unequal(&[]),
        };
        let signature = buffers.mark(signature.within(options.within));
        let signature = if let Placement::SharedResult(_) = placement { signature.shared() } else { signature };
        root.map_or(signature, |root| signature.rooted(root))
    }

    /// Refuses counts of more elements than an address space holds, and buffers of other lengths than the call needs.
    fn check_lengths(&self) -> Result<(), Error> {
        let (args, exchange) = (&self.args, self.exchange());
        let element_bytes = args.buffers.datatype().size();
        // A view has no length before it is filled.
        let recv = if self.has_shared_result() { args.buffers.send_count() } else { args.buffers.recv_count() };
        let given = [args.buffers.send_count(), recv];
        if let (Counts::Segments(lens), Blocks::PerRank(starts)) = (args.counts, &self.blocks) {
            let count = starts.last().copied().unwrap_or(0);
            if args.collective == Collective::AllReduce && given == [count; 2] {
                return Ok(());
            }
            let name = args.collective.name();
            return Err(Error::usage(format!(
                "{name} of {} messages with {count} elements in buffers of {} and {}; only an allreduce has such counts, on \
                 buffers that all messages fill",
                lens.len(),
                given[0],
                given[1]
            )));
        }
        check_lengths(args.collective, &exchange, element_bytes, given, self.rank, self.size)
    }
}

/// Refuses counts of more elements than an address space holds, and buffers of other lengths than an exchange needs.
///
/// # Errors
/// [`Error::Usage`].
pub fn check_lengths(
    collective: Collective,
    exchange: &Exchange<'_>,
    element_bytes: usize,
    given: [usize; 2],
    rank: usize,
    size: usize,
) -> Result<(), Error> {
    let (name, largest) = (collective.name(), exchange.largest());
    let bytes = largest.and_then(|count| count.checked_mul(element_bytes));
    if bytes.is_none_or(|bytes| isize::try_from(bytes).is_err()) {
        return Err(Error::usage(format!(
            "{name} on {size} ranks: {} elements of {element_bytes} bytes, blocks of up to {}, are more than the {} bytes that \
             an address space holds; give smaller counts",
            largest.map_or_else(|| format!("more than {}", usize::MAX), |count| count.to_string()),
            exchange.most(),
            isize::MAX,
        )));
    }
    let expected = [exchange.send_count(rank), exchange.recv_count(rank)];
    // The first rank of an exclusive scan has nothing to receive.
    let receives = !exchange.sources(rank).is_empty();
    if given == expected || !receives && given == [expected[0], 0] {
        return Ok(());
    }
    let hint = if expected[0] == expected[1] { "; give buffers of one length" } else { "" };
    Err(Error::usage(format!(
        "{name} on {size} ranks, rank {rank}: the send buffer has {} elements and the receive buffer {}, expected are {} and {}{hint}",
        given[0], given[1], expected[0], expected[1]
    )))
}

/// Refuses a root that is not one of `size` ranks.
///
/// # Errors
/// [`Error::Usage`].
pub fn check_root(root: usize, size: usize) -> Result<(), Error> {
    match root < size {
        true => Ok(()),
        false => Err(Error::usage(format!("root {root} does not exist among {size} ranks"))),
    }
}

/// Sums of the counts before each rank's block, and of all.
///
/// # Errors
/// [`Error::Usage`] unless there is a count for each of `size` ranks, and where the sum is too large.
pub fn starts(counts: &[usize], size: usize) -> Result<Vec<usize>, Error> {
    match counts.len() == size {
        true => sums(counts),
        false => Err(Error::usage(format!("{} counts for {size} ranks; give one per rank", counts.len()))),
    }
}

fn sums(counts: &[usize]) -> Result<Vec<usize>, Error> {
    let (mut sum, mut starts) = (0usize, Vec::with_capacity(counts.len() + 1));
    starts.push(sum);
    for count in counts {
        let more = sum.checked_add(*count);
        sum = more.ok_or_else(|| Error::usage(format!("the sum of the counts {counts:?} is too large")))?;
        starts.push(sum);
    }
    Ok(starts)
}

/// Elements of a block of a buffer of `count` with one for each of `ranks`.
///
/// # Errors
/// [`Error::Usage`] where the buffer does not divide evenly.
pub fn even_part(count: usize, ranks: usize) -> Result<usize, Error> {
    match count.is_multiple_of(ranks) {
        true => Ok(count / ranks),
        false => Err(Error::usage(format!(
            "a buffer of {count} elements does not divide among {ranks} ranks; give a multiple"
        ))),
    }
}

#[cfg(test)]
mod tests;
