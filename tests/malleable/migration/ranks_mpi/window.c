/* Uses one-sided communication, which no program that can be moved may. */
#include <mpi.h>

int main(int argc, char **argv)
{
    int value = 0;
    MPI_Win window;
    MPI_Init(&argc, &argv);
    MPI_Win_create(&value, sizeof value, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_free(&window);
    MPI_Finalize();
    return 0;
}
