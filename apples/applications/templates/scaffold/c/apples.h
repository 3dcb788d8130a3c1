/* apples.h: a program's side of the application protocol, for C and C++; the module apples.f90 is its Fortran face.
 *
 *     #define APPLES_IMPLEMENTATION            (in one file of the program, before anything else)
 *     #include "apples.h"
 *
 *     apples_begin(argc, argv, NULL, NULL, NULL, "grid=100 iterations=200");
 *     ... apples_rows() rows of apples_integer("grid") points, and a row beyond at both ends
 *     while (apples_iterate()) {
 *         apples_exchange(u, row_bytes, 1);
 *         ... a sweep over u
 *     }
 *     apples_result(first_own_row, apples_rows(), columns, columns, "f8");
 *     apples_end();
 *
 * The same lines run under an agent, which gives every host its rows; by hand (./program --set grid=50,
 * mpiexec -n 3 ./program), where every rank gets as many; as the sequential reference; and to be calibrated. A
 * program in C or Fortran keeps the hosts it was started on. It needs MPI and POSIX, and nothing else.
 *
 * A process has one task. Every rank calls everything here as often as the others, in the same order. Whatever is
 * wrong ends all ranks: the agent hears one line, or who started the program by hand reads it.
 */
#ifndef APPLES_H
#define APPLES_H

#if defined(APPLES_IMPLEMENTATION) && !defined(_DEFAULT_SOURCE)
#define _DEFAULT_SOURCE 1 /* -std=c99 hides POSIX */
#endif
#include <mpi.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#define APPLES_NORETURN __attribute__((noreturn))
#else
#define APPLES_NORETURN
#endif

/* ---- What is asked ------------------------------------------------------------------------------------------- */

/* Takes up the task. `rows`, `columns` and `iterations` name the parameters that say how many rows are shared out,
 * how many points a row has and how many iterations there are; NULL or "": "grid", as many as rows, "iterations".
 * `defaults` are the parameters of a program that is started by hand, as "name=value name=value"; --set name=value
 * among the arguments comes before them. What a default looks like (7, 1.5, fast) is what kind of value is taken.
 * MPI is initialised where the program has not done so. */
void apples_begin(int argc, char **argv, const char *rows, const char *columns, const char *iterations,
                  const char *defaults);

/* The template's parameters, as the user has set them. A text stays valid. */
long apples_integer(const char *name);
double apples_number(const char *name);
const char *apples_text(const char *name);

MPI_Comm apples_comm(void);
int apples_fortran_comm(void); /* the same, as MPI's Fortran bindings have it */
int apples_rank(void);
int apples_size(void);
int apples_above(void); /* the rank whose rows come before; MPI_PROC_NULL where there is none */
int apples_below(void);
long apples_first_row(void); /* this rank's rows: the first, counted from 0, and how many */
long apples_rows(void);
const char *apples_layout(int rank, long *first_row, long *rows); /* those of any rank, and its host */
const char *apples_host(void);
const char *apples_implementation(void); /* of the template, to be run on this host; "": the only one */
int apples_threads(void); /* by how many this rank is to compute: 1, unless that implementation is by threads */
const char *apples_output(void);         /* a directory to write to, or NULL */
int apples_save(void);                   /* whether the result is to be kept there, which apples_result does */

/* ---- The loop ------------------------------------------------------------------------------------------------ */

/* Whether there is an iteration to do. The measured time begins at the first call. Who leaves the loop early has
 * done the iteration in which it does. */
int apples_iterate(void);
long apples_iteration(void); /* how many are done: in the loop, the number of this one, from 0 */

/* Sends the rows at the strip's edges to the neighbours, and takes theirs into the `halo` rows beyond: an array has
 * `halo` rows, the rank's own and as many again, one after the other, of `row_bytes` each. */
void apples_exchange(void *array, size_t row_bytes, int halo);

double apples_allreduce(double value, const char *operation); /* "max", "min" or "sum" over all ranks */

/* Messages of the program's own stand between these two; all else in an iteration is computing. */
void apples_communicating(void);
void apples_computing(void);

void apples_residual(double residual); /* what the next report says */

/* ---- What comes out ------------------------------------------------------------------------------------------ */

/* Says what came out: this rank's rows without halo and boundary, `stride` elements from one row to the next, of
 * `type` "f4", "f8", "i4" or "i8". They go through the first rank, which never holds them all, into the digest that
 * verifies the run, and into result.npy where the user asked to keep it. */
void apples_result(const void *first, long rows, long columns, long stride, const char *type);

APPLES_NORETURN void apples_fail(const char *message); /* ends all ranks, for a reason of the program's own */
void apples_end(void); /* says that all is done; finalises MPI where apples_begin initialised it */

#ifdef __cplusplus
}
#endif
#endif /* APPLES_H */

/* ============================================================================================================= */

#if defined(APPLES_IMPLEMENTATION) && !defined(APPLES_IMPLEMENTED)
#define APPLES_IMPLEMENTED

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef CLOCK_THREAD_CPUTIME_ID
#error "include apples.h, with APPLES_IMPLEMENTATION, before any other header"
#endif

#ifdef __GNUC__
#define APPLES_PRINTS(text, first) __attribute__((format(printf, text, first)))
#else
#define APPLES_PRINTS(text, first)
#endif

#define APPLES_SIZE "APPLES_SIZE" /* which of a calibration's sizes is this process's: between this file and itself */

enum {
    APPLES_LARGEST_TASK = 1 << 24, /* bytes of a task's file */
    APPLES_DEEPEST = 32,           /* brackets within each other in it */
    APPLES_MAX_TEXT = 2000,    /* bytes of a text in an event or a message */
    APPLES_MAX_NAME = 253,
    APPLES_PIECE_BYTES = 4 << 20, /* of the result, on their way to the first rank at a time */
    APPLES_PIECE_ROWS = 4096,     /* likewise: a line has 64 KiB, and eight letters of them a row */
    APPLES_FASTEST_GROWTH = 16,   /* of the number of iterations between two reports */
    APPLES_FIRST_ITERATIONS = 7,     /* their median is the first usual long one */
    APPLES_MAX_DETAILED_HOSTS = 128, /* of which a report has the kernel's counters, too */
    APPLES_FEWEST_SAMPLES = 7,
    APPLES_MAX_SAMPLES = 101,
    APPLES_HALO_TAG = 32766, /* high, so that they are no program's own */
    APPLES_RESULT_TAG = 32765
};
static const double APPLES_SAMPLE_SECONDS = 2e-3, APPLES_SIZE_SECONDS = 0.15, APPLES_LAST_WORDS_SECONDS = 1.0;
/* An iteration that takes APPLES_SPIKE_FACTOR times a usual long one is a timing spike. The usual long one is a running
 * quantile: it stays the same where 3 of 100 iterations are longer. */
static const double APPLES_SPIKE_FACTOR = 1.5, APPLES_USUAL_RISE = 1.5, APPLES_USUAL_FALL = 0.9875381421579326;
static const double APPLES_TICK_SECONDS = 1e-6;

/* ---- JSON ---------------------------------------------------------------------------------------------------- */

enum apples_kind { APPLES_NULL, APPLES_TRUTH, APPLES_INTEGER, APPLES_NUMBER, APPLES_STRING, APPLES_LIST, APPLES_OBJECT };

/* A value; those of a list or an object follow each other from `child` on. */
struct apples_value {
    enum apples_kind kind;
    char *name, *text;
    long integer;
    double number;
    struct apples_value *child, *next;
};

struct apples_reader {
    const char *begin, *at; /* a text that ends in a zero byte, and has no other */
    const char *wrong;
    int depth;
};

/* A text that grows: an event on its way out. */
struct apples_line {
    char *text;
    size_t length, room;
};

struct apples_piece { /* one host's strip */
    const char *host, *implementation;
    long ranks, first_row, rows, threads;
};

struct apples_clock { /* seconds of this rank since the loop began, and where the last lap ended */
    double compute, processor, communicate, begin, wall, used;
};

struct apples_spikes { /* seconds of iterations beyond APPLES_SPIKE_FACTOR times a usual long one */
    double excess, processor_excess, usual;
    double first[APPLES_FIRST_ITERATIONS], first_processor[APPLES_FIRST_ITERATIONS];
    double compute, processor; /* at the end of the last iteration */
    double unexplained, explained_excess, explained_stopped;
    int count;
};

struct apples_counters { /* what the kernel counts of this process; a negative wait: it does not */
    double wait, throttled, faults;
};

/* What each rank reports. */
enum {
    APPLES_COMPUTE,
    APPLES_PROCESSOR,
    APPLES_COMMUNICATE,
    APPLES_SPIKES,
    APPLES_PROCESSOR_SPIKES,
    APPLES_WAIT,
    APPLES_THROTTLED,
    APPLES_FAULTS,
    APPLES_ELAPSED,
    APPLES_COLUMNS
};

static struct {
    MPI_Comm comm;
    int rank, size, begun_task, by_hand, initialised, calibrating, quiet, begun, inside, told, ended, save, no_room;
    int argc;
    char **argv;
    char name[256];
    char rows_name[256], columns_name[256], iterations_name[256];
    const char *output;
    struct apples_value *task, *parameters;
    struct apples_piece *pieces, *piece;
    long piece_count, first_row, rows, done, due, last_done;
    double period, residual, started, startup, last_seconds;
    struct apples_clock clock;
    struct apples_spikes spikes;
    struct apples_counters first_counters;
    int schedule_file, quota_file;
    double *every; /* APPLES_COLUMNS of each rank */
    double used_samples[APPLES_MAX_SAMPLES + 2], wall_samples[APPLES_MAX_SAMPLES + 2];
    long samples, sample_count;
    double sample_used, sample_wall;
} apples_own;

APPLES_NORETURN static void apples_end_all(int code, const char *error, const char *said);
APPLES_NORETURN static void apples_refuse(const char *error, const char *format, ...) APPLES_PRINTS(2, 3);

static void *apples_memory(size_t bytes)
{
    void *found = calloc(bytes ? bytes : 1, 1);
    if (!found)
        apples_refuse("program-memory-insufficient", "no memory for %lu bytes", (unsigned long)bytes);
    return found;
}

/* Adds to a line as printf would write it. */
static void apples_add(struct apples_line *line, const char *format, ...) APPLES_PRINTS(2, 3);
static void apples_add(struct apples_line *line, const char *format, ...)
{
    for (;;) {
        va_list arguments;
        size_t left = line->room - line->length;
        int wanted;
        va_start(arguments, format);
        wanted = vsnprintf(line->text ? line->text + line->length : NULL, left, format, arguments);
        va_end(arguments);
        if (wanted < 0)
            apples_refuse("line-unwritable", "a line cannot be written");
        if ((size_t)wanted < left) {
            line->length += (size_t)wanted;
            return;
        }
        line->room = 2 * line->room + (size_t)wanted + 256;
        line->text = (char *)realloc(line->text, line->room);
        if (!line->text)
            apples_refuse("program-memory-insufficient", "no memory for a line");
    }
}

/* Returns how many bytes the UTF-8 character at `text` has; 0 where there is none. */
static int apples_character(const unsigned char *text)
{
    static const unsigned long least[] = {0, 0, 0x80, 0x800, 0x10000};
    int bytes = text[0] < 0x80 ? 1 : text[0] < 0xc2 ? 0 : text[0] < 0xe0 ? 2 : text[0] < 0xf0 ? 3 : text[0] < 0xf5 ? 4 : 0;
    unsigned long code = bytes < 2 ? text[0] : text[0] & (0x7fu >> bytes);
    int k;
    for (k = 1; k < bytes; k++) {
        if ((text[k] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (text[k] & 0x3fu);
    }
    return bytes && code >= least[bytes] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff) ? bytes : 0;
}

/* Adds a text as JSON has it, as far as it is not too long; what is no UTF-8 becomes a question mark. */
static void apples_add_text(struct apples_line *line, const char *text)
{
    const unsigned char *at = (const unsigned char *)text, *begin = at;
    apples_add(line, "\"");
    while (*at && at - begin < APPLES_MAX_TEXT) {
        int bytes = apples_character(at);
        if (*at == '"' || *at == '\\')
            apples_add(line, "\\%c", *at);
        else if (*at < 0x20 || *at == 0x7f)
            apples_add(line, "\\u%04x", *at);
        else
            apples_add(line, "%.*s", bytes ? bytes : 1, bytes ? (const char *)at : "?");
        at += bytes ? bytes : 1;
    }
    apples_add(line, "\"");
}

/* Has numbers written and read with a point, whatever language the program speaks; returns that language. */
static locale_t apples_with_a_point(void)
{
    static locale_t plain;
    if (!plain)
        plain = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    return uselocale(plain);
}

static double apples_read_double(const char *text, char **end)
{
    locale_t own = apples_with_a_point();
    double found = strtod(text, end);
    uselocale(own);
    return found;
}

/* Adds a number as JSON has it: with a point in every language, and null for what is none. */
static void apples_add_number(struct apples_line *line, double number, const char *format)
{
    char shown[64];
    locale_t own;
    if (!(number - number == 0.0)) {
        apples_add(line, "null");
        return;
    }
    own = apples_with_a_point();
    if (format)
        snprintf(shown, sizeof shown, "%.6f", number < 0 ? 0.0 : number); /* seconds */
    else
        snprintf(shown, sizeof shown, "%.17g", number);
    uselocale(own);
    apples_add(line, "%s", shown);
}

#define apples_add_seconds(line, number) apples_add_number(line, number, "seconds")

static struct apples_value *apples_read_value(struct apples_reader *reader);

static void apples_skip(struct apples_reader *reader)
{
    reader->at += strspn(reader->at, " \t\r\n");
}

static int apples_wrong(struct apples_reader *reader, const char *what)
{
    if (!reader->wrong)
        reader->wrong = what;
    return 0;
}

/* Reads four hexadecimal letters. */
static long apples_read_hex(struct apples_reader *reader)
{
    long code = 0;
    int k;
    for (k = 0; k < 4; k++) {
        static const char letters[] = "0123456789abcdef0123456789ABCDEF";
        const char *found = *reader->at ? strchr(letters, *reader->at) : NULL;
        if (!found)
            return apples_wrong(reader, "an escape has four hexadecimal digits"), -1;
        code = code * 16 + (found - letters) % 16;
        reader->at++;
    }
    return code;
}

/* Reads what follows a backslash; returns the end of what is written. */
static char *apples_read_escape(struct apples_reader *reader, char *out)
{
    static const char plain[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    const char *found = *reader->at ? strchr(plain, *reader->at) : NULL;
    long code;
    if (found) {
        reader->at++;
        *out++ = meant[found - plain];
        return out;
    }
    if (*reader->at != 'u')
        return apples_wrong(reader, "there is no such escape"), out;
    reader->at++;
    code = apples_read_hex(reader);
    if (code >= 0xd800 && code < 0xdc00 && reader->at[0] == '\\' && reader->at[1] == 'u') {
        long low;
        reader->at += 2;
        low = apples_read_hex(reader);
        code = low >= 0xdc00 && low < 0xe000 ? 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00) : -1;
    }
    if (code <= 0 || (code >= 0xd800 && code < 0xe000))
        return apples_wrong(reader, "an escape is of no character"), out;
    if (code < 0x80) {
        *out++ = (char)code;
    } else {
        int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
        *out++ = (char)((0xff00 >> (more + 1) & 0xff) | code >> 6 * more);
        while (more--)
            *out++ = (char)(0x80 | (code >> 6 * more & 0x3f));
    }
    return out;
}

static char *apples_read_text(struct apples_reader *reader)
{
    size_t most = 1;
    const char *end = reader->at + 1;
    char *text, *out;
    for (; *end && *end != '"'; end++, most++)
        if (*end == '\\' && end[1])
            end++, most++;
    text = out = (char *)apples_memory(most + 1); /* an escape is longer than what it stands for */
    reader->at++;
    while (!reader->wrong && *reader->at != '"') {
        const unsigned char *at = (const unsigned char *)reader->at;
        int bytes = apples_character(at);
        if (!*at || *at < 0x20)
            apples_wrong(reader, *at ? "a text has a control character" : "a text does not end");
        else if (!bytes)
            apples_wrong(reader, "a text is not UTF-8");
        else if (*at == '\\')
            reader->at++, out = apples_read_escape(reader, out);
        else
            memcpy(out, at, (size_t)bytes), out += bytes, reader->at += bytes;
    }
    if (!reader->wrong)
        reader->at++;
    return text;
}

static void apples_read_number(struct apples_reader *reader, struct apples_value *value)
{
    const char *at = reader->at;
    char *end;
    at += *at == '-';
    if (*at < '0' || *at > '9' || (*at == '0' && at[1] >= '0' && at[1] <= '9')) {
        apples_wrong(reader, "there is no value");
        return;
    }
    at += strspn(at, "0123456789");
    value->kind = APPLES_INTEGER;
    if (*at == '.') {
        size_t digits = strspn(at + 1, "0123456789");
        if (!digits)
            apples_wrong(reader, "a number has no digit after its point");
        value->kind = APPLES_NUMBER;
        at += 1 + digits;
    }
    if (*at == 'e' || *at == 'E') {
        size_t digits;
        at += at[1] == '+' || at[1] == '-' ? 2 : 1;
        digits = strspn(at, "0123456789");
        if (!digits)
            apples_wrong(reader, "a number has no exponent");
        value->kind = APPLES_NUMBER;
        at += digits;
    }
    errno = 0;
    value->number = apples_read_double(reader->at, &end);
    if (end != at || !(value->number - value->number == 0.0))
        apples_wrong(reader, "a number is too large");
    if (value->kind == APPLES_INTEGER) {
        errno = 0;
        value->integer = strtol(reader->at, &end, 10);
        if (errno)
            apples_wrong(reader, "a number is too large");
    }
    reader->at = at;
}

static void apples_read_members(struct apples_reader *reader, struct apples_value *value, char close)
{
    struct apples_value **last = &value->child;
    value->kind = close == '}' ? APPLES_OBJECT : APPLES_LIST;
    reader->at++;
    apples_skip(reader);
    if (++reader->depth > APPLES_DEEPEST)
        apples_wrong(reader, "it is too deep");
    if (*reader->at == close) {
        reader->at++;
        reader->depth--;
        return;
    }
    while (!reader->wrong) {
        char *name = NULL;
        apples_skip(reader);
        if (close == '}') {
            if (*reader->at != '"') {
                apples_wrong(reader, "there is no name");
                return;
            }
            name = apples_read_text(reader);
            apples_skip(reader);
            if (!reader->wrong && *reader->at++ != ':')
                reader->at--, apples_wrong(reader, "there is no colon");
        }
        if (reader->wrong) {
            free(name);
            return;
        }
        *last = apples_read_value(reader);
        (*last)->name = name;
        last = &(*last)->next;
        apples_skip(reader);
        if (reader->wrong || *reader->at == close)
            break;
        if (*reader->at++ != ',')
            reader->at--, apples_wrong(reader, "there is no comma");
    }
    if (!reader->wrong)
        reader->at++;
    reader->depth--;
}

static struct apples_value *apples_read_value(struct apples_reader *reader)
{
    static const char *const words[] = {"null", "false", "true"};
    struct apples_value *value = (struct apples_value *)apples_memory(sizeof *value);
    int k;
    apples_skip(reader);
    for (k = 0; k < 3; k++)
        if (!strncmp(reader->at, words[k], strlen(words[k]))) {
            value->kind = k ? APPLES_TRUTH : APPLES_NULL;
            value->integer = k == 2;
            value->number = (double)value->integer;
            reader->at += strlen(words[k]);
            return value;
        }
    if (*reader->at == '"')
        value->kind = APPLES_STRING, value->text = apples_read_text(reader);
    else if (*reader->at == '{' || *reader->at == '[')
        apples_read_members(reader, value, *reader->at == '{' ? '}' : ']');
    else
        apples_read_number(reader, value);
    return value;
}

/* Returns a member of an object, the last of that name; NULL where there is none. */
static struct apples_value *apples_member(struct apples_value *of, const char *name)
{
    struct apples_value *one, *found = NULL;
    for (one = of && of->kind == APPLES_OBJECT ? of->child : NULL; one; one = one->next)
        if (!strcmp(one->name, name))
            found = one;
    return found;
}

static int apples_is(const struct apples_value *value, enum apples_kind kind)
{
    return value && value->kind == kind;
}

/* ---- Talking and failing -------------------------------------------------------------------------------------- */

static double apples_seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void apples_sleep(double seconds)
{
    struct timespec span;
    span.tv_sec = (time_t)seconds;
    span.tv_nsec = (long)(1e9 * (seconds - (double)span.tv_sec));
    nanosleep(&span, NULL);
}

/* Begins an event; apples_say ends it and writes it in one piece, as long as a pipe keeps pieces whole.
   An event begins with a newline: a rank may have printed text without one. */
static struct apples_line apples_event(const char *event)
{
    struct apples_line line = {NULL, 0, 0};
    apples_add(&line, "\n{\"event\": \"%s\"", event);
    return line;
}

static void apples_say(struct apples_line *line)
{
    const char *rest;
    apples_add(line, "}\n");
    fflush(stdout);
    for (rest = line->text; line->length;) {
        ssize_t written = write(STDOUT_FILENO, rest, line->length);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            break; /* nobody listens any more */
        rest += written;
        line->length -= (size_t)written;
    }
    free(line->text);
}

/* Ends all ranks with an exit code; one that is alone ends by itself. `error` is the error's stable name, or "". */
static void apples_end_all(int code, const char *error, const char *said)
{
    char message[APPLES_MAX_TEXT], *at;
    int alone = 1, finalised = 0, initialised = 0;
    snprintf(message, sizeof message, "%.*s", (int)sizeof message - 1, *said ? said : "it failed");
    for (at = message; *at; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            *at = ' '; /* one line, and nothing that steers a terminal */
    MPI_Initialized(&initialised);
    MPI_Finalized(&finalised);
    if (initialised && !finalised)
        MPI_Comm_size(MPI_COMM_WORLD, &alone);
    apples_own.ended = 1;
    fflush(stdout);
    if (apples_own.by_hand) {
        fprintf(stderr, "%s: %s%s%s%s\n", apples_own.name, message, *error ? " [" : "", error, *error ? "]" : "");
    } else {
        struct apples_line line = apples_event("error");
        apples_add(&line, ", \"message\": ");
        apples_add_text(&line, message);
        apples_add(&line, ", \"rank\": %d", apples_own.rank);
        if (apples_own.no_room)
            apples_add(&line, ", \"resources\": true");
        if (*error)
            apples_add(&line, ", \"code\": \"%s\"", error);
        apples_say(&line);
    }
    fflush(stderr);
    if (alone > 1) {
        apples_sleep(APPLES_LAST_WORDS_SECONDS); /* a launcher drops what a rank said just before it */
        MPI_Abort(MPI_COMM_WORLD, code);
    }
    _exit(code);
}


/* Refuses what is asked: the message is one line for the user. */
static void apples_refuse(const char *error, const char *format, ...)
{
    char message[APPLES_MAX_TEXT];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    apples_end_all(2, error, message);
}

/* Refuses a file that cannot be written; a full disk is no fault of the program's. */
static void apples_refuse_file(const char *path, int reason)
{
    apples_own.no_room = reason == ENOSPC || reason == EDQUOT || reason == EFBIG || reason == EIO;
    apples_refuse("program-file-unwritable", "%.1000s: %s", path, strerror(reason));
}

void apples_fail(const char *message)
{
    apples_end_all(1, "", message);
}

/* A rank that ends without a word would leave the others waiting. */
static void apples_at_exit(void)
{
    if (!apples_own.ended)
        apples_end_all(1, apples_own.told ? "end-missing" : "program-result-missing",
                       apples_own.told ? "the program ended without apples_end()"
                                       : "the program ended without apples_result(..)");
}

/* ---- Waiting -------------------------------------------------------------------------------------------------- */

/* Waits for at most four requests: spins, then yields, then sleeps a twentieth of the wait so far. A neighbour that is on time is
 * met at once, and one that is late may have this rank's CPU. */
static void apples_wait(int count, MPI_Request *requests)
{
    double begin = apples_seconds(CLOCK_MONOTONIC);
    for (;;) {
        MPI_Status statuses[4]; /* gcc takes MPICH's MPI_STATUSES_IGNORE for an array that is written to */
        int done;
        double waited;
        MPI_Testall(count, requests, &done, statuses);
        if (done)
            return;
        waited = apples_seconds(CLOCK_MONOTONIC) - begin;
        if (waited > 5e-3)
            apples_sleep(0.05 * waited < 1e-3 ? 0.05 * waited : 1e-3);
        else if (waited > 80e-6)
            sched_yield();
    }
}

static void apples_barrier(void)
{
    MPI_Request request;
    MPI_Ibarrier(apples_own.comm, &request);
    apples_wait(1, &request);
}

static double apples_reduced(double value, MPI_Op operation)
{
    MPI_Request request;
    double found = 0.0;
    MPI_Iallreduce(&value, &found, 1, MPI_DOUBLE, operation, apples_own.comm, &request);
    apples_wait(1, &request);
    return found;
}

/* ---- The task ------------------------------------------------------------------------------------------------- */

/* Returns a file's text; NULL, with `errno`, where it cannot be read. What has a zero byte ends there. */
static char *apples_file(const char *path)
{
    size_t length = 0;
    char *text = NULL;
    FILE *stream = fopen(path, "rb");
    if (!stream)
        return NULL;
    text = (char *)apples_memory(APPLES_LARGEST_TASK + 1);
    length = fread(text, 1, APPLES_LARGEST_TASK + 1, stream);
    if (ferror(stream) || length > APPLES_LARGEST_TASK) {
        int reason = ferror(stream) ? errno : EFBIG;
        fclose(stream);
        free(text);
        errno = reason;
        return NULL;
    }
    fclose(stream);
    text[length] = '\0';
    if (strlen(text) < length)
        text[0] = '\0'; /* a zero byte is in no JSON */
    return text;
}

static const char *apples_names(struct apples_value *of)
{
    static char names[APPLES_MAX_TEXT / 2];
    struct apples_value *one;
    size_t length = 0;
    snprintf(names, sizeof names, "none");
    for (one = of ? of->child : NULL; one && length < sizeof names; one = one->next)
        length += (size_t)snprintf(names + length, sizeof names - length, "%s%s", length ? ", " : "", one->name);
    return names;
}

static struct apples_value *apples_parameter(const char *name)
{
    struct apples_value *found = apples_member(apples_own.parameters, name);
    if (!found)
        apples_refuse("program-parameter-unknown", "unknown parameter '%.100s'; known are %s; declare it in the template, and in apples_begin", name, apples_names(apples_own.parameters));
    return found;
}

/* Returns rows, columns or iterations. */
static long apples_count(const char *name, const char *what)
{
    struct apples_value *found = apples_member(apples_own.parameters, name);
    if (!apples_is(found, APPLES_INTEGER) || found->integer < 1)
        apples_refuse("parameter-range", "%s: the parameter '%.100s' is not a whole number of 1 or more; apples_begin names the parameter",
                      what, name);
    return found->integer;
}

static struct apples_value *apples_new_member(struct apples_value *of, const char *name, size_t length)
{
    struct apples_value **last = &of->child;
    while (*last)
        last = &(*last)->next;
    *last = (struct apples_value *)apples_memory(sizeof **last);
    (*last)->name = (char *)apples_memory(length + 1);
    memcpy((*last)->name, name, length);
    return *last;
}

/* Gives a parameter the value of a text, in the kind that it has or, where it has none, that the text looks like. */
static int apples_take_value(struct apples_value *value, const char *text, size_t length)
{
    char *copy = (char *)apples_memory(length + 1), *end;
    memcpy(copy, text, length);
    errno = 0;
    value->integer = strtol(copy, &end, 10);
    if (value->kind == APPLES_NULL)
        value->kind = length && !*end && !errno ? APPLES_INTEGER : APPLES_NULL;
    if (value->kind == APPLES_INTEGER && (!length || *end || errno))
        return 0;
    if (value->kind != APPLES_INTEGER) {
        value->number = apples_read_double(copy, &end);
        if (value->kind == APPLES_NULL)
            value->kind = length && !*end ? APPLES_NUMBER : APPLES_STRING;
        if (value->kind == APPLES_NUMBER && (!length || *end || !(value->number - value->number == 0.0)))
            return 0;
    }
    value->text = copy;
    return 1;
}

static void apples_set(struct apples_value *parameters, const char *given)
{
    const char *equals = strchr(given, '=');
    struct apples_value *one;
    if (!equals || equals == given)
        apples_refuse("parameter-invalid", "--set %.500s: not NAME=VALUE", given);
    for (one = parameters->child; one; one = one->next)
        if (strlen(one->name) == (size_t)(equals - given) && !strncmp(one->name, given, strlen(one->name)))
            break;
    if (!one)
        apples_refuse("program-parameter-unknown", "--set %.500s: no parameter '%.*s'; there are %s", given, (int)(equals - given < 100 ? equals - given : 100),
                      given, apples_names(parameters));
    if (strlen(equals + 1) > APPLES_MAX_TEXT)
        apples_refuse("parameter-too-long", "--set %.500s..: longer than %d bytes", given, (int)APPLES_MAX_TEXT);
    if (!apples_take_value(one, equals + 1, strlen(equals + 1)))
        apples_refuse("parameter-type", "--set %.500s: not a %snumber", given, one->kind == APPLES_INTEGER ? "whole " : "");
}

/* Returns the task of a program that was started by hand: as many rows for each rank. */
static char *apples_task_by_hand(const char *defaults)
{
    struct apples_value *parameters = (struct apples_value *)apples_memory(sizeof *parameters), *one;
    struct apples_line line = {NULL, 0, 0};
    long rows;
    int k;
    parameters->kind = APPLES_OBJECT;
    while (*(defaults += strspn(defaults, " "))) {
        size_t length = strcspn(defaults, " "), name = strcspn(defaults, "= ");
        if (!name || defaults[name] != '=')
            apples_refuse("default-invalid", "apples_begin: the default %.*s is not name=value", (int)(length < 100 ? length : 100), defaults);
        apples_take_value(apples_new_member(parameters, defaults, name), defaults + name + 1, length - name - 1);
        defaults += length;
    }
    for (k = 1; k < apples_own.argc; k++) {
        if (!strcmp(apples_own.argv[k], "--set"))
            apples_set(parameters, ++k < apples_own.argc ? apples_own.argv[k] : "");
        else if (!strncmp(apples_own.argv[k], "--set=", 6))
            apples_set(parameters, apples_own.argv[k] + 6);
    }
    apples_own.parameters = parameters;
    rows = apples_count(apples_own.rows_name, "rows");
    if (rows < apples_own.size)
        apples_refuse("ranks-exceed-rows", "%d ranks for %ld rows: each needs one", apples_own.size, rows);
    apples_add(&line, "{\"schema\": \"apples.task/1\", \"mode\": \"run\", \"partition\": [{\"host\": \"here\", ");
    apples_add(&line, "\"ranks\": %d, \"first_row\": 0, \"rows\": %ld}], \"parameters\": {", apples_own.size, rows);
    for (one = parameters->child; one; one = one->next) {
        apples_add(&line, one == parameters->child ? "" : ", ");
        apples_add_text(&line, one->name);
        apples_add(&line, ": ");
        if (one->kind == APPLES_INTEGER)
            apples_add(&line, "%ld", one->integer);
        else if (one->kind == APPLES_NUMBER)
            apples_add_number(&line, one->number, NULL);
        else
            apples_add_text(&line, one->text);
        if (one->kind == APPLES_NUMBER && !strpbrk(strrchr(line.text, ' '), ".e"))
            apples_add(&line, ".0"); /* a number stays one where it is whole */
    }
    apples_add(&line, "}}");
    return line.text;
}

static int apples_is_name(const struct apples_value *value)
{
    return apples_is(value, APPLES_STRING) && *value->text && strlen(value->text) <= APPLES_MAX_NAME;
}

/* Returns by how many threads `value` has a rank compute. */
static long apples_read_threads(const struct apples_value *value)
{
    if (!value)
        return 1;
    if (value->kind != APPLES_INTEGER || value->integer < 1 || value->integer > INT_MAX)
        apples_refuse("task-invalid", "the task's threads is not a whole number of 1 or more");
    return value->integer;
}

static void apples_take_partition(struct apples_value *partition, struct apples_value *implementations)
{
    struct apples_value *one;
    long index = 0, row = 0, ranks = 0;
    if (!apples_is(partition, APPLES_LIST) || !partition->child)
        apples_refuse("task-invalid", "the task's partition is not a list of one entry or more");
    for (one = partition->child; one; one = one->next)
        apples_own.piece_count++;
    apples_own.pieces = (struct apples_piece *)apples_memory((size_t)apples_own.piece_count * sizeof *apples_own.pieces);
    for (one = partition->child; one; one = one->next, index++) {
        struct apples_piece *piece = apples_own.pieces + index;
        struct apples_value *host = apples_member(one, "host"), *rank = apples_member(one, "ranks"),
                            *first = apples_member(one, "first_row"), *rows = apples_member(one, "rows");
        if (!host || !rank || !first || !rows)
            apples_refuse("partition-invalid", "the task's partition[%ld] does not say host, ranks, first_row, rows", index);
        if (!apples_is_name(host) || rank->kind != APPLES_INTEGER || first->kind != APPLES_INTEGER ||
            rows->kind != APPLES_INTEGER)
            apples_refuse("partition-invalid", "the task's partition[%ld] has no host's name, or no whole numbers", index);
        if (first->integer != row || rank->integer < 1 || rank->integer > rows->integer ||
            rows->integer > LONG_MAX - row || rank->integer > INT_MAX - ranks)
            apples_refuse("partition-invalid", "the task's partition[%ld] has %ld rows from row %ld on for %ld ranks; it begins at row %ld,"
                          " and each rank has a row", index, rows->integer, first->integer, rank->integer, row);
        piece->host = host->text;
        piece->ranks = rank->integer;
        piece->first_row = row;
        piece->rows = rows->integer;
        piece->threads = apples_read_threads(apples_member(one, "threads"));
        piece->implementation = "";
        if (apples_member(implementations, piece->host))
            piece->implementation = apples_member(implementations, piece->host)->text;
        row += piece->rows;
        ranks += piece->ranks;
    }
    if (ranks != apples_own.size)
        apples_refuse("program-ranks-differ", "the task is for %ld ranks; MPI has %d%s", ranks, apples_own.size,
                      apples_own.size == 1 ? " (is the program built with the MPI of the mpiexec that starts it?)" : "");
    one = apples_member(apples_own.parameters, apples_own.rows_name);
    if (apples_is(one, APPLES_INTEGER) && one->integer != row)
        apples_refuse("program-rows-differ", "the task's partition has %ld rows, but %.100s is %ld: name the parameter that counts rows in apples_begin",
                      row, apples_own.rows_name, one->integer);
}

/* Says that the field of a task is wrong, and what would be right. */
static void apples_expect(int right, const char *field, const char *what)
{
    if (!right)
        apples_refuse("task-invalid", "the task's %s is not %s", field, what);
}

/* Reads a task and checks it, as every rank does. */
static void apples_take_task(char *text)
{
    struct apples_reader reader = {text, text, NULL, 0};
    struct apples_value *task = apples_read_value(&reader), *mode, *one, *given, *schema, *save;
    apples_skip(&reader);
    if (!reader.wrong && *reader.at)
        apples_wrong(&reader, "something follows it");
    if (reader.wrong)
        apples_refuse("task-not-json", "the task is not JSON: %s (byte %ld)", reader.wrong, (long)(reader.at - reader.begin));
    schema = apples_member(task, "schema");
    if (!apples_is(schema, APPLES_STRING) || strcmp(schema->text, "apples.task/1"))
        apples_refuse("task-invalid", "the task's schema is not apples.task/1");
    mode = apples_member(task, "mode");
    if (!apples_is(mode, APPLES_STRING) || (strcmp(mode->text, "run") && strcmp(mode->text, "calibrate")))
        apples_refuse("task-invalid", "the task's mode is '%.100s', neither run nor calibrate",
                      apples_is(mode, APPLES_STRING) ? mode->text : "");
    apples_own.task = task;
    apples_own.calibrating = *mode->text == 'c';
    apples_own.parameters = apples_member(task, "parameters");
    apples_expect(apples_is(apples_own.parameters, APPLES_OBJECT), "parameters", "an object of numbers and texts");
    for (one = apples_own.parameters->child; one; one = one->next)
        apples_expect(one->kind != APPLES_NULL && one->kind <= APPLES_STRING, "parameters", "an object of numbers and texts");
    given = apples_member(task, "implementations");
    apples_expect(!given || given->kind == APPLES_OBJECT, "implementations", "an object of texts");
    for (one = given ? given->child : NULL; one; one = one->next)
        apples_expect(one->kind == APPLES_STRING, "implementations", "an object of texts");
    one = apples_member(task, "output");
    apples_expect(!one || one->kind == APPLES_NULL || one->kind == APPLES_STRING, "output", "a directory or null");
    apples_own.output = apples_is(one, APPLES_STRING) ? one->text : NULL;
    save = apples_member(task, "save");
    apples_expect(!save || (save->kind == APPLES_TRUTH && (!save->integer || apples_own.output)), "save",
                  "true or false, true only with an output");
    apples_own.save = save && save->integer;
    one = apples_member(task, "progress_seconds");
    apples_expect(!one || ((one->kind == APPLES_INTEGER || one->kind == APPLES_NUMBER) && one->number >= 0),
                  "progress_seconds", "a number of 0 or more");
    apples_own.period = one ? one->number : 0.25;
    if (!apples_own.calibrating)
        apples_take_partition(apples_member(task, "partition"), given);
}

/* Returns what ends in the variables by which a process would take itself for a rank of its parent's world. */
static char **apples_environment(const char *size)
{
    static const char *const launchers[] = {"PMI_", "PMIX_", "HYDRA_", "HYDI_", "MPI_LOCAL", "OMPI_"};
    extern char **environ;
    size_t count = 0, kept = 0, k;
    char **found;
    while (environ[count])
        count++;
    found = (char **)apples_memory((count + 2) * sizeof *found);
    for (count = 0; environ[count]; count++) {
        int launcher = 0;
        for (k = 0; k < sizeof launchers / sizeof *launchers; k++)
            launcher |= !strncmp(environ[count], launchers[k], strlen(launchers[k]));
        if (!launcher)
            found[kept++] = environ[count];
    }
    found[kept] = (char *)apples_memory(strlen(size) + 1);
    strcpy(found[kept], size);
    return found;
}

/* Runs the program once for each size, as a process of its own, and ends. */
APPLES_NORETURN static void apples_calibrate_each(struct apples_value *sizes)
{
    struct apples_line line;
    struct apples_value *size;
    int index = 0;
    line = apples_event("ready");
    apples_add(&line, ", \"protocol\": 1, \"program\": ");
    apples_add_text(&line, apples_own.name);
    apples_add(&line, ", \"version\": \"1\", \"ranks\": 1");
    apples_say(&line);
    for (size = sizes->child; size; size = size->next, index++) {
        char number[64];
        char **environment;
        int status = 0;
        pid_t child;
        snprintf(number, sizeof number, APPLES_SIZE "=%d", index);
        environment = apples_environment(number);
        child = fork();
        if (child == 0) {
            int file;
            for (file = 3; file < 1024; file++)
                close(file);
            execve("/proc/self/exe", apples_own.argv, environment);
            _exit(127);
        }
        while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
            continue;
        if (child < 0 || status)
            apples_refuse("calibration-failed", "calibrating %ld rows ended with code %d", size->integer,
                          child < 0 ? 127 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
        free(environment);
    }
    line = apples_event("done");
    apples_say(&line);
    apples_own.ended = 1;
    if (apples_own.initialised)
        MPI_Finalize();
    exit(0);
}

static void apples_take_sizes(struct apples_value *sizes)
{
    struct apples_value *one;
    const char *own = getenv(APPLES_SIZE);
    long count = 0;
    if (apples_own.size != 1)
        apples_refuse("program-ranks-differ", "calibrate runs as one process, not %d", apples_own.size);
    for (one = apples_is(sizes, APPLES_LIST) ? sizes->child : NULL; one; one = one->next, count++)
        apples_expect(one->kind == APPLES_INTEGER && one->integer >= 1, "sizes", "a list of numbers of rows");
    apples_expect(count > 0, "sizes", "a list of numbers of rows");
    if (own) {
        long index = strtol(own, NULL, 10);
        for (one = sizes->child; one && index > 0; one = one->next)
            index--;
        apples_expect(one != NULL, "sizes", "one that has this process's number, " APPLES_SIZE);
        apples_own.quiet = 1;
    } else if (count > 1) {
        apples_calibrate_each(sizes);
    } else {
        one = sizes->child;
    }
    apples_own.piece_count = 1;
    apples_own.pieces = (struct apples_piece *)apples_memory(sizeof *apples_own.pieces);
    apples_own.pieces->host = "here";
    apples_own.pieces->implementation = "";
    apples_own.pieces->ranks = 1;
    apples_own.pieces->rows = one->integer;
    apples_own.pieces->threads = apples_read_threads(apples_member(apples_own.task, "threads"));
}

/* Takes what the program is called: its folder where its file has everybody's name. */
static void apples_take_name(const char *started_as)
{
    char path[4096], *slash, *dot;
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length < 0)
        length = snprintf(path, sizeof path, "%s", started_as) < (int)sizeof path ? (ssize_t)strlen(path) : 0;
    path[length] = '\0';
    slash = strrchr(path, '/');
    dot = strrchr(slash ? slash : path, '.');
    if (dot && dot != path && dot[-1] != '/')
        *dot = '\0';
    if (slash && !strcmp(slash, "/program")) {
        *slash = '\0';
        slash = strrchr(path, '/');
    }
    snprintf(apples_own.name, sizeof apples_own.name, "%.200s", slash && slash[1] ? slash + 1 : *path ? path : "program");
}

static void apples_take_label(char *label, const char *given, const char *otherwise)
{
    snprintf(label, 256, "%.255s", given && *given ? given : otherwise);
}

void apples_begin(int argc, char **argv, const char *rows, const char *columns, const char *iterations,
                  const char *defaults)
{
    const char *path = getenv("APPLES_TASK");
    char *text = NULL;
    long length = 0;
    int initialised = 0, provided;
    apples_own.started = apples_seconds(CLOCK_MONOTONIC);
    apples_own.argc = argc;
    apples_own.argv = argv;
    apples_take_label(apples_own.rows_name, rows, "grid");
    apples_take_label(apples_own.columns_name, columns, apples_own.rows_name);
    apples_take_label(apples_own.iterations_name, iterations, "iterations");
    apples_own.by_hand = !path || !*path;
    apples_own.residual = NAN;
    apples_take_name(argc > 0 && argv[0] ? argv[0] : "program");
    MPI_Initialized(&initialised);
    if (!initialised)
        MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided); /* only one of a rank's threads is in MPI */
    apples_own.initialised = !initialised;
    apples_own.comm = MPI_COMM_WORLD;
    MPI_Comm_rank(apples_own.comm, &apples_own.rank);
    MPI_Comm_size(apples_own.comm, &apples_own.size);
    if (apples_own.begun_task)
        apples_refuse("call-order", "apples_begin was called twice");
    apples_own.begun_task = 1;
    atexit(apples_at_exit);
    if (apples_own.rank == 0) {
        if (getenv("APPLES_MALLEABLE"))
            apples_refuse("malleable-unsupported", "the template has malleable = true, but a program in C or Fortran keeps the hosts it was started"
                          " on: leave that line out");
        text = apples_own.by_hand ? apples_task_by_hand(defaults ? defaults : "") : apples_file(path);
        if (!text)
            apples_refuse("task-unreadable", "the task %.1000s cannot be read: %s", path, strerror(errno));
        apples_take_task(text); /* what is wrong is said once; the others wait */
        length = (long)strlen(text);
    }
    MPI_Bcast(&length, 1, MPI_LONG, 0, apples_own.comm);
    if (apples_own.rank)
        text = (char *)apples_memory((size_t)length + 1);
    MPI_Bcast(text, (int)length, MPI_CHAR, 0, apples_own.comm);
    if (apples_own.rank)
        apples_take_task(text);
    free(text);
    if (apples_own.calibrating)
        apples_take_sizes(apples_member(apples_own.task, "sizes"));
    apples_own.every = (double *)apples_memory((size_t)apples_own.size * APPLES_COLUMNS * sizeof(double));
    apples_layout(apples_own.rank, &apples_own.first_row, &apples_own.rows);
    for (apples_own.piece = apples_own.pieces; apples_own.piece->first_row + apples_own.piece->rows <= apples_own.first_row;)
        apples_own.piece++;
}

long apples_integer(const char *name)
{
    struct apples_value *found = apples_parameter(name);
    if (found->kind != APPLES_INTEGER && found->kind != APPLES_TRUTH)
        apples_refuse("parameter-type", "the parameter '%.100s' is not a whole number", name);
    return found->integer;
}

double apples_number(const char *name)
{
    struct apples_value *found = apples_parameter(name);
    if (found->kind == APPLES_STRING)
        apples_refuse("parameter-type", "the parameter '%.100s' is not a number", name);
    return found->number;
}

const char *apples_text(const char *name)
{
    struct apples_value *found = apples_parameter(name);
    if (found->kind != APPLES_STRING)
        apples_refuse("parameter-type", "the parameter '%.100s' is not a text", name);
    return found->text;
}

const char *apples_layout(int rank, long *first_row, long *rows)
{
    struct apples_piece *piece = apples_own.pieces;
    long k = rank, more;
    if (rank < 0 || rank >= apples_own.size)
        apples_refuse("rank-unknown", "unknown rank %d; MPI has %d ranks", rank, apples_own.size);
    while (k >= piece->ranks)
        k -= piece++->ranks;
    more = piece->rows % piece->ranks; /* a host's earlier ranks take the larger pieces */
    *first_row = piece->first_row + k * (piece->rows / piece->ranks) + (k < more ? k : more);
    *rows = piece->rows / piece->ranks + (k < more);
    return piece->host;
}

static struct apples_piece *apples_own_piece(void)
{
    if (!apples_own.piece)
        apples_refuse("call-order", "apples_begin comes before all other calls");
    return apples_own.piece;
}

MPI_Comm apples_comm(void) { return apples_own.comm; }
int apples_fortran_comm(void) { return (int)MPI_Comm_c2f(apples_own.comm); }
int apples_rank(void) { return apples_own.rank; }
int apples_size(void) { return apples_own.size; }
int apples_above(void) { return apples_own.rank ? apples_own.rank - 1 : MPI_PROC_NULL; }
int apples_below(void) { return apples_own.rank + 1 < apples_own.size ? apples_own.rank + 1 : MPI_PROC_NULL; }
long apples_first_row(void) { return apples_own.first_row; }
long apples_rows(void) { return apples_own.rows; }
const char *apples_host(void) { return apples_own_piece()->host; }
const char *apples_implementation(void) { return apples_own_piece()->implementation; }
int apples_threads(void) { return (int)apples_own_piece()->threads; }
const char *apples_output(void) { return apples_own.output; }
int apples_save(void) { return apples_own.save; }

/* ---- The loop ------------------------------------------------------------------------------------------------- */

/* Returns the processor time of this thread, or the mean of the threads that share the work. */
static double apples_processor_seconds(void)
{
    int threads = apples_threads();
    return apples_seconds(threads > 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_THREAD_CPUTIME_ID) / threads;
}

/* Returns the wall seconds since the last lap; the processor's are in `used`. */
static double apples_lap(double *used)
{
    struct apples_clock *clock = &apples_own.clock;
    double wall = apples_seconds(CLOCK_MONOTONIC), processor = apples_processor_seconds();
    double spent = wall - clock->wall;
    *used = processor - clock->used;
    clock->wall = wall;
    clock->used = processor;
    return spent;
}

void apples_communicating(void)
{
    double used;
    apples_own.clock.compute += apples_lap(&used);
    apples_own.clock.processor += used;
}

void apples_computing(void)
{
    double used;
    apples_own.clock.communicate += apples_lap(&used);
}

static double apples_larger(double one, double other)
{
    return one > other ? one : other;
}

static void apples_clip(double seconds, double processor)
{
    struct apples_spikes *spikes = &apples_own.spikes;
    double limit = APPLES_SPIKE_FACTOR * spikes->usual;
    if (seconds > limit) {
        spikes->excess += seconds - limit;
        if (processor > limit)
            spikes->processor_excess += processor - limit;
    }
}

static int apples_by_size(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

/* Counts an iteration that has just been computed; its spike, if it has one, is remembered. */
static void apples_count_iteration(void)
{
    struct apples_spikes *spikes = &apples_own.spikes;
    double seconds = apples_own.clock.compute - spikes->compute;
    double processor = apples_own.clock.processor - spikes->processor, sorted[APPLES_FIRST_ITERATIONS];
    int k;
    spikes->compute = apples_own.clock.compute;
    spikes->processor = apples_own.clock.processor;
    if (spikes->count < APPLES_FIRST_ITERATIONS) {
        spikes->first[spikes->count] = seconds;
        spikes->first_processor[spikes->count++] = processor;
        if (spikes->count < APPLES_FIRST_ITERATIONS)
            return;
        memcpy(sorted, spikes->first, sizeof sorted);
        qsort(sorted, APPLES_FIRST_ITERATIONS, sizeof *sorted, apples_by_size);
        spikes->usual = apples_larger(APPLES_TICK_SECONDS, sorted[APPLES_FIRST_ITERATIONS / 2]);
        for (k = 0; k < APPLES_FIRST_ITERATIONS; k++)
            apples_clip(spikes->first[k], spikes->first_processor[k]);
    } else if (seconds > spikes->usual) {
        apples_clip(seconds, processor);
        spikes->usual *= APPLES_USUAL_RISE;
    } else {
        spikes->usual = apples_larger(APPLES_TICK_SECONDS, spikes->usual * APPLES_USUAL_FALL);
    }
}

/* Reads a small file of the kernel's; returns whether it has any text. */
static int apples_read_counter(int handle, char *text, size_t room)
{
    ssize_t length = handle < 0 ? -1 : pread(handle, text, room - 1, 0);
    text[length > 0 ? length : 0] = '\0';
    return length > 0;
}

/* Opens the counters of this process: why it computes longer than it should. */
static void apples_open_counters(void)
{
    char text[4096], path[4096 + 64], *line, *next;
    int groups = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC);
    apples_own.schedule_file = open("/proc/self/schedstat", O_RDONLY | O_CLOEXEC);
    apples_own.quota_file = -1;
    apples_read_counter(groups, text, sizeof text);
    if (groups >= 0)
        close(groups);
    for (line = text; *line && apples_own.quota_file < 0; line = next) {
        char *controllers = strchr(line, ':'), *folder = controllers ? strchr(controllers + 1, ':') : NULL;
        next = line + strcspn(line, "\n");
        if (*next)
            *next++ = '\0';
        if (!folder)
            continue;
        *folder++ = '\0';
        controllers++;
        if (!*controllers || !strcmp(controllers, "cpu") || !strncmp(controllers, "cpu,", 4)) {
            snprintf(path, sizeof path, "/sys/fs/cgroup%s%s%s/cpu.stat", *controllers ? "/" : "", controllers, folder);
            apples_own.quota_file = open(path, O_RDONLY | O_CLOEXEC);
        }
    }
}

static struct apples_counters apples_read_counters(void)
{
    struct apples_counters found = {-1.0, 0.0, 0.0};
    struct rusage usage;
    char text[4096], *at;
    unsigned long long number;
    if (apples_read_counter(apples_own.schedule_file, text, sizeof text) && sscanf(text, "%*s %llu", &number) == 1)
        found.wait = 1e-9 * (double)number;
    if (apples_read_counter(apples_own.quota_file, text, sizeof text)) {
        if ((at = strstr(text, "throttled_usec ")) && sscanf(at, "%*s %llu", &number) == 1)
            found.throttled = 1e-6 * (double)number;
        else if ((at = strstr(text, "throttled_time ")) && sscanf(at, "%*s %llu", &number) == 1)
            found.throttled = 1e-9 * (double)number;
    }
    if (!getrusage(RUSAGE_SELF, &usage))
        found.faults = (double)usage.ru_majflt;
    return found;
}

/* Returns the seconds of spikes that nothing explains: who waits for a CPU is slow and has no timing spike. */
static double apples_unexplained(double stopped)
{
    struct apples_spikes *spikes = &apples_own.spikes;
    double excess = spikes->excess - spikes->explained_excess - (stopped - spikes->explained_stopped);
    spikes->unexplained += apples_larger(0.0, excess);
    spikes->explained_excess = spikes->excess;
    spikes->explained_stopped = stopped;
    return spikes->unexplained;
}

/* Gathers every rank's seconds; returns the longest since the first barrier. */
static double apples_gather(void)
{
    struct apples_clock *clock = &apples_own.clock;
    struct apples_counters now = apples_read_counters(), first = apples_own.first_counters;
    MPI_Request request;
    double mine[APPLES_COLUMNS], longest = 0.0;
    int k;
    mine[APPLES_COMPUTE] = clock->compute;
    mine[APPLES_PROCESSOR] = clock->processor;
    mine[APPLES_COMMUNICATE] = clock->communicate;
    mine[APPLES_WAIT] = now.wait < 0 ? -1.0 : now.wait - first.wait;
    mine[APPLES_THROTTLED] = now.throttled - first.throttled;
    mine[APPLES_FAULTS] = now.faults - first.faults;
    mine[APPLES_SPIKES] = now.wait < 0 ? 0.0 : apples_unexplained(mine[APPLES_WAIT] + mine[APPLES_THROTTLED]);
    mine[APPLES_PROCESSOR_SPIKES] = apples_own.spikes.processor_excess;
    mine[APPLES_ELAPSED] = apples_seconds(CLOCK_MONOTONIC) - clock->begin;
    MPI_Iallgather(mine, APPLES_COLUMNS, MPI_DOUBLE, apples_own.every, APPLES_COLUMNS, MPI_DOUBLE, apples_own.comm,
                   &request);
    apples_wait(1, &request);
    for (k = 0; k < apples_own.size; k++)
        longest = apples_larger(longest, apples_own.every[APPLES_COLUMNS * k + APPLES_ELAPSED]);
    return longest;
}

/* Adds the times of each host, the means over its ranks; what is zero, or not counted, is left out. */
static void apples_add_hosts(struct apples_line *line)
{
    static const char *const names[] = {"compute_seconds", "processor_seconds", "communicate_seconds"};
    const double *row = apples_own.every;
    long k, rank;
    apples_add(line, ", \"hosts\": [");
    for (k = 0; k < apples_own.piece_count; k++) {
        struct apples_piece *piece = apples_own.pieces + k;
        double sums[APPLES_COLUMNS], ranks = (double)piece->ranks;
        int what;
        memset(sums, 0, sizeof sums);
        for (rank = 0; rank < piece->ranks; rank++, row += APPLES_COLUMNS)
            for (what = 0; what < APPLES_COLUMNS; what++)
                sums[what] += row[what];
        apples_add(line, "%s{\"host\": ", k ? ", " : "");
        apples_add_text(line, piece->host);
        for (what = APPLES_COMPUTE; what <= APPLES_COMMUNICATE; what++) {
            apples_add(line, ", \"%s\": ", names[what]);
            apples_add_seconds(line, sums[what] / ranks);
        }
        if (apples_own.piece_count <= APPLES_MAX_DETAILED_HOSTS) {
            if (sums[APPLES_SPIKES] > 0 || sums[APPLES_PROCESSOR_SPIKES] > 0) {
                apples_add(line, ", \"clipped_compute_seconds\": ");
                apples_add_seconds(line, (sums[APPLES_COMPUTE] - sums[APPLES_SPIKES]) / ranks);
                apples_add(line, ", \"clipped_processor_seconds\": ");
                apples_add_seconds(line, (sums[APPLES_PROCESSOR] - sums[APPLES_PROCESSOR_SPIKES]) / ranks);
            }
            if (sums[APPLES_WAIT] >= 0) {
                apples_add(line, ", \"cpu_wait_seconds\": ");
                apples_add_seconds(line, sums[APPLES_WAIT] / ranks);
            }
            if (sums[APPLES_THROTTLED] > 0) {
                apples_add(line, ", \"throttled_seconds\": ");
                apples_add_seconds(line, sums[APPLES_THROTTLED] / ranks);
            }
            if (sums[APPLES_FAULTS] > 0)
                apples_add(line, ", \"major_faults\": %ld", (long)sums[APPLES_FAULTS]);
        }
        apples_add(line, "}");
    }
    apples_add(line, "]");
}

/* Adds the seconds of the loop without the timing spikes of its ranks, where there were any: one rank's spike delays
 * all; those of several ranks in one iteration overlap, but no rank computes for longer than the loop takes. */
static void apples_add_clipped(struct apples_line *line, double seconds)
{
    double spikes = 0.0, longest = 0.0;
    int k;
    for (k = 0; k < apples_own.size; k++) {
        const double *row = apples_own.every + (size_t)k * APPLES_COLUMNS;
        spikes += row[APPLES_SPIKES];
        longest = apples_larger(longest, row[APPLES_COMPUTE] - row[APPLES_SPIKES]);
    }
    if (spikes > 0) {
        apples_add(line, ", \"clipped_seconds\": ");
        apples_add_seconds(line, apples_larger(seconds - spikes, longest));
    }
}

/* Says how far the run is, and agrees on when to do so again, from nothing that one rank alone knows. */
static void apples_report(void)
{
    double seconds = apples_gather(), since = seconds - apples_own.last_seconds;
    double now = apples_own.period * (double)(apples_own.done - apples_own.last_done) / (since > 1e-9 ? since : 1e-9);
    double most = (double)(apples_own.done - apples_own.last_done) * APPLES_FASTEST_GROWTH;
    long wait = (long)(now < most ? now : most);
    apples_own.due = apples_own.done + (wait > 1 ? wait : 1);
    apples_own.last_done = apples_own.done;
    apples_own.last_seconds = seconds;
    if (apples_own.rank == 0 && !apples_own.by_hand) {
        struct apples_line line = apples_event("progress");
        apples_add(&line, ", \"iteration\": %ld, \"iterations\": %ld, \"seconds\": ", apples_own.done,
                   apples_count(apples_own.iterations_name, "iterations"));
        apples_add_seconds(&line, seconds);
        apples_add(&line, ", \"residual\": ");
        apples_add_number(&line, apples_own.residual, NULL);
        apples_add_hosts(&line);
        apples_add_clipped(&line, seconds);
        apples_say(&line);
    }
}

/* Counts an iteration of a calibration; several that are quick make one sample. */
static void apples_take_sample(void)
{
    struct apples_clock *clock = &apples_own.clock;
    double used = clock->processor - apples_own.sample_used;
    apples_own.sample_count++;
    if (used < APPLES_SAMPLE_SECONDS || apples_own.samples > APPLES_MAX_SAMPLES)
        return;
    apples_own.used_samples[apples_own.samples] = used / (double)apples_own.sample_count;
    apples_own.wall_samples[apples_own.samples++] =
        (clock->compute - apples_own.sample_wall) / (double)apples_own.sample_count;
    apples_own.sample_count = 0;
    apples_own.sample_used = clock->processor;
    apples_own.sample_wall = clock->compute;
}

static void apples_start_clock(void)
{
    double used;
    apples_barrier();
    if (apples_own.rank == 0 && !apples_own.by_hand && !apples_own.quiet) {
        struct apples_line line = apples_event("ready");
        apples_add(&line, ", \"protocol\": 1, \"program\": ");
        apples_add_text(&line, apples_own.name);
        apples_add(&line, ", \"version\": \"1\", \"ranks\": %d", apples_own.size);
        apples_say(&line);
    }
    apples_own.startup = apples_seconds(CLOCK_MONOTONIC) - apples_own.started;
    apples_own.begun = 1;
    apples_own.due = 1;
    apples_barrier();
    memset(&apples_own.clock, 0, sizeof apples_own.clock); /* what was exchanged before the loop is not measured */
    memset(&apples_own.spikes, 0, sizeof apples_own.spikes);
    apples_open_counters();
    apples_own.first_counters = apples_read_counters();
    apples_own.clock.begin = apples_seconds(CLOCK_MONOTONIC);
    apples_lap(&used);
}

int apples_iterate(void)
{
    double used;
    long last = apples_count(apples_own.iterations_name, "iterations");
    if (!apples_own.begun)
        apples_start_clock();
    if (apples_own.inside) {
        apples_own.inside = 0;
        apples_own.done++;
        if (!apples_own.calibrating && apples_own.done >= last)
            return 0;
        apples_communicating(); /* the end of this iteration's computing */
        apples_count_iteration();
        if (apples_own.calibrating)
            apples_take_sample();
        else if (apples_own.done >= apples_own.due)
            apples_report();
        apples_lap(&used);
    }
    if (apples_own.calibrating) { /* the first sample does not count, for its caches were cold */
        if (apples_own.samples > APPLES_MAX_SAMPLES ||
            (apples_own.samples > APPLES_FEWEST_SAMPLES && apples_own.clock.processor >= APPLES_SIZE_SECONDS))
            return 0;
    }
    apples_own.inside = 1;
    return 1;
}

long apples_iteration(void) { return apples_own.done; }

void apples_residual(double residual) { apples_own.residual = residual; }

void apples_exchange(void *array, size_t row_bytes, int halo)
{
    MPI_Request requests[4];
    MPI_Datatype row;
    char *at = (char *)array;
    size_t edge = row_bytes * (size_t)halo, own = row_bytes * (size_t)apples_own.rows;
    if (halo < 1 || halo > apples_own.rows || row_bytes < 1 || row_bytes > INT_MAX)
        apples_refuse("array-shape", "apples_exchange: %d rows of %lu bytes cannot be sent of a strip of %ld rows", halo,
                      (unsigned long)row_bytes, apples_own.rows);
    apples_communicating();
    MPI_Type_contiguous((int)row_bytes, MPI_BYTE, &row);
    MPI_Type_commit(&row);
    MPI_Irecv(at, halo, row, apples_above(), APPLES_HALO_TAG, apples_own.comm, requests);
    MPI_Irecv(at + edge + own, halo, row, apples_below(), APPLES_HALO_TAG, apples_own.comm, requests + 1);
    MPI_Isend(at + edge, halo, row, apples_above(), APPLES_HALO_TAG, apples_own.comm, requests + 2);
    MPI_Isend(at + own, halo, row, apples_below(), APPLES_HALO_TAG, apples_own.comm, requests + 3);
    MPI_Type_free(&row);
    apples_wait(4, requests);
    apples_computing();
}

double apples_allreduce(double value, const char *operation)
{
    static const char *const names[] = {"max", "min", "sum"};
    MPI_Op operations[3];
    int k = 0;
    double found;
    apples_own_piece();
    operations[0] = MPI_MAX;
    operations[1] = MPI_MIN;
    operations[2] = MPI_SUM;
    while (k < 3 && strcmp(names[k], operation))
        k++;
    if (k == 3)
        apples_refuse("operation-unknown", "apples_allreduce: unknown operation '%.100s'; known are max, min, sum", operation);
    apples_communicating();
    found = apples_reduced(value, operations[k]);
    apples_computing();
    return found;
}

/* ---- Digests -------------------------------------------------------------------------------------------------- */

struct apples_sha256 { /* FIPS 180-4 */
    uint32_t state[8];
    uint64_t bytes;
    unsigned char block[64];
};

static const uint32_t apples_sha256_begin[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                                0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
static const uint32_t apples_sha256_rounds[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t apples_turn(uint32_t word, int bits)
{
    return word >> bits | word << (32 - bits);
}

static void apples_sha256_block(uint32_t *state, const unsigned char *block)
{
    uint32_t words[64], at[8];
    int k;
    for (k = 0; k < 64; k++) {
        if (k < 16) {
            words[k] = (uint32_t)block[4 * k] << 24 | (uint32_t)block[4 * k + 1] << 16 |
                       (uint32_t)block[4 * k + 2] << 8 | block[4 * k + 3];
        } else {
            uint32_t early = words[k - 15], late = words[k - 2];
            words[k] = words[k - 16] + words[k - 7] + (apples_turn(early, 7) ^ apples_turn(early, 18) ^ early >> 3) +
                       (apples_turn(late, 17) ^ apples_turn(late, 19) ^ late >> 10);
        }
    }
    memcpy(at, state, sizeof at);
    for (k = 0; k < 64; k++) {
        uint32_t first, second;
        first = at[7] + (apples_turn(at[4], 6) ^ apples_turn(at[4], 11) ^ apples_turn(at[4], 25)) +
                ((at[4] & at[5]) ^ (~at[4] & at[6])) + apples_sha256_rounds[k] + words[k];
        second = (apples_turn(at[0], 2) ^ apples_turn(at[0], 13) ^ apples_turn(at[0], 22)) +
                 ((at[0] & at[1]) ^ (at[0] & at[2]) ^ (at[1] & at[2]));
        memmove(at + 1, at, 7 * sizeof *at);
        at[4] += first;
        at[0] = first + second;
    }
    for (k = 0; k < 8; k++)
        state[k] += at[k];
}

static void apples_sha256_add(struct apples_sha256 *digest, const unsigned char *from, size_t bytes)
{
    size_t held = digest->bytes % 64;
    digest->bytes += bytes;
    if (held) {
        size_t taken = bytes < 64 - held ? bytes : 64 - held;
        memcpy(digest->block + held, from, taken);
        if (held + taken < 64)
            return;
        apples_sha256_block(digest->state, digest->block);
        from += taken;
        bytes -= taken;
    }
    for (; bytes >= 64; from += 64, bytes -= 64)
        apples_sha256_block(digest->state, from);
    memcpy(digest->block, from, bytes);
}

static void apples_sha256_end(struct apples_sha256 *digest, char *letters)
{
    static const unsigned char padding[64] = {0x80};
    unsigned char length[8];
    uint64_t bits = digest->bytes * 8;
    int k;
    for (k = 0; k < 8; k++)
        length[k] = (unsigned char)(bits >> 8 * (7 - k));
    apples_sha256_add(digest, padding, 64 - (digest->bytes + 8) % 64);
    apples_sha256_add(digest, length, 8);
    for (k = 0; k < 8; k++)
        snprintf(letters + 8 * k, 9, "%08x", (unsigned)digest->state[k]);
}

/* Returns the CRC-32 (of Ethernet, and zlib's) of some bytes. */
static uint32_t apples_crc32(const unsigned char *from, size_t bytes)
{
    static uint32_t table[256];
    uint32_t crc = 0xffffffff;
    if (!table[1]) {
        uint32_t k, bit;
        for (k = 0; k < 256; k++)
            for (table[k] = k, bit = 0; bit < 8; bit++)
                table[k] = table[k] >> 1 ^ (table[k] & 1 ? 0xedb88320 : 0);
    }
    while (bytes--)
        crc = table[(crc ^ *from++) & 0xff] ^ crc >> 8;
    return ~crc;
}

/* ---- The result ----------------------------------------------------------------------------------------------- */

struct apples_sink { /* where the result goes, on the first rank */
    struct apples_sha256 digest;
    FILE *file;
    char *path, *part;
    int reason; /* of the first piece that could not be written */
};

static char *apples_path(const char *name)
{
    struct apples_line line = {NULL, 0, 0};
    apples_add(&line, "%s/%s", apples_own.output, name);
    return line.text;
}

static void apples_open_sink(struct apples_sink *sink, long columns, const char *type)
{
    struct apples_line line = {NULL, 0, 0};
    struct apples_piece *last = apples_own.pieces + apples_own.piece_count - 1;
    uint16_t one = 1;
    unsigned char head[] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, 0, 0};
    memcpy(sink->digest.state, apples_sha256_begin, sizeof apples_sha256_begin);
    if (!apples_own.save)
        return;
    mkdir(apples_own.output, 0777);
    sink->path = apples_path("result.npy");
    sink->part = apples_path("result.npy.part");
    sink->file = fopen(sink->part, "wb");
    if (!sink->file)
        apples_refuse_file(sink->part, errno);
    apples_add(&line, "{'descr': '%c%s', 'fortran_order': False, 'shape': (%ld, %ld), }",
               *(unsigned char *)&one ? '<' : '>', type, last->first_row + last->rows, columns);
    while ((line.length + 11) % 64)
        apples_add(&line, " ");
    apples_add(&line, "\n");
    head[8] = (unsigned char)(line.length & 0xff);
    head[9] = (unsigned char)(line.length >> 8);
    fwrite(head, 1, sizeof head, sink->file);
    fwrite(line.text, 1, line.length, sink->file);
    free(line.text);
}

/* Takes rows of one rank: into the digest, into the file, and a digest of each, by which it is told where results
 * differ. */
static void apples_take_rows(struct apples_sink *sink, int rank, long first_row, const unsigned char *rows, long count,
                             size_t row_bytes)
{
    struct apples_line line;
    long k, ignored[2];
    apples_sha256_add(&sink->digest, rows, (size_t)count * row_bytes);
    if (sink->file && fwrite(rows, row_bytes, (size_t)count, sink->file) < (size_t)count && !sink->reason)
        sink->reason = errno;
    if (apples_own.by_hand)
        return;
    line = apples_event("rows");
    apples_add(&line, ", \"first_row\": %ld, \"host\": ", first_row);
    apples_add_text(&line, apples_layout(rank, ignored, ignored + 1));
    apples_add(&line, ", \"rank\": %d, \"digests\": \"", rank);
    for (k = 0; k < count; k++)
        apples_add(&line, "%08x", (unsigned)apples_crc32(rows + (size_t)k * row_bytes, row_bytes));
    apples_add(&line, "\"");
    apples_say(&line);
}

/* Moves every rank's rows to the first, a piece at a time. */
static void apples_stream(struct apples_sink *sink, const char *first, size_t row_bytes, size_t stride_bytes)
{
    long step = (long)(APPLES_PIECE_BYTES / row_bytes), row, k, begin, rows;
    unsigned char *piece;
    int owner;
    if (step > APPLES_PIECE_ROWS)
        step = APPLES_PIECE_ROWS;
    step += step < 1;
    piece = (unsigned char *)apples_memory((size_t)step * row_bytes);
    for (owner = 0; owner < apples_own.size; owner++) {
        apples_layout(owner, &begin, &rows);
        for (row = 0; row < rows && (owner == apples_own.rank || !apples_own.rank); row += step) {
            long count = rows - row < step ? rows - row : step;
            size_t bytes = (size_t)count * row_bytes;
            MPI_Request request = MPI_REQUEST_NULL;
            for (k = 0; owner == apples_own.rank && k < count; k++)
                memcpy(piece + (size_t)k * row_bytes, first + (size_t)(row + k) * stride_bytes, row_bytes);
            if (owner && apples_own.rank)
                MPI_Isend(piece, (int)bytes, MPI_BYTE, 0, APPLES_RESULT_TAG, apples_own.comm, &request);
            else if (owner)
                MPI_Irecv(piece, (int)bytes, MPI_BYTE, owner, APPLES_RESULT_TAG, apples_own.comm, &request);
            apples_wait(1, &request);
            if (apples_own.rank == 0)
                apples_take_rows(sink, owner, begin + row, piece, count, row_bytes);
        }
    }
    free(piece);
}

static void apples_say_result(struct apples_sink *sink, double seconds)
{
    char digest[65];
    struct apples_line line;
    if (sink->file) {
        int wrong = ferror(sink->file);
        if (fclose(sink->file) || wrong || rename(sink->part, sink->path)) {
            int reason = sink->reason ? sink->reason : errno;
            unlink(sink->part);
            apples_refuse_file(sink->path, reason);
        }
    }
    apples_sha256_end(&sink->digest, digest);
    if (apples_own.by_hand) {
        struct apples_value *one;
        printf("%ld iterations in %.3g s on %d rank%s (", apples_own.done, seconds, apples_own.size,
               apples_own.size > 1 ? "s" : "");
        for (one = apples_own.parameters->child; one; one = one->next) {
            printf("%s%s=", one == apples_own.parameters->child ? "" : ", ", one->name);
            if (one->kind == APPLES_STRING)
                printf("%s", one->text);
            else if (one->kind == APPLES_NUMBER)
                printf("%.12g", one->number);
            else
                printf("%ld", one->integer);
        }
        printf("), sha256 %.16s\n", digest);
        fflush(stdout);
        return;
    }
    line = apples_event("result");
    apples_add(&line, ", \"iterations\": %ld, \"seconds\": ", apples_own.done);
    apples_add_seconds(&line, seconds);
    apples_add(&line, ", \"startup_seconds\": ");
    apples_add_seconds(&line, apples_own.startup);
    apples_add(&line, ", \"residual\": ");
    apples_add_number(&line, apples_own.residual, NULL);
    apples_add(&line, ", \"sha256\": \"%s\", \"files\": [", digest);
    if (sink->file)
        apples_add_text(&line, sink->path);
    apples_add(&line, "]");
    apples_add_hosts(&line);
    apples_add_clipped(&line, seconds);
    apples_say(&line);
}

static void apples_say_calibration(void)
{
    double columns = (double)apples_count(apples_own.columns_name, "columns");
    double points = (double)apples_own.rows * columns / apples_threads(); /* those of each thread */
    double *used = apples_own.used_samples + 1, wall = 0.0, middle;
    long count = apples_own.samples - 1, k, quarter;
    struct apples_line line;
    if (count < 1) { /* the loop was left early: all of it is the one sample */
        long done = apples_own.done > 0 ? apples_own.done : 1;
        count = 1;
        used[0] = apples_own.clock.processor / (double)done;
        apples_own.wall_samples[1] = apples_own.clock.compute / (double)done;
    }
    /* The longest sample counts no more than APPLES_SPIKE_FACTOR times the next: it may be a spike. */
    qsort(apples_own.wall_samples + 1, (size_t)count, sizeof(double), apples_by_size);
    if (count > 1 && apples_own.wall_samples[count] > APPLES_SPIKE_FACTOR * apples_own.wall_samples[count - 1])
        apples_own.wall_samples[count] = APPLES_SPIKE_FACTOR * apples_own.wall_samples[count - 1];
    for (k = 0; k < count; k++)
        wall += apples_own.wall_samples[1 + k] / (double)count;
    qsort(used, (size_t)count, sizeof *used, apples_by_size);
    quarter = count / 4;
    middle = (used[(count - 1) / 2] + used[count / 2]) / 2;
    line = apples_event("calibration");
    apples_add(&line, ", \"rows\": %ld, \"seconds_per_point\": ", apples_own.rows);
    apples_add_number(&line, middle / points, NULL);
    apples_add(&line, ", \"error\": ");
    apples_add_number(&line, (used[count - 1 - quarter] - used[quarter]) / 2 / points, NULL);
    apples_add(&line, ", \"repeats\": %ld, \"wall_seconds_per_point\": ", count);
    apples_add_number(&line, wall / points, NULL);
    apples_say(&line);
}

void apples_result(const void *first, long rows, long columns, long stride, const char *type)
{
    struct apples_sink sink;
    size_t item = 0;
    double seconds;
    if (!apples_own.begun)
        apples_refuse("result-too-early", "apples_result comes after the loop of apples_iterate()");
    if (apples_own.inside)
        apples_own.done++;
    apples_own.inside = 0;
    apples_communicating();
    if (!strcmp(type, "f4") || !strcmp(type, "i4"))
        item = 4;
    else if (!strcmp(type, "f8") || !strcmp(type, "i8"))
        item = 8;
    else
        apples_refuse("result-format-invalid", "apples_result: unknown type '%.100s'; known are f4, f8, i4, i8", type);
    if (rows != apples_own.rows)
        apples_refuse("result-shape", "the result has %ld rows on rank %d; the plan gives it %ld: name the parameter"
                      " that counts rows in apples_begin", rows, apples_own.rank, apples_own.rows);
    if (columns < 1 || columns > INT_MAX / 8 || stride < columns)
        apples_refuse("result-shape", "apples_result: rows of %ld elements, %ld from one to the next", columns, stride);
    apples_barrier();
    apples_own.told = 1;
    seconds = apples_gather();
    if (apples_reduced((double)columns, MPI_MAX) != (double)columns ||
        apples_reduced((double)columns, MPI_MIN) != (double)columns)
        apples_refuse("result-shape", "the rows of the result have %ld elements on rank %d, and others on others", columns,
                      apples_own.rank);
    if (apples_own.calibrating) {
        apples_say_calibration();
        return;
    }
    memset(&sink, 0, sizeof sink);
    if (apples_own.rank == 0)
        apples_open_sink(&sink, columns, type);
    apples_stream(&sink, (const char *)first, (size_t)columns * item, (size_t)stride * item);
    apples_barrier();
    if (apples_own.rank == 0)
        apples_say_result(&sink, seconds);
    free(sink.path);
    free(sink.part);
}

void apples_end(void)
{
    if (!apples_own.told)
        apples_refuse("program-result-missing", "the program ended without apples_result(..)");
    apples_barrier();
    if (apples_own.rank == 0 && !apples_own.by_hand && !apples_own.quiet) {
        struct apples_line line = apples_event("done");
        apples_say(&line);
    }
    apples_own.ended = 1;
    if (apples_own.initialised)
        MPI_Finalize();
}

#endif /* APPLES_IMPLEMENTATION */
