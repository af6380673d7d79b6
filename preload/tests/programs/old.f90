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
  integer, allocatable :: everything(:), parts(:)
  double precision :: pair(2), least(2)
  integer :: ipair(2), most(2)
  integer, allocatable :: lens(:), at(:), bytes(:), types(:), mine(:), out(:, :)
  integer :: comm, requests(17)

  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  allocate (everything(n * ranks), parts(n * ranks))
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
  call MPI_Allgather(a, n, MPI_INTEGER, everything, n, MPI_INTEGER, MPI_COMM_WORLD, ierr)
  call must(all_equal(everything, [((root, i = 1, n), root = 0, ranks - 1)]))
  everything = -1
  everything(rank * n + 1:rank * n + n) = rank
  call MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, everything, n, MPI_INTEGER, MPI_COMM_WORLD, ierr)
  call must(all_equal(everything, [((root, i = 1, n), root = 0, ranks - 1)]))
  parts = 1
  call MPI_Reduce_scatter_block(parts, b, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
  call must(count(b == ranks) == n)
  a = rank
  call MPI_Scan(a, b, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
  call must(count(b == rank * (rank + 1) / 2) == n)
  call MPI_Exscan(MPI_IN_PLACE, a, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
  call must(count(a == rank * (rank - 1) / 2) == n)

  ! Blocks for each rank; lens(i) for rank i - 1.
  lens = [(3 * i, i = 1, ranks)]
  at = [(3 * i * (i - 1) / 2, i = 1, ranks)]
  bytes = [(4 * (i - 1), i = 1, ranks)]
  types = [(MPI_INTEGER, i = 1, ranks)]
  a = rank
  parts = -1
  call MPI_Gather(a, 2, MPI_INTEGER, parts, 2, MPI_INTEGER, 0, MPI_COMM_WORLD, ierr)
  call must(rank /= 0 .or. count(parts(:2 * ranks) == [(((i - 1) / 2), i = 1, 2 * ranks)]) == 2 * ranks)
  b = -1
  call MPI_Scatter(parts, 2, MPI_INTEGER, b, 2, MPI_INTEGER, 0, MPI_COMM_WORLD, ierr)
  call must(count(b(:2) == rank) == 2 .and. b(3) == -1)
  parts = -1
  call MPI_Gatherv(a, lens(rank + 1), MPI_INTEGER, parts, lens, at, MPI_INTEGER, ranks - 1, MPI_COMM_WORLD, ierr)
  if (rank == ranks - 1) call must(in_blocks(parts))
  b = -1
  call MPI_Scatterv(parts, lens, at, MPI_INTEGER, b, lens(rank + 1), MPI_INTEGER, ranks - 1, MPI_COMM_WORLD, ierr)
  call must(count(b == rank) == lens(rank + 1))
  parts = -1
  call MPI_Allgatherv(a, lens(rank + 1), MPI_INTEGER, parts, lens, at, MPI_INTEGER, MPI_COMM_WORLD, ierr)
  call must(in_blocks(parts))
  parts = rank
  call MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, parts, n, MPI_INTEGER, MPI_COMM_WORLD, ierr)
  call must(count(parts == [(((i - 1) / n), i = 1, n * ranks)]) == n * ranks)
  parts = rank
  b = -1
  call MPI_Alltoallv(parts, [(lens(rank + 1), i = 1, ranks)], at, MPI_INTEGER, b, lens, at, MPI_INTEGER, MPI_COMM_WORLD, ierr)
  call must(in_blocks(b))
  b = -1
  call MPI_Alltoallw(a, [(1, i = 1, ranks)], bytes, types, b, [(1, i = 1, ranks)], bytes, types, MPI_COMM_WORLD, ierr)
  call must(count(b(:ranks) == [(i - 1, i = 1, ranks)]) == ranks)
  a = 1
  b = -1
  call MPI_Reduce_scatter(a, b, lens, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
  call must(count(b == ranks) == lens(rank + 1))

  comm = MPI_COMM_WORLD
  include 'non_blocking.inc'

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
  logical function in_blocks(found)
    integer, intent(in) :: found(:)
    integer :: r
    in_blocks = all([(count(found(at(r) + 1:at(r) + lens(r)) == r - 1) == lens(r), r = 1, ranks)])
  end function
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
