"""Sends known numbers of bytes by mpi4py; ``meet`` merges with a second world, ``hold`` waits for a word."""

import sys

import numpy as np
from mpi4py import MPI


def ring(world):
    """To the next rank 8000 bytes, 80, twice 24 by a persistent request, and 40 by convention of the sum."""
    rank, size = world.Get_rank(), world.Get_size()
    there, back = (rank + 1) % size, (rank - 1) % size
    out, came = np.ones(1000), np.empty(1000)
    world.Sendrecv(out, there, 0, came, back)
    request = world.Isend(out[:10], there)
    world.Recv(came, back)
    request.Wait()
    repeated = world.Send_init(out[:3], there)
    for _ in range(2):
        repeated.Start()
        world.Recv(came, back)
        repeated.Wait()
    world.Allreduce(MPI.IN_PLACE, out[:5])


def hold(world):
    """Send as many bytes as each line says, from rank 0 to 1."""
    if world.Get_rank() == 0:
        for size in map(int, sys.stdin):
            world.Send(np.zeros(size, dtype=np.uint8), 1)
            print(size, flush=True)
        world.Send(np.zeros(0, dtype=np.uint8), 1)
        return
    came, status = np.empty(100, dtype=np.uint8), MPI.Status()
    while True:
        world.Recv(came, 0, status=status)
        if status.Get_count() == 0:
            return


def meet(both):
    """Each rank of two worlds that are one now sends its number and one bytes to the next."""
    rank, size = both.Get_rank(), both.Get_size()
    came = np.empty(100, dtype=np.uint8)
    both.Dup().Sendrecv(np.zeros(rank + 1, dtype=np.uint8), (rank + 1) % size, 0, came)


if __name__ == "__main__":
    match sys.argv[1]:
        case "ring":
            ring(MPI.COMM_WORLD)
        case "hold":
            hold(MPI.COMM_WORLD)
        case "meet":
            meet(MPI.COMM_WORLD.Spawn(sys.executable, [__file__, "join"], 2).Merge(high=False))
        case "join":
            meet(MPI.Comm.Get_parent().Merge(high=True))
