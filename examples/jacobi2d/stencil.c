/* One sweep of the five-point stencil over rows first .. last - 1 of a strip (kernels.py), or several
   sweeps in one pass.

   Compiled without contraction and without -ffast-math: the bits are those of the numpy kernel.
   Work goes by vectors as wide as the CPU's registers, a cache line of eight numbers at most. When the strip is larger than the caches, `streaming`
   writes whole lines past them, which saves reading the lines of `new` first: 84 % of memcpy
   instead of 74 % at 4000 x 4000 with AVX-512. A strip that stays in cache must not be written so. */

#include <math.h>
#include <stddef.h>
#include <string.h>

#if defined(__AVX__)
#include <immintrin.h>
#endif

#define LINE 8

/* Numbers in a register. Wider ones work, through memory: twice the time of a pass with AVX2. */
#if defined(__AVX512F__)
#define WIDTH 8
#elif defined(__AVX__)
#define WIDTH 4
#else
#define WIDTH 2
#endif

typedef double vector_t __attribute__((vector_size(WIDTH * sizeof(double))));
typedef ptrdiff_t index_t;

#define INLINE static inline __attribute__((always_inline))

INLINE vector_t load(const double *from)
{
    vector_t vector;
    memcpy(&vector, from, sizeof vector);
    return vector;
}

/* `to` lies on a cache line, or WIDTH numbers on: kernels.allocate sees to it. */
INLINE void store(double *to, vector_t vector, int streaming)
{
#if defined(__AVX512F__)
    if (streaming) {
        _mm512_stream_pd(to, (__m512d)vector);
        return;
    }
#elif defined(__AVX__)
    if (streaming) {
        _mm256_stream_pd(to, (__m256d)vector);
        return;
    }
#endif
    memcpy(to, &vector, sizeof vector);
}

INLINE void sweep_row(const double *restrict north, const double *restrict here,
                      const double *restrict south, const double *restrict forcing,
                      double *restrict out, index_t columns, int streaming)
{
    index_t j = 0;
    for (; j + WIDTH <= columns; j += WIDTH) {
        vector_t value = 0.25 * ((load(north + j) + load(south + j)) +
                               (load(here + j - 1) + load(here + j + 1)));
        if (forcing)
            value += load(forcing + j);
        store(out + j, value, streaming);
    }
    for (; j < columns; j++) {
        double value = 0.25 * ((north[j] + south[j]) + (here[j - 1] + here[j + 1]));
        out[j] = forcing ? value + forcing[j] : value;
    }
}

/* Raise `largest`, one maximum per column, by the changes of a row that is still in cache: maxima
   of columns vectorise, a single running one does not, for it may not be reordered. */
INLINE void widen(const double *restrict before, const double *restrict after,
                  double *restrict largest, index_t columns)
{
    for (index_t j = 0; j < columns; j++) {
        double size = fabs(after[j] - before[j]);
        largest[j] = size > largest[j] ? size : largest[j];
    }
}

/* `now`, `new` and `forcing` point at the first unknown of row 0; `forcing` and `largest` may be
   null; each case is written out, so that the compiler makes a loop of its own for it. */
void sweep(const double *now, double *new, const double *forcing, double *largest, index_t pitch,
           index_t columns, index_t first, index_t last, int streaming)
{
    for (index_t i = first; i < last; i++) {
        const double *here = now + i * pitch;
        const double *force = forcing ? forcing + i * pitch : NULL;
        double *out = new + i * pitch;
        if (largest || !streaming)
            if (force)
                sweep_row(here - pitch, here, here + pitch, force, out, columns, 0);
            else
                sweep_row(here - pitch, here, here + pitch, NULL, out, columns, 0);
        else if (force)
            sweep_row(here - pitch, here, here + pitch, force, out, columns, 1);
        else
            sweep_row(here - pitch, here, here + pitch, NULL, out, columns, 1);
        if (largest)
            widen(here, out, largest, columns);
    }
#if defined(__AVX__)
    if (streaming)
        _mm_sfence();
#endif
}

/* Several sweeps in one pass over the strip (time blocking, as a wavefront: Wolfe 1986, Wellein et al.
   2009). Level t is the grid after t sweeps, level 0 is `now`. While the pass goes down, level t lags one
   row behind level t - 1, of which it needs three; so the levels between the first and the last live in
   rings of RING rows that stay in the second-level cache, and memory is read and written once a pass.

   Two rows are made at a time, which loads four rows where one at a time loads six: 8 sweeps at
   4000 x 4000 with AVX-512 under others' load 155 % of memcpy a row at a time, 187 % in pairs, 213 %
   with the shifts below. */

#define RING 4
/* Four rows of seven levels are then half a MiB, which fits the second-level cache however wide
   the grid is. */
#define TILE 2048
#define RING_PITCH (TILE + 4 * LINE)

#if defined(__AVX512F__)
/* What lies one number to the west or east of a line, from lines in registers: a load there would touch
   two cache lines. */
#define WEST(before, here) ((vector_t)_mm512_alignr_epi64((__m512i)(here), (__m512i)(before), 7))
#define EAST(here, after) ((vector_t)_mm512_alignr_epi64((__m512i)(after), (__m512i)(here), 1))
#endif

/* Make the rows below `north` and above `south`, which are `here` and `next` before the sweep. */
INLINE void sweep_pair(const double *restrict north, const double *restrict here,
                       const double *restrict next, const double *restrict south,
                       const double *restrict forcing, const double *restrict next_forcing,
                       double *restrict out, double *restrict next_out, index_t columns,
                       int streaming)
{
    index_t j = 0;
#if defined(__AVX512F__)
    vector_t west = load(here - WIDTH), middle = load(here);
    vector_t next_west = load(next - WIDTH), next_middle = load(next);
#endif
    for (; j + WIDTH <= columns; j += WIDTH) {
#if defined(__AVX512F__)
        vector_t east = load(here + j + WIDTH), next_east = load(next + j + WIDTH);
        vector_t value = 0.25 * ((load(north + j) + next_middle) +
                               (WEST(west, middle) + EAST(middle, east)));
        vector_t next_value = 0.25 * ((middle + load(south + j)) + (WEST(next_west, next_middle) +
                                                                  EAST(next_middle, next_east)));
        west = middle, middle = east;
        next_west = next_middle, next_middle = next_east;
#else
        vector_t value = 0.25 * ((load(north + j) + load(next + j)) +
                               (load(here + j - 1) + load(here + j + 1)));
        vector_t next_value = 0.25 * ((load(here + j) + load(south + j)) +
                                    (load(next + j - 1) + load(next + j + 1)));
#endif
        if (forcing) {
            value += load(forcing + j);
            next_value += load(next_forcing + j);
        }
        store(out + j, value, streaming);
        store(next_out + j, next_value, streaming);
    }
    for (; j < columns; j++) {
        double value = 0.25 * ((north[j] + next[j]) + (here[j - 1] + here[j + 1]));
        double next_value = 0.25 * ((here[j] + south[j]) + (next[j - 1] + next[j + 1]));
        out[j] = forcing ? value + forcing[j] : value;
        next_out[j] = forcing ? next_value + next_forcing[j] : next_value;
    }
}

/* A strip, and beside it as many rows of its neighbours as there are sweeps; no rows where the strip is at
   the edge of the grid, whose fixed values are then rows 0 and rows + 1 of `now`. Pointers are to the first
   unknown: `above` of row 0, `below` of row rows + 1, everything else of row 0. */
struct strip {
    const double *now, *above, *below;
    const double *forcing, *forcing_above, *forcing_below;
    double *new, *largest, *ring;
    index_t pitch, columns, rows;
    int sweeps, streaming;
};

/* Columns first .. last - 1 of a strip: one tile. */
struct tile {
    index_t first, last;
};

INLINE const double *row_of(const struct strip *strip, const double *own, const double *above,
                            const double *below, index_t row)
{
    if (row < 1 && above)
        return above + row * strip->pitch;
    if (row > strip->rows && below)
        return below + (row - strip->rows - 1) * strip->pitch;
    return own + row * strip->pitch;
}

/* Return where column 0 of a level's row would be, were the ring as wide as the strip. */
INLINE double *ring_row(const struct strip *strip, struct tile tile, int level, index_t row)
{
    index_t place = (level - 1) * RING + (row & (RING - 1));
    return strip->ring + place * RING_PITCH + 2 * LINE - tile.first;
}

INLINE const double *level_row(const struct strip *strip, struct tile tile, int level, index_t row)
{
    int fixed = (row < 1 && !strip->above) || (row > strip->rows && !strip->below);
    if (level == 0 || fixed)
        return row_of(strip, strip->now, strip->above, strip->below, row);
    return ring_row(strip, tile, level, row);
}

/* Return where a row of a level is made. A row of the ring needs the fixed values at its sides. */
INLINE double *made_row(const struct strip *strip, struct tile tile, int level, index_t row)
{
    if (level == strip->sweeps)
        return strip->new + row * strip->pitch;
    const double *before = row_of(strip, strip->now, strip->above, strip->below, row);
    double *made = ring_row(strip, tile, level, row);
    if (tile.first == 0)
        made[-1] = before[-1];
    if (tile.last + LINE >= strip->columns)
        made[strip->columns] = before[strip->columns];
    return made;
}

/* Make one row of a level, or two. */
INLINE void make_rows(const struct strip *strip, struct tile tile, int level, index_t row, int two)
{
    int whole = level == strip->sweeps;
    /* In the ring a tile reaches a line into its neighbours: a column a sweep of that becomes
       wrong, which allows LINE + 1 sweeps. */
    index_t first = whole || tile.first == 0 ? tile.first : tile.first - LINE;
    index_t last = whole ? tile.last : tile.last + LINE;
    index_t count = (last < strip->columns ? last : strip->columns) - first;
    const double *at[4] = {NULL}, *forcing[2] = {NULL};
    double *made[2] = {NULL};
    for (int k = 0; k < 3 + two; k++)
        at[k] = level_row(strip, tile, level - 1, row - 1 + k) + first;
    for (int k = 0; k < 1 + two; k++) {
        made[k] = made_row(strip, tile, level, row + k) + first;
        if (strip->forcing)
            forcing[k] = row_of(strip, strip->forcing, strip->forcing_above, strip->forcing_below,
                                row + k) + first;
    }
    int streaming = whole && strip->streaming && !strip->largest;
#define MAKE(force, next_force, streams)                                                           \
    (two ? sweep_pair(at[0], at[1], at[2], at[3], force, next_force, made[0], made[1], count,      \
                      streams)                                                                     \
         : sweep_row(at[0], at[1], at[2], force, made[0], count, streams))
    if (strip->forcing && streaming)
        MAKE(forcing[0], forcing[1], 1);
    else if (strip->forcing)
        MAKE(forcing[0], forcing[1], 0);
    else if (streaming)
        MAKE(NULL, NULL, 1);
    else
        MAKE(NULL, NULL, 0);
#undef MAKE
    if (whole && strip->largest)
        for (int k = 0; k < 1 + two; k++)
            widen(at[1 + k], made[k], strip->largest + first, count);
}

/* Make the grid after `sweeps` sweeps; `largest` may be null, else it is raised by the changes of the last
   one. Level t makes sweeps - t rows of each neighbour too, which level t + 1 needs. */
void sweep_wavefront(const struct strip *strip)
{
    struct tile tile;
    int sweeps = strip->sweeps;
    for (tile.first = 0; tile.first < strip->columns; tile.first += TILE) {
        tile.last = tile.first + TILE < strip->columns ? tile.first + TILE : strip->columns;
        index_t front = strip->above ? 2 - sweeps : 1;
        for (; front <= strip->rows + sweeps - 1; front += 2)
            for (int level = 1; level <= sweeps; level++) {
                index_t beyond = sweeps - level, row = front - (level - 1);
                index_t least = strip->above ? 1 - beyond : 1;
                index_t most = strip->below ? strip->rows + beyond : strip->rows;
                if (row >= least && row + 1 <= most)
                    make_rows(strip, tile, level, row, 1);
                else if (row >= least && row <= most)
                    make_rows(strip, tile, level, row, 0);
                else if (row + 1 >= least && row + 1 <= most)
                    make_rows(strip, tile, level, row + 1, 0);
            }
    }
#if defined(__AVX__)
    if (strip->streaming)
        _mm_sfence();
#endif
}

#if defined(_OPENMP)
#include <omp.h>

/* The same by some threads that take bands of the strip's rows as they get to it, so that one which others' work
   holds up holds up nobody. What a band needs of the others it finds in `now`, which nobody writes: their rows are
   made twice, as those of neighbours are. Each thread has a ring, each band its own maxima. */
void sweep_bands(const struct strip *bands, int count, double *const *rings, int threads)
{
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (int k = 0; k < count; k++) {
        struct strip band = bands[k];
        band.ring = rings[omp_get_thread_num()];
        sweep_wavefront(&band);
    }
}
#endif
