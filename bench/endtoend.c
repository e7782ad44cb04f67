/* Sends one record at a time at an even rate on one connection, and reads them back on another as they come.
 *
 *   endtoend PORT RATE WARM_UP_SECONDS SECONDS ERROR_OFFSET FETCH_OFFSET BATCH_BYTES EMPTY_BYTES FRAMES
 *
 * FRAMES is a file of two whole frames, length first: a produce request of one batch, which is BATCH_BYTES long, and a
 * fetch request that waits for a record; the int64 at FETCH_OFFSET of the latter is where it reads from, and is
 * counted up. An answer to it without records is EMPTY_BYTES long. A produce answer's int16 at ERROR_OFFSET must be 0.
 * A record's time is from just before its send() to the whole fetch answer that holds it. Prints "measuring" when the
 * warm-up is over, then one line: records, errors, seconds, own CPU seconds, and in ns p50, p99 and the longest.
 * Everything is bounded: by SECONDS, and by 10 s without any answer.
 */
#include "generator.h"

#include <sys/timerfd.h>

#define MOST_RECORDS 1000000
#define FRAME_BYTES 4096
#define ANSWER_BYTES (4 << 20)

struct connection {
    int fd;
    uint8_t *answer;
    size_t have;
};

static uint64_t begun[MOST_RECORDS];
static uint32_t took[MOST_RECORDS];

static void open_to(int port, int epoll, struct connection *c) {
    c->fd = connect_to(port);
    if (!(c->answer = malloc(ANSWER_BYTES))) fail("memory");
    struct epoll_event e = {EPOLLIN, {.ptr = c}};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &e)) fail("epoll_ctl");
}

static void send_all(int fd, const uint8_t *frame) {
    size_t size = 4 + big_endian(frame);
    for (size_t at = 0; at < size;) {
        ssize_t n = send(fd, frame + at, size - at, MSG_NOSIGNAL);
        if (n < 0) fail("send");
        at += (size_t)n;
    }
}

/* The size of the first answer if it is whole, else 0. */
static size_t whole_in(const struct connection *c) {
    size_t size = c->have < 4 ? 0 : 4 + (size_t)big_endian(c->answer);
    if (size > ANSWER_BYTES) { errno = EMSGSIZE; fail("an answer longer than expected"); }
    return c->have >= size ? size : 0;
}

/* Reads what is there, and says what is whole of it. */
static size_t pull(struct connection *c) {
    ssize_t n = recv(c->fd, c->answer + c->have, ANSWER_BYTES - c->have, MSG_DONTWAIT);
    if (n == 0) { errno = ECONNRESET; fail("the broker closed a connection"); }
    if (n < 0) { if (errno == EAGAIN) return 0; fail("recv"); }
    c->have += (size_t)n;
    return whole_in(c);
}

static void drop(struct connection *c, size_t size) {
    memmove(c->answer, c->answer + size, c->have - size);
    c->have -= size;
}

int main(int argc, char **argv) {
    if (argc != 10) { fprintf(stderr, "endtoend: nine arguments, see endtoend.c\n"); return 2; }
    int port = atoi(argv[1]);
    double rate = atof(argv[2]), warm_up_s = atof(argv[3]), seconds = atof(argv[4]);
    size_t error_offset = (size_t)atoll(argv[5]), fetch_offset = (size_t)atoll(argv[6]);
    size_t batch_bytes = (size_t)atoll(argv[7]), empty_bytes = (size_t)atoll(argv[8]);
    size_t warm = (size_t)(rate * warm_up_s), total = warm + (size_t)(rate * seconds);
    if (rate < 1 || rate > 100000 || total <= warm || total > MOST_RECORDS || !batch_bytes) return 2;

    static uint8_t frames[2 * FRAME_BYTES];
    FILE *file = fopen(argv[9], "rb");
    if (!file) fail(argv[9]);
    size_t size = fread(frames, 1, sizeof frames, file);
    uint8_t *produce = frames, *fetch = frames + 4 + big_endian(frames);
    if (size < 8 || fetch + 4 > frames + size || fetch + 4 + big_endian(fetch) != frames + size) {
        errno = EINVAL;
        fail("two frames are wanted");
    }
    uint64_t from = 0;
    for (int i = 0; i < 8; i++) from = from << 8 | fetch[fetch_offset + (size_t)i];

    int epoll = epoll_create1(0), timer = timerfd_create(CLOCK_MONOTONIC, 0);
    struct connection producer = {0}, consumer = {0};
    open_to(port, epoll, &producer);
    open_to(port, epoll, &consumer);
    struct epoll_event ticks = {EPOLLIN, {.ptr = NULL}};
    if (timer < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, timer, &ticks)) fail("timer");
    long period = (long)(1e9 / rate);
    struct itimerspec every = {{period / 1000000000, period % 1000000000}, {period / 1000000000, period % 1000000000}};
    if (timerfd_settime(timer, 0, &every, NULL)) fail("timer");
    send_all(consumer.fd, fetch);

    size_t sent = 0, answered = 0, got = 0;
    long errors = 0;
    double cpu_before = cpu_s();
    uint64_t measuring = 0, heard = now_ns();
    while (got < total || answered < total) {
        struct epoll_event events[3];
        int n = epoll_wait(epoll, events, 3, STALL_MS);
        if (n < 0 && errno != EINTR) fail("epoll_wait");
        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            size_t whole;
            if (!c) {
                uint64_t due;
                if (read(timer, &due, sizeof due) != sizeof due) fail("timer");
                for (; due && sent < total; due--) {
                    if (sent == warm) {
                        printf("measuring\n");
                        fflush(stdout);
                        cpu_before = cpu_s();
                        measuring = now_ns();
                    }
                    begun[sent++] = now_ns();
                    send_all(producer.fd, produce);
                }
            } else if (c == &consumer) {
                if (!(whole = pull(c))) continue;
                uint64_t now = heard = now_ns();
                size_t records = whole > empty_bytes ? (whole - empty_bytes) / batch_bytes : 0;
                for (; records && got < sent; records--, got++) {
                    uint64_t each = now - begun[got];
                    took[got] = each > UINT32_MAX ? UINT32_MAX : (uint32_t)each;
                    from++;
                }
                drop(c, whole);
                for (int b = 0; b < 8; b++) fetch[fetch_offset + (size_t)b] = (uint8_t)(from >> (56 - 8 * b));
                send_all(c->fd, fetch);
            } else {
                for (whole = pull(c); whole; whole = whole_in(c), answered++) {
                    heard = now_ns();
                    if (c->answer[error_offset] || c->answer[error_offset + 1]) errors++;
                    drop(c, whole);
                }
            }
        }
        if (now_ns() - heard > (uint64_t)STALL_MS * 1000000u) { errno = ETIMEDOUT; fail("no answer"); }
    }
    double own = cpu_s() - cpu_before, lasted = (double)(now_ns() - measuring) / 1e9;
    size_t measured = total - warm;
    qsort(took + warm, measured, sizeof *took, smaller);
    printf("{\"records\": %zu, \"errors\": %ld, \"seconds\": %.6f, \"cpu_s\": %.4f, \"p50_ns\": %u, \"p99_ns\": %u, "
           "\"max_ns\": %u}\n",
           measured, errors, lasted, own, took[warm + (measured - 1) / 2], took[warm + (measured - 1) * 99 / 100],
           took[total - 1]);
    return 0;
}
