//! What does not fit is refused, and what fits is described as it is.

use super::*;
use crate::call_buffers::CallBuffers;
use crate::user_op::UserOp;

fn refused(args: CollectiveArgs<'_>) -> String {
    match args.check(1, 3) {
        Err(Error::Usage { message }) => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let (mut three, mut four, mut bytes) = ([1u32; 3], [1u32; 4], [0u8; 6]);
    assert!(refused(CollectiveArgs::broadcast(3, &mut three[..])).contains("root 3 does not exist among 3 ranks"));
    assert!(
        refused(CollectiveArgs::all_reduce((&three[..], &mut four[..]), Op::Sum))
            .contains("give buffers of one length")
    );
    assert!(refused(CollectiveArgs::all_to_all(&mut four[..])).contains("does not divide among 3 ranks"));
    assert!(refused(CollectiveArgs::gather(0, &mut three[..])).contains("only the root's block"));
    let counts = Counts::PerRank(&[1, 1]);
    assert!(refused(CollectiveArgs::all_gather(&mut three[..]).counts(counts)).contains("2 counts for 3 ranks"));
    for args in [CollectiveArgs::all_reduce(&mut four[..], Op::Sum), CollectiveArgs::all_to_all(&mut three[..])] {
        assert!(refused(args.counts(Counts::Segments(&[1, 2]))).contains("only an allreduce has such counts"));
    }
    let ragged = CallBuffers::of_bytes(None, &mut bytes, Datatype::Opaque(4));
    let op = UserOp::commutative(|a: &[u8; 4], _: &[u8; 4]| *a);
    assert!(refused(CollectiveArgs::all_reduce(ragged, ReduceOp::User(&op))).contains("whole number of elements of 4"));
    let wrong = CallBuffers::of_bytes(None, &mut bytes, Datatype::Opaque(3));
    assert!(
        refused(CollectiveArgs::all_reduce(wrong, ReduceOp::User(&op)))
            .contains("elements of 4 bytes for elements of 3")
    );
    let builtin = CallBuffers::of_bytes(None, &mut bytes, Datatype::Opaque(3));
    assert!(
        refused(CollectiveArgs::all_reduce(builtin, ReduceOp::Builtin(Op::Sum)))
            .contains("give an operator of your own")
    );
}

#[test]
fn a_rank_in_place_has_its_own_part() {
    let mut buf = [1u16, 2, 3, 4, 5, 6];
    let checked = CollectiveArgs::all_gather(&mut buf[..]).check(1, 3).unwrap();
    assert_eq!((checked.block_bytes(), checked.is_for(1, 3), checked.is_for(1, 2)), (vec![4; 3], true, false));
    let (send, recv) = checked.into_bytes();
    assert_eq!((send.unwrap().into_owned(), recv.len()), (bytemuck::cast_slice(&[3u16, 4]).to_vec(), 12));
    let (send, recv) = CollectiveArgs::reduce_scatter(&mut buf[..], Op::Sum).check(1, 3).unwrap().into_bytes();
    assert_eq!((send.unwrap().len(), recv.to_vec()), (12, bytemuck::cast_slice(&[3u16, 4]).to_vec()));
    let (send, recv) = CollectiveArgs::all_reduce(&mut buf[..], Op::Sum).check(1, 3).unwrap().into_bytes();
    assert!(send.is_none() && recv.len() == 12);
    let (send, recv) = CollectiveArgs::reduce(0, &mut buf[..], Op::Sum).check(1, 3).unwrap().into_bytes();
    assert!(send.unwrap().len() == 12 && recv.is_empty());
}
