/* What only mpi.h knows: handles, constants, macros. Compiled by the compiler of the MPI library that the interposer
 * is built for. */
#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

#ifdef OPEN_MPI
_Static_assert(sizeof(MPI_Comm) == sizeof(void *), "handles are addresses");
#else
_Static_assert(sizeof(MPI_Comm) == sizeof(int) && sizeof(MPI_Datatype) == sizeof(int), "handles are integers");
#endif
_Static_assert(sizeof(MPI_Fint) == sizeof(int), "a Fortran integer is an int");

/* As earlybird::DType; NONE moves and is not reduced. */
enum { NONE = 0, I32, I64, U32, U64, F32, F64, I8, I16, U8, U16, COMPLEX_F32 = 13, COMPLEX_F64, INDEXED_I32 = 16, INDEXED_I64, INDEXED_F32, INDEXED_F64 };
/* Operators that MPI has for the type: all that earlybird has for its representation, those but the logical ones,
 * bitwise ones only, logical ones only; of types that earlybird does not have, those of reals, complex numbers, pairs. */
enum { ALL = 0, NOT_LOGICAL, BITWISE, LOGICAL, MPIS_REAL, MPIS_COMPLEX, MPIS_PAIR };
/* Pairs with a gap or an index of another width than the value. */
enum { PLAIN = 0, WIDE_INT, SHORT_INT };

struct type { MPI_Datatype handle; int32_t dtype, operators, shape; };

/* Types of equal representation may be mixed between ranks, so all names of a representation are here or none. */
const struct type eb_types[] = {
    { MPI_CHAR, NONE, ALL, PLAIN }, { MPI_WCHAR, NONE, ALL, PLAIN }, { MPI_PACKED, NONE, ALL, PLAIN },
    { MPI_BYTE, U8, BITWISE, PLAIN }, { MPI_C_BOOL, U8, LOGICAL, PLAIN },
    { MPI_SIGNED_CHAR, I8, ALL, PLAIN }, { MPI_INT8_T, I8, ALL, PLAIN },
    { MPI_UNSIGNED_CHAR, U8, ALL, PLAIN }, { MPI_UINT8_T, U8, ALL, PLAIN },
    { MPI_SHORT, I16, ALL, PLAIN }, { MPI_INT16_T, I16, ALL, PLAIN },
    { MPI_UNSIGNED_SHORT, U16, ALL, PLAIN }, { MPI_UINT16_T, U16, ALL, PLAIN },
    { MPI_INT, I32, ALL, PLAIN }, { MPI_INT32_T, I32, ALL, PLAIN },
    { MPI_UNSIGNED, U32, ALL, PLAIN }, { MPI_UINT32_T, U32, ALL, PLAIN },
    { MPI_LONG, I64, ALL, PLAIN }, { MPI_LONG_LONG, I64, ALL, PLAIN }, { MPI_INT64_T, I64, ALL, PLAIN },
    { MPI_UNSIGNED_LONG, U64, ALL, PLAIN }, { MPI_UNSIGNED_LONG_LONG, U64, ALL, PLAIN }, { MPI_UINT64_T, U64, ALL, PLAIN },
    { MPI_AINT, I64, NOT_LOGICAL, PLAIN }, { MPI_OFFSET, I64, NOT_LOGICAL, PLAIN }, { MPI_COUNT, I64, NOT_LOGICAL, PLAIN },
    { MPI_FLOAT, F32, ALL, PLAIN }, { MPI_DOUBLE, F64, ALL, PLAIN }, { MPI_LONG_DOUBLE, NONE, MPIS_REAL, PLAIN },
    { MPI_C_FLOAT_COMPLEX, COMPLEX_F32, ALL, PLAIN }, { MPI_C_DOUBLE_COMPLEX, COMPLEX_F64, ALL, PLAIN },
    { MPI_C_LONG_DOUBLE_COMPLEX, NONE, MPIS_COMPLEX, PLAIN }, { MPI_LONG_DOUBLE_INT, NONE, MPIS_PAIR, PLAIN },
    { MPI_CXX_BOOL, U8, LOGICAL, PLAIN },
    { MPI_CXX_FLOAT_COMPLEX, COMPLEX_F32, ALL, PLAIN }, { MPI_CXX_DOUBLE_COMPLEX, COMPLEX_F64, ALL, PLAIN },
    { MPI_2INT, INDEXED_I32, ALL, PLAIN }, { MPI_FLOAT_INT, INDEXED_F32, ALL, PLAIN },
    { MPI_DOUBLE_INT, INDEXED_F64, ALL, WIDE_INT }, { MPI_LONG_INT, INDEXED_I64, ALL, WIDE_INT },
    { MPI_SHORT_INT, INDEXED_I32, ALL, SHORT_INT },
    { MPI_CHARACTER, NONE, ALL, PLAIN }, { MPI_LOGICAL, I32, LOGICAL, PLAIN },
    { MPI_INTEGER, I32, NOT_LOGICAL, PLAIN }, { MPI_INTEGER1, I8, NOT_LOGICAL, PLAIN },
    { MPI_INTEGER2, I16, NOT_LOGICAL, PLAIN }, { MPI_INTEGER4, I32, NOT_LOGICAL, PLAIN },
    { MPI_INTEGER8, I64, NOT_LOGICAL, PLAIN },
    { MPI_REAL, F32, ALL, PLAIN }, { MPI_REAL4, F32, ALL, PLAIN },
    { MPI_DOUBLE_PRECISION, F64, ALL, PLAIN }, { MPI_REAL8, F64, ALL, PLAIN },
    { MPI_COMPLEX, COMPLEX_F32, ALL, PLAIN }, { MPI_COMPLEX8, COMPLEX_F32, ALL, PLAIN },
    { MPI_DOUBLE_COMPLEX, COMPLEX_F64, ALL, PLAIN }, { MPI_COMPLEX16, COMPLEX_F64, ALL, PLAIN },
    { MPI_2INTEGER, INDEXED_I32, ALL, PLAIN },
    { MPI_2REAL, NONE, MPIS_PAIR, PLAIN }, { MPI_2DOUBLE_PRECISION, NONE, MPIS_PAIR, PLAIN },
};
const size_t eb_types_len = sizeof eb_types / sizeof *eb_types;

_Static_assert(sizeof(int) == 4 && sizeof(long) == 8 && sizeof(MPI_Aint) == 8 && sizeof(MPI_Offset) == 8 && sizeof(MPI_Count) == 8, "the table above");
struct wide_int { double value; int index; };
struct short_int { short value; int index; };
_Static_assert(sizeof(struct wide_int) == 16 && offsetof(struct wide_int, index) == 8, "WIDE_INT");
_Static_assert(sizeof(struct short_int) == 8 && offsetof(struct short_int, index) == 4, "SHORT_INT");

/* As earlybird::Op. */
enum { SUM = 1, PRODUCT, MIN, MAX, BIT_AND = 6, BIT_OR, BIT_XOR, LOGICAL_AND, LOGICAL_OR, LOGICAL_XOR, MIN_INDEX, MAX_INDEX };

struct op { MPI_Op handle; int32_t op; };
const struct op eb_ops[] = {
    { MPI_SUM, SUM }, { MPI_PROD, PRODUCT }, { MPI_MIN, MIN }, { MPI_MAX, MAX }, { MPI_BAND, BIT_AND }, { MPI_BOR, BIT_OR },
    { MPI_BXOR, BIT_XOR }, { MPI_LAND, LOGICAL_AND }, { MPI_LOR, LOGICAL_OR }, { MPI_LXOR, LOGICAL_XOR },
    { MPI_MINLOC, MIN_INDEX }, { MPI_MAXLOC, MAX_INDEX }, { MPI_REPLACE, 0 }, { MPI_NO_OP, 0 },
};
const size_t eb_ops_len = sizeof eb_ops / sizeof *eb_ops;

struct constants {
    void *in_place;
    MPI_Comm world, self, no_comm;
    MPI_Datatype no_type, byte, integer, packed;
    MPI_Op min, no_op;
    MPI_Request no_request;
    int32_t err_buffer, err_count, err_truncate, err_other, any_source, undefined;
    MPI_Status *ignore_status;
};
const struct constants eb_constants = {
    MPI_IN_PLACE, MPI_COMM_WORLD, MPI_COMM_SELF, MPI_COMM_NULL, MPI_DATATYPE_NULL, MPI_BYTE, MPI_INT, MPI_PACKED,
    MPI_MIN, MPI_OP_NULL, MPI_REQUEST_NULL,
    MPI_ERR_BUFFER, MPI_ERR_COUNT, MPI_ERR_TRUNCATE, MPI_ERR_OTHER, MPI_ANY_SOURCE, MPI_UNDEFINED,
    MPI_STATUS_IGNORE,
};

_Static_assert(sizeof(MPI_Status) <= 64, "a status fits where messages.rs has one written");

/* Errors on this communicator are codes. */
int eb_return_errors(MPI_Comm comm) { return PMPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN); }

/* A key for attributes that duplicates of a communicator do not inherit. */
int eb_create_keyval(MPI_Comm_delete_attr_function *deleted, int *keyval)
{
    return PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, deleted, keyval, NULL);
}

#ifdef OPEN_MPI
/* Macros in other libraries; and the addresses that Fortran programs pass for MPI_IN_PLACE and MPI_BOTTOM. */
MPI_Comm eb_comm_f2c(MPI_Fint handle) { return PMPI_Comm_f2c(handle); }
MPI_Datatype eb_type_f2c(MPI_Fint handle) { return PMPI_Type_f2c(handle); }
MPI_Op eb_op_f2c(MPI_Fint handle) { return PMPI_Op_f2c(handle); }
extern int mpi_fortran_in_place_, mpi_fortran_bottom_;
const void *eb_fortran_in_place(void) { return &mpi_fortran_in_place_; }
const void *eb_fortran_bottom(void) { return &mpi_fortran_bottom_; }
#endif
