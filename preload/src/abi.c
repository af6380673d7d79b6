/* Handles, constants and macros of mpi.h. Compiled by the compiler of the MPI library that the interposer is built for. */
#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

#ifdef OPEN_MPI
_Static_assert(sizeof(MPI_Comm) == sizeof(void *), "handles are addresses");
#else
_Static_assert(sizeof(MPI_Comm) == sizeof(int) && sizeof(MPI_Datatype) == sizeof(int), "handles are integers");
#endif
_Static_assert(sizeof(MPI_Fint) == sizeof(int), "a Fortran integer is an int");

/* The numbers of earlybird::DType. NONE: moved only, not reduced. */
enum { NONE = 0, I32, I64, U32, U64, F32, F64, I8, I16, U8, U16, COMPLEX_F32 = 13, COMPLEX_F64, INDEXED_I32 = 16, INDEXED_I64, INDEXED_F32, INDEXED_F64 };
/* Operators that MPI allows for a type: all that earlybird has for its representation, all but logical ones, bitwise ones only,
 * logical ones only; for types that earlybird does not have, those of real numbers, complex numbers, pairs. */
enum { ALL = 0, NOT_LOGICAL, BITWISE, LOGICAL, MPI_ONLY_REAL, MPI_ONLY_COMPLEX, MPI_ONLY_PAIR };
/* Layouts of an element: the same as earlybird's, pairs with a gap or with an index of another width than the value. */
enum { SAME = 0, WIDE_INT, SHORT_INT };

struct type { MPI_Datatype handle; int32_t dtype, operators, layout; };

/* Types of equal representation may be mixed between ranks, so all names of a representation are here or none. */
const struct type eb_types[] = {
    { MPI_CHAR, NONE, ALL, SAME }, { MPI_WCHAR, NONE, ALL, SAME }, { MPI_PACKED, NONE, ALL, SAME },
    { MPI_BYTE, U8, BITWISE, SAME }, { MPI_C_BOOL, U8, LOGICAL, SAME },
    { MPI_SIGNED_CHAR, I8, ALL, SAME }, { MPI_INT8_T, I8, ALL, SAME },
    { MPI_UNSIGNED_CHAR, U8, ALL, SAME }, { MPI_UINT8_T, U8, ALL, SAME },
    { MPI_SHORT, I16, ALL, SAME }, { MPI_INT16_T, I16, ALL, SAME },
    { MPI_UNSIGNED_SHORT, U16, ALL, SAME }, { MPI_UINT16_T, U16, ALL, SAME },
    { MPI_INT, I32, ALL, SAME }, { MPI_INT32_T, I32, ALL, SAME },
    { MPI_UNSIGNED, U32, ALL, SAME }, { MPI_UINT32_T, U32, ALL, SAME },
    { MPI_LONG, I64, ALL, SAME }, { MPI_LONG_LONG, I64, ALL, SAME }, { MPI_INT64_T, I64, ALL, SAME },
    { MPI_UNSIGNED_LONG, U64, ALL, SAME }, { MPI_UNSIGNED_LONG_LONG, U64, ALL, SAME }, { MPI_UINT64_T, U64, ALL, SAME },
    { MPI_AINT, I64, NOT_LOGICAL, SAME }, { MPI_OFFSET, I64, NOT_LOGICAL, SAME }, { MPI_COUNT, I64, NOT_LOGICAL, SAME },
    { MPI_FLOAT, F32, ALL, SAME }, { MPI_DOUBLE, F64, ALL, SAME }, { MPI_LONG_DOUBLE, NONE, MPI_ONLY_REAL, SAME },
    { MPI_C_FLOAT_COMPLEX, COMPLEX_F32, ALL, SAME }, { MPI_C_DOUBLE_COMPLEX, COMPLEX_F64, ALL, SAME },
    { MPI_C_LONG_DOUBLE_COMPLEX, NONE, MPI_ONLY_COMPLEX, SAME }, { MPI_LONG_DOUBLE_INT, NONE, MPI_ONLY_PAIR, SAME },
    { MPI_CXX_BOOL, U8, LOGICAL, SAME },
    { MPI_CXX_FLOAT_COMPLEX, COMPLEX_F32, ALL, SAME }, { MPI_CXX_DOUBLE_COMPLEX, COMPLEX_F64, ALL, SAME },
    { MPI_2INT, INDEXED_I32, ALL, SAME }, { MPI_FLOAT_INT, INDEXED_F32, ALL, SAME },
    { MPI_DOUBLE_INT, INDEXED_F64, ALL, WIDE_INT }, { MPI_LONG_INT, INDEXED_I64, ALL, WIDE_INT },
    { MPI_SHORT_INT, INDEXED_I32, ALL, SHORT_INT },
    { MPI_CHARACTER, NONE, ALL, SAME }, { MPI_LOGICAL, I32, LOGICAL, SAME },
    { MPI_INTEGER, I32, NOT_LOGICAL, SAME }, { MPI_INTEGER1, I8, NOT_LOGICAL, SAME },
    { MPI_INTEGER2, I16, NOT_LOGICAL, SAME }, { MPI_INTEGER4, I32, NOT_LOGICAL, SAME },
    { MPI_INTEGER8, I64, NOT_LOGICAL, SAME },
    { MPI_REAL, F32, ALL, SAME }, { MPI_REAL4, F32, ALL, SAME },
    { MPI_DOUBLE_PRECISION, F64, ALL, SAME }, { MPI_REAL8, F64, ALL, SAME },
    { MPI_COMPLEX, COMPLEX_F32, ALL, SAME }, { MPI_COMPLEX8, COMPLEX_F32, ALL, SAME },
    { MPI_DOUBLE_COMPLEX, COMPLEX_F64, ALL, SAME }, { MPI_COMPLEX16, COMPLEX_F64, ALL, SAME },
    { MPI_2INTEGER, INDEXED_I32, ALL, SAME },
    { MPI_2REAL, NONE, MPI_ONLY_PAIR, SAME }, { MPI_2DOUBLE_PRECISION, NONE, MPI_ONLY_PAIR, SAME },
};
const size_t eb_types_len = sizeof eb_types / sizeof *eb_types;

_Static_assert(sizeof(int) == 4 && sizeof(long) == 8 && sizeof(MPI_Aint) == 8 && sizeof(MPI_Offset) == 8 && sizeof(MPI_Count) == 8, "the table above");
struct wide_int { double value; int index; };
struct short_int { short value; int index; };
_Static_assert(sizeof(struct wide_int) == 16 && offsetof(struct wide_int, index) == 8, "WIDE_INT");
_Static_assert(sizeof(struct short_int) == 8 && offsetof(struct short_int, index) == 4, "SHORT_INT");

/* The numbers of earlybird::Op. */
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
    MPI_Comm world, self, null_comm;
    MPI_Datatype null_type, byte, integer, packed;
    MPI_Op min, null_op;
    MPI_Request null_request;
    int32_t err_buffer, err_count, err_truncate, err_other, err_request, thread_multiple, any_source, proc_null, undefined;
    MPI_Status *ignore_status;
};
const struct constants eb_constants = {
    MPI_IN_PLACE, MPI_COMM_WORLD, MPI_COMM_SELF, MPI_COMM_NULL, MPI_DATATYPE_NULL, MPI_BYTE, MPI_INT, MPI_PACKED,
    MPI_MIN, MPI_OP_NULL, MPI_REQUEST_NULL,
    MPI_ERR_BUFFER, MPI_ERR_COUNT, MPI_ERR_TRUNCATE, MPI_ERR_OTHER, MPI_ERR_REQUEST, MPI_THREAD_MULTIPLE, MPI_ANY_SOURCE, MPI_PROC_NULL, MPI_UNDEFINED,
    MPI_STATUS_IGNORE,
};

_Static_assert(sizeof(MPI_Status) <= 64, "messages.rs has room for a status");

/* Makes calls on this communicator return error codes. */
int eb_return_errors(MPI_Comm comm) { return PMPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN); }

/* Creates a key of attributes that duplicates of a communicator do not inherit. */
int eb_create_keyval(MPI_Comm_delete_attr_function *on_delete, int *keyval)
{
    return PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_delete, keyval, NULL);
}

/* The type of which this one is a row without gaps, made by MPI_Type_contiguous; MPI_DATATYPE_NULL for other types, and rows of derived ones. */
MPI_Datatype eb_row_of(MPI_Datatype row)
{
    int integers, addresses, types, combiner, count;
    MPI_Aint none;
    MPI_Datatype of;
    if (PMPI_Type_get_envelope(row, &integers, &addresses, &types, &combiner) || combiner != MPI_COMBINER_CONTIGUOUS) return MPI_DATATYPE_NULL;
    if (PMPI_Type_get_contents(row, 1, 0, 1, &count, &none, &of)) return MPI_DATATYPE_NULL;
    if (PMPI_Type_get_envelope(of, &integers, &addresses, &types, &combiner) == 0 && combiner == MPI_COMBINER_NAMED) return of;
    PMPI_Type_free(&of);
    return MPI_DATATYPE_NULL;
}

#ifdef OPEN_MPI
/* The status of a collective: empty, but for its error. */
int eb_set_status(MPI_Status *status, int code)
{
    status->MPI_SOURCE = MPI_ANY_SOURCE, status->MPI_TAG = MPI_ANY_TAG, status->MPI_ERROR = code;
    PMPI_Status_set_cancelled(status, 0);
    return PMPI_Status_set_elements(status, MPI_BYTE, 0);
}

/* Conversions of handles, which are macros in other libraries, and the addresses that Fortran programs pass for MPI_IN_PLACE and MPI_BOTTOM. */
MPI_Comm eb_comm_f2c(MPI_Fint handle) { return PMPI_Comm_f2c(handle); }
MPI_Datatype eb_type_f2c(MPI_Fint handle) { return PMPI_Type_f2c(handle); }
MPI_Op eb_op_f2c(MPI_Fint handle) { return PMPI_Op_f2c(handle); }
MPI_Fint eb_type_c2f(MPI_Datatype handle) { return PMPI_Type_c2f(handle); }
MPI_Fint eb_op_c2f(MPI_Op handle) { return PMPI_Op_c2f(handle); }
MPI_Fint eb_request_c2f(MPI_Request handle) { return PMPI_Request_c2f(handle); }
MPI_Request eb_request_f2c(MPI_Fint handle) { return PMPI_Request_f2c(handle); }
MPI_Info eb_info_f2c(MPI_Fint handle) { return PMPI_Info_f2c(handle); }
extern int mpi_fortran_in_place_, mpi_fortran_bottom_;
const void *eb_fortran_in_place(void) { return &mpi_fortran_in_place_; }
const void *eb_fortran_bottom(void) { return &mpi_fortran_bottom_; }
#endif
