! The collectives through the module mpi_f08, with and without the last argument.
program new
  use mpi_f08
  implicit none
  integer, parameter :: n = 500
  integer :: rank, ranks, ierr, wrong, i
  integer :: a(n), b(n)
  real :: r(n), s(n)
  integer, allocatable :: lens(:), at(:), bytes(:)
  type(MPI_Datatype), allocatable :: types(:)
  integer, allocatable :: everything(:), mine(:), out(:, :)
  type(MPI_Comm) :: comm
  type(MPI_Request) :: requests(17)
  type(MPI_Comm) :: dup

  call MPI_Init()
  call MPI_Comm_dup(MPI_COMM_WORLD, dup)
  call MPI_Comm_rank(dup, rank)
  call MPI_Comm_size(dup, ranks)
  allocate (everything(n * ranks))
  wrong = 0
  a = [(rank * i, i = 1, n)]
  call MPI_Allreduce(a, b, n, MPI_INTEGER, MPI_SUM, dup, ierr)
  call must(ierr == MPI_SUCCESS .and. b(n) == n * ranks * (ranks - 1) / 2)
  call MPI_Allreduce(MPI_IN_PLACE, a, n, MPI_INTEGER, MPI_SUM, dup)
  call must(count(a /= b) == 0)
  r = rank + 0.25
  s = -1
  call MPI_Reduce(r, s, n, MPI_REAL, MPI_SUM, ranks - 1, dup)
  call must(count(s == merge(ranks * (ranks - 1) / 2 + ranks * 0.25, -1.0, rank == ranks - 1)) == n)
  a = rank
  call MPI_Bcast(a, n, MPI_INTEGER, ranks - 1, dup)
  call must(count(a == ranks - 1) == n)
  a = rank
  call MPI_Allgather(a, n, MPI_INTEGER, everything, n, MPI_INTEGER, dup)
  call must(count(everything == [(((i - 1) / n), i = 1, n * ranks)]) == n * ranks)
  everything = 2
  call MPI_Reduce_scatter_block(everything, b, n, MPI_INTEGER, MPI_SUM, dup)
  call must(count(b == 2 * ranks) == n)
  a = rank
  b = -1
  call MPI_Scan(a, b, n, MPI_INTEGER, MPI_SUM, dup)
  call must(count(b == rank * (rank + 1) / 2) == n)
  call MPI_Exscan(MPI_IN_PLACE, a, n, MPI_INTEGER, MPI_SUM, dup)
  call must(count(a == rank * (rank - 1) / 2) == n)
  ! Blocks for each rank; lens(i) for rank i - 1.
  lens = [(3 * i, i = 1, ranks)]
  at = [(3 * i * (i - 1) / 2, i = 1, ranks)]
  bytes = [(4 * (i - 1), i = 1, ranks)]
  allocate (types(ranks))
  types = MPI_INTEGER
  a = rank
  everything = -1
  call MPI_Gather(a, 2, MPI_INTEGER, everything, 2, MPI_INTEGER, 0, dup)
  call must(rank /= 0 .or. count(everything(:2 * ranks) == [(((i - 1) / 2), i = 1, 2 * ranks)]) == 2 * ranks)
  b = -1
  call MPI_Scatter(everything, 2, MPI_INTEGER, b, 2, MPI_INTEGER, 0, dup)
  call must(count(b(:2) == rank) == 2 .and. b(3) == -1)
  everything = -1
  call MPI_Gatherv(a, lens(rank + 1), MPI_INTEGER, everything, lens, at, MPI_INTEGER, ranks - 1, dup)
  if (rank == ranks - 1) call must(in_blocks(everything))
  b = -1
  call MPI_Scatterv(everything, lens, at, MPI_INTEGER, b, lens(rank + 1), MPI_INTEGER, ranks - 1, dup)
  call must(count(b == rank) == lens(rank + 1))
  everything = -1
  call MPI_Allgatherv(a, lens(rank + 1), MPI_INTEGER, everything, lens, at, MPI_INTEGER, dup)
  call must(in_blocks(everything))
  everything = rank
  call MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, everything, n, MPI_INTEGER, dup)
  call must(count(everything == [(((i - 1) / n), i = 1, n * ranks)]) == n * ranks)
  everything = rank
  b = -1
  call MPI_Alltoallv(everything, [(lens(rank + 1), i = 1, ranks)], at, MPI_INTEGER, b, lens, at, MPI_INTEGER, dup)
  call must(in_blocks(b))
  b = -1
  call MPI_Alltoallw(a, [(1, i = 1, ranks)], bytes, types, b, [(1, i = 1, ranks)], bytes, types, dup)
  call must(count(b(:ranks) == [(i - 1, i = 1, ranks)]) == ranks)
  a = 1
  b = -1
  call MPI_Reduce_scatter(a, b, lens, MPI_INTEGER, MPI_SUM, dup)
  call must(count(b == ranks) == lens(rank + 1))
  comm = dup
  include 'non_blocking.inc'
  call MPI_Barrier(dup)
  call MPI_Comm_free(dup)
  call MPI_Finalize()
  if (wrong == 0) then
    print '(a,i0,a)', 'rank ', rank, ' right'
  else
    print '(a,i0,a,i0)', 'rank ', rank, ' wrong ', wrong
    stop 1
  end if

contains
  logical function in_blocks(found)
    integer, intent(in) :: found(:)
    integer :: r
    in_blocks = all([(count(found(at(r) + 1:at(r) + lens(r)) == r - 1) == lens(r), r = 1, ranks)])
  end function
  subroutine must(condition)
    logical, intent(in) :: condition
    if (.not. condition) wrong = wrong + 1
  end subroutine
end program
