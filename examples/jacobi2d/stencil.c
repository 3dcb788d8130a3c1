/* One sweep of the five-point stencil over rows first .. last - 1 of a strip (kernels.py).

   Compiled without contraction and without -ffast-math: the bits are those of the numpy kernel.
   Work goes by cache lines of eight numbers. When the strip is larger than the caches, `streaming`
   writes whole lines past them, which saves reading the lines of `new` first: 84 % of memcpy
   instead of 74 % at 4000 x 4000 with AVX-512. A strip that stays in cache must not be written so. */

#include <math.h>
#include <stddef.h>
#include <string.h>

#if defined(__AVX__)
#include <immintrin.h>
#endif

#define LINE 8

typedef double line_t __attribute__((vector_size(LINE * sizeof(double))));
typedef ptrdiff_t index_t;

#define INLINE static inline __attribute__((always_inline))

INLINE line_t load(const double *from)
{
    line_t line;
    memcpy(&line, from, sizeof line);
    return line;
}

/* `to` lies on a cache line: kernels.allocate sees to it. */
INLINE void store(double *to, line_t line, int streaming)
{
    if (!streaming) {
        memcpy(to, &line, sizeof line);
        return;
    }
#if defined(__AVX512F__)
    __m512d whole;
    memcpy(&whole, &line, sizeof whole);
    _mm512_stream_pd(to, whole);
#elif defined(__AVX__)
    __m256d half[2];
    memcpy(half, &line, sizeof half);
    _mm256_stream_pd(to, half[0]);
    _mm256_stream_pd(to + 4, half[1]);
#else
    memcpy(to, &line, sizeof line);
#endif
}

INLINE void sweep_row(const double *restrict north, const double *restrict here,
                      const double *restrict south, const double *restrict forcing,
                      double *restrict out, index_t columns, int streaming)
{
    index_t j = 0;
    for (; j + LINE <= columns; j += LINE) {
        line_t value = 0.25 * ((load(north + j) + load(south + j)) +
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
