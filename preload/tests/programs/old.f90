! The collectives through the module mpi, every one with exact results.
program old
  use mpi
  implicit none
  integer, parameter :: n = 1000
  integer :: rank, ranks, ierr, wrong, i, root, half, color
  integer :: a(n), b(n), small
  double precision :: x(n), y(n)
  logical :: yes, all_yes, any_yes
  complex :: z, w
  integer, allocatable :: all(:), parts(:)
  double precision :: pair(2), least(2)
  integer :: ipair(2), most(2)

  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  allocate (all(n * ranks), parts(n * ranks))
  wrong = 0

  a = [(rank + i, i = 1, n)]
  b = -1
  call MPI_Allreduce(a, b, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
  call must(ierr == MPI_SUCCESS)
  call must(all_equal(b, [(ranks * i + ranks * (ranks - 1) / 2, i = 1, n)]))
  call MPI_Allreduce(MPI_IN_PLACE, a, n, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, ierr)
  call must(all_equal(a, [(ranks - 1 + i, i = 1, n)]))
  x = rank + 0.5d0
  call MPI_Allreduce(x, y, n, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
  call must(count(y == ranks * (ranks - 1) / 2 + ranks * 0.5d0) == n)
  yes = rank == 0
  call MPI_Allreduce(yes, all_yes, 1, MPI_LOGICAL, MPI_LAND, MPI_COMM_WORLD, ierr)
  call MPI_Allreduce(yes, any_yes, 1, MPI_LOGICAL, MPI_LOR, MPI_COMM_WORLD, ierr)
  call must(any_yes .and. .not. all_yes)
  z = cmplx(1, rank)
  call MPI_Allreduce(z, w, 1, MPI_COMPLEX, MPI_SUM, MPI_COMM_WORLD, ierr)
  call must(w == cmplx(ranks, ranks * (ranks - 1) / 2))
  ipair = [mod(rank, 2), 10 + rank]
  call MPI_Allreduce(ipair, most, 1, MPI_2INTEGER, MPI_MAXLOC, MPI_COMM_WORLD, ierr)
  call must(most(1) == 1 .and. most(2) == 11)
  pair = [dble(rank), 3d0]
  call MPI_Allreduce(pair, least, 1, MPI_2DOUBLE_PRECISION, MPI_MINLOC, MPI_COMM_WORLD, ierr)
  call must(least(1) == 0 .and. least(2) == 3)

  do root = 0, ranks - 1
    a = rank + 1
    b = -1
    if (rank == root) then
      call MPI_Reduce(MPI_IN_PLACE, a, 30, MPI_INTEGER, MPI_PROD, root, MPI_COMM_WORLD, ierr)
      call must(a(30) == product([(i, i = 1, ranks)]) .and. a(31) == rank + 1)
    else
      call MPI_Reduce(a, b, 30, MPI_INTEGER, MPI_PROD, root, MPI_COMM_WORLD, ierr)
      call must(count(b == -1) == n)
    end if
    a = merge(root + 7, 0, rank == root)
    call MPI_Bcast(a, n, MPI_INTEGER, root, MPI_COMM_WORLD, ierr)
    call must(count(a == root + 7) == n)
  end do

  a = rank
  call MPI_Allgather(a, n, MPI_INTEGER, all, n, MPI_INTEGER, MPI_COMM_WORLD, ierr)
  call must(all_equal(all, [((root, i = 1, n), root = 0, ranks - 1)]))
  all = -1
  all(rank * n + 1:rank * n + n) = rank
  call MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, n, MPI_INTEGER, MPI_COMM_WORLD, ierr)
  call must(all_equal(all, [((root, i = 1, n), root = 0, ranks - 1)]))
  parts = 1
  call MPI_Reduce_scatter_block(parts, b, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
  call must(count(b == ranks) == n)

  color = mod(rank, 2)
  call MPI_Comm_split(MPI_COMM_WORLD, color, rank, half, ierr)
  call MPI_Allreduce(1, small, 1, MPI_INTEGER, MPI_SUM, half, ierr)
  call must(small == (ranks + 1 - color) / 2)
  call MPI_Comm_free(half, ierr)
  call MPI_Barrier(MPI_COMM_WORLD, ierr)
  call MPI_Finalize(ierr)
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
  logical function all_equal(found, expected)
    integer, intent(in) :: found(:), expected(:)
    all_equal = size(found) == size(expected)
    if (all_equal) all_equal = count(found /= expected) == 0
  end function
end program
