/* Counts the messages of an unmodified MPI program. The library is loaded before the MPI library (LD_PRELOAD) and calls
 * MPI's functions by their profiling names (PMPI_, MPI 4.1 section 15.2). It keeps a file for each rank that other
 * processes may read while the program runs.
 *
 * Messages and bytes are counted for each destination:
 *   sends                point to point, in all modes; persistent sends at each start
 *   collectives          by convention, independent of the messages that the library really sends:
 *                        gather, reduce: each rank's part to the root; scatter, broadcast: from the root to each rank;
 *                        allgather, allreduce, reduce-scatter, scan: a rank's own part once, to the next rank;
 *                        all-to-all and neighbourhood: to each rank or neighbour its part
 *   not counted          one-sided and partitioned communication, persistent collectives, collectives between two
 *                        groups, barriers (they carry no data)
 *
 * A rank is identified by its world and its rank there. Worlds that connect later (connect, accept, merge) exchange
 * these identities in MPI_Intercomm_merge. Ranks of derived communicators are translated once for each communicator.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MAGIC 0x31474e49544e5543ull /* "CUNTING1", little endian; see message_counts.py */
#define LATER 2048                  /* destinations of one rank outside its own world */
#define HOST_BYTES 64
#define NOBODY (-1)

struct destination { uint64_t id, messages, bytes; };
struct table { /* message_counts.py reads it: HEADER, DESTINATION */
  uint64_t magic, id, missed, began;
  uint32_t rank, size, used, capacity;
  char host[HOST_BYTES];
  struct destination to[];
};
struct known { MPI_Group group; int size; uint64_t *ids; struct known *next; };
struct ranks { int size, me, neighbours; int *slots, *near; };
struct persistent { MPI_Request request; int slot; uint64_t bytes; struct persistent *next; };

static struct table *table;
static struct known *groups;
static struct ranks *world;
static struct persistent *persistents[1024];
static int key = MPI_KEYVAL_INVALID;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* MPICH's Fortran functions call its C functions, Open MPI's call profiling names. This count keeps a message from
 * being counted twice. */
static __thread int inside; /* depth of calls that MPI makes within a counted call */

/* ------------------------------------------------------------------------------------------------- identities */
static void learn(MPI_Group group, uint64_t *ids, int size) {
  struct known *one = malloc(sizeof *one);
  if (!one) return;
  *one = (struct known){group, size, ids, groups};
  groups = one;
}

static int slot_of(uint64_t id) {
  for (uint32_t i = 0; i < table->used; i++)
    if (table->to[i].id == id) return (int)i;
  if (table->used == table->capacity) return NOBODY;
  table->to[table->used].id = id;
  __atomic_store_n(&table->used, table->used + 1, __ATOMIC_RELEASE);
  return (int)table->used - 1;
}

static int find(MPI_Comm comm, int rank) {
  MPI_Group group;
  int inter = 0, slot = NOBODY;
  PMPI_Comm_test_inter(comm, &inter);
  if ((inter ? PMPI_Comm_remote_group(comm, &group) : PMPI_Comm_group(comm, &group)) != MPI_SUCCESS) return NOBODY;
  for (struct known *one = groups; one && slot == NOBODY; one = one->next) {
    int there = MPI_UNDEFINED;
    PMPI_Group_translate_ranks(group, 1, &rank, one->group, &there);
    if (there != MPI_UNDEFINED && there >= 0) slot = slot_of(one->ids[there]);
  }
  PMPI_Group_free(&group);
  return slot;
}

static struct ranks *ranks_of(MPI_Comm comm) {
  struct ranks *found = NULL;
  int there = 0, inter = 0;
  if (comm == MPI_COMM_WORLD && world) return world;
  if (comm == MPI_COMM_NULL || PMPI_Comm_get_attr(comm, key, &found, &there) != MPI_SUCCESS) return NULL;
  /* An attribute dies with its communicator, so a handle that MPI uses again cannot keep an old translation. */
  if (there) return found;
  pthread_mutex_lock(&lock);
  if (PMPI_Comm_get_attr(comm, key, &found, &there) != MPI_SUCCESS || there || !(found = calloc(1, sizeof *found))) {
    pthread_mutex_unlock(&lock);
    return found;
  }
  PMPI_Comm_test_inter(comm, &inter);
  if (inter) PMPI_Comm_remote_size(comm, &found->size);
  else PMPI_Comm_size(comm, &found->size);
  PMPI_Comm_rank(comm, &found->me);
  found->neighbours = -1;
  found->slots = malloc(sizeof(int) * (found->size + 1));
  for (int i = 0; found->slots && i < found->size; i++) found->slots[i] = -2;
  if (!found->slots || PMPI_Comm_set_attr(comm, key, found) != MPI_SUCCESS) {
    free(found->slots);
    free(found);
    found = NULL;
  } else if (comm == MPI_COMM_WORLD) {
    world = found;
  }
  pthread_mutex_unlock(&lock);
  return found;
}

static int forget_ranks(MPI_Comm comm, int k, void *value, void *extra) {
  struct ranks *gone = value;
  (void)comm, (void)k, (void)extra;
  if (gone == world) world = NULL;
  free(gone->slots);
  free(gone->near);
  free(gone);
  return MPI_SUCCESS;
}

static int slot_in(MPI_Comm comm, int rank) {
  struct ranks *all;
  int slot;
  if (!table || rank < 0) return NOBODY; /* MPI_PROC_NULL, MPI_ROOT */
  if (!(all = ranks_of(comm)) || rank >= all->size) return NOBODY;
  slot = __atomic_load_n(&all->slots[rank], __ATOMIC_RELAXED);
  if (slot == -2) {
    pthread_mutex_lock(&lock);
    slot = find(comm, rank);
    __atomic_store_n(&all->slots[rank], slot, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&lock);
  }
  if (slot == NOBODY) __atomic_add_fetch(&table->missed, 1, __ATOMIC_RELAXED);
  return slot;
}

static void begin(void) {
  const char *folder = getenv("APPLES_COUNT_MESSAGES"), *host = getenv("APPLES_COUNT_HOST");
  uint64_t number = 0, *ids;
  MPI_Group group;
  char path[4096];
  int file, rank, size;
  size_t room;
  struct timespec now;
  if (table || !folder) return;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  PMPI_Comm_size(MPI_COMM_WORLD, &size);
  clock_gettime(CLOCK_REALTIME, &now);
  number = ((uint64_t)now.tv_sec * 1000003 + (uint64_t)now.tv_nsec) * 2654435761u ^ (uint64_t)getpid();
  PMPI_Bcast(&number, 8, MPI_BYTE, 0, MPI_COMM_WORLD);
  number <<= 24; /* high bits: world; low bits: rank in it */
  snprintf(path, sizeof path, "%s/%016llx", folder, (unsigned long long)(number + rank));
  /* A shared mapping: readers do not disturb the rank, and the counts survive its end. */
  file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  room = sizeof *table + (size_t)(size + LATER) * sizeof *table->to;
  /* Reserve the space now: on a full disk, writing to a new page later would kill the program. */
  if (file >= 0 && posix_fallocate(file, 0, (off_t)room) == 0) {
    struct table *made = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (made != MAP_FAILED) {
      made->id = number + rank;
      made->began = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
      made->rank = rank, made->size = size, made->capacity = size + LATER;
      strncpy(made->host, host ? host : "", HOST_BYTES - 1);
      __atomic_store_n(&made->magic, MAGIC, __ATOMIC_RELEASE);
      table = made;
    }
  }
  if (file >= 0) close(file);
  PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, forget_ranks, &key, NULL);
  PMPI_Comm_group(MPI_COMM_WORLD, &group);
  ids = malloc(sizeof *ids * size);
  for (int i = 0; ids && i < size; i++) ids[i] = number + i;
  if (ids) learn(group, ids, size);
}

static void meet(MPI_Comm merged) {
  uint64_t own = table ? table->id : 0, *ids;
  MPI_Group group;
  int size;
  PMPI_Comm_size(merged, &size);
  if (!(ids = calloc(size, sizeof *ids))) abort();
  PMPI_Allgather(&own, 8, MPI_BYTE, ids, 8, MPI_BYTE, merged);
  PMPI_Comm_group(merged, &group);
  pthread_mutex_lock(&lock);
  learn(group, ids, size);
  pthread_mutex_unlock(&lock);
}

/* --------------------------------------------------------------------------------------------------- counting */
static inline void count(int slot, uint64_t bytes) {
  if (slot < 0) return;
  __atomic_add_fetch(&table->to[slot].messages, 1, __ATOMIC_RELAXED);
  __atomic_add_fetch(&table->to[slot].bytes, bytes, __ATOMIC_RELAXED);
}

static inline uint64_t bytes_of(MPI_Count number, MPI_Datatype type) {
  int size = 0;
  if (number <= 0 || type == MPI_DATATYPE_NULL) return 0;
  PMPI_Type_size(type, &size);
  return size > 0 ? (uint64_t)number * (uint64_t)size : 0;
}

static inline void sent(MPI_Comm comm, int rank, MPI_Count number, MPI_Datatype type) {
  if (rank >= 0) count(slot_in(comm, rank), bytes_of(number, type));
}

static struct ranks *members(MPI_Comm comm) { /* of a collective; NULL between two groups */
  int inter = 1;
  if (!table || PMPI_Comm_test_inter(comm, &inter) != MPI_SUCCESS || inter) return NULL;
  return ranks_of(comm);
}

static void to_root(MPI_Comm comm, int root, MPI_Count number, MPI_Datatype type) {
  struct ranks *all = members(comm);
  if (all && root != all->me) sent(comm, root, number, type);
}

static void to_all(MPI_Comm comm, MPI_Count number, MPI_Datatype type) {
  struct ranks *all = members(comm);
  for (int i = 0; all && i < all->size; i++)
    if (i != all->me) sent(comm, i, number, type);
}

static void from_root(MPI_Comm comm, int root, MPI_Count number, MPI_Datatype type) {
  struct ranks *all = members(comm);
  if (all && root == all->me) to_all(comm, number, type);
}

static void to_next(MPI_Comm comm, MPI_Count number, MPI_Datatype type, int round) {
  struct ranks *all = members(comm);
  if (all && all->size > 1 && (round || all->me + 1 < all->size)) sent(comm, (all->me + 1) % all->size, number, type);
}

static int near_of(MPI_Comm comm, struct ranks *all) {
  int kind = MPI_UNDEFINED, more = 0, in = 0, out = 0, weighted = 0;
  if (all->neighbours >= 0) return all->neighbours;
  PMPI_Topo_test(comm, &kind);
  if (kind == MPI_CART) {
    PMPI_Cartdim_get(comm, &more);
    all->near = malloc(sizeof(int) * (2 * more + 1));
    for (int d = 0; all->near && d < more; d++) PMPI_Cart_shift(comm, d, 1, &all->near[2 * d], &all->near[2 * d + 1]);
    all->neighbours = all->near ? 2 * more : 0;
  } else if (kind == MPI_DIST_GRAPH) {
    PMPI_Dist_graph_neighbors_count(comm, &in, &out, &weighted);
    all->near = malloc(sizeof(int) * (in + 2 * out + in + 1));
    if (all->near)
      PMPI_Dist_graph_neighbors(comm, in, all->near + out, all->near + out + in, out, all->near,
                                all->near + out + 2 * in);
    all->neighbours = all->near ? out : 0;
  } else if (kind == MPI_GRAPH) {
    PMPI_Graph_neighbors_count(comm, all->me, &more);
    all->near = malloc(sizeof(int) * (more + 1));
    if (all->near) PMPI_Graph_neighbors(comm, all->me, more, all->near);
    all->neighbours = all->near ? more : 0;
  } else {
    all->neighbours = 0;
  }
  return all->neighbours;
}

static void to_neighbours(MPI_Comm comm, MPI_Count number, MPI_Datatype type) {
  struct ranks *all = members(comm);
  for (int i = 0, n = all ? near_of(comm, all) : 0; i < n; i++) sent(comm, all->near[i], number, type);
}

static int place_in(MPI_Comm comm) { /* this rank's number in a collective, or -1 */
  struct ranks *all = members(comm);
  return all ? all->me : -1;
}

/* Persistent sends are counted when they are started: a table from requests to their messages. */
static struct persistent **place_of(MPI_Request request) {
  uint64_t bits = 0;
  struct persistent **one;
  memcpy(&bits, &request, sizeof request < sizeof bits ? sizeof request : sizeof bits);
  one = &persistents[(bits * 0x9e3779b97f4a7c15ull) >> 54];
  while (*one && (*one)->request != request) one = &(*one)->next;
  return one;
}

static void remember(MPI_Request request, int slot, uint64_t bytes) {
  pthread_mutex_lock(&lock);
  struct persistent **place = place_of(request);
  if (!*place) *place = calloc(1, sizeof **place);
  if (*place) (*place)->request = request, (*place)->slot = slot, (*place)->bytes = bytes;
  pthread_mutex_unlock(&lock);
}

static void started(MPI_Request request) {
  pthread_mutex_lock(&lock);
  struct persistent *one = *place_of(request);
  if (one) count(one->slot, one->bytes);
  pthread_mutex_unlock(&lock);
}

static void forget(MPI_Request request) {
  pthread_mutex_lock(&lock);
  struct persistent **place = place_of(request), *gone = *place;
  if (gone) *place = gone->next;
  free(gone);
  pthread_mutex_unlock(&lock);
}

/* --------------------------------------------------------------------------------------- functions of C programs */
#define CALL(NAME, PARAMETERS, ARGUMENTS, NOTE) \
  int MPI_##NAME PARAMETERS {                   \
    int error;                                  \
    if (!inside++ && table) { NOTE; }           \
    error = PMPI_##NAME ARGUMENTS;              \
    inside--;                                   \
    return error;                               \
  }
/* A function with a count of type int and, from MPI 4 on, its variant with MPI_Count. */
#if MPI_VERSION >= 4
#define BOTH(MACRO, NAME) MACRO(int, int, , NAME) MACRO(MPI_Count, MPI_Aint, _c, NAME)
#else
#define BOTH(MACRO, NAME) MACRO(int, int, , NAME)
#endif

#define SEND(T, D, S, NAME) \
  CALL(NAME##S, (const void *b, T n, MPI_Datatype t, int d, int g, MPI_Comm c), (b, n, t, d, g, c), sent(c, d, n, t))
BOTH(SEND, Send) BOTH(SEND, Bsend) BOTH(SEND, Ssend) BOTH(SEND, Rsend)

#define ISEND(T, D, S, NAME)                                                                       \
  CALL(NAME##S, (const void *b, T n, MPI_Datatype t, int d, int g, MPI_Comm c, MPI_Request *r), \
       (b, n, t, d, g, c, r), sent(c, d, n, t))
BOTH(ISEND, Isend) BOTH(ISEND, Ibsend) BOTH(ISEND, Issend) BOTH(ISEND, Irsend)

#define SEND_INIT(T, D, S, NAME)                                                                                    \
  int MPI_##NAME##S(const void *b, T n, MPI_Datatype t, int d, int g, MPI_Comm c, MPI_Request *r) {              \
    int error = PMPI_##NAME##S(b, n, t, d, g, c, r);                                                             \
    if (!inside && table && error == MPI_SUCCESS && d >= 0) remember(*r, slot_in(c, d), bytes_of(n, t)); \
    return error;                                                                                                \
  }
BOTH(SEND_INIT, Send_init) BOTH(SEND_INIT, Bsend_init) BOTH(SEND_INIT, Ssend_init) BOTH(SEND_INIT, Rsend_init)

CALL(Start, (MPI_Request * r), (r), started(*r))
CALL(Startall, (int n, MPI_Request r[]), (n, r), for (int i = 0; i < n; i++) started(r[i]))
CALL(Request_free, (MPI_Request * r), (r), forget(*r))

#define SENDRECV(T, D, S, NAME)                                                                                         \
  CALL(NAME##S,                                                                                                      \
       (const void *b, T n, MPI_Datatype t, int d, int g, void *rb, T rn, MPI_Datatype rt, int s, int rg,            \
        MPI_Comm c, MPI_Status *st),                                                                                 \
       (b, n, t, d, g, rb, rn, rt, s, rg, c, st), sent(c, d, n, t))
BOTH(SENDRECV, Sendrecv)
#define REPLACE(T, D, S, NAME)                                                                                   \
  CALL(NAME##S, (void *b, T n, MPI_Datatype t, int d, int g, int s, int rg, MPI_Comm c, MPI_Status *st),      \
       (b, n, t, d, g, s, rg, c, st), sent(c, d, n, t))
BOTH(REPLACE, Sendrecv_replace)
#if MPI_VERSION >= 4
#define ISENDRECV(T, D, S, NAME)                                                                                        \
  CALL(NAME##S,                                                                                                      \
       (const void *b, T n, MPI_Datatype t, int d, int g, void *rb, T rn, MPI_Datatype rt, int s, int rg,            \
        MPI_Comm c, MPI_Request *r),                                                                                 \
       (b, n, t, d, g, rb, rn, rt, s, rg, c, r), sent(c, d, n, t))
BOTH(ISENDRECV, Isendrecv)
#define IREPLACE(T, D, S, NAME)                                                                                  \
  CALL(NAME##S, (void *b, T n, MPI_Datatype t, int d, int g, int s, int rg, MPI_Comm c, MPI_Request *r),      \
       (b, n, t, d, g, s, rg, c, r), sent(c, d, n, t))
BOTH(IREPLACE, Isendrecv_replace)
#endif

/* Collectives: each blocking and nonblocking, which differ in the request at the end. */
#define CUT(...) __VA_ARGS__
#define PAIR(NAME, INAME, PARAMETERS, ARGUMENTS, NOTE) \
  CALL(NAME, (CUT PARAMETERS), (CUT ARGUMENTS), NOTE)  \
  CALL(INAME, (CUT PARAMETERS, MPI_Request * q), (CUT ARGUMENTS, q), NOTE)

#define ROOTED(T, D, S, _)                                                                                       \
  PAIR(Bcast##S, Ibcast##S, (void *b, T n, MPI_Datatype t, int o, MPI_Comm c), (b, n, t, o, c),                  \
       from_root(c, o, n, t))                                                                                    \
  PAIR(Gather##S, Igather##S,                                                                                    \
       (const void *b, T n, MPI_Datatype t, void *rb, T rn, MPI_Datatype rt, int o, MPI_Comm c),                 \
       (b, n, t, rb, rn, rt, o, c), to_root(c, o, n, t))                                                         \
  PAIR(Gatherv##S, Igatherv##S,                                                                                  \
       (const void *b, T n, MPI_Datatype t, void *rb, const T rn[], const D rd[], MPI_Datatype rt, int o,        \
        MPI_Comm c),                                                                                             \
       (b, n, t, rb, rn, rd, rt, o, c), to_root(c, o, n, t))                                                     \
  PAIR(Scatter##S, Iscatter##S,                                                                                  \
       (const void *b, T n, MPI_Datatype t, void *rb, T rn, MPI_Datatype rt, int o, MPI_Comm c),                 \
       (b, n, t, rb, rn, rt, o, c), from_root(c, o, n, t))                                                       \
  PAIR(Scatterv##S, Iscatterv##S,                                                                                \
       (const void *b, const T n[], const D d[], MPI_Datatype t, void *rb, T rn, MPI_Datatype rt, int o,         \
        MPI_Comm c),                                                                                             \
       (b, n, d, t, rb, rn, rt, o, c),                                                                           \
       for (int me = place_in(c), i = 0; me == o && me >= 0 && i < ranks_of(c)->size; i++) if (i != me)          \
           sent(c, i, n[i], t))                                                                                  \
  PAIR(Reduce##S, Ireduce##S, (const void *b, void *rb, T n, MPI_Datatype t, MPI_Op p, int o, MPI_Comm c),       \
       (b, rb, n, t, p, o, c), to_root(c, o, n, t))
BOTH(ROOTED, _)

#define ROUND(T, D, S, _)                                                                                        \
  PAIR(Allreduce##S, Iallreduce##S, (const void *b, void *rb, T n, MPI_Datatype t, MPI_Op p, MPI_Comm c),        \
       (b, rb, n, t, p, c), to_next(c, n, t, 1))                                                                 \
  PAIR(Scan##S, Iscan##S, (const void *b, void *rb, T n, MPI_Datatype t, MPI_Op p, MPI_Comm c),                  \
       (b, rb, n, t, p, c), to_next(c, n, t, 0))                                                                 \
  PAIR(Exscan##S, Iexscan##S, (const void *b, void *rb, T n, MPI_Datatype t, MPI_Op p, MPI_Comm c),              \
       (b, rb, n, t, p, c), to_next(c, n, t, 0))                                                                 \
  PAIR(Reduce_scatter_block##S, Ireduce_scatter_block##S,                                                        \
       (const void *b, void *rb, T n, MPI_Datatype t, MPI_Op p, MPI_Comm c), (b, rb, n, t, p, c),                \
       if (place_in(c) >= 0) to_next(c, (MPI_Count)n * ranks_of(c)->size, t, 1))                                 \
  PAIR(Reduce_scatter##S, Ireduce_scatter##S,                                                                    \
       (const void *b, void *rb, const T n[], MPI_Datatype t, MPI_Op p, MPI_Comm c), (b, rb, n, t, p, c),        \
       if (place_in(c) >= 0) {                                                                                   \
         MPI_Count all = 0;                                                                                      \
         for (int i = 0; i < ranks_of(c)->size; i++) all += n[i];                                                \
         to_next(c, all, t, 1);                                                                                  \
       })                                                                                                        \
  PAIR(Allgather##S, Iallgather##S,                                                                              \
       (const void *b, T n, MPI_Datatype t, void *rb, T rn, MPI_Datatype rt, MPI_Comm c),                        \
       (b, n, t, rb, rn, rt, c), to_next(c, rn, rt, 1)) /* the part received from a rank is the part it sends */ \
  PAIR(Allgatherv##S, Iallgatherv##S,                                                                            \
       (const void *b, T n, MPI_Datatype t, void *rb, const T rn[], const D rd[], MPI_Datatype rt, MPI_Comm c),  \
       (b, n, t, rb, rn, rd, rt, c), if (place_in(c) >= 0) to_next(c, rn[place_in(c)], rt, 1))
BOTH(ROUND, _)

#define TO_EACH(T, D, S, _)                                                                                      \
  PAIR(Alltoall##S, Ialltoall##S,                                                                                \
       (const void *b, T n, MPI_Datatype t, void *rb, T rn, MPI_Datatype rt, MPI_Comm c),                        \
       (b, n, t, rb, rn, rt, c), to_all(c, rn, rt))                                                              \
  PAIR(Alltoallv##S, Ialltoallv##S,                                                                              \
       (const void *b, const T n[], const D d[], MPI_Datatype t, void *rb, const T rn[], const D rd[],           \
        MPI_Datatype rt, MPI_Comm c),                                                                            \
       (b, n, d, t, rb, rn, rd, rt, c),                                                                          \
       for (int me = place_in(c), i = 0; me >= 0 && i < ranks_of(c)->size; i++) if (i != me)                     \
           sent(c, i, b == MPI_IN_PLACE ? rn[i] : n[i], b == MPI_IN_PLACE ? rt : t))                             \
  PAIR(Alltoallw##S, Ialltoallw##S,                                                                              \
       (const void *b, const T n[], const D d[], const MPI_Datatype t[], void *rb, const T rn[], const D rd[],   \
        const MPI_Datatype rt[], MPI_Comm c),                                                                    \
       (b, n, d, t, rb, rn, rd, rt, c),                                                                          \
       for (int me = place_in(c), i = 0; me >= 0 && i < ranks_of(c)->size; i++) if (i != me)                     \
           sent(c, i, b == MPI_IN_PLACE ? rn[i] : n[i], b == MPI_IN_PLACE ? rt[i] : t[i]))                       \
  PAIR(Neighbor_allgather##S, Ineighbor_allgather##S,                                                            \
       (const void *b, T n, MPI_Datatype t, void *rb, T rn, MPI_Datatype rt, MPI_Comm c),                        \
       (b, n, t, rb, rn, rt, c), to_neighbours(c, n, t))                                                         \
  PAIR(Neighbor_allgatherv##S, Ineighbor_allgatherv##S,                                                          \
       (const void *b, T n, MPI_Datatype t, void *rb, const T rn[], const D rd[], MPI_Datatype rt, MPI_Comm c),  \
       (b, n, t, rb, rn, rd, rt, c), to_neighbours(c, n, t))                                                     \
  PAIR(Neighbor_alltoall##S, Ineighbor_alltoall##S,                                                              \
       (const void *b, T n, MPI_Datatype t, void *rb, T rn, MPI_Datatype rt, MPI_Comm c),                        \
       (b, n, t, rb, rn, rt, c), to_neighbours(c, n, t))                                                         \
  PAIR(Neighbor_alltoallv##S, Ineighbor_alltoallv##S,                                                            \
       (const void *b, const T n[], const D d[], MPI_Datatype t, void *rb, const T rn[], const D rd[],           \
        MPI_Datatype rt, MPI_Comm c),                                                                            \
       (b, n, d, t, rb, rn, rd, rt, c),                                                                          \
       for (int i = 0, e = place_in(c) < 0 ? 0 : near_of(c, ranks_of(c)); i < e; i++)                            \
           sent(c, ranks_of(c)->near[i], n[i], t))                                                               \
  PAIR(Neighbor_alltoallw##S, Ineighbor_alltoallw##S,                                                            \
       (const void *b, const T n[], const MPI_Aint d[], const MPI_Datatype t[], void *rb, const T rn[],          \
        const MPI_Aint rd[], const MPI_Datatype rt[], MPI_Comm c),                                               \
       (b, n, d, t, rb, rn, rd, rt, c),                                                                          \
       for (int i = 0, e = place_in(c) < 0 ? 0 : near_of(c, ranks_of(c)); i < e; i++)                            \
           sent(c, ranks_of(c)->near[i], n[i], t[i]))
BOTH(TO_EACH, _)

/* Initialisation, and worlds that connect. */
int MPI_Init(int *a, char ***v) {
  int error = PMPI_Init(a, v);
  begin();
  return error;
}
int MPI_Init_thread(int *a, char ***v, int wanted, int *got) {
  int error = PMPI_Init_thread(a, v, wanted, got);
  begin();
  return error;
}
int MPI_Intercomm_merge(MPI_Comm inter, int high, MPI_Comm *merged) {
  int error = PMPI_Intercomm_merge(inter, high, merged);
  if (error == MPI_SUCCESS && !inside && getenv("APPLES_COUNT_MESSAGES")) meet(*merged);
  return error;
}

/* --------------------------------------------------------------------------------- functions of Fortran programs */
/* A library's own Fortran functions call its C ones, whose wrappers are above, or their profiling names: `inside` keeps
 * a message from being counted twice. All arguments are addresses; the library's function is there when it is called. */
typedef MPI_Fint F;
#define FORTRAN(NAME, PARAMETERS, ARGUMENTS, NOTE)            \
  extern void pmpi_##NAME PARAMETERS __attribute__((weak));   \
  void mpi_##NAME PARAMETERS {                                \
    if (!inside++ && table) { NOTE; }                         \
    pmpi_##NAME ARGUMENTS;                                    \
    inside--;                                                 \
  }
#define C MPI_Comm_f2c(*c)
#define TYPE MPI_Type_f2c(*t)
#define FSEND(NAME) FORTRAN(NAME, (void *b, F *n, F *t, F *d, F *g, F *c, F *e), (b, n, t, d, g, c, e), sent(C, *d, *n, TYPE))
FSEND(send_) FSEND(bsend_) FSEND(ssend_) FSEND(rsend_)
#define FISEND(NAME) \
  FORTRAN(NAME, (void *b, F *n, F *t, F *d, F *g, F *c, F *r, F *e), (b, n, t, d, g, c, r, e), sent(C, *d, *n, TYPE))
FISEND(isend_) FISEND(ibsend_) FISEND(issend_) FISEND(irsend_)
FORTRAN(sendrecv_, (void *b, F *n, F *t, F *d, F *g, void *rb, F *rn, F *rt, F *s, F *rg, F *c, F *st, F *e),
        (b, n, t, d, g, rb, rn, rt, s, rg, c, st, e), sent(C, *d, *n, TYPE))
FORTRAN(sendrecv_replace_, (void *b, F *n, F *t, F *d, F *g, F *s, F *rg, F *c, F *st, F *e),
        (b, n, t, d, g, s, rg, c, st, e), sent(C, *d, *n, TYPE))
#define FSEND_INIT(NAME)                                                                                 \
  extern void pmpi_##NAME(void *, F *, F *, F *, F *, F *, F *, F *) __attribute__((weak));              \
  void mpi_##NAME(void *b, F *n, F *t, F *d, F *g, F *c, F *r, F *e) {                                   \
    inside++;                                                                                            \
    pmpi_##NAME(b, n, t, d, g, c, r, e);                                                                 \
    inside--;                                                                                            \
    if (table && *d >= 0) remember(MPI_Request_f2c(*r), slot_in(C, *d), bytes_of(*n, TYPE));             \
  }
FSEND_INIT(send_init_) FSEND_INIT(bsend_init_) FSEND_INIT(ssend_init_) FSEND_INIT(rsend_init_)
FORTRAN(start_, (F * r, F *e), (r, e), started(MPI_Request_f2c(*r)))
FORTRAN(startall_, (F * n, F r[], F *e), (n, r, e), for (int i = 0; i < *n; i++) started(MPI_Request_f2c(r[i])))
FORTRAN(request_free_, (F * r, F *e), (r, e), forget(MPI_Request_f2c(*r)))
FORTRAN(bcast_, (void *b, F *n, F *t, F *o, F *c, F *e), (b, n, t, o, c, e), from_root(C, *o, *n, TYPE))
FORTRAN(reduce_, (void *b, void *rb, F *n, F *t, F *p, F *o, F *c, F *e), (b, rb, n, t, p, o, c, e),
        to_root(C, *o, *n, TYPE))
FORTRAN(allreduce_, (void *b, void *rb, F *n, F *t, F *p, F *c, F *e), (b, rb, n, t, p, c, e),
        to_next(C, *n, TYPE, 1))
#define FROOT(NAME, NOTE)                                                                                 \
  FORTRAN(NAME, (void *b, F *n, F *t, void *rb, F *rn, F *rt, F *o, F *c, F *e), (b, n, t, rb, rn, rt, o, c, e), NOTE)
FROOT(gather_, to_root(C, *o, *n, TYPE)) FROOT(scatter_, from_root(C, *o, *n, TYPE))
#define FALL(NAME, NOTE) \
  FORTRAN(NAME, (void *b, F *n, F *t, void *rb, F *rn, F *rt, F *c, F *e), (b, n, t, rb, rn, rt, c, e), NOTE)
FALL(allgather_, to_next(C, *rn, MPI_Type_f2c(*rt), 1)) FALL(alltoall_, to_all(C, *rn, MPI_Type_f2c(*rt)))
FORTRAN(gatherv_, (void *b, F *n, F *t, void *rb, F *rn, F *rd, F *rt, F *o, F *c, F *e),
        (b, n, t, rb, rn, rd, rt, o, c, e), to_root(C, *o, *n, TYPE))
FORTRAN(allgatherv_, (void *b, F *n, F *t, void *rb, F *rn, F *rd, F *rt, F *c, F *e),
        (b, n, t, rb, rn, rd, rt, c, e), if (place_in(C) >= 0) to_next(C, rn[place_in(C)], MPI_Type_f2c(*rt), 1))

extern void pmpi_init_(F *) __attribute__((weak));
void mpi_init_(F *e) {
  pmpi_init_(e);
  begin();
}
extern void pmpi_init_thread_(F *, F *, F *) __attribute__((weak));
void mpi_init_thread_(F *wanted, F *got, F *e) {
  pmpi_init_thread_(wanted, got, e);
  begin();
}
