"""Makes each kind of call that a movable program may, and writes what came as whole numbers, a file a rank."""

import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
told = [rank, size]


def tell(*arrays):
    """Note the numbers."""
    told.extend(int(n) for array in arrays for n in np.asarray(array).ravel())


for kind in "bBhHiIlLfd":
    own = np.arange(1, 5).astype(kind) + rank
    for op in (MPI.SUM, MPI.PROD, MPI.MAX, MPI.MIN):
        into = np.zeros(4, kind)
        world.Allreduce(own, into, op)
        tell(into)
    if kind not in "fd":
        for op in (MPI.BAND, MPI.BOR, MPI.BXOR, MPI.LAND, MPI.LOR, MPI.LXOR):
            into = np.zeros(4, kind)
            world.Reduce(own, into, op, root=1)
            tell(into)
ints = np.arange(6) + 10 * rank
into = np.zeros(6 * size, int)
world.Gather(ints, into, root=2)
tell(into)
world.Allgather(ints, into)
tell(into)
counts, places = np.array([1, 2, 3]), np.array([0, 1, 3])
parts = np.zeros(6, int)
world.Gatherv(ints[: rank + 1], (parts, counts, places, MPI.LONG), root=0)
tell(parts)
world.Allgatherv(ints[: rank + 1], (parts, counts, places, MPI.LONG))
tell(parts)
mine = np.zeros(rank + 1, int)
world.Scatterv((parts, counts, places, MPI.LONG), mine, root=1)
tell(mine)
two = np.zeros(2, int)
world.Scatter(np.arange(2 * size) if rank == 2 else None, two, root=2)
tell(two)
turned = np.zeros(6, int)
world.Alltoall(ints, turned)
tell(turned)
world.Alltoallv((ints, [2, 2, 2], [0, 2, 4], MPI.LONG), (turned, [2, 2, 2], [4, 2, 0], MPI.LONG))
tell(turned)
world.Allreduce(MPI.IN_PLACE, turned)
tell(turned)
status = MPI.Status()
following, before = (rank + 1) % size, (rank - 1) % size
world.Isend(ints[:3], following, tag=3)
world.Probe(MPI.ANY_SOURCE, MPI.ANY_TAG, status)
tell(status.source, status.tag, status.Get_count(MPI.LONG))
world.Recv(turned, status.source, status.tag, status)
tell(turned, status.source, status.Get_count(MPI.LONG))
one = np.array([rank])
world.Sendrecv_replace(one, following, 1, before, 1)
tell(one)
buffers = [np.zeros(2, int) for _ in range(size)]
waits = [world.Irecv(buffer, other, 4) for other, buffer in enumerate(buffers)]
for other in range(size):
    world.Send(ints[:2], other, 4)
done = sorted(MPI.Request.Waitany(waits) for _ in range(size))
tell(done, *buffers)
waits = [world.Irecv(one, before, 8), world.Isend(ints[5:], following, 8)]
while not MPI.Request.Testall(waits):
    pass
tell(one)
world.Send(ints, MPI.PROC_NULL)
world.Recv(turned, MPI.PROC_NULL, status=status)
tell(status.source == MPI.PROC_NULL, status.Get_count(MPI.LONG))
world.Probe(MPI.PROC_NULL, 0, status)
tell(status.source == MPI.PROC_NULL, status.Get_count(MPI.LONG))
world.Mprobe(MPI.PROC_NULL, 0, status).Recv(turned, status)
tell(status.source == MPI.PROC_NULL, status.Get_count(MPI.LONG))
for alone in (MPI.COMM_SELF, MPI.COMM_SELF.Dup()):
    wait = alone.Irecv(one, 0, 5)
    alone.Send(ints[:1], 0, 5)
    wait.Wait(status)
    tell(one, status.source)
    alone.Isend(ints[1:2], 0, 6)
    alone.Probe(MPI.ANY_SOURCE, 6, status)
    tell(status.source)
    alone.Recv(one, MPI.ANY_SOURCE, 6, status)
    tell(one, status.source)
copy = world.Dup()
copy.send([rank], following)
world.send("other", following)
tell(copy.recv(source=before)[0], len(world.recv(source=before)))
tell(MPI.Comm.Compare(world, copy), MPI.COMM_SELF.allreduce(7))
copy.Free()
for message in world.alltoall(list(range(size))), world.allgather(rank):
    tell(message)
tell(world.scatter(list(range(size)) if rank == 0 else None), world.reduce(rank, root=0) or 0)
short = np.zeros(1, int)
world.Isend(ints[:2], rank, 9)
try:
    world.Recv(short, rank, 9)
except MPI.Exception as error:
    tell(error.Get_error_class() == MPI.ERR_TRUNCATE)
world.Barrier()
Path(sys.argv[1], f"{rank}").write_text(" ".join(map(str, told)))
