! Persistent collectives in Fortran: started one by one, together with a message, and freed.
program persistent
  implicit none
  include 'mpif.h'
  external :: ALLREDUCE_INIT, BARRIER_INIT
  integer :: rank, ranks, error, round, mine, total, sent, got, expected
  integer :: requests(4), wrong = 0
  ! Where any function may change them.
  common /buffers/ mine, total, sent, got

  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  call ALLREDUCE_INIT(mine, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, requests(1), error)
  call BARRIER_INIT(MPI_COMM_WORLD, MPI_INFO_NULL, requests(2), error)
  call MPI_Recv_init(got, 1, MPI_INTEGER, mod(rank + ranks - 1, ranks), 3, MPI_COMM_WORLD, requests(3), error)
  call MPI_Send_init(sent, 1, MPI_INTEGER, mod(rank + 1, ranks), 3, MPI_COMM_WORLD, requests(4), error)
  do round = 1, 20
    mine = rank + round
    sent = 100 * rank + round
    total = -1
    got = -1
    if (mod(round, 2) == 0) then
      call MPI_Startall(4, requests, error)
    else
      call MPI_Startall(3, requests(2), error)
      call MPI_Start(requests(1), error)
    end if
    call MPI_Waitall(4, requests, MPI_STATUSES_IGNORE, error)
    expected = ranks * (ranks - 1) / 2 + ranks * round
    if (total /= expected .or. got /= 100 * mod(rank + ranks - 1, ranks) + round) wrong = wrong + 1
  end do
  do round = 1, 4
    call MPI_Request_free(requests(round), error)
    if (requests(round) /= MPI_REQUEST_NULL) wrong = wrong + 1
  end do
  call MPI_Finalize(error)
  if (wrong == 0) then
    print *, 'rank', rank, ' right'
  else
    print *, 'rank', rank, ' wrong', wrong
    stop 1
  end if
end program
