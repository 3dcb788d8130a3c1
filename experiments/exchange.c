/* Two ranks exchange 32 kB, in turns through the counting library (MPI_Sendrecv) and past it (PMPI_Sendrecv). */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define BYTES 32768
#define BATCH 100

static char out[BYTES], in[BYTES];

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

int main(int argc, char **argv) {
  int rank, rounds = argc > 1 ? atoi(argv[1]) : 200;
  double *seconds[2];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int way = 0; way < 2; way++) seconds[way] = malloc(sizeof(double) * rounds);
  for (int round = -5; round < rounds; round++)
    for (int turn = 0; turn < 2; turn++) {
      int way = (turn + round) & 1; /* which comes first alternates */
      double begin = MPI_Wtime();
      for (int i = 0; i < BATCH; i++)
        (way ? PMPI_Sendrecv : MPI_Sendrecv)(out, BYTES, MPI_CHAR, 1 - rank, 0, in, BYTES, MPI_CHAR, 1 - rank, 0,
                                             MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      if (round >= 0) seconds[way][round] = (MPI_Wtime() - begin) / BATCH;
    }
  for (int way = 0; way < 2; way++) qsort(seconds[way], rounds, sizeof(double), by_size);
  if (rank == 0) printf("%.9g %.9g %.9g %.9g\n", seconds[0][rounds / 2], seconds[1][rounds / 2], seconds[0][rounds / 4], seconds[1][rounds / 4]);
  MPI_Finalize();
  return 0;
}
