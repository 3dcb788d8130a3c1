/* Exchanges with both neighbours, sums over all, and passes messages of growing length round, until rank 0 finds a
 * file (or for so many rounds); then says the rounds and the numbers, as bits. It knows nothing of being moved. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { POINTS = 500, LONGEST = 1 << 18 };

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    static double old[POINTS + 2], new[POINTS + 2];
    static char out[LONGEST], in[LONGEST];
    for (int i = 1; i <= POINTS; i++)
        old[i] = sin(.01 * i * (rank + 1));
    int up = rank + 1 < size ? rank + 1 : MPI_PROC_NULL, down = rank ? rank - 1 : MPI_PROC_NULL;
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    double residual = 0, checked = 0;
    long rounds = argc > 1 ? strtol(argv[1], NULL, 10) : 0, done = 0;
    if (rank == 0) {
        printf("running\n");
        fflush(stdout);
    }
    for (;; done++) {
        int go_on = rounds ? done < rounds : access(argv[1], F_OK) != 0;
        MPI_Bcast(&go_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
        if (!go_on)
            break;
        MPI_Request waits[2];
        int length = 1 + done * 7919 % LONGEST;
        for (int i = 0; i < length; i++)
            out[i] = (char)(i * done + rank);
        MPI_Irecv(in, length, MPI_CHAR, before, 7, MPI_COMM_WORLD, &waits[0]);
        MPI_Isend(out, length, MPI_CHAR, next, 7, MPI_COMM_WORLD, &waits[1]);
        MPI_Sendrecv(old + POINTS, 1, MPI_DOUBLE, up, 0, old, 1, MPI_DOUBLE, down, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        MPI_Sendrecv(old + 1, 1, MPI_DOUBLE, down, 1, old + POINTS + 1, 1, MPI_DOUBLE, up, 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        double own = 0;
        for (int i = 1; i <= POINTS; i++) {
            new[i] = .5 * old[i] + .25 * (old[i - 1] + old[i + 1]);
            own += (new[i] - old[i]) * (new[i] - old[i]);
        }
        for (int i = 1; i <= POINTS; i++)
            old[i] = new[i];
        MPI_Allreduce(&own, &residual, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        MPI_Waitall(2, waits, MPI_STATUSES_IGNORE);
        double sum = 0;
        for (int i = 0; i < length; i++)
            sum += in[i] * (i + 1.);
        checked = .5 * checked + sum * residual;
    }
    double *all = malloc(size * sizeof *all);
    MPI_Gather(&checked, 1, MPI_DOUBLE, all, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("%ld %a", done, residual);
        for (int i = 0; i < size; i++)
            printf(" %a", all[i]);
        printf("\n");
    }
    free(all);
    MPI_Finalize();
    return 0;
}
