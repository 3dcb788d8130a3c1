/* An MPI library, put before the one a program was linked with, whose ranks can be moved between hosts.
 *
 * A checkpoint of a process cannot have the sockets and the shared memory of an MPI library in it. This one has
 * sockets only, and can do without them: when the manager of the job asks for a stop, every rank, inside whatever
 * MPI call it is in or enters next, sends the others all that waits to be sent and then a CLOSE, receives until it
 * has the CLOSE of each of them, and closes its sockets. No message is in flight then: what came and nobody has
 * received yet is in the memory of its receiver, so it is in the checkpoint. The rank waits for the file that says
 * where the others are now, connects, and goes on inside the same call (Stellner's CoCheck, 1996, had this order).
 *
 * It has the calls below, on MPI_COMM_WORLD, MPI_COMM_SELF and their duplicates, with the basic types and
 * operations, one call at a time. Every other MPI function ends the program with its name: `ranks.py` generates
 * a stub of each. The ranks of a collective operation are taken in their order, whatever arrives first.
 *
 * Files of the job's folder (APPLES_MPI), EPOCH being the number of the connection, from 0:
 *   key             what tells a rank's connection from a stranger's
 *   order           "EPOCH TRY ready" or "EPOCH TRY stop", written by the manager when it wants the next connection
 *   ready.TRY.R     rank R has seen the order inside an MPI call; the file descriptors of its sockets
 *   stopped.EPOCH.R rank R has no socket any more
 *   go.EPOCH        a line a rank: its address from now on
 *   port.EPOCH.R    where rank R listens
 *   connected.EPOCH.R  rank R has a connection to every other
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <mpi.h>
#ifndef MPICH_VERSION
#error "the header is not MPICH's"
#endif

/* A file is polled inside MPI calls. A signal in its place would end a sleep of the program
   early. */
#define LOOK_SECONDS 0.05
#define CONNECT_SECONDS 60.0
#define STRANGER_SECONDS 10.0 /* a rank that is held up between its connection and its first word has these too */
#define CALLERS 64
#define LOST_SECONDS 10
#define STEP_MILLISECONDS 50
#define KEY_BYTES 32

enum kind { DATA, CLOSE, FIN };
struct header { uint32_t kind; int32_t context; int32_t tag; int32_t source; uint64_t bytes; };

struct message {
    struct message *next;
    struct header head;
    char data[];
};

struct peer {
    int fd;
    char *out;              /* bytes that wait to be sent: out[begin:end] */
    size_t begin, end, room;
    struct header head;     /* of the message that is arriving */
    size_t head_bytes, body_bytes;
    struct message *arriving;
    int closed, finished;   /* its CLOSE, its FIN has come */
};

struct request {
    int used, receive, done, context, source, tag, error;
    void *buffer;
    uint64_t room;
    uint64_t order;
    MPI_Status status;
};

static char folder[4096];
static int rank_, size_, epoch_, started, finished, stopping, draining, finishing;
static char key[KEY_BYTES];
static struct peer *peers;
static uint64_t *written, *queued; /* bytes of each peer's stream: sent, and put in the queue */
static struct message *first_message, **last_message = &first_message;
static struct request *requests;
static int request_count;
static uint64_t posted;
static double last_look;
static struct pollfd *polled;
static int dup_count = 1;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static void say(const char *form, va_list words)
{
    char line[1024];
    int length = snprintf(line, 64, "apples: rank %d: ", rank_);
    length += vsnprintf(line + length, sizeof line - 1 - length, form, words);
    length = length < (int)sizeof line - 1 ? length : (int)sizeof line - 2;
    line[length++] = '\n';
    fflush(NULL);
    if (write(2, line, length) < 0)
        _exit(2);
}

static void fail(const char *form, ...)
{
    va_list words;
    va_start(words, form);
    say(form, words);
    _exit(1);
}

/* Another rank is gone: its own end is the job's reason, so this one waits to be ended with the job. */
static void lost(const char *form, ...)
{
    va_list words;
    struct timespec patience = {LOST_SECONDS, 0};
    va_start(words, form);
    say(form, words);
    while (nanosleep(&patience, &patience) && errno == EINTR)
        ;
    _exit(1);
}

/* Called by the stubs of all functions that are not here. */
int apples_outside(const char *name)
{
    fail("%s is not among the MPI calls of a program that can be moved", name);
    return MPI_ERR_OTHER;
}

/* ------------------------------------------------------------------ files */

static int read_file(char *text, size_t room, const char *form, ...)
{
    char name[256], path[4400];
    va_list words;
    va_start(words, form);
    vsnprintf(name, sizeof name, form, words);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t got = read(fd, text, room - 1);
    close(fd);
    text[got > 0 ? got : 0] = 0;
    return got > 0;
}

/* Returns whether it was written: the disk may be full. */
static int write_file(const char *text, const char *form, ...)
{
    char name[256], path[4400], fresh[4500];
    va_list words;
    va_start(words, form);
    vsnprintf(name, sizeof name, form, words);
    va_end(words);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    snprintf(fresh, sizeof fresh, "%s.new", path);
    int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ssize_t length = strlen(text);
    if (fd < 0)
        return 0;
    int whole = write(fd, text, length) == length;
    return close(fd) == 0 && whole && rename(fresh, path) == 0;
}

static void pause_shortly(void)
{
    struct timespec step = {0, 2000000};
    nanosleep(&step, NULL);
}

/* ------------------------------------------------------------ connections */

static void all_bytes(int fd, void *data, size_t bytes, double until, int out)
{
    char *at = data;
    while (bytes) {
        ssize_t done = out ? send(fd, at, bytes, MSG_NOSIGNAL) : recv(fd, at, bytes, 0);
        if (done > 0) {
            at += done;
            bytes -= done;
        } else if (done == 0 || (errno != EAGAIN && errno != EINTR)) {
            lost("a connection was lost while it was made");
        } else if (now() > until) {
            fail("a connection was not made in %g s", CONNECT_SECONDS);
        } else {
            pause_shortly();
        }
    }
}

static void own(int fd)
{
    int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    fcntl(fd, F_SETFL, O_NONBLOCK);
}

/* Connects, waiting no longer than until then; returns the socket, or -1 with errno. */
static int reached(const struct sockaddr_in *where, double until)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), why = 0;
    socklen_t length = sizeof why;
    if (fd < 0)
        return -1;
    if (connect(fd, (const struct sockaddr *)where, sizeof *where) == 0)
        return fd;
    why = errno;
    if (why == EINPROGRESS || why == EINTR) {
        struct pollfd made = {fd, POLLOUT, 0};
        while (poll(&made, 1, STEP_MILLISECONDS) <= 0 && now() < until)
            ;
        why = ETIMEDOUT;
        if (made.revents && getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &length))
            why = errno;
    }
    if (why) {
        close(fd);
        errno = why;
        return -1;
    }
    return fd;
}

struct hello { char key[KEY_BYTES]; int32_t rank, epoch; };

static int connected(int other, const char *address, double until)
{
    char text[64];
    while (!read_file(text, sizeof text, "port.%d.%d", epoch_, other)) {
        if (now() > until)
            lost("rank %d did not say where it is in %g s", other, CONNECT_SECONDS);
        pause_shortly();
    }
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_port = htons(atoi(text))};
    if (inet_pton(AF_INET, address, &where.sin_addr) != 1)
        fail("%s is no address", address);
    for (;;) {
        int fd = reached(&where, until);
        if (fd >= 0) {
            struct hello hello = {.rank = rank_, .epoch = epoch_};
            memcpy(hello.key, key, KEY_BYTES);
            own(fd);
            all_bytes(fd, &hello, sizeof hello, until, 1);
            return fd;
        }
        if (now() > until)
            lost("cannot reach rank %d at %s: %s", other, address, strerror(errno));
        pause_shortly();
    }
}

struct caller { int fd; size_t got; double until; struct hello hello; };

/* Hears one who has connected; returns whether it is a rank that was missing. Who is not, or says nothing for too
 * long, is let go. */
static int heard(struct caller *caller)
{
    struct hello *hello = &caller->hello;
    ssize_t more = recv(caller->fd, (char *)hello + caller->got, sizeof *hello - caller->got, 0);
    if (more > 0)
        caller->got += more;
    int over = more == 0 || (more < 0 && errno != EAGAIN && errno != EINTR) || now() > caller->until;
    if (caller->got < sizeof *hello && !over)
        return 0;
    int known = caller->got == sizeof *hello && !memcmp(hello->key, key, KEY_BYTES) && hello->epoch == epoch_ &&
                hello->rank > rank_ && hello->rank < size_ && peers[hello->rank].fd < 0;
    if (known) {
        own(caller->fd);
        peers[hello->rank].fd = caller->fd;
    } else {
        close(caller->fd);
    }
    caller->fd = -1;
    return known;
}

/* Takes the connections of the ranks after this one. All who call are heard at once: a stranger holds nobody up. */
static void accept_all(int listener, int missing, double until)
{
    struct caller callers[CALLERS];
    for (int n = 0; n < CALLERS; n++)
        callers[n].fd = -1;
    while (missing) {
        int more = 1; /* who may be waiting to be accepted */
        for (int n = 0; n < CALLERS; n++) {
            struct caller *caller = &callers[n];
            if (caller->fd < 0 && more) {
                caller->fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
                caller->got = 0;
                caller->until = now() + STRANGER_SECONDS;
                more = caller->fd >= 0;
            }
            if (caller->fd >= 0)
                missing -= heard(caller);
        }
        if (missing && now() > until)
            lost("not all ranks connected in %g s", CONNECT_SECONDS);
        pause_shortly();
    }
    for (int n = 0; n < CALLERS; n++)
        if (callers[n].fd >= 0)
            close(callers[n].fd);
}

static void connect_all(void)
{
    double until = now() + CONNECT_SECONDS;
    size_t room = 64 * (size_t)size_ + 64;
    char *lines = malloc(room), text[64], *line;
    while (!read_file(lines, room, "go.%d", epoch_)) {
        if (epoch_ == 0 && now() > until)
            fail("no order to go in %g s", CONNECT_SECONDS);
        pause_shortly();
    }
    until = now() + CONNECT_SECONDS;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_in here = {.sin_family = AF_INET};
    socklen_t length = sizeof here;
    if (listener < 0 || bind(listener, (struct sockaddr *)&here, length) || listen(listener, size_ + CALLERS) ||
        getsockname(listener, (struct sockaddr *)&here, &length))
        fail("cannot listen: %s", strerror(errno));
    snprintf(text, sizeof text, "%d\n", ntohs(here.sin_port));
    while (!write_file(text, "port.%d.%d", epoch_, rank_)) {
        if (now() > until)
            fail("%s/port.%d.%d: %s", folder, epoch_, rank_, strerror(errno));
        pause_shortly();
    }
    line = strtok(lines, "\n");
    for (int other = 0; other < rank_; other++, line = strtok(NULL, "\n")) {
        if (!line)
            fail("go.%d has fewer lines than ranks", epoch_);
        peers[other].fd = connected(other, line, until);
    }
    accept_all(listener, size_ - rank_ - 1, until);
    close(listener);
    free(lines);
    while (!write_file("-\n", "connected.%d.%d", epoch_, rank_) && now() < until)
        pause_shortly();
}

/* ---------------------------------------------------------------- messages */

static const struct header from_nobody = {DATA, 0, MPI_ANY_TAG, MPI_PROC_NULL, 0};

/* Whether a message was sent on MPI_COMM_SELF or a duplicate of it, on which this rank is 0. */
static int of_self(const struct header *head)
{
    return (head->context >> 1 & 1) && head->source == rank_;
}

static void copy_to(struct request *request, const struct header *head, const char *data)
{
    uint64_t bytes = head->bytes;
    if (bytes > request->room) {
        request->error = MPI_ERR_TRUNCATE;
        bytes = request->room;
    }
    memcpy(request->buffer, data, bytes);
    request->status = (MPI_Status){.count_lo = (int)bytes, .count_hi_and_cancelled = (int)(bytes >> 32) << 1};
    request->status.MPI_SOURCE = of_self(head) ? 0 : head->source;
    request->status.MPI_TAG = head->tag;
    request->status.MPI_ERROR = request->error;
    request->done = 1;
}

static int matches(int context, int source, int tag, const struct header *head)
{
    return head->context == context && (source == MPI_ANY_SOURCE || head->source == source) &&
           (tag == MPI_ANY_TAG || head->tag == tag);
}

static void deliver(struct message *message)
{
    struct request *best = NULL;
    for (int n = 0; n < request_count; n++) {
        struct request *one = &requests[n];
        if (one->used && one->receive && !one->done && (!best || one->order < best->order) &&
            matches(one->context, one->source, one->tag, &message->head))
            best = one;
    }
    if (best) {
        copy_to(best, &message->head, message->data);
        free(message);
        return;
    }
    message->next = NULL;
    *last_message = message;
    last_message = &message->next;
}

static struct message *take(int context, int source, int tag, int keep)
{
    for (struct message **at = &first_message; *at; at = &(*at)->next) {
        struct message *found = *at;
        if (matches(context, source, tag, &found->head)) {
            if (!keep) {
                *at = found->next;
                if (last_message == &found->next)
                    last_message = at;
            }
            return found;
        }
    }
    return NULL;
}

static void queue(int to, const void *data, size_t bytes)
{
    struct peer *peer = &peers[to];
    if (peer->begin == peer->end)
        peer->begin = peer->end = 0;
    if (peer->end + bytes > peer->room) {
        memmove(peer->out, peer->out + peer->begin, peer->end - peer->begin);
        peer->end -= peer->begin;
        peer->begin = 0;
        if (peer->end + bytes > peer->room) {
            peer->room = 2 * (peer->end + bytes);
            if (!(peer->out = realloc(peer->out, peer->room)))
                fail("no memory for what waits to be sent");
        }
    }
    memcpy(peer->out + peer->end, data, bytes);
    peer->end += bytes;
    queued[to] += bytes;
}

static void flush_to(int to)
{
    struct peer *peer = &peers[to];
    while (peer->begin < peer->end) {
        ssize_t done = send(peer->fd, peer->out + peer->begin, peer->end - peer->begin, MSG_NOSIGNAL);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0 && errno == EAGAIN)
            return;
        if (done < 0)
            lost("the connection to rank %d was lost: %s", to, strerror(errno));
        peer->begin += done;
        written[to] += done;
    }
}

static void post(int to, int context, int tag, const void *data, uint64_t bytes)
{
    struct header head = {DATA, context, tag, rank_, bytes};
    if (to == rank_) {
        struct message *message = malloc(sizeof *message + bytes);
        if (!message)
            fail("no memory for a message");
        message->head = head;
        memcpy(message->data, data, bytes);
        deliver(message);
        return;
    }
    queue(to, &head, sizeof head);
    queue(to, data, bytes);
    flush_to(to);
}

static void receive_from(int from)
{
    struct peer *peer = &peers[from];
    while (!peer->closed) {
        ssize_t got;
        if (peer->head_bytes < sizeof peer->head) {
            char *at = (char *)&peer->head + peer->head_bytes;
            got = recv(peer->fd, at, sizeof peer->head - peer->head_bytes, 0);
        } else {
            char *at = peer->arriving->data + peer->body_bytes;
            got = recv(peer->fd, at, peer->head.bytes - peer->body_bytes, 0);
        }
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN)
            return;
        if (got <= 0 && peer->finished && peer->head_bytes == 0) {
            close(peer->fd);
            peer->fd = -1;
            return;
        }
        if (got <= 0)
            lost("rank %d ended", from);
        if (peer->head_bytes < sizeof peer->head) {
            if ((peer->head_bytes += got) < sizeof peer->head)
                continue;
            if (peer->head.kind == DATA) {
                peer->arriving = malloc(sizeof *peer->arriving + peer->head.bytes);
                if (!peer->arriving)
                    fail("no memory for a message of %llu bytes", (unsigned long long)peer->head.bytes);
                peer->arriving->head = peer->head;
                peer->body_bytes = 0;
            }
        } else {
            peer->body_bytes += got;
        }
        if (peer->head.kind == CLOSE) {
            peer->closed = stopping = 1;
        } else if (peer->head.kind == FIN) {
            peer->finished = 1;
        } else if (peer->body_bytes == peer->head.bytes) {
            deliver(peer->arriving);
            peer->arriving = NULL;
        } else {
            continue;
        }
        peer->head_bytes = 0;
    }
}

static void exchange(int patience)
{
    int count = 0;
    for (int other = 0; other < size_; other++) {
        struct peer *peer = &peers[other];
        if (peer->fd < 0)
            continue;
        short events = (peer->closed ? 0 : POLLIN) | (peer->begin < peer->end ? POLLOUT : 0);
        polled[count++] = (struct pollfd){peer->fd, events, 0};
    }
    if (poll(polled, count, patience) <= 0)
        return;
    for (int other = 0; other < size_; other++) {
        for (int n = 0; n < count; n++) {
            if (polled[n].fd != peers[other].fd || !polled[n].revents)
                continue;
            if (peers[other].begin < peers[other].end)
                flush_to(other);
            receive_from(other);
            break;
        }
    }
}

/* ------------------------------------------------------------------- stops */

static void look(void)
{
    static int announced = 0;
    char text[64], word[16], *fds;
    int wanted, attempt;
    double moment = now();
    if (moment >= last_look && moment - last_look < LOOK_SECONDS) /* another host's clock may be behind */
        return;
    last_look = moment;
    if (!read_file(text, sizeof text, "order") || sscanf(text, "%d %d %15s", &wanted, &attempt, word) != 3 ||
        wanted != epoch_ + 1)
        return;
    if (announced < attempt) {
        size_t room = 16 * (size_t)size_ + 16, at = 0;
        fds = malloc(room);
        fds[at = 0] = 0;
        for (int other = 0; other < size_; other++)
            if (peers[other].fd >= 0)
                at += snprintf(fds + at, room - at, "%d ", peers[other].fd);
        snprintf(fds + at, room - at, "\n");
        if (write_file(fds, "ready.%d.%d", attempt, rank_)) /* else at the next look: no move is worth the program */
            announced = attempt;
        free(fds);
    }
    if (!strcmp(word, "stop") && !finishing)
        stopping = 1;
}

static void stop(void)
{
    struct header close_head = {CLOSE, 0, 0, rank_, 0};
    draining = 1;
    for (int other = 0; other < size_; other++)
        if (peers[other].fd >= 0)
            queue(other, &close_head, sizeof close_head);
    for (;;) {
        int left = 0;
        for (int other = 0; other < size_; other++)
            left += peers[other].fd >= 0 && (!peers[other].closed || peers[other].begin < peers[other].end);
        if (!left)
            break;
        exchange(STEP_MILLISECONDS);
    }
    for (int other = 0; other < size_; other++) {
        if (peers[other].fd >= 0)
            close(peers[other].fd);
        peers[other].fd = -1;
        peers[other].closed = 0;
    }
    epoch_++;
    double until = now() + CONNECT_SECONDS;
    while (!write_file("-\n", "stopped.%d.%d", epoch_, rank_) && now() < until)
        pause_shortly(); /* the manager gives the move up, and lets all connect again */
    connect_all();
    stopping = draining = 0;
}

static void progress(int patience)
{
    look();
    exchange(stopping ? 0 : patience);
    if (stopping && !draining)
        stop();
}

/* ---------------------------------------------------------------- requests */

static int new_request(void)
{
    for (int n = 0; n < request_count; n++) {
        if (!requests[n].used) {
            memset(&requests[n], 0, sizeof requests[n]);
            requests[n].used = 1;
            return n;
        }
    }
    int fresh = request_count;
    request_count = request_count ? 2 * request_count : 64;
    requests = realloc(requests, request_count * sizeof *requests);
    if (!requests)
        fail("no memory for requests");
    memset(requests + fresh, 0, (request_count - fresh) * sizeof *requests);
    requests[fresh].used = 1;
    return fresh;
}

static int begin_send(const void *data, uint64_t bytes, int to, int tag, int context)
{
    int n = new_request();
    if (to < 0 && to != MPI_PROC_NULL)
        fail("there is no rank %d", to);
    requests[n].status = (MPI_Status){.MPI_SOURCE = MPI_ANY_SOURCE, .MPI_TAG = MPI_ANY_TAG};
    if (to != MPI_PROC_NULL)
        post(to, context, tag, data, bytes);
    requests[n].done = 1; /* its bytes were copied; they are sent as the other takes them */
    return n;
}

static int begin_receive(void *data, uint64_t bytes, int from, int tag, int context)
{
    int n = new_request();
    struct request *one = &requests[n];
    *one = (struct request){.used = 1, .receive = 1, .context = context, .source = from, .tag = tag};
    one->buffer = data;
    one->room = bytes;
    one->order = ++posted;
    if (from == MPI_PROC_NULL) {
        copy_to(one, &from_nobody, "");
        return n;
    }
    struct message *found = take(context, from, tag, 0);
    if (found) {
        copy_to(one, &found->head, found->data);
        free(found);
    }
    return n;
}

static int end_request(int n, MPI_Status *status)
{
    int error = requests[n].error;
    if (status && status != MPI_STATUS_IGNORE)
        *status = requests[n].status;
    requests[n].used = 0;
    return error;
}

static int finish(int n, MPI_Status *status)
{
    while (!requests[n].done)
        progress(STEP_MILLISECONDS);
    return end_request(n, status);
}

static int send_now(const void *data, uint64_t bytes, int to, int tag, int context)
{
    int n = begin_send(data, bytes, to, tag, context);
    progress(0);
    if (to >= 0 && to != rank_) { /* what is sent in one call does not pile up */
        uint64_t until = queued[to];
        while (written[to] < until)
            progress(STEP_MILLISECONDS);
    }
    return finish(n, NULL);
}

static int receive_now(void *data, uint64_t bytes, int from, int tag, int context, MPI_Status *status)
{
    progress(0);
    return finish(begin_receive(data, bytes, from, tag, context), status);
}

/* ------------------------------------------------- communicators and types */

#define DUP 0x84000000u /* a duplicate: twice its number, and 1 where it is of MPI_COMM_SELF */

static int is_self(MPI_Comm comm)
{
    return comm == MPI_COMM_SELF || (((unsigned)comm & 0xff000000u) == DUP && (comm & 1));
}

static int context_of(MPI_Comm comm, int collective)
{
    unsigned number;
    if (!started || finished)
        fail("MPI is not initialized");
    if (comm == MPI_COMM_WORLD)
        number = 0;
    else if (comm == MPI_COMM_SELF)
        number = 1;
    else if (((unsigned)comm & 0xff000000u) == DUP)
        number = comm & 0xffffff;
    else
        fail("a communicator that is no duplicate of MPI_COMM_WORLD or MPI_COMM_SELF");
    return 2 * number + collective;
}

static int ranks_of(MPI_Comm comm) { return is_self(comm) ? 1 : size_; }
static int rank_in(MPI_Comm comm) { return is_self(comm) ? 0 : rank_; }

static uint64_t type_bytes(MPI_Datatype type)
{
    if (((unsigned)type & 0xff000000u) != 0x4c000000u)
        fail("a type that is not one of MPI's basic types");
    return ((unsigned)type >> 8) & 0xff;
}

static int other_of(MPI_Comm comm, int other)
{
    if (other == MPI_PROC_NULL || other == MPI_ANY_SOURCE)
        return other;
    if (other < 0 || other >= ranks_of(comm))
        fail("there is no rank %d", other);
    return is_self(comm) ? rank_ : other;
}

#define REQUEST(n) ((MPI_Request)(0x98000000u + (unsigned)(n)))
#define NUMBER(request) ((int)((unsigned)(request) - 0x98000000u))

static int number_of(MPI_Request request)
{
    int n = NUMBER(request);
    if (n < 0 || n >= request_count || !requests[n].used)
        fail("a request that is not of a call of this library");
    return n;
}

/* -------------------------------------------------------------- operations */

#define FOLD(T, EXPRESSION)                                                                       \
    {                                                                                             \
        T *x = into;                                                                              \
        const T *y = from;                                                                        \
        for (uint64_t n = 0; n < count; n++) {                                                    \
            T a = x[n], b = y[n];                                                                 \
            x[n] = EXPRESSION;                                                                    \
        }                                                                                         \
        return;                                                                                   \
    }
#define ORDERED(T)                                                                                \
    if (op == MPI_SUM) FOLD(T, a + b)                                                             \
    if (op == MPI_PROD) FOLD(T, a * b)                                                            \
    if (op == MPI_MAX) FOLD(T, a > b ? a : b)                                                     \
    if (op == MPI_MIN) FOLD(T, a < b ? a : b)
#define WHOLE(T)                                                                                  \
    ORDERED(T)                                                                                    \
    if (op == MPI_LAND) FOLD(T, a && b)                                                           \
    if (op == MPI_LOR) FOLD(T, a || b)                                                            \
    if (op == MPI_LXOR) FOLD(T, !a != !b)                                                         \
    if (op == MPI_BAND) FOLD(T, a & b)                                                            \
    if (op == MPI_BOR) FOLD(T, a | b)                                                             \
    if (op == MPI_BXOR) FOLD(T, a ^ b)
#define SAME(A) (type == (A))

/* into[n] = into[n] op from[n] */
static void fold(void *into, const void *from, uint64_t count, MPI_Datatype type, MPI_Op op)
{
    if (SAME(MPI_DOUBLE)) { ORDERED(double) }
    else if (SAME(MPI_FLOAT)) { ORDERED(float) }
    else if (SAME(MPI_LONG_DOUBLE)) { ORDERED(long double) }
    else if (SAME(MPI_INT) || SAME(MPI_INT32_T)) { WHOLE(int32_t) }
    else if (SAME(MPI_LONG) || SAME(MPI_LONG_LONG) || SAME(MPI_INT64_T) || SAME(MPI_AINT) ||
             SAME(MPI_COUNT) || SAME(MPI_OFFSET)) { WHOLE(int64_t) }
    else if (SAME(MPI_UNSIGNED) || SAME(MPI_UINT32_T)) { WHOLE(uint32_t) }
    else if (SAME(MPI_UNSIGNED_LONG) || SAME(MPI_UNSIGNED_LONG_LONG) || SAME(MPI_UINT64_T)) { WHOLE(uint64_t) }
    else if (SAME(MPI_SHORT) || SAME(MPI_INT16_T)) { WHOLE(int16_t) }
    else if (SAME(MPI_UNSIGNED_SHORT) || SAME(MPI_UINT16_T)) { WHOLE(uint16_t) }
    else if (SAME(MPI_SIGNED_CHAR) || SAME(MPI_INT8_T)) { WHOLE(int8_t) }
    else if (SAME(MPI_UNSIGNED_CHAR) || SAME(MPI_UINT8_T) || SAME(MPI_BYTE) || SAME(MPI_C_BOOL)) { WHOLE(uint8_t) }
    fail("a reduction with an operation or a type that is not among those of a program that can be moved");
}

/* ------------------------------------------------------------- collectives */

static int bcast(void *data, uint64_t bytes, int root, MPI_Comm comm)
{
    int context = context_of(comm, 1), ranks = ranks_of(comm);
    if (is_self(comm))
        return MPI_SUCCESS;
    int place = (rank_ - root + ranks) % ranks, step = 1, error = MPI_SUCCESS;
    for (; step < ranks; step *= 2) {
        if (place & step) {
            error = receive_now(data, bytes, (place - step + root) % ranks, 1, context, NULL);
            break;
        }
    }
    for (step /= 2; step; step /= 2)
        if (place + step < ranks)
            send_now(data, bytes, (place + step + root) % ranks, 1, context);
    progress(0);
    return error;
}

static int gatherv(const void *data, uint64_t bytes, char *into, const uint64_t *at, const uint64_t *room,
                   int root, MPI_Comm comm)
{
    int context = context_of(comm, 1), ranks = ranks_of(comm), me = rank_in(comm), error = MPI_SUCCESS;
    if (me != root)
        return send_now(data, bytes, other_of(comm, root), 2, context);
    for (int other = 0; other < ranks; other++) {
        if (other != me)
            error |= receive_now(into + at[other], room[other], other_of(comm, other), 2, context, NULL);
        else if (data != MPI_IN_PLACE)
            memmove(into + at[other], data, bytes);
    }
    progress(0);
    return error;
}

static int scatterv(const char *from, const uint64_t *at, const uint64_t *length, void *data, uint64_t bytes,
                    int root, MPI_Comm comm)
{
    int context = context_of(comm, 1), ranks = ranks_of(comm), me = rank_in(comm);
    if (me != root)
        return receive_now(data, bytes, other_of(comm, root), 3, context, NULL);
    for (int other = 0; other < ranks; other++) {
        if (other != me)
            send_now(from + at[other], length[other], other_of(comm, other), 3, context);
        else if (data != MPI_IN_PLACE)
            memmove(data, from + at[other], length[other]);
    }
    return MPI_SUCCESS;
}

/* In the order of the ranks, so that a sum does not depend on when what arrives. */
static int reduce(const void *data, void *into, uint64_t count, MPI_Datatype type, MPI_Op op, int root,
                  MPI_Comm comm)
{
    uint64_t bytes = count * type_bytes(type);
    int context = context_of(comm, 1), ranks = ranks_of(comm), me = rank_in(comm), error = MPI_SUCCESS;
    const void *mine = data == MPI_IN_PLACE ? into : data;
    if (me != root)
        return send_now(mine, bytes, other_of(comm, root), 4, context);
    char *sum = malloc(bytes + 1), *next = malloc(bytes + 1);
    if (!sum || !next)
        fail("no memory for a reduction");
    for (int other = 0; other < ranks; other++) {
        char *here = other ? next : sum;
        if (other == me)
            memcpy(here, mine, bytes);
        else
            error |= receive_now(here, bytes, other_of(comm, other), 4, context, NULL);
        if (other)
            fold(sum, next, count, type, op);
    }
    memcpy(into, sum, bytes);
    free(sum);
    free(next);
    progress(0);
    return error;
}

static int alltoallv(const char *from, const uint64_t *at, const uint64_t *length, char *into,
                     const uint64_t *to, const uint64_t *room, MPI_Comm comm)
{
    int context = context_of(comm, 1), ranks = ranks_of(comm), error = MPI_SUCCESS;
    int *waits = malloc(ranks * sizeof *waits);
    for (int n = 0; n < ranks; n++)
        waits[n] = begin_receive(into + to[n], room[n], other_of(comm, n), 5, context);
    for (int n = 0; n < ranks; n++)
        end_request(begin_send(from + at[n], length[n], other_of(comm, n), 5, context), NULL);
    for (int n = 0; n < ranks; n++)
        error |= finish(waits[n], NULL);
    free(waits);
    progress(0);
    return error;
}

/* count elements for every rank, one after the other */
static void even(int ranks, uint64_t bytes, uint64_t **at, uint64_t **length)
{
    *at = malloc(ranks * sizeof **at);
    *length = malloc(ranks * sizeof **length);
    for (int n = 0; n < ranks; n++) {
        (*at)[n] = n * bytes;
        (*length)[n] = bytes;
    }
}

/* --------------------------------------------------------------- MPI's own */

/* Data that a program may name. */
#define DATUM __attribute__((visibility("default")))
static int unweighted, weights_empty;
DATUM int *const MPI_UNWEIGHTED = &unweighted;
DATUM int *const MPI_WEIGHTS_EMPTY = &weights_empty;
DATUM MPI_Fint *MPI_F_STATUS_IGNORE, *MPI_F_STATUSES_IGNORE;

#define API __attribute__((visibility("default"))) int

API MPI_Initialized(int *flag) { *flag = started; return MPI_SUCCESS; }
API MPI_Finalized(int *flag) { *flag = finished; return MPI_SUCCESS; }
API MPI_Query_thread(int *provided) { *provided = MPI_THREAD_FUNNELED; return MPI_SUCCESS; }
API MPI_Is_thread_main(int *flag) { *flag = 1; return MPI_SUCCESS; }

API MPI_Init(int *argc, char ***argv)
{
    const char *where = getenv("APPLES_MPI"), *rank = getenv("APPLES_MPI_RANK"), *size = getenv("APPLES_MPI_SIZE");
    char text[256];
    (void)argc, (void)argv;
    if (!where || !rank || !size)
        fail("APPLES_MPI, APPLES_MPI_RANK and APPLES_MPI_SIZE are not set");
    snprintf(folder, sizeof folder, "%s", where);
    rank_ = atoi(rank);
    size_ = atoi(size);
    if (!read_file(text, sizeof text, "key"))
        fail("%s/key is not there", folder);
    memcpy(key, text, KEY_BYTES - 1);
    peers = calloc(size_, sizeof *peers);
    written = calloc(size_, sizeof *written);
    queued = calloc(size_, sizeof *queued);
    polled = calloc(size_, sizeof *polled);
    for (int other = 0; other < size_; other++)
        peers[other].fd = -1;
    connect_all();
    started = 1;
    return MPI_SUCCESS;
}

API MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    *provided = required < MPI_THREAD_FUNNELED ? required : MPI_THREAD_FUNNELED;
    return MPI_Init(argc, argv);
}

static void call_delete_functions(void);

/* Nobody leaves before all have said that they will send nothing more. A stop that another has begun is taken
 * part in; a rank that has said it begins none. */
API MPI_Finalize(void)
{
    struct header fin = {FIN, 0, 0, rank_, 0};
    call_delete_functions();
    progress(0);
    finishing = 1;
    for (int other = 0; other < size_; other++)
        if (other != rank_)
            queue(other, &fin, sizeof fin);
    for (;;) {
        int left = 0;
        for (int other = 0; other < size_; other++)
            left += other != rank_ && peers[other].fd >= 0 &&
                    (!peers[other].finished || peers[other].begin < peers[other].end);
        if (!left)
            break;
        progress(STEP_MILLISECONDS);
    }
    for (int other = 0; other < size_; other++)
        if (peers[other].fd >= 0)
            close(peers[other].fd);
    finished = 1;
    return MPI_SUCCESS;
}

API MPI_Abort(MPI_Comm comm, int code)
{
    (void)comm;
    fflush(NULL);
    fprintf(stderr, "apples: rank %d: MPI_Abort(%d)\n", rank_, code);
    _exit(code & 255 ? code & 255 : 1);
}

API MPI_Comm_rank(MPI_Comm comm, int *rank) { context_of(comm, 0); *rank = rank_in(comm); return MPI_SUCCESS; }
API MPI_Comm_size(MPI_Comm comm, int *size) { context_of(comm, 0); *size = ranks_of(comm); return MPI_SUCCESS; }
API MPI_Comm_test_inter(MPI_Comm comm, int *flag) { context_of(comm, 0); *flag = 0; return MPI_SUCCESS; }
API MPI_Topo_test(MPI_Comm comm, int *status) { context_of(comm, 0); *status = MPI_UNDEFINED; return MPI_SUCCESS; }
API MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler how) { (void)comm, (void)how; return MPI_SUCCESS; }
API MPI_Session_set_errhandler(MPI_Session one, MPI_Errhandler how) { (void)one, (void)how; return MPI_SUCCESS; }
API MPI_File_set_errhandler(MPI_File file, MPI_Errhandler how) { (void)file, (void)how; return MPI_SUCCESS; }
API MPI_Errhandler_free(MPI_Errhandler *how) { *how = MPI_ERRHANDLER_NULL; return MPI_SUCCESS; }
API MPI_Comm_get_errhandler(MPI_Comm comm, MPI_Errhandler *how)
{
    (void)comm;
    *how = MPI_ERRORS_ARE_FATAL;
    return MPI_SUCCESS;
}

API MPI_Comm_dup(MPI_Comm comm, MPI_Comm *copy)
{
    static int of_self = 1;
    context_of(comm, 0);
    *copy = (MPI_Comm)(DUP | (unsigned)(is_self(comm) ? 2 * of_self++ + 1 : 2 * dup_count++));
    return MPI_SUCCESS;
}

API MPI_Comm_free(MPI_Comm *comm)
{
    context_of(*comm, 0);
    *comm = MPI_COMM_NULL;
    return MPI_SUCCESS;
}

API MPI_Comm_compare(MPI_Comm a, MPI_Comm b, int *result)
{
    int same = is_self(a) == is_self(b);
    *result = a == b ? MPI_IDENT : same ? MPI_CONGRUENT : MPI_UNEQUAL;
    return MPI_SUCCESS;
}

/* Attributes: a program's own few, and those of mpi4py. */
#define ATTRIBUTES 64
static struct { MPI_Comm_delete_attr_function *end; void *extra; } keys[ATTRIBUTES];
static struct { MPI_Comm comm; int key; void *value; } attributes[ATTRIBUTES];
static int key_count;

API MPI_Comm_create_keyval(MPI_Comm_copy_attr_function *copy, MPI_Comm_delete_attr_function *end, int *number,
                           void *extra)
{
    (void)copy;
    if (key_count == ATTRIBUTES)
        fail("more than %d attribute keys", ATTRIBUTES);
    keys[key_count].end = end;
    keys[key_count].extra = extra;
    *number = 0x64000100 + key_count++;
    return MPI_SUCCESS;
}

API MPI_Comm_free_keyval(int *number) { *number = MPI_KEYVAL_INVALID; return MPI_SUCCESS; }

API MPI_Comm_set_attr(MPI_Comm comm, int number, void *value)
{
    for (int n = 0; n < ATTRIBUTES; n++) {
        if (!attributes[n].key || (attributes[n].comm == comm && attributes[n].key == number)) {
            attributes[n].comm = comm;
            attributes[n].key = number;
            attributes[n].value = value;
            return MPI_SUCCESS;
        }
    }
    fail("more than %d attributes", ATTRIBUTES);
    return MPI_ERR_OTHER;
}

API MPI_Comm_get_attr(MPI_Comm comm, int number, void *value, int *flag)
{
    static int most = 0x7fffffff;
    *flag = number == MPI_TAG_UB;
    if (*flag)
        *(int **)value = &most;
    for (int n = 0; n < ATTRIBUTES; n++) {
        if (attributes[n].key == number && attributes[n].comm == comm) {
            *(void **)value = attributes[n].value;
            *flag = 1;
        }
    }
    return MPI_SUCCESS;
}

API MPI_Comm_delete_attr(MPI_Comm comm, int number)
{
    for (int n = 0; n < ATTRIBUTES; n++) {
        if (attributes[n].key == number && attributes[n].comm == comm) {
            int which = number - 0x64000100;
            attributes[n].key = -1; /* its place is not used again */
            if (keys[which].end)
                keys[which].end(comm, number, attributes[n].value, keys[which].extra);
        }
    }
    return MPI_SUCCESS;
}

static void call_delete_functions(void)
{
    for (int n = ATTRIBUTES - 1; n >= 0; n--)
        if (attributes[n].key > 0 && attributes[n].comm == MPI_COMM_SELF)
            MPI_Comm_delete_attr(MPI_COMM_SELF, attributes[n].key);
}

API MPI_Get_processor_name(char *name, int *length)
{
    gethostname(name, MPI_MAX_PROCESSOR_NAME - 1);
    *length = strlen(name);
    return MPI_SUCCESS;
}

API MPI_Abi_get_version(int *version, int *part) { *version = *part = -1; return MPI_SUCCESS; }
API MPI_Get_version(int *version, int *part) { *version = 4; *part = 0; return MPI_SUCCESS; }
API MPI_Get_library_version(char *text, int *length)
{
    *length = sprintf(text, "apples, for programs that can be moved (MPICH ABI)");
    return MPI_SUCCESS;
}
API MPI_Error_class(int code, int *class_) { *class_ = code; return MPI_SUCCESS; }
API MPI_Error_string(int code, char *text, int *length)
{
    *length = sprintf(text, code == MPI_ERR_TRUNCATE ? "the message is longer than its buffer" : "MPI error %d", code);
    return MPI_SUCCESS;
}
__attribute__((visibility("default"))) double MPI_Wtime(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t); /* the one that hosts have in common */
    return t.tv_sec + 1e-9 * t.tv_nsec;
}
__attribute__((visibility("default"))) double MPI_Wtick(void) { return 1e-9; }

API MPI_Alloc_mem(MPI_Aint bytes, MPI_Info info, void *base)
{
    (void)info;
    *(void **)base = malloc(bytes);
    return *(void **)base ? MPI_SUCCESS : MPI_ERR_NO_MEM;
}
API MPI_Free_mem(void *base) { free(base); return MPI_SUCCESS; }
API MPI_Get_address(const void *at, MPI_Aint *address) { *address = (MPI_Aint)at; return MPI_SUCCESS; }

API MPI_Type_size(MPI_Datatype type, int *bytes) { *bytes = type_bytes(type); return MPI_SUCCESS; }
API MPI_Type_size_c(MPI_Datatype type, MPI_Count *bytes) { *bytes = type_bytes(type); return MPI_SUCCESS; }
API MPI_Type_size_x(MPI_Datatype type, MPI_Count *bytes) { *bytes = type_bytes(type); return MPI_SUCCESS; }
#define EXTENT(NAME, T)                                                                           \
    API NAME(MPI_Datatype type, T *low, T *bytes)                                                 \
    {                                                                                             \
        *low = 0;                                                                                 \
        *bytes = type_bytes(type);                                                                \
        return MPI_SUCCESS;                                                                       \
    }
EXTENT(MPI_Type_get_extent, MPI_Aint)
EXTENT(MPI_Type_get_extent_c, MPI_Count)
EXTENT(MPI_Type_get_extent_x, MPI_Count)
EXTENT(MPI_Type_get_true_extent, MPI_Aint)
EXTENT(MPI_Type_get_true_extent_c, MPI_Count)
EXTENT(MPI_Type_get_true_extent_x, MPI_Count)

static uint64_t bytes_in(const MPI_Status *status)
{
    return (uint64_t)(uint32_t)status->count_lo | (uint64_t)((uint32_t)status->count_hi_and_cancelled >> 1) << 32;
}

#define COUNTING(NAME, T)                                                                         \
    API NAME(const MPI_Status *status, MPI_Datatype type, T *count)                               \
    {                                                                                             \
        uint64_t bytes = bytes_in(status), each = type_bytes(type);                               \
        *count = each && bytes % each ? MPI_UNDEFINED : (T)(each ? bytes / each : 0);             \
        return MPI_SUCCESS;                                                                       \
    }
COUNTING(MPI_Get_count, int)
COUNTING(MPI_Get_count_c, MPI_Count)
COUNTING(MPI_Get_elements, int)
COUNTING(MPI_Get_elements_c, MPI_Count)
COUNTING(MPI_Get_elements_x, MPI_Count)
API MPI_Status_set_source(MPI_Status *status, int source) { status->MPI_SOURCE = source; return MPI_SUCCESS; }
API MPI_Status_set_tag(MPI_Status *status, int tag) { status->MPI_TAG = tag; return MPI_SUCCESS; }
API MPI_Status_set_error(MPI_Status *status, int error) { status->MPI_ERROR = error; return MPI_SUCCESS; }
API MPI_Status_get_source(const MPI_Status *status, int *source) { *source = status->MPI_SOURCE; return MPI_SUCCESS; }
API MPI_Status_get_tag(const MPI_Status *status, int *tag) { *tag = status->MPI_TAG; return MPI_SUCCESS; }
API MPI_Status_get_error(const MPI_Status *status, int *error) { *error = status->MPI_ERROR; return MPI_SUCCESS; }
API MPI_Test_cancelled(const MPI_Status *status, int *flag) { (void)status; *flag = 0; return MPI_SUCCESS; }
API MPI_Op_commutative(MPI_Op op, int *flag) { (void)op; *flag = 1; return MPI_SUCCESS; }

/* Every call with a count has a second form with MPI_Count (mpi4py calls that one). */
#define TWICE(MACRO) MACRO(, int, int) MACRO(_c, MPI_Count, MPI_Aint)
#define NAMED(NAME, SUFFIX) NAME##SUFFIX

#define SENDS(S, N, D)                                                                            \
    API NAMED(MPI_Send, S)(const void *data, N count, MPI_Datatype type, int to, int tag, MPI_Comm comm) \
    { return send_now(data, count * type_bytes(type), other_of(comm, to), tag, context_of(comm, 0)); } \
    API NAMED(MPI_Isend, S)(const void *data, N count, MPI_Datatype type, int to, int tag, MPI_Comm comm, \
                            MPI_Request *request)                                                 \
    {                                                                                             \
        int n = begin_send(data, count * type_bytes(type), other_of(comm, to), tag, context_of(comm, 0)); \
        *request = REQUEST(n);                                                                    \
        progress(0);                                                                              \
        return MPI_SUCCESS;                                                                       \
    }                                                                                             \
    API NAMED(MPI_Recv, S)(void *data, N count, MPI_Datatype type, int from, int tag, MPI_Comm comm, \
                           MPI_Status *status)                                                    \
    {                                                                                             \
        return receive_now(data, count * type_bytes(type), other_of(comm, from), tag, context_of(comm, 0), status); \
    }                                                                                             \
    API NAMED(MPI_Irecv, S)(void *data, N count, MPI_Datatype type, int from, int tag, MPI_Comm comm, \
                            MPI_Request *request)                                                 \
    {                                                                                             \
        int n = begin_receive(data, count * type_bytes(type), other_of(comm, from), tag, context_of(comm, 0)); \
        *request = REQUEST(n);                                                                    \
        progress(0);                                                                              \
        return MPI_SUCCESS;                                                                       \
    }                                                                                             \
    API NAMED(MPI_Sendrecv, S)(const void *data, N count, MPI_Datatype type, int to, int tag, void *into, N room, \
                               MPI_Datatype in, int from, int in_tag, MPI_Comm comm, MPI_Status *status) \
    {                                                                                             \
        int context = context_of(comm, 0);                                                        \
        int n = begin_receive(into, room * type_bytes(in), other_of(comm, from), in_tag, context); \
        send_now(data, count * type_bytes(type), other_of(comm, to), tag, context);               \
        return finish(n, status);                                                                 \
    }                                                                                             \
    API NAMED(MPI_Sendrecv_replace, S)(void *data, N count, MPI_Datatype type, int to, int tag, int from, int in_tag, \
                                       MPI_Comm comm, MPI_Status *status)                         \
    {                                                                                             \
        int context = context_of(comm, 0);                                                        \
        uint64_t bytes = count * type_bytes(type);                                                \
        end_request(begin_send(data, bytes, other_of(comm, to), tag, context), NULL);             \
        return receive_now(data, bytes, other_of(comm, from), in_tag, context, status);           \
    }                                                                                             \
    API NAMED(MPI_Mrecv, S)(void *data, N count, MPI_Datatype type, MPI_Message *message, MPI_Status *status);
TWICE(SENDS)

API MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    if (*request == MPI_REQUEST_NULL) {
        if (status != MPI_STATUS_IGNORE)
            *status = (MPI_Status){.MPI_SOURCE = MPI_ANY_SOURCE, .MPI_TAG = MPI_ANY_TAG};
        return MPI_SUCCESS;
    }
    int error = finish(number_of(*request), status);
    *request = MPI_REQUEST_NULL;
    return error;
}

API MPI_Waitall(int count, MPI_Request *all, MPI_Status *statuses)
{
    int error = MPI_SUCCESS;
    progress(0);
    for (int n = 0; n < count; n++)
        error |= MPI_Wait(&all[n], statuses == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : &statuses[n]);
    return error;
}

API MPI_Testany(int count, MPI_Request *all, int *which, int *flag, MPI_Status *status)
{
    int live = 0;
    progress(0);
    *which = MPI_UNDEFINED;
    for (int n = 0; n < count; n++) {
        if (all[n] == MPI_REQUEST_NULL)
            continue;
        live = 1;
        if (requests[number_of(all[n])].done) {
            *which = n;
            *flag = 1;
            return MPI_Wait(&all[n], status);
        }
    }
    *flag = !live;
    return MPI_SUCCESS;
}

API MPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    int which;
    if (*request == MPI_REQUEST_NULL) {
        *flag = 1;
        return MPI_Wait(request, status);
    }
    return MPI_Testany(1, request, &which, flag, status);
}

API MPI_Testall(int count, MPI_Request *all, int *flag, MPI_Status *statuses)
{
    progress(0);
    *flag = 1;
    for (int n = 0; n < count; n++)
        *flag &= all[n] == MPI_REQUEST_NULL || requests[number_of(all[n])].done;
    return *flag ? MPI_Waitall(count, all, statuses) : MPI_SUCCESS;
}

API MPI_Waitany(int count, MPI_Request *all, int *which, MPI_Status *status)
{
    int flag, error;
    while ((error = MPI_Testany(count, all, which, &flag, status)) == MPI_SUCCESS && !flag)
        progress(STEP_MILLISECONDS);
    return error;
}

static void seen(const struct header *head, MPI_Status *status)
{
    struct request as = {.room = 0};
    if (!status || status == MPI_STATUS_IGNORE)
        return;
    copy_to(&as, &(struct header){DATA, head->context, head->tag, head->source, 0}, "");
    as.status.count_lo = (int)head->bytes;
    as.status.count_hi_and_cancelled = (int)(head->bytes >> 32) << 1;
    *status = as.status;
}

API MPI_Iprobe(int from, int tag, MPI_Comm comm, int *flag, MPI_Status *status)
{
    int context = context_of(comm, 0);
    progress(0);
    struct message *found = take(context, other_of(comm, from), tag, 1);
    *flag = found != NULL || from == MPI_PROC_NULL;
    if (*flag)
        seen(found ? &found->head : &from_nobody, status);
    return MPI_SUCCESS;
}

API MPI_Probe(int from, int tag, MPI_Comm comm, MPI_Status *status)
{
    int flag;
    while (MPI_Iprobe(from, tag, comm, &flag, status), !flag)
        progress(STEP_MILLISECONDS);
    return MPI_SUCCESS;
}

#define MESSAGES 256
static struct message *probed[MESSAGES];

API MPI_Improbe(int from, int tag, MPI_Comm comm, int *flag, MPI_Message *message, MPI_Status *status)
{
    int context = context_of(comm, 0), n = 0;
    progress(0);
    if (from == MPI_PROC_NULL) {
        *flag = 1;
        *message = MPI_MESSAGE_NO_PROC;
        seen(&from_nobody, status);
        return MPI_SUCCESS;
    }
    while (n < MESSAGES && probed[n])
        n++;
    if (n == MESSAGES)
        fail("more than %d messages were probed and not received", MESSAGES);
    probed[n] = take(context, other_of(comm, from), tag, 0);
    *flag = probed[n] != NULL;
    if (*flag) {
        seen(&probed[n]->head, status);
        *message = (MPI_Message)(0x9c000000u + (unsigned)n);
    }
    return MPI_SUCCESS;
}

API MPI_Mprobe(int from, int tag, MPI_Comm comm, MPI_Message *message, MPI_Status *status)
{
    int flag;
    while (MPI_Improbe(from, tag, comm, &flag, message, status), !flag)
        progress(STEP_MILLISECONDS);
    return MPI_SUCCESS;
}

static int receive_probed(void *data, uint64_t room, MPI_Message *message, MPI_Status *status)
{
    unsigned n = (unsigned)*message - 0x9c000000u;
    if (*message == MPI_MESSAGE_NO_PROC) {
        *message = MPI_MESSAGE_NULL;
        seen(&from_nobody, status);
        return MPI_SUCCESS;
    }
    if (n >= MESSAGES || !probed[n])
        fail("a message that was not probed");
    struct request as = {.buffer = data, .room = room};
    copy_to(&as, &probed[n]->head, probed[n]->data);
    free(probed[n]);
    probed[n] = NULL;
    *message = MPI_MESSAGE_NULL;
    if (status && status != MPI_STATUS_IGNORE)
        *status = as.status;
    return as.error;
}

static const uint64_t *scaled(const void *numbers, int wide, int count, uint64_t each)
{
    uint64_t *made = malloc(count * sizeof *made);
    for (int n = 0; numbers && n < count; n++)
        made[n] = each * (wide ? (uint64_t)((const int64_t *)numbers)[n] : (uint64_t)((const int *)numbers)[n]);
    return made;
}
#define WIDE(N) (sizeof(N) == 8)

API MPI_Barrier(MPI_Comm comm)
{
    char nothing[1] = {0};
    uint64_t *zero, *length;
    even(ranks_of(comm), 0, &zero, &length);
    gatherv(nothing, 0, nothing, zero, length, 0, comm);
    free(zero);
    free(length);
    return bcast(nothing, 0, 0, comm);
}

#define COLLECTIVES(S, N, D)                                                                      \
    API NAMED(MPI_Mrecv, S)(void *data, N count, MPI_Datatype type, MPI_Message *message, MPI_Status *status) \
    { return receive_probed(data, count * type_bytes(type), message, status); }                   \
    API NAMED(MPI_Bcast, S)(void *data, N count, MPI_Datatype type, int root, MPI_Comm comm)      \
    { return bcast(data, count * type_bytes(type), root, comm); }                                 \
    API NAMED(MPI_Reduce, S)(const void *data, void *into, N count, MPI_Datatype type, MPI_Op op, int root, \
                             MPI_Comm comm)                                                       \
    { return reduce(data, into, count, type, op, root, comm); }                                   \
    API NAMED(MPI_Allreduce, S)(const void *data, void *into, N count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) \
    {                                                                                             \
        int error = reduce(data, into, count, type, op, 0, comm);                                 \
        return error ? error : bcast(into, count * type_bytes(type), 0, comm);                    \
    }                                                                                             \
    API NAMED(MPI_Gather, S)(const void *data, N count, MPI_Datatype type, void *into, N room, MPI_Datatype in, \
                             int root, MPI_Comm comm)                                             \
    {                                                                                             \
        uint64_t *at, *length;                                                                    \
        int here = rank_in(comm) == root;                                                         \
        even(ranks_of(comm), here ? room * type_bytes(in) : 0, &at, &length);                     \
        int error = gatherv(data, data == MPI_IN_PLACE ? 0 : count * type_bytes(type), into, at, length, root, comm); \
        free(at);                                                                                 \
        free(length);                                                                             \
        return error;                                                                             \
    }                                                                                             \
    API NAMED(MPI_Scatter, S)(const void *data, N count, MPI_Datatype type, void *into, N room, MPI_Datatype in, \
                              int root, MPI_Comm comm)                                            \
    {                                                                                             \
        uint64_t *at, *length;                                                                    \
        int here = rank_in(comm) == root;                                                         \
        even(ranks_of(comm), here ? count * type_bytes(type) : 0, &at, &length);                  \
        int error = scatterv(data, at, length, into, into == MPI_IN_PLACE ? 0 : room * type_bytes(in), root, comm); \
        free(at);                                                                                 \
        free(length);                                                                             \
        return error;                                                                             \
    }                                                                                             \
    API NAMED(MPI_Allgather, S)(const void *data, N count, MPI_Datatype type, void *into, N room, MPI_Datatype in, \
                                MPI_Comm comm)                                                    \
    {                                                                                             \
        uint64_t *at, *length, each = room * type_bytes(in);                                      \
        const char *mine = data == MPI_IN_PLACE ? (char *)into + rank_in(comm) * each : data;     \
        even(ranks_of(comm), each, &at, &length);                                                 \
        int error = gatherv(mine, data == MPI_IN_PLACE ? each : count * type_bytes(type), into, at, length, 0, comm); \
        free(at);                                                                                 \
        free(length);                                                                             \
        return error ? error : bcast(into, each * ranks_of(comm), 0, comm);                       \
    }                                                                                             \
    API NAMED(MPI_Alltoall, S)(const void *data, N count, MPI_Datatype type, void *into, N room, MPI_Datatype in, \
                               MPI_Comm comm)                                                     \
    {                                                                                             \
        uint64_t *at, *length, *to, *rooms;                                                       \
        if (data == MPI_IN_PLACE)                                                                 \
            return apples_outside("MPI_Alltoall with MPI_IN_PLACE");                              \
        even(ranks_of(comm), count * type_bytes(type), &at, &length);                             \
        even(ranks_of(comm), room * type_bytes(in), &to, &rooms);                                 \
        int error = alltoallv(data, at, length, into, to, rooms, comm);                           \
        free(at), free(length), free(to), free(rooms);                                            \
        return error;                                                                             \
    }                                                                                             \
    API NAMED(MPI_Gatherv, S)(const void *data, N count, MPI_Datatype type, void *into, const N room[], \
                              const D at[], MPI_Datatype in, int root, MPI_Comm comm)             \
    {                                                                                             \
        int ranks = ranks_of(comm), here = rank_in(comm) == root;                                 \
        uint64_t each = here ? type_bytes(in) : 0;                                                \
        const uint64_t *places = scaled(here ? at : NULL, WIDE(D), ranks, each);                  \
        const uint64_t *rooms = scaled(here ? room : NULL, WIDE(N), ranks, each);                 \
        uint64_t bytes = data == MPI_IN_PLACE ? 0 : count * type_bytes(type);                     \
        int error = gatherv(data, bytes, into, places, rooms, root, comm);                        \
        free((void *)places), free((void *)rooms);                                                \
        return error;                                                                             \
    }                                                                                             \
    API NAMED(MPI_Scatterv, S)(const void *data, const N count[], const D at[], MPI_Datatype type, void *into, N room, \
                               MPI_Datatype in, int root, MPI_Comm comm)                          \
    {                                                                                             \
        int ranks = ranks_of(comm), here = rank_in(comm) == root;                                 \
        uint64_t each = here ? type_bytes(type) : 0;                                              \
        const uint64_t *places = scaled(here ? at : NULL, WIDE(D), ranks, each);                  \
        const uint64_t *counts = scaled(here ? count : NULL, WIDE(N), ranks, each);               \
        uint64_t bytes = into == MPI_IN_PLACE ? 0 : room * type_bytes(in);                        \
        int error = scatterv(data, places, counts, into, bytes, root, comm);                      \
        free((void *)places), free((void *)counts);                                               \
        return error;                                                                             \
    }                                                                                             \
    API NAMED(MPI_Allgatherv, S)(const void *data, N count, MPI_Datatype type, void *into, const N room[], \
                                 const D at[], MPI_Datatype in, MPI_Comm comm)                    \
    {                                                                                             \
        int ranks = ranks_of(comm), me = rank_in(comm), error = MPI_SUCCESS;                      \
        uint64_t each = type_bytes(in);                                                           \
        const uint64_t *places = scaled(at, WIDE(D), ranks, each), *rooms = scaled(room, WIDE(N), ranks, each); \
        const void *mine = data == MPI_IN_PLACE ? (char *)into + places[me] : data;               \
        error = gatherv(mine, data == MPI_IN_PLACE ? rooms[me] : count * type_bytes(type), into, places, rooms, 0, comm); \
        for (int n = 0; n < ranks; n++)                                                           \
            error |= bcast((char *)into + places[n], rooms[n], 0, comm);                          \
        free((void *)places), free((void *)rooms);                                                \
        return error;                                                                             \
    }                                                                                             \
    API NAMED(MPI_Alltoallv, S)(const void *data, const N count[], const D at[], MPI_Datatype type, void *into, \
                                const N room[], const D to[], MPI_Datatype in, MPI_Comm comm)     \
    {                                                                                             \
        int ranks = ranks_of(comm);                                                               \
        uint64_t each = type_bytes(in);                                                           \
        if (data == MPI_IN_PLACE)                                                                 \
            return apples_outside("MPI_Alltoallv with MPI_IN_PLACE");                             \
        const uint64_t *places = scaled(at, WIDE(D), ranks, type_bytes(type));                    \
        const uint64_t *counts = scaled(count, WIDE(N), ranks, type_bytes(type));                 \
        const uint64_t *targets = scaled(to, WIDE(D), ranks, each), *rooms = scaled(room, WIDE(N), ranks, each); \
        int error = alltoallv(data, places, counts, into, targets, rooms, comm);                  \
        free((void *)places), free((void *)counts), free((void *)targets), free((void *)rooms);   \
        return error;                                                                             \
    }
TWICE(COLLECTIVES)
