! An operator of a Fortran program that does not commute: products of 2 x 2 matrices of integers modulo 10007.
module matrices
  implicit none
  integer, parameter :: modulus = 10007
contains
  subroutine multiply(a, b, count, dtype)
    integer, intent(in) :: count, dtype
    integer, intent(in) :: a(2, 2, count)
    integer, intent(inout) :: b(2, 2, count)
    integer :: i
    if (dtype == -1) return
    do i = 1, count
      b(:, :, i) = mod(matmul(a(:, :, i), b(:, :, i)), modulus)
    end do
  end subroutine

  function of(rank, i) result(m)
    integer, intent(in) :: rank, i
    integer :: m(2, 2)
    m = reshape([rank + i, 3 * i + 1, 7 * rank + 2, 5 + rank * i], [2, 2])
    m = mod(m, modulus)
  end function
end module

program users
  use mpi
  use matrices
  implicit none
  integer, parameter :: n = 500
  integer :: ierr, rank, ranks, kind, op, i, r, wrong, root, blocks, request
  integer :: mine(2, 2, n), all(2, 2, n), expected(2, 2, n)
  logical :: commutes
  call mpi_init(ierr)
  call mpi_comm_rank(MPI_COMM_WORLD, rank, ierr)
  call mpi_comm_size(MPI_COMM_WORLD, ranks, ierr)
  call mpi_type_contiguous(4, MPI_INTEGER, kind, ierr)
  call mpi_type_commit(kind, ierr)
  call mpi_op_create(multiply, .false., op, ierr)
  wrong = 0
  call mpi_op_commutative(op, commutes, ierr)
  if (commutes) wrong = 1
  do i = 1, n
    mine(:, :, i) = of(rank, i)
    expected(:, :, i) = of(0, i)
    do r = 1, ranks - 1
      expected(:, :, i) = mod(matmul(expected(:, :, i), of(r, i)), modulus)
    end do
  end do
  all = -1
  call mpi_allreduce(mine, all, n, kind, op, MPI_COMM_WORLD, ierr)
  if (any(all /= expected)) wrong = wrong + 1
  all = mine
  call mpi_allreduce(MPI_IN_PLACE, all, n, kind, op, MPI_COMM_WORLD, ierr)
  if (any(all /= expected)) wrong = wrong + 1
  do root = 0, ranks - 1
    all = -1
    call mpi_reduce(mine, all, n, kind, op, root, MPI_COMM_WORLD, ierr)
    if (rank == root .and. any(all /= expected)) wrong = wrong + 1
    if (rank /= root .and. any(all /= -1)) wrong = wrong + 1
  end do
  blocks = n / ranks
  all = -1
  call mpi_reduce_scatter_block(mine, all, blocks, kind, op, MPI_COMM_WORLD, ierr)
  if (any(all(:, :, 1:blocks) /= expected(:, :, rank * blocks + 1:(rank + 1) * blocks))) wrong = wrong + 1
  all = -1
  call mpi_iallreduce(mine, all, n, kind, op, MPI_COMM_WORLD, request, ierr)
  ! With any argument, the operator and the type are freed while the call uses them.
  if (command_argument_count() == 0) call mpi_wait(request, MPI_STATUS_IGNORE, ierr)
  call mpi_op_free(op, ierr)
  call mpi_type_free(kind, ierr)
  if (op /= MPI_OP_NULL .or. kind /= MPI_DATATYPE_NULL) wrong = wrong + 1
  call mpi_wait(request, MPI_STATUS_IGNORE, ierr)
  if (any(all /= expected)) wrong = wrong + 1
  call mpi_finalize(ierr)
  if (wrong /= 0) then
    print '(a,i0,a,i0,a)', 'rank ', rank, ': ', wrong, ' wrong'
    stop 1
  end if
  print '(a,i0,a)', 'rank ', rank, ' right'
end program
