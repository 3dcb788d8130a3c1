! Sends known numbers of reals in the ways of Fortran 77: to the next 80 bytes at once, twice 24 by a persistent
! request, and 16 by convention of the sum.
program talk
  implicit none
  integer :: comm, real8, rank, size, next, before, request, status(64), error, i
  double precision :: sent(10), came(10)
  call mpi_init(error)
  call handles(comm, real8)
  call mpi_comm_rank(comm, rank, error)
  call mpi_comm_size(comm, size, error)
  next = mod(rank + 1, size)
  before = mod(rank + size - 1, size)
  sent = rank
  call mpi_sendrecv(sent, 10, real8, next, 1, came, 10, real8, before, 1, comm, status, error)
  call mpi_send_init(sent, 3, real8, next, 2, comm, request, error)
  do i = 1, 2
    call mpi_start(request, error)
    call mpi_recv(came, 10, real8, before, 2, comm, status, error)
    call mpi_wait(request, status, error)
  end do
  call mpi_allreduce(sent, came, 2, real8, 0, comm, error)
  call mpi_finalize(error)
end program talk
