! The collectives through the module mpi_f08, with and without the last argument.
program new
  use mpi_f08
  implicit none
  integer, parameter :: n = 500
  integer :: rank, ranks, ierr, wrong, i
  integer :: a(n), b(n)
  real :: r(n), s(n)
  integer, allocatable :: everything(:)
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
  subroutine must(condition)
    logical, intent(in) :: condition
    if (.not. condition) wrong = wrong + 1
  end subroutine
end program
