//! What must be known of an MPI library to stand in front of it, found at run time: no MPI header at build time.
//!
//! Open MPI's handles are addresses of global symbols, those of MPICH and Intel MPI are integer constants.
#![allow(unsafe_code)]

use earlybird::{DType, Op};
use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;

/// A communicator, type or operator: an address, or an `int` whose upper half in the register is unspecified.
pub type Handle = usize;

pub type AllreduceFn = unsafe extern "C" fn(*const c_void, *mut c_void, c_int, Handle, Handle, Handle) -> c_int;
pub type FinalizeFn = unsafe extern "C" fn() -> c_int;

/// The library that this process is linked with.
pub struct Mpi {
    pub allreduce: AllreduceFn,
    pub finalize: FinalizeFn,
    initialized: unsafe extern "C" fn(*mut c_int) -> c_int,
    in_place: usize,
    handle_bits: usize,
    world: Handle,
    types: Vec<(Handle, DType)>,
    ops: Vec<(Handle, Op)>,
}

/// C type, Open MPI's symbol, MPICH's constant. Types of equal representation may be mixed between ranks, so all
/// names of a representation are carried or none.
const TYPES: [(DType, &CStr, Handle); 24] = [
    (DType::I8, c"ompi_mpi_signed_char", 0x4c00_0118),
    (DType::I8, c"ompi_mpi_int8_t", 0x4c00_0137),
    (DType::U8, c"ompi_mpi_unsigned_char", 0x4c00_0102),
    (DType::U8, c"ompi_mpi_uint8_t", 0x4c00_013b),
    (DType::I16, c"ompi_mpi_short", 0x4c00_0203),
    (DType::I16, c"ompi_mpi_int16_t", 0x4c00_0238),
    (DType::U16, c"ompi_mpi_unsigned_short", 0x4c00_0204),
    (DType::U16, c"ompi_mpi_uint16_t", 0x4c00_023c),
    (DType::Bool, c"ompi_mpi_c_bool", 0x4c00_013f),
    (DType::ComplexF32, c"ompi_mpi_c_float_complex", 0x4c00_0840),
    (DType::ComplexF64, c"ompi_mpi_c_double_complex", 0x4c00_1041),
    (DType::IndexedI32, c"ompi_mpi_2int", 0x4c00_0816),
    (DType::F32, c"ompi_mpi_float", 0x4c00_040a),
    (DType::F64, c"ompi_mpi_double", 0x4c00_080b),
    (DType::I32, c"ompi_mpi_int", 0x4c00_0405),
    (DType::I32, c"ompi_mpi_int32_t", 0x4c00_0439),
    (DType::U32, c"ompi_mpi_unsigned", 0x4c00_0406),
    (DType::U32, c"ompi_mpi_uint32_t", 0x4c00_043d),
    (DType::I64, c"ompi_mpi_long", 0x4c00_0807),
    (DType::I64, c"ompi_mpi_long_long_int", 0x4c00_0809),
    (DType::I64, c"ompi_mpi_int64_t", 0x4c00_083a),
    (DType::U64, c"ompi_mpi_unsigned_long", 0x4c00_0808),
    (DType::U64, c"ompi_mpi_unsigned_long_long", 0x4c00_0819),
    (DType::U64, c"ompi_mpi_uint64_t", 0x4c00_083e),
];
const OPS: [(Op, &CStr, Handle); 12] = [
    (Op::Sum, c"ompi_mpi_op_sum", 0x5800_0003),
    (Op::Product, c"ompi_mpi_op_prod", 0x5800_0004),
    (Op::Min, c"ompi_mpi_op_min", 0x5800_0002),
    (Op::Max, c"ompi_mpi_op_max", 0x5800_0001),
    (Op::LogicalAnd, c"ompi_mpi_op_land", 0x5800_0005),
    (Op::BitAnd, c"ompi_mpi_op_band", 0x5800_0006),
    (Op::LogicalOr, c"ompi_mpi_op_lor", 0x5800_0007),
    (Op::BitOr, c"ompi_mpi_op_bor", 0x5800_0008),
    (Op::LogicalXor, c"ompi_mpi_op_lxor", 0x5800_0009),
    (Op::BitXor, c"ompi_mpi_op_bxor", 0x5800_000a),
    (Op::MinIndex, c"ompi_mpi_op_minloc", 0x5800_000b),
    (Op::MaxIndex, c"ompi_mpi_op_maxloc", 0x5800_000c),
];
const _: () = assert!(size_of::<std::ffi::c_long>() == 8, "long is carried as a 64-bit type");

fn symbol(scope: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a valid scope and a terminated name.
    let address = unsafe { libc::dlsym(scope, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}

impl Mpi {
    /// The library behind this one; ends the process with a message if there is none.
    pub fn get() -> &'static Mpi {
        static MPI: OnceLock<Mpi> = OnceLock::new();
        MPI.get_or_init(|| Mpi::find().unwrap_or_else(|name| crate::die(&format!("no MPI library offers {name:?}"))))
    }

    fn find() -> Result<Mpi, &'static CStr> {
        let next = |name| symbol(libc::RTLD_NEXT, name).ok_or(name);
        // Looked up in the global scope, where a program that is not position independent has its own copy.
        let global = |name| symbol(libc::RTLD_DEFAULT, name).map(|address| address as Handle);
        let world = global(c"ompi_mpi_comm_world");
        let handle = |name, constant| match world {
            Some(_) => global(name).ok_or(name),
            None => Ok(constant),
        };
        let mut types = Vec::new();
        for (dtype, name, constant) in TYPES {
            types.push((handle(name, constant)?, dtype));
        }
        let mut ops = Vec::new();
        for (op, name, constant) in OPS {
            ops.push((handle(name, constant)?, op));
        }
        let (allreduce, finalize, initialized) =
            (next(c"PMPI_Allreduce")?, next(c"PMPI_Finalize")?, next(c"PMPI_Initialized")?);
        Ok(Mpi {
            // SAFETY: the functions of these names have these signatures in every MPI (handles are passed in one
            // register, whether `int` or pointer).
            allreduce: unsafe { std::mem::transmute::<*mut c_void, AllreduceFn>(allreduce) },
            // SAFETY: as above.
            finalize: unsafe { std::mem::transmute::<*mut c_void, FinalizeFn>(finalize) },
            // SAFETY: as above.
            initialized: unsafe {
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_int) -> c_int>(initialized)
            },
            in_place: if world.is_some() { 1 } else { usize::MAX },
            handle_bits: if world.is_some() { usize::MAX } else { 0xffff_ffff },
            world: world.unwrap_or(0x4400_0000),
            types,
            ops,
        })
    }

    /// Type and operator if earlybird can carry the call; a decision that all ranks make alike.
    pub fn carried(&self, dtype: Handle, op: Handle, comm: Handle) -> Option<(DType, Op)> {
        let find_type = || self.types.iter().find(|(handle, _)| *handle == dtype & self.handle_bits);
        let find_op = || self.ops.iter().find(|(handle, _)| *handle == op & self.handle_bits);
        let pair = (comm & self.handle_bits == self.world).then(|| Some((find_type()?.1, find_op()?.1)))??;
        pair.0.has(pair.1).then_some(pair)
    }

    pub fn is_in_place(&self, send: *const c_void) -> bool {
        send as usize == self.in_place
    }

    /// Whether MPI_Init has returned.
    pub fn is_initialized(&self) -> bool {
        let mut flag = 0;
        // SAFETY: may be called at any time; writes one int.
        unsafe { (self.initialized)(&mut flag) };
        flag != 0
    }
}
