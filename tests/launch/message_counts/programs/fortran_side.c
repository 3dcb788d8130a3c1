/* The Fortran functions of an MPI library that has none, as two families of libraries make them: they call the C
 * function (NESTED, which a counting library sees again) or its profiling name. */
#include <mpi.h>

#ifdef NESTED
#define OF(NAME) MPI_##NAME
#else
#define OF(NAME) PMPI_##NAME
#endif
#define NAMED(NAME, PARAMETERS, ARGUMENTS, BODY)                           \
  void pmpi_##NAME PARAMETERS { BODY; }                                    \
  __attribute__((weak)) void mpi_##NAME PARAMETERS { pmpi_##NAME ARGUMENTS; }
typedef MPI_Fint F;

NAMED(init_, (F * e), (e), *e = OF(Init)(0, 0))
NAMED(finalize_, (F * e), (e), *e = PMPI_Finalize())
NAMED(comm_rank_, (F * c, F *r, F *e), (c, r, e), *e = PMPI_Comm_rank(MPI_Comm_f2c(*c), r))
NAMED(comm_size_, (F * c, F *r, F *e), (c, r, e), *e = PMPI_Comm_size(MPI_Comm_f2c(*c), r))
NAMED(sendrecv_, (void *b, F *n, F *t, F *d, F *g, void *rb, F *rn, F *rt, F *s, F *rg, F *c, F *st, F *e),
      (b, n, t, d, g, rb, rn, rt, s, rg, c, st, e),
      *e = OF(Sendrecv)(b, *n, MPI_Type_f2c(*t), *d, *g, rb, *rn, MPI_Type_f2c(*rt), *s, *rg, MPI_Comm_f2c(*c),
                        MPI_STATUS_IGNORE))
NAMED(send_init_, (void *b, F *n, F *t, F *d, F *g, F *c, F *r, F *e), (b, n, t, d, g, c, r, e), MPI_Request q;
      *e = OF(Send_init)(b, *n, MPI_Type_f2c(*t), *d, *g, MPI_Comm_f2c(*c), &q); *r = MPI_Request_c2f(q))
NAMED(recv_, (void *b, F *n, F *t, F *s, F *g, F *c, F *st, F *e), (b, n, t, s, g, c, st, e),
      *e = OF(Recv)(b, *n, MPI_Type_f2c(*t), *s, *g, MPI_Comm_f2c(*c), MPI_STATUS_IGNORE))
NAMED(start_, (F * r, F *e), (r, e), MPI_Request q = MPI_Request_f2c(*r); *e = OF(Start)(&q))
NAMED(wait_, (F * r, F *st, F *e), (r, st, e), MPI_Request q = MPI_Request_f2c(*r);
      *e = OF(Wait)(&q, MPI_STATUS_IGNORE))
NAMED(allreduce_, (void *b, void *rb, F *n, F *t, F *p, F *c, F *e), (b, rb, n, t, p, c, e),
      *e = OF(Allreduce)(b, rb, *n, MPI_Type_f2c(*t), MPI_SUM, MPI_Comm_f2c(*c)))

void handles_(F *comm, F *real8) {
  *comm = MPI_Comm_c2f(MPI_COMM_WORLD);
  *real8 = MPI_Type_c2f(MPI_DOUBLE);
}
