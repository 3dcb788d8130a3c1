/* Sends known numbers of bytes in every way that is counted; each rank says nothing. Any number of ranks from 3. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

static char out[4096], in[65536];

static void point_to_point(int next, int before) {
  MPI_Request sent[4], received;
  MPI_Status status;
  MPI_Datatype pair;
  MPI_Type_contiguous(2, MPI_DOUBLE, &pair);
  MPI_Type_commit(&pair);
  MPI_Irecv(in, 100, MPI_CHAR, before, 1, MPI_COMM_WORLD, &received);
  MPI_Send(out, 10, MPI_CHAR, next, 1, MPI_COMM_WORLD); /* 10 */
  MPI_Wait(&received, &status);
  MPI_Irecv(in, 100, MPI_CHAR, before, 1, MPI_COMM_WORLD, &received);
  MPI_Isend(out, 3, pair, next, 1, MPI_COMM_WORLD, sent); /* 48 */
  MPI_Wait(sent, &status);
  MPI_Wait(&received, &status);
  MPI_Sendrecv(out, 7, MPI_INT, next, 1, in, 7, MPI_INT, before, 1, MPI_COMM_WORLD, &status); /* 28 */
  MPI_Sendrecv_replace(out, 1, MPI_CHAR, next, 1, before, 1, MPI_COMM_WORLD, &status);       /* 1 */
  MPI_Irecv(in, 100, MPI_CHAR, before, 1, MPI_COMM_WORLD, &received);
  MPI_Ssend(out, 0, MPI_CHAR, next, 1, MPI_COMM_WORLD); /* 0 */
  MPI_Wait(&received, &status);
  MPI_Send(out, 100, MPI_CHAR, MPI_PROC_NULL, 1, MPI_COMM_WORLD); /* to nobody */
  MPI_Type_free(&pair);
}

static void persistent(int next, int before) { /* 3 starts of 5 bytes, and 2 of the same request made anew of 6 */
  MPI_Request both[2];
  for (int round = 0; round < 2; round++) {
    MPI_Send_init(out, 5 + round, MPI_CHAR, next, 2, MPI_COMM_WORLD, &both[0]);
    MPI_Recv_init(in, 100, MPI_CHAR, before, 2, MPI_COMM_WORLD, &both[1]);
    for (int i = 0; i < 3 - round; i++) {
      if (i == 0) {
        MPI_Start(&both[0]);
        MPI_Start(&both[1]);
      } else {
        MPI_Startall(2, both);
      }
      MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
    }
    MPI_Request_free(&both[0]);
    MPI_Request_free(&both[1]);
  }
}

static void groups(int rank, int size) { /* the ranks in the opposite order; a communicator made often */
  MPI_Comm turned;
  for (int round = 0; round < 20; round++) {
    MPI_Comm_split(MPI_COMM_WORLD, 0, round % 2 ? rank : size - rank, &turned);
    int own;
    MPI_Comm_rank(turned, &own);
    MPI_Sendrecv(out, 11, MPI_CHAR, (own + 1) % size, 3, in, 11, MPI_CHAR, (own + size - 1) % size, 3, turned,
                 MPI_STATUS_IGNORE); /* 10 times 11 to the rank before, 10 times to the next */
    MPI_Comm_free(&turned);
  }
}

static void collectives(int rank, int size) {
  int counts[64], places[64];
  MPI_Request request;
  for (int i = 0; i < size; i++) counts[i] = i + 1, places[i] = 64 * i;
  MPI_Bcast(out, 100, MPI_CHAR, 1, MPI_COMM_WORLD);                                          /* 1 to each: 100 */
  MPI_Reduce(out, in, 2, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);                            /* each to 0: 16 */
  MPI_Gather(out, 3, MPI_CHAR, in, 3, MPI_CHAR, 2, MPI_COMM_WORLD);                          /* each to 2: 3 */
  MPI_Scatterv(in, counts, places, MPI_CHAR, out, rank + 1, MPI_CHAR, 0, MPI_COMM_WORLD);    /* 0 to i: i + 1 */
  MPI_Allreduce(MPI_IN_PLACE, out, 4, MPI_INT, MPI_MAX, MPI_COMM_WORLD);                     /* next: 16 */
  MPI_Iallreduce(MPI_IN_PLACE, out, 4, MPI_INT, MPI_MAX, MPI_COMM_WORLD, &request);          /* next: 16 */
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, in, 9, MPI_CHAR, MPI_COMM_WORLD);        /* next: 9 */
  MPI_Allgatherv(out, rank + 1, MPI_CHAR, in, counts, places, MPI_CHAR, MPI_COMM_WORLD);     /* next: rank + 1 */
  MPI_Alltoall(out, 2, MPI_CHAR, in, 2, MPI_CHAR, MPI_COMM_WORLD);                           /* each: 2 */
  MPI_Scan(out, in, 5, MPI_CHAR, MPI_MAX, MPI_COMM_WORLD);                                   /* next but of the last: 5 */
  MPI_Barrier(MPI_COMM_WORLD);
}

static void neighbourhood(int size) { /* a ring: 13 to both sides */
  MPI_Comm ring;
  int periodic = 1;
  MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &periodic, 0, &ring);
  MPI_Neighbor_alltoall(out, 13, MPI_CHAR, in, 13, MPI_CHAR, ring);
  MPI_Comm_free(&ring);
}

int main(int argc, char **argv) {
  int rank, size;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int next = (rank + 1) % size, before = (rank + size - 1) % size;
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "point")) point_to_point(next, before);
    if (!strcmp(argv[i], "persistent")) persistent(next, before);
    if (!strcmp(argv[i], "groups")) groups(rank, size);
    if (!strcmp(argv[i], "collectives")) collectives(rank, size);
    if (!strcmp(argv[i], "neighbours")) neighbourhood(size);
  }
  MPI_Finalize();
  return 0;
}
