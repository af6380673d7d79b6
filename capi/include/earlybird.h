/*
 * earlybird.h: collective operations for the processes of one machine, which reduce contributions as they arrive.
 *
 *     eb_comm *comm;
 *     double sum = 1.0;
 *     if (eb_join(&comm, NULL) != EB_OK || eb_allreduce(comm, EB_IN_PLACE, &sum, 1, EB_F64, EB_SUM) != EB_OK) {
 *         fprintf(stderr, "%s\n", eb_last_error_message());
 *         return 1;
 *     }
 *     eb_comm_free(&comm);
 *
 *     cc program.c $(pkg-config --cflags --libs earlybird)      earlybird run -n 4 -- ./a.out
 *
 * Rules for all functions
 *
 * Errors. A function that returns int returns EB_OK (0) or the number of an error, enum eb_error; the message is in
 * eb_last_error_message. Arguments are checked before anything is shared: a call that returns EB_USAGE or
 * EB_UNSUPPORTED for its arguments has not taken place on this rank, and the other ranks wait for it to make a right
 * one. After EB_PEER_DIED, EB_TIMEOUT, EB_MISMATCH or EB_OPERATOR_PANICKED the communicator has failed for good: every
 * rank gets the same error, in this call or its next, and can only be freed. Contents of receive buffers are
 * of no use after an error. Nothing ends the process, and no exception leaves the library.
 *
 * Calls. All ranks of a communicator make the same calls in the same order, with the same count, type, operator and
 * root; what differs is EB_MISMATCH on all of them. A call returns when this rank's part is done: others may still be
 * at work. A rank that is late is waited for, for ever unless EARLYBIRD_TIMEOUT is set; one that died is an error.
 *
 * Buffers. They belong to the caller; the library uses them until the call returns, no longer. Counts are elements, not
 * bytes, and any count is allowed, 0 included; a buffer of 0 elements may be null. Addresses must be multiples of the
 * alignment of the type. The send and the receive buffer may not overlap; EB_IN_PLACE stands for a buffer that is the
 * other one, where a function says so. Blocks of ranks lie one behind the other in rank order, without gaps.
 *
 * Threads. A communicator may be used by any thread, by one at a time: a second one that comes meanwhile gets EB_USAGE.
 * Threads that call at the same time have a communicator each (eb_duplicate). Error messages are those of the thread.
 *
 * Handles. What a function gives is freed by its own free function, once, by one thread, while no other uses it; that
 * sets the variable to NULL, and NULL is freed without effect. A handle that was freed through another variable must not
 * be used or freed again: that is undefined, as of free(3). All handles are gone with the process; a rank that ends
 * while others still need it is EB_PEER_DIED for them.
 *
 * Forks. A child of fork(2) is no rank: its calls are EB_FORKED. It may exec or exit.
 */
#ifndef EARLYBIRD_H
#define EARLYBIRD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header. Programs that were compiled with 0.1 need a library 0.1. */
#define EB_VERSION_MAJOR 0
#define EB_VERSION_MINOR 1
#define EB_VERSION_PATCH 0

/* Errors. The numbers never change. */
typedef enum eb_error {
    EB_OK = 0,
    EB_PEER_DIED = 1,         /* a rank died, executed another program, or left while others still needed it */
    EB_TIMEOUT = 2,           /* EARLYBIRD_TIMEOUT has passed and living ranks were missing */
    EB_MISMATCH = 3,          /* ranks made different calls */
    EB_POISONED = 4,          /* the communicator failed before, for a reason that another rank reported */
    EB_OPERATOR_PANICKED = 5, /* an operator written in Rust panicked in some rank */
    EB_NO_SPACE = 6,          /* shared memory could not be reserved; nothing was written */
    EB_FORKED = 7,            /* the communicator was inherited through fork(2) */
    EB_UNSUPPORTED = 8,       /* what was asked for does not exist here; the message says what to do instead */
    EB_USAGE = 9,             /* an argument or a setting that cannot be */
    EB_SYSTEM = 10,           /* the operating system refused something */
    EB_INTERNAL = 11          /* the library panicked, which is a fault of it; nothing was thrown */
} eb_error;

/* Types of elements, with their sizes in bytes. */
typedef enum eb_type {
    EB_I32 = 1,
    EB_I64 = 2,
    EB_U32 = 3,
    EB_U64 = 4,
    EB_F32 = 5,          /* float */
    EB_F64 = 6,          /* double */
    EB_I8 = 7,
    EB_I16 = 8,
    EB_U8 = 9,           /* also for any bytes that are only moved */
    EB_U16 = 10,
    EB_F16 = 11,         /* 2: IEEE half precision; summed in float, rounded once */
    EB_BF16 = 12,        /* 2: the upper half of a float; summed in float, rounded once */
    EB_COMPLEX_F32 = 13, /* 8: float _Complex, or two floats */
    EB_COMPLEX_F64 = 14, /* 16: double _Complex, or two doubles */
    EB_BOOL = 15,        /* 1: _Bool; a byte that is not 0 is read as true, and results are 0 or 1 */
    EB_INDEXED_I32 = 16, /* 8: struct { int32_t value, index; } */
    EB_INDEXED_I64 = 17, /* 16: struct { int64_t value, index; } */
    EB_INDEXED_F32 = 18, /* 8: struct { float value; int32_t index; } */
    EB_INDEXED_F64 = 19  /* 16: struct { double value; int64_t index; } */
} eb_type;

/* Operators. A pair of type and operator that does not exist is EB_UNSUPPORTED, and the message lists the supported ones. */
typedef enum eb_op {
    EB_SUM = 1,          /* integers (wrapping), floats, complex */
    EB_PRODUCT = 2,      /* the same */
    EB_MIN = 3,          /* integers, floats: a NaN wins, -0 is below +0 */
    EB_MAX = 4,          /* the same */
    EB_AVERAGE = 5,      /* floats, complex: the sum divided by the number of ranks */
    EB_BIT_AND = 6,      /* integers, EB_BOOL */
    EB_BIT_OR = 7,
    EB_BIT_XOR = 8,
    EB_LOGICAL_AND = 9,  /* integers, EB_BOOL: 1 if all are not zero, else 0 */
    EB_LOGICAL_OR = 10,  /* 1 if any is not zero */
    EB_LOGICAL_XOR = 11, /* 1 if an odd number of them is not zero */
    EB_MIN_INDEX = 12,   /* EB_INDEXED_...: the smallest value with its index, the lowest index among equal values */
    EB_MAX_INDEX = 13    /* the same with the largest value */
} eb_op;

/* The order in which contributions are folded. All ranks get the same bits in either. */
typedef enum eb_order {
    EB_ORDER_ARRIVAL = 0, /* as they come: fastest, the default */
    EB_ORDER_RANK = 1     /* by rank: sums of floats have the same bits in every run */
} eb_order;

/* Instead of a buffer: the data is sent from, or received in, the other buffer. */
#ifdef __cplusplus
#define EB_IN_PLACE (reinterpret_cast<void *>(static_cast<intptr_t>(-1)))
#else
#define EB_IN_PLACE ((void *)(intptr_t)-1)
#endif

/* Instead of a color: this rank receives no communicator. */
#define EB_NO_COLOR (-1)

/* Some processes, numbered from 0, that call together. */
typedef struct eb_comm eb_comm;

/* ---- errors and versions: cost nothing to speak of, never fail ---- */

/* The name of an error, such as "EB_PEER_DIED"; NULL for a number that is none. Never freed. */
const char *eb_error_name(int error);

/* The message of the last failing call of this thread: what happened, the given and the expected value, what to do. "" before the
 * first. Belongs to the library, and is valid until the next failing call of this thread. UTF-8. */
const char *eb_last_error_message(void);

/* The rank that the last error of this thread is about, numbered as in the communicator of the call: the one that died
 * (EB_PEER_DIED), the first one missing (EB_TIMEOUT), one that made another call (EB_MISMATCH), or whose operator
 * panicked; -1 if the error is about none. */
int64_t eb_last_error_rank(void);

/* The version of the library, such as "0.1.0". */
const char *eb_version(void);

/* Bytes of an element of `type`. EB_USAGE for a type that does not exist. */
int eb_type_size(eb_type type, size_t *bytes);

/* ---- joining and leaving ---- */

/*
 * Joins the job that this process was started in, and puts its communicator into `*comm`, NULL after an error. Returns
 * when all ranks have joined: some milliseconds after the last one came. To be freed by eb_comm_free.
 *
 * The job is what the launcher says in the environment: earlybird run, mpirun and mpiexec (Open MPI, MPICH, Intel MPI),
 * srun, torchrun. A process that was started by none of them is a job of one rank. All ranks must be on one machine.
 *
 * `options` is NULL or an array that ends in NULL, of strings "EARLYBIRD_NAME=value": any of the variables that earlybird
 * reads, such as EARLYBIRD_ALGORITHM, EARLYBIRD_ALLREDUCE, EARLYBIRD_ORDER, EARLYBIRD_TIMEOUT (seconds),
 * EARLYBIRD_WAIT, EARLYBIRD_ARENA_MAX, EARLYBIRD_DIR, EARLYBIRD_VERBOSE, EARLYBIRD_TRACE. They go before the variables of the
 * environment. Give the same on all ranks. Strings are copied.
 *
 *     const char *options[] = {"EARLYBIRD_TIMEOUT=30", "EARLYBIRD_ORDER=rank", NULL};
 *
 * EB_USAGE for settings that cannot be, with the valid ones; EB_UNSUPPORTED for ranks on several machines; EB_PEER_DIED,
 * EB_TIMEOUT, EB_NO_SPACE, EB_SYSTEM.
 */
int eb_join(eb_comm **comm, const char *const *options);

/*
 * As eb_join for programs that know who they are: rank `rank` of the `size` processes of this user on this machine that
 * join under the name `job`, however they were started. The name is any text that no other job has at the same time.
 * A process is one rank. EB_USAGE for a rank that is not below the size, and for an empty name.
 */
int eb_join_as(eb_comm **comm, const char *job, size_t rank, size_t size, const char *const *options);

/*
 * Leaves, and sets `*comm` to NULL; a `*comm` that is NULL is left alone. Every rank does it after its last call. A rank
 * that leaves while others still need it is EB_PEER_DIED for them.
 */
int eb_comm_free(eb_comm **comm);

/*
 * As eb_comm_free, and says if something was wrong: EB_MISMATCH where another rank that has closed the communicator before has
 * made other calls and no later operation has shown that, as when two ranks each take themselves for the root of the last
 * broadcast; otherwise the communicator's one error. `*comm` is NULL afterwards in any case. Waits for nobody but for what
 * was started and not waited for. Says nothing while a request, a buffer or a view still holds the communicator: free those first.
 */
int eb_comm_close(eb_comm **comm);

/* ---- communicators ---- */

/* The number of this process, from 0. */
int eb_rank(const eb_comm *comm, size_t *rank);

/* How many ranks there are. */
int eb_size(const eb_comm *comm, size_t *size);

/* The ranks of this communicator in order, each by its number in the job: `ranks` has room for eb_size of them. */
int eb_job_ranks(const eb_comm *comm, size_t *ranks);

/*
 * Forms new communicators of the ranks with the same `color`, 0 to 4294967295; all ranks of `comm` call it. In each,
 * ranks are numbered by `key`, those of equal keys as in `comm`. A rank with EB_NO_COLOR takes part and receives NULL.
 * `*part` has the settings of `comm`, is independent of it from then on, and is to be freed by eb_comm_free, before or
 * after `comm`. EB_NO_SPACE on all ranks where the memory that all communicators share is used up; `comm` goes on.
 */
int eb_split(const eb_comm *comm, int64_t color, int64_t key, eb_comm **part);

/* A second communicator of the same ranks, for example for another thread. All ranks call it; otherwise as eb_split. */
int eb_duplicate(const eb_comm *comm, eb_comm **copy);

/*
 * A communicator of the ranks that are left, in new memory, after a death or any other failure of this one; ranks keep their
 * order. All ranks call it that live and have not freed this one; it returns when each of them has called it or is gone. This
 * one stays failed and can be freed at any time. Whoever dies later is missed in a call of the new one: shrink that again. Of
 * the ranks that live either all get a communicator or none does.
 */
int eb_shrink(const eb_comm *comm, eb_comm **survivors);

/*
 * Sets the algorithm of the following calls, the same on all ranks: "auto", "flat", "leader", "chain", "slices",
 * "static-leader", "static-leader-early", or a plan such as "plan:ring". For an operation without this algorithm the
 * library chooses. EB_USAGE for another name, with the valid ones.
 */
int eb_set_algorithm(const eb_comm *comm, const char *name);

/* Sets the order of folding of the following calls, the same on all ranks. */
int eb_set_order(const eb_comm *comm, eb_order order);

/* The algorithm of the last operation that this rank completed, such as "chain"; "" before the first. Never freed. */
int eb_last_algorithm(const eb_comm *comm, const char **name);

/*
 * Explains what the collective of this name, such as "allreduce", would run on blocks of so many bytes, and why: text of several
 * lines, as `earlybird explain` prints it, valid until the next explanation of this thread. Every rank may ask alone. EB_USAGE for another
 * name, with the valid ones, and while another thread is inside a call.
 */
int eb_explain(const eb_comm *comm, const char *collective, size_t bytes, const char **text);

/* ---- operations ----
 *
 * The time between the last arrival and the first exit, for a message of n bytes, is: in a reduction one fold and one copy of n
 * bytes if one rank is late; in data movement one copy in and one copy out. On P ranks, "block r" is the part that rank r sends or
 * receives: elements [r * count, (r + 1) * count) of a buffer of P * count elements, or, in the functions that end in v,
 * counts[r] elements behind the blocks of the ranks before. `counts` has P entries, and all ranks give the same ones.
 */

/* Returns when all ranks have called it. */
int eb_barrier(const eb_comm *comm);

/* Reduces `count` elements of `send` of all ranks, element by element, into `recv` of every rank: the same bits on all.
 * EB_IN_PLACE as `send`: this rank sends from `recv`. */
int eb_allreduce(const eb_comm *comm, const void *send, void *recv, size_t count, eb_type type, eb_op op);

/* The same into `recv` of the rank `root`; the others' is not used and may be NULL. EB_IN_PLACE as `send`, on any rank:
 * it sends from `recv`, which does not change on ranks other than the root. */
int eb_reduce(const eb_comm *comm, const void *send, void *recv, size_t count, eb_type type, eb_op op, size_t root);

/* Reduces P * `count` elements of `send` of all ranks; rank r receives block r, `count` elements, in `recv`.
 * EB_IN_PLACE as `send`: all P * `count` elements lie in `recv`, and the block goes to its beginning; the rest of `recv`
 * does not change. */
int eb_reduce_scatter(const eb_comm *comm, const void *send, void *recv, size_t count, eb_type type, eb_op op);

/* The same, but rank r receives `counts[r]` elements. */
int eb_reduce_scatterv(const eb_comm *comm, const void *send, void *recv, const size_t *counts, eb_type type, eb_op op);

/* Reduces `count` elements of `send` of the ranks up to this one, in rank order, into `recv`. EB_IN_PLACE as `send`: this rank
 * sends from `recv`. No rank waits for those after it. Any operator but EB_AVERAGE, which is EB_UNSUPPORTED. */
int eb_scan(const eb_comm *comm, const void *send, void *recv, size_t count, eb_type type, eb_op op);

/* The same for the ranks before this one; `recv` of rank 0 stays as it is. */
int eb_exscan(const eb_comm *comm, const void *send, void *recv, size_t count, eb_type type, eb_op op);

/* Reduces `group` buffers of all ranks as one operation: each in place, `counts[i]` elements at `buffers[i]`. Many small ones cost
 * as much as one eb_allreduce of their sum. Buffers may not overlap. Different counts of ranks are EB_MISMATCH. */
int eb_allreduce_grouped(const eb_comm *comm, void *const *buffers, const size_t *counts, size_t group, eb_type type, eb_op op);

/* Copies `count` elements of `buffer` of the rank `root` to `buffer` of every rank. */
int eb_broadcast(const eb_comm *comm, void *buffer, size_t count, eb_type type, size_t root);

/* Copies `count` elements of `send` of every rank to its block of `recv` of every rank. EB_IN_PLACE as `send`: this
 * rank sends from its block of `recv`. */
int eb_allgather(const eb_comm *comm, const void *send, void *recv, size_t count, eb_type type);

/* The same, but rank r sends `counts[r]` elements. */
int eb_allgatherv(const eb_comm *comm, const void *send, void *recv, const size_t *counts, eb_type type);

/* Copies `count` elements of `send` of every rank to its block of `recv` of the rank `root`; the others' `recv` is not
 * used and may be NULL. EB_IN_PLACE as `send`, at the root: it sends from its block of `recv`. */
int eb_gather(const eb_comm *comm, const void *send, void *recv, size_t count, eb_type type, size_t root);

/* The same, but rank r sends `counts[r]` elements. */
int eb_gatherv(const eb_comm *comm, const void *send, void *recv, const size_t *counts, eb_type type, size_t root);

/* Copies block r of `send` of the rank `root` to `recv` of rank r; the others' `send` is not used and may be NULL.
 * EB_IN_PLACE as `recv`, at the root: its own block is not moved. */
int eb_scatter(const eb_comm *comm, const void *send, void *recv, size_t count, eb_type type, size_t root);

/* The same, but rank r receives `counts[r]` elements. */
int eb_scatterv(const eb_comm *comm, const void *send, void *recv, const size_t *counts, eb_type type, size_t root);

/* Copies block r of `send` to rank r, and to block r of `recv` the block from rank r; P * `count` elements each.
 * EB_IN_PLACE as `send`: received blocks replace the sent ones. */
int eb_alltoall(const eb_comm *comm, const void *send, void *recv, size_t count, eb_type type);

/* Copies `send_counts[r]` elements of `send` to rank r, and to `recv` the `recv_counts[r]` elements
 * from rank r. Each rank has its own counts: those of the sender and of the receiver are compared, so no rank leaves before
 * all have come. EB_IN_PLACE as `send`: `recv_counts[r]` elements are sent to rank r
 * and replaced by those from it; `send_counts` is not used. Different counts of sender and receiver are EB_MISMATCH on all ranks; the
 * communicator stays usable, and `recv` holds nothing of use. */
int eb_alltoallv(const eb_comm *comm, const void *send, const size_t *send_counts, void *recv, const size_t *recv_counts,
                 eb_type type);

/* ---- user-defined operators: for elements of any plain type, of which the library knows the size, below 16 MiB ---- */

/*
 * Makes every element of `right` that of `left` op that of `right`, for `count` elements, at least one. Both are aligned to
 * the largest power of two, at most 16, that divides the size of an element. It runs in the thread that calls, during the call, of
 * a non-blocking one in any thread during any call of the library; any number of times, on any part of the contributions. It must be
 * associative, give the same bits for the same operands on every rank, change nothing but `right`, call nothing of the library,
 * and return: no exception, no longjmp.
 */
typedef void eb_fold(const void *left, void *right, size_t count, void *context);

typedef struct eb_operator {
    eb_fold *fold;
    void *context;    /* handed on to `fold`; belongs to the caller; must stay as long as the operator is used */
    int commutative;  /* 1: operands may come in any order. 0: they stand by rank, the lower ranks on the left */
    unsigned int tag; /* 0 to 63: compared between ranks, so that operators with different tags are EB_MISMATCH */
} eb_operator;

/* As eb_allreduce, on `count` elements of `element_bytes`. The operator is used until the call has ended; the structure is copied. */
int eb_allreduce_with(const eb_comm *comm, const void *send, void *recv, size_t count, size_t element_bytes, const eb_operator *op);

/* As eb_reduce. */
int eb_reduce_with(const eb_comm *comm, const void *send, void *recv, size_t count, size_t element_bytes,
                   const eb_operator *op, size_t root);

/* As eb_reduce_scatter. */
int eb_reduce_scatter_with(const eb_comm *comm, const void *send, void *recv, size_t count, size_t element_bytes,
                           const eb_operator *op);

/* As eb_scan and eb_exscan. */
int eb_scan_with(const eb_comm *comm, const void *send, void *recv, size_t count, size_t element_bytes, const eb_operator *op);
int eb_exscan_with(const eb_comm *comm, const void *send, void *recv, size_t count, size_t element_bytes, const eb_operator *op);

/* ---- non-blocking calls ----
 *
 * Each function whose name begins with i starts the call of the same name and returns without waiting for anybody; `*request`
 * stands for it, NULL after an error. Calls count in the order in which they are started, among all calls of the communicator,
 * on all ranks the same; requests may be waited for in any order. Every call of the communicator, eb_test included, makes
 * progress on all started calls, and so does every wait in another communicator. A rank that has started a call can keep
 * computing; others wait for it only in a large call, or if it is the leader of a node. Folded by rank, whatever the order.
 *
 * From the starting call until eb_wait or eb_test says that it has ended, the buffers belong to the library: neither may be
 * written, `recv` not read, and both must stay. Where they are copied the result appears in the call that ends the request.
 * Costs a copy more each way than the call that blocks, EB_SYSTEM where there is no memory for it. A request keeps its
 * communicator: eb_comm_free may come first. Arrays of counts and of buffers are read in the starting call only. eb_ialltoallv on
 * one node copies its send buffer to the memory that ranks share, until all ranks have received their part: EB_NO_SPACE on all ranks, which
 * can go on, where it finds no room. On one node all of them are EB_UNSUPPORTED while a plan is chosen.
 */
typedef struct eb_request eb_request;

int eb_ibarrier(const eb_comm *comm, eb_request **request);
int eb_iallreduce(const eb_comm *comm, const void *send, void *recv, size_t count, eb_type type, eb_op op, eb_request **request);
int eb_ireduce(const eb_comm *comm, const void *send, void *recv, size_t count, eb_type type, eb_op op, size_t root,
               eb_request **request);
int eb_ireduce_scatter(const eb_comm *comm, const void *send, void *recv, size_t count, eb_type type, eb_op op, eb_request **request);
int eb_iscan(const eb_comm *comm, const void *send, void *recv, size_t count, eb_type type, eb_op op, eb_request **request);
int eb_iexscan(const eb_comm *comm, const void *send, void *recv, size_t count, eb_type type, eb_op op, eb_request **request);
int eb_ibroadcast(const eb_comm *comm, void *buffer, size_t count, eb_type type, size_t root, eb_request **request);
int eb_iallgather(const eb_comm *comm, const void *send, void *recv, size_t count, eb_type type, eb_request **request);
int eb_igather(const eb_comm *comm, const void *send, void *recv, size_t count, eb_type type, size_t root, eb_request **request);
int eb_iscatter(const eb_comm *comm, const void *send, void *recv, size_t count, eb_type type, size_t root, eb_request **request);
int eb_ialltoall(const eb_comm *comm, const void *send, void *recv, size_t count, eb_type type, eb_request **request);
int eb_ialltoallv(const eb_comm *comm, const void *send, const size_t *send_counts, void *recv, const size_t *recv_counts,
                  eb_type type, eb_request **request);
int eb_ireduce_scatterv(const eb_comm *comm, const void *send, void *recv, const size_t *counts, eb_type type, eb_op op,
                        eb_request **request);
int eb_iallgatherv(const eb_comm *comm, const void *send, void *recv, const size_t *counts, eb_type type, eb_request **request);
int eb_igatherv(const eb_comm *comm, const void *send, void *recv, const size_t *counts, eb_type type, size_t root,
                eb_request **request);
int eb_iscatterv(const eb_comm *comm, const void *send, void *recv, const size_t *counts, eb_type type, size_t root,
                 eb_request **request);
int eb_iallreduce_with(const eb_comm *comm, const void *send, void *recv, size_t count, size_t element_bytes,
                       const eb_operator *op, eb_request **request);
int eb_iscan_with(const eb_comm *comm, const void *send, void *recv, size_t count, size_t element_bytes, const eb_operator *op,
                  eb_request **request);
int eb_iexscan_with(const eb_comm *comm, const void *send, void *recv, size_t count, size_t element_bytes, const eb_operator *op,
                    eb_request **request);
int eb_ireduce_with(const eb_comm *comm, const void *send, void *recv, size_t count, size_t element_bytes,
                    const eb_operator *op, size_t root, eb_request **request);
int eb_ireduce_scatter_with(const eb_comm *comm, const void *send, void *recv, size_t count, size_t element_bytes,
                            const eb_operator *op, eb_request **request);
int eb_iallreduce_grouped(const eb_comm *comm, void *const *buffers, const size_t *counts, size_t group, eb_type type,
                          eb_op op, eb_request **request);

/* Waits until the call has ended and returns its error. In any case the request is gone and `*request` is NULL; a
 * `*request` that is NULL has ended well. EB_USAGE while another thread is inside a call: the result is lost then.
 * A request of the next section stays, may be waited for again after that error, and has ended well unless it was started. */
int eb_wait(eb_request **request);

/* The same if the call has ended by now: `*done` is 1. Otherwise `*done` is 0, and the request goes on. Never waits. */
int eb_test(eb_request **request, int *done);

/* Makes progress on every call that this process has started, on every communicator, without waiting: for a program that waits
 * for something else meanwhile. `*left` is 0 if no started call is left, else 1; `left` may be NULL. Any thread may
 * call it. */
int eb_progress(int *left);

/* Frees a request without the result of its call: it ends inside later calls of the communicator, at the latest when that is freed.
 * The buffers belong to the caller again. */
int eb_request_free(eb_request **request);

/* ---- persistent calls ----
 *
 * Each function whose name ends in _init creates a persistent request for the call of the same name; it neither starts nor waits for anything, and no other
 * rank needs to make it. eb_start starts the call with the contents of the send buffer at that time, like the function that begins with i, and
 * eb_wait or eb_test ends it; then it can be started again. Every start counts in the order of calls. A start may pair with a
 * function that begins with i on another rank.
 *
 *     eb_allreduce_init(comm, EB_IN_PLACE, gradient, n, EB_F32, EB_AVERAGE, &sum);
 *     for (step = 0; step < steps; step++) {
 *         eb_start(sum);
 *         eb_wait(&sum);
 *     }
 *     eb_request_free(&sum);
 *
 * The buffers must stay where they are until the request is freed, and belong to the library from eb_start until the call has
 * ended only. Starting and ending a call allocates nothing; otherwise it costs what the function that begins with i does. After
 * an error of the communicator the request is to be freed. Other errors are those of the function that begins with i.
 */
int eb_barrier_init(const eb_comm *comm, eb_request **request);
int eb_allreduce_init(const eb_comm *comm, const void *send, void *recv, size_t count, eb_type type, eb_op op, eb_request **request);
int eb_reduce_init(const eb_comm *comm, const void *send, void *recv, size_t count, eb_type type, eb_op op, size_t root,
                   eb_request **request);
int eb_reduce_scatter_init(const eb_comm *comm, const void *send, void *recv, size_t count, eb_type type, eb_op op,
                           eb_request **request);
int eb_reduce_scatterv_init(const eb_comm *comm, const void *send, void *recv, const size_t *counts, eb_type type, eb_op op,
                            eb_request **request);
int eb_scan_init(const eb_comm *comm, const void *send, void *recv, size_t count, eb_type type, eb_op op, eb_request **request);
int eb_exscan_init(const eb_comm *comm, const void *send, void *recv, size_t count, eb_type type, eb_op op, eb_request **request);
int eb_broadcast_init(const eb_comm *comm, void *buffer, size_t count, eb_type type, size_t root, eb_request **request);
int eb_allgather_init(const eb_comm *comm, const void *send, void *recv, size_t count, eb_type type, eb_request **request);
int eb_allgatherv_init(const eb_comm *comm, const void *send, void *recv, const size_t *counts, eb_type type, eb_request **request);
int eb_gather_init(const eb_comm *comm, const void *send, void *recv, size_t count, eb_type type, size_t root, eb_request **request);
int eb_gatherv_init(const eb_comm *comm, const void *send, void *recv, const size_t *counts, eb_type type, size_t root,
                    eb_request **request);
int eb_scatter_init(const eb_comm *comm, const void *send, void *recv, size_t count, eb_type type, size_t root, eb_request **request);
int eb_scatterv_init(const eb_comm *comm, const void *send, void *recv, const size_t *counts, eb_type type, size_t root,
                     eb_request **request);
int eb_alltoall_init(const eb_comm *comm, const void *send, void *recv, size_t count, eb_type type, eb_request **request);
int eb_alltoallv_init(const eb_comm *comm, const void *send, const size_t *send_counts, void *recv, const size_t *recv_counts,
                      eb_type type, eb_request **request);
int eb_allreduce_with_init(const eb_comm *comm, const void *send, void *recv, size_t count, size_t element_bytes,
                           const eb_operator *op, eb_request **request);
int eb_scan_with_init(const eb_comm *comm, const void *send, void *recv, size_t count, size_t element_bytes, const eb_operator *op,
                      eb_request **request);
int eb_exscan_with_init(const eb_comm *comm, const void *send, void *recv, size_t count, size_t element_bytes, const eb_operator *op,
                        eb_request **request);
int eb_reduce_with_init(const eb_comm *comm, const void *send, void *recv, size_t count, size_t element_bytes,
                        const eb_operator *op, size_t root, eb_request **request);
int eb_reduce_scatter_with_init(const eb_comm *comm, const void *send, void *recv, size_t count, size_t element_bytes,
                                const eb_operator *op, eb_request **request);
int eb_allreduce_grouped_init(const eb_comm *comm, void *const *buffers, const size_t *counts, size_t group, eb_type type,
                              eb_op op, eb_request **request);

/* Starts the call; never waits for another rank. EB_USAGE while it is under way, and for a request whose call is made once. */
int eb_start(eb_request *request);

/* ---- buffers in shared memory ----
 *
 * Reduced where they lie, without copies: from 64 KiB on two to four times as fast for two ranks that arrive together, not
 * faster where one is late or ranks outnumber CPUs.
 */
typedef struct eb_buffer eb_buffer;

/* A buffer of `count` zeros that all ranks reach. This rank alone calls it. It may be used in every communicator of the job,
 * may outlive them, and is to be freed by eb_buffer_free. EB_NO_SPACE where the memory that all communicators share is
 * used up. Any type but EB_BOOL, for which EB_U8 has the same operators. */
int eb_buffer_alloc(const eb_comm *comm, size_t count, eb_type type, eb_buffer **buffer);

/* Where its elements are, until it is freed: the caller's to read and write but during a call. */
int eb_buffer_data(eb_buffer *buffer, void **data);

/* As eb_allreduce with a buffer on every rank, folded by rank. EB_IN_PLACE as `send`, or another buffer of the same type
 * and count. After an error that others may see, `recv` holds zeros. Between virtual nodes it costs what eb_allreduce does. */
int eb_allreduce_shared(const eb_comm *comm, eb_buffer *send, eb_buffer *recv, eb_op op);

/* Gives the memory back, and sets `*buffer` to NULL. */
int eb_buffer_free(eb_buffer **buffer);

/* ---- one result that all ranks read ---- */
typedef struct eb_view eb_view;

/*
 * Reduces `count` elements of `send` of all ranks, folded by rank, into one result that every rank of a node reads where it
 * lies: nobody copies it out, and it takes its memory once and not once per rank. `*view` stands for it, NULL after an
 * error. All ranks make this call; with eb_allreduce on another rank it is EB_MISMATCH.
 *
 * The result does not change while this rank holds its view, whatever is called meanwhile, and no rank waits for a view to be
 * freed. There are at most two such results of a communicator and node: where views of both are held, by whichever ranks, for less
 * than 2 KiB, where the node's memory is used up, and where a plan was chosen, ranks get copies of their own. So free a
 * view before the call after the next. A view keeps its communicator: eb_comm_free may come first.
 */
int eb_allreduce_view(const eb_comm *comm, const void *send, size_t count, eb_type type, eb_op op, eb_view **view);

/* Where its elements are until the view is freed, to read: writes would change the result of other ranks. */
int eb_view_data(const eb_view *view, const void **data);

/* Whether this rank has a copy of its own, 1, and not the one result of its node, 0. */
int eb_view_is_copy(const eb_view *view, int *is_copy);

/* Frees the view, and sets `*view` to NULL. Any thread may call it. */
int eb_view_free(eb_view **view);

#ifdef __cplusplus
}
#endif

#endif
