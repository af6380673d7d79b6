//! The binary interface of the MPI library: its functions under their profiling names, and the constants that `abi.c` takes from its header.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};

/// A communicator, group, type or operator: the address of an object.
#[cfg(open_mpi)]
pub type Handle = usize;
/// A communicator, group, type or operator: a number.
#[cfg(not(open_mpi))]
pub type Handle = u32;

/// A count or a displacement of the functions whose names end in `_c`.
#[cfg(large_counts)]
pub type Count = i64;

/// The function that MPI calls when it deletes an attribute.
pub type DeleteFn = unsafe extern "C" fn(Handle, c_int, *mut c_void, *mut c_void) -> c_int;

/// The functions that MPI calls for a request of this library's: for its status, when it is freed, to cancel it.
pub type QueryFn = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;
pub type FreeFn = unsafe extern "C" fn(*mut c_void) -> c_int;
pub type CancelFn = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;

/// An entry of the table of predefined types in `abi.c`.
#[repr(C)]
pub struct CType {
    pub handle: Handle,
    pub dtype: i32,
    pub operators: i32,
    pub layout: i32,
}

/// An entry of the table of predefined operators in `abi.c`.
#[repr(C)]
pub struct COp {
    pub handle: Handle,
    pub op: i32,
}

/// Constants of the header.
#[repr(C)]
pub struct Constants {
    pub in_place: *mut c_void,
    pub world: Handle,
    pub comm_self: Handle,
    pub null_comm: Handle,
    pub null_type: Handle,
    pub byte: Handle,
    pub integer: Handle,
    pub packed: Handle,
    pub min: Handle,
    pub null_op: Handle,
    pub null_request: Handle,
    pub err_buffer: c_int,
    pub err_count: c_int,
    pub err_truncate: c_int,
    pub err_other: c_int,
    pub err_request: c_int,
    pub thread_multiple: c_int,
    pub any_source: c_int,
    pub proc_null: c_int,
    pub undefined: c_int,
    pub ignore_status: *mut c_void,
}

// SAFETY: constants; the addresses in them are passed on and never followed.
unsafe impl Sync for Constants {}

/// The address of data that MPI reads.
pub type SendPtr = *const c_void;
/// The address of data that MPI writes.
pub type RecvPtr = *mut c_void;

unsafe extern "C" {
    safe static eb_constants: Constants;
    static eb_types: [CType; 0];
    safe static eb_types_len: usize;
    static eb_ops: [COp; 0];
    safe static eb_ops_len: usize;
    pub fn eb_return_errors(comm: Handle) -> c_int;
    pub fn eb_row_of(row: Handle) -> Handle;
    pub fn eb_create_keyval(on_delete: DeleteFn, keyval: *mut c_int) -> c_int;

    pub fn PMPI_Allgather(
        send: SendPtr,
        n: c_int,
        dtype: Handle,
        recv: RecvPtr,
        m: c_int,
        recv_type: Handle,
        comm: Handle,
    ) -> c_int;
    pub fn PMPI_Finalize() -> c_int;
    pub fn PMPI_Grequest_start(
        query: QueryFn,
        free: FreeFn,
        cancel: CancelFn,
        state: *mut c_void,
        request: *mut Handle,
    ) -> c_int;
    pub fn PMPI_Grequest_complete(request: Handle) -> c_int;
    pub fn PMPI_Query_thread(level: *mut c_int) -> c_int;
    pub fn PMPI_Type_dup(dtype: Handle, new: *mut Handle) -> c_int;
    pub fn PMPI_Type_free(dtype: *mut Handle) -> c_int;

    pub fn PMPI_Abort(comm: Handle, code: c_int) -> c_int;
    pub fn PMPI_Comm_call_errhandler(comm: Handle, code: c_int) -> c_int;
    pub fn PMPI_Comm_free(comm: *mut Handle) -> c_int;
    pub fn PMPI_Comm_split(comm: Handle, color: c_int, key: c_int, new: *mut Handle) -> c_int;
    pub fn PMPI_Get_count(status: SendPtr, dtype: Handle, count: *mut c_int) -> c_int;
    pub fn PMPI_Isend(
        from: SendPtr,
        n: c_int,
        dtype: Handle,
        to: c_int,
        tag: c_int,
        comm: Handle,
        request: *mut Handle,
    ) -> c_int;
    pub fn PMPI_Comm_dup(comm: Handle, new: *mut Handle) -> c_int;
    pub fn PMPI_Comm_group(comm: Handle, group: *mut Handle) -> c_int;
    pub fn PMPI_Group_free(group: *mut Handle) -> c_int;
    pub fn PMPI_Group_translate_ranks(
        from: Handle,
        n: c_int,
        ranks: *const c_int,
        to: Handle,
        translated: *mut c_int,
    ) -> c_int;
    pub fn PMPI_Comm_get_attr(comm: Handle, keyval: c_int, value: *mut *mut c_void, found: *mut c_int) -> c_int;
    pub fn PMPI_Comm_rank(comm: Handle, rank: *mut c_int) -> c_int;
    #[cfg(open_mpi)]
    pub fn PMPI_Comm_remote_size(comm: Handle, size: *mut c_int) -> c_int;
    pub fn PMPI_Comm_set_attr(comm: Handle, keyval: c_int, value: *mut c_void) -> c_int;
    pub fn PMPI_Comm_size(comm: Handle, size: *mut c_int) -> c_int;
    pub fn PMPI_Comm_test_inter(comm: Handle, inter: *mut c_int) -> c_int;
    pub fn PMPI_Finalized(flag: *mut c_int) -> c_int;
    pub fn PMPI_Get_library_version(text: *mut c_char, length: *mut c_int) -> c_int;
    pub fn PMPI_Initialized(flag: *mut c_int) -> c_int;
    pub fn PMPI_Irecv(
        to: RecvPtr,
        n: c_int,
        dtype: Handle,
        from: c_int,
        tag: c_int,
        comm: Handle,
        request: *mut Handle,
    ) -> c_int;
    pub fn PMPI_Recv_init(
        to: RecvPtr,
        n: c_int,
        dtype: Handle,
        from: c_int,
        tag: c_int,
        comm: Handle,
        request: *mut Handle,
    ) -> c_int;
    pub fn PMPI_Send(from: SendPtr, n: c_int, dtype: Handle, to: c_int, tag: c_int, comm: Handle) -> c_int;
    pub fn PMPI_Start(request: *mut Handle) -> c_int;
    pub fn PMPI_Startall(count: c_int, requests: *mut Handle) -> c_int;
    pub fn PMPI_Request_free(request: *mut Handle) -> c_int;
    pub fn PMPI_Test(request: *mut Handle, flag: *mut c_int, status: RecvPtr) -> c_int;
    pub fn PMPI_Wait(request: *mut Handle, status: RecvPtr) -> c_int;
    pub fn PMPI_Cancel(request: *mut Handle) -> c_int;
    pub fn PMPI_Pack(
        from: SendPtr,
        n: c_int,
        dtype: Handle,
        to: RecvPtr,
        bytes: c_int,
        at: *mut c_int,
        comm: Handle,
    ) -> c_int;
    #[allow(clippy::too_many_arguments)]
    pub fn PMPI_Sendrecv(
        from: SendPtr,
        n: c_int,
        of: Handle,
        rank: c_int,
        tag: c_int,
        to: RecvPtr,
        m: c_int,
        recv_type: Handle,
        from_rank: c_int,
        from_tag: c_int,
        comm: Handle,
        status: RecvPtr,
    ) -> c_int;
    pub fn PMPI_Op_free(op: *mut Handle) -> c_int;
    pub fn PMPI_Op_commutative(op: Handle, commutes: *mut c_int) -> c_int;
    pub fn PMPI_Reduce_local(left: SendPtr, right: RecvPtr, n: c_int, dtype: Handle, op: Handle) -> c_int;
    pub fn PMPI_Type_get_true_extent(dtype: Handle, lower: *mut isize, extent: *mut isize) -> c_int;
    pub fn PMPI_Type_get_extent(dtype: Handle, lower: *mut isize, extent: *mut isize) -> c_int;
    pub fn PMPI_Type_size(dtype: Handle, bytes: *mut c_int) -> c_int;
    pub fn PMPI_Unpack(
        from: SendPtr,
        bytes: c_int,
        at: *mut c_int,
        to: RecvPtr,
        n: c_int,
        dtype: Handle,
        comm: Handle,
    ) -> c_int;
}

#[cfg(open_mpi)]
unsafe extern "C" {
    pub fn eb_set_status(status: RecvPtr, code: c_int) -> c_int;
    pub fn eb_comm_f2c(handle: c_int) -> Handle;
    pub fn eb_type_f2c(handle: c_int) -> Handle;
    pub fn eb_op_f2c(handle: c_int) -> Handle;
    pub fn eb_type_c2f(handle: Handle) -> c_int;
    pub fn eb_op_c2f(handle: Handle) -> c_int;
    pub fn eb_request_c2f(handle: Handle) -> c_int;
    pub fn eb_request_f2c(handle: c_int) -> Handle;
    #[cfg(persistent)]
    pub fn eb_info_f2c(handle: c_int) -> Handle;
    pub safe fn eb_fortran_in_place() -> *const c_void;
    pub safe fn eb_fortran_bottom() -> *const c_void;
}

/// Returns the constants of the header.
#[inline]
pub fn constants() -> &'static Constants {
    &eb_constants
}

/// Returns the table of predefined types.
pub fn types() -> &'static [CType] {
    // SAFETY: a constant array of this length in `abi.c`.
    unsafe { std::slice::from_raw_parts((&raw const eb_types).cast(), eb_types_len) }
}

/// Returns the table of predefined operators.
pub fn ops() -> &'static [COp] {
    // SAFETY: a constant array of this length in `abi.c`.
    unsafe { std::slice::from_raw_parts((&raw const eb_ops).cast(), eb_ops_len) }
}

/// Returns the `int` that an MPI function writes, `None` if the function fails.
pub fn query(call: impl FnOnce(*mut c_int) -> c_int) -> Option<c_int> {
    let mut value = 0;
    (call(&mut value) == 0).then_some(value)
}

/// Returns this process's rank in `comm`, and the number of ranks; `None` for an invalid handle.
pub fn rank_and_size(comm: Handle) -> Option<(usize, usize)> {
    // SAFETY: MPI runs and checks the handle, or it is the caller's as MPI demands; each writes one int.
    let (rank, size) = unsafe { (query(|rank| PMPI_Comm_rank(comm, rank)), query(|size| PMPI_Comm_size(comm, size))) };
    Some((rank? as usize, size? as usize))
}

/// Gathers as much of each of the `size` ranks of `comm`, by rank; `T` is plain data. `None` if MPI fails.
pub fn gather<T: Copy>(comm: Handle, size: usize, mine: &[T]) -> Option<Vec<T>> {
    let (mut all, bytes, byte) = (mine.repeat(size), size_of_val(mine) as c_int, constants().byte);
    // SAFETY: every rank of `comm` makes this call; `all` has room for as much of every rank as every rank sends.
    let code = unsafe { PMPI_Allgather(mine.as_ptr().cast(), bytes, byte, all.as_mut_ptr().cast(), bytes, byte, comm) };
    (code == 0).then_some(all)
}

/// Returns the size of an element of `dtype` in bytes, `None` for an invalid handle.
pub fn type_size(dtype: Handle) -> Option<usize> {
    if dtype == constants().null_type || dtype == 0 {
        return None;
    }
    // SAFETY: MPI checks the handle, or it is the caller's as MPI demands; writes one int.
    query(|bytes| unsafe { PMPI_Type_size(dtype, bytes) }).and_then(|bytes| usize::try_from(bytes).ok())
}

/// Returns the predefined type of which `dtype` is a row, made by MPI_Type_contiguous.
pub fn row_of(dtype: Handle) -> Option<Handle> {
    // SAFETY: a type as MPI demands of the caller.
    let of = unsafe { eb_row_of(dtype) };
    (of != constants().null_type).then_some(of)
}

/// Returns whether MPI is initialized and not finalized.
pub fn is_running() -> bool {
    // SAFETY: may be called at any time; writes one int.
    let initialized = query(|flag| unsafe { PMPI_Initialized(flag) });
    // SAFETY: as for MPI_Initialized.
    let finalized = query(|flag| unsafe { PMPI_Finalized(flag) });
    initialized.is_some_and(|flag| flag != 0) && finalized == Some(0)
}

/// Returns the lower bound and the extent of `dtype` in bytes.
pub fn extent(dtype: Handle) -> Option<(isize, isize)> {
    let (mut lower, mut extent) = (0, 0);
    // SAFETY: a type as MPI demands of the caller; writes two integers.
    (unsafe { PMPI_Type_get_extent(dtype, &mut lower, &mut extent) } == 0).then_some((lower, extent))
}

/// Returns the true lower bound and the true extent of `dtype` in bytes.
pub fn true_extent(dtype: Handle) -> Option<(isize, isize)> {
    let (mut lower, mut extent) = (0, 0);
    // SAFETY: as in `extent`.
    (unsafe { PMPI_Type_get_true_extent(dtype, &mut lower, &mut extent) } == 0).then_some((lower, extent))
}

/// Returns a copy of `dtype`, or the error code of MPI.
pub fn copy_type(dtype: Handle) -> Result<Handle, c_int> {
    let mut copy = constants().null_type;
    // SAFETY: a type as MPI demands of the caller; writes one handle.
    match unsafe { PMPI_Type_dup(dtype, &mut copy) } {
        0 => Ok(copy),
        code => Err(code),
    }
}
