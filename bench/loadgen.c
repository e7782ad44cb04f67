/* Sends frames encoded beforehand over N connections, K in flight on each, and measures every answer.
 *
 *   loadgen PORT CONNECTIONS IN_FLIGHT WARM_UP_SECONDS SECONDS MAX_REQUESTS ERROR_OFFSET FRAMES
 *
 * FRAMES is a file of whole frames, length first; connection i sends frame i modulo their number, again and again.
 * An answer's int16 at ERROR_OFFSET (its length counted) must be 0. Prints "measuring" when the warm-up is over, then
 * one line: requests, sent bytes, errors, seconds, own CPU seconds, and in ns p50, p99, p999 and the longest.
 * Everything is bounded: by SECONDS, by MAX_REQUESTS, and by 10 s without any answer.
 */
#include "generator.h"

#include <fcntl.h>
#include <sys/stat.h>

#define MAX_IN_FLIGHT 64
#define ANSWER_BYTES 4096

struct connection {
    int fd, waiting_to_write;
    const uint8_t *frame;
    size_t frame_bytes, sent;          /* of the frame that is being sent */
    int unsent;                        /* frames that may still go, the one being sent included */
    uint64_t begun[MAX_IN_FLIGHT];     /* a ring: when each request in flight began to be sent */
    unsigned first, last;
    uint8_t answer[ANSWER_BYTES];
    size_t have;
};

static uint32_t *latencies;
static size_t measured, most, sent_bytes;
static long errors;
static size_t error_offset;

static void push(int epoll, struct connection *c) {
    while (c->unsent) {
        if (c->sent == 0) c->begun[c->last % MAX_IN_FLIGHT] = now_ns();
        ssize_t n = send(c->fd, c->frame + c->sent, c->frame_bytes - c->sent, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN) fail("send");
        if (n > 0) c->sent += (size_t)n;
        if (c->sent < c->frame_bytes) break;
        c->sent = 0;
        c->unsent--;
        c->last++;
    }
    if ((c->unsent != 0) != c->waiting_to_write) {
        c->waiting_to_write = c->unsent != 0;
        struct epoll_event e = {EPOLLIN | (c->waiting_to_write ? EPOLLOUT : 0u), {.ptr = c}};
        if (epoll_ctl(epoll, EPOLL_CTL_MOD, c->fd, &e)) fail("epoll_ctl");
    }
}

/* Takes whole answers; returns how many came. */
static int pull(struct connection *c, int count_them) {
    ssize_t n = recv(c->fd, c->answer + c->have, ANSWER_BYTES - c->have, 0);
    if (n == 0) { errno = ECONNRESET; fail("the broker closed a connection"); }
    if (n < 0) { if (errno == EAGAIN) return 0; fail("recv"); }
    c->have += (size_t)n;
    int whole = 0;
    size_t at = 0;
    while (c->have - at >= 4) {
        size_t size = 4 + (size_t)big_endian(c->answer + at);
        if (size > ANSWER_BYTES) { errno = EMSGSIZE; fail("an answer longer than expected"); }
        if (c->have - at < size) break;
        if (size < error_offset + 2 || c->answer[at + error_offset] || c->answer[at + error_offset + 1]) errors++;
        uint64_t took = now_ns() - c->begun[c->first++ % MAX_IN_FLIGHT];
        if (count_them && measured < most) {
            latencies[measured++] = took > UINT32_MAX ? UINT32_MAX : (uint32_t)took;
            sent_bytes += c->frame_bytes;
        }
        at += size;
        whole++;
    }
    memmove(c->answer, c->answer + at, c->have - at);
    c->have -= at;
    return whole;
}

int main(int argc, char **argv) {
    if (argc != 9) { fprintf(stderr, "loadgen: eight arguments, see loadgen.c\n"); return 2; }
    int port = atoi(argv[1]), connections = atoi(argv[2]), in_flight = atoi(argv[3]);
    double warm_up_s = atof(argv[4]), seconds = atof(argv[5]);
    most = (size_t)atoll(argv[6]);
    error_offset = (size_t)atoll(argv[7]);
    if (connections < 1 || connections > 10000 || in_flight < 1 || in_flight > MAX_IN_FLIGHT) return 2;
    if (most > 50000000) most = 50000000;

    int file = open(argv[8], O_RDONLY);
    struct stat about;
    if (file < 0 || fstat(file, &about)) fail(argv[8]);
    size_t size = (size_t)about.st_size, got = 0;
    uint8_t *frames = malloc(size);
    latencies = malloc(most * sizeof *latencies);
    struct connection *all = calloc((size_t)connections, sizeof *all);
    if (!frames || !latencies || !all) fail("memory");
    for (ssize_t n; got < size; got += (size_t)n)
        if ((n = read(file, frames + got, size - got)) <= 0) fail(argv[8]);

    int epoll = epoll_create1(0);
    size_t at = 0;
    for (int i = 0; i < connections; i++) {
        struct connection *c = &all[i];
        if (at + 4 > size) at = 0;
        c->frame = frames + at;
        c->frame_bytes = 4 + (size_t)big_endian(c->frame);
        if (at + c->frame_bytes > size) { errno = EINVAL; fail("a frame cut short"); }
        at += c->frame_bytes;
        c->fd = connect_to(port);
        fcntl(c->fd, F_SETFL, O_NONBLOCK);
        struct epoll_event e = {EPOLLIN, {.ptr = c}};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &e)) fail("epoll_ctl");
        c->unsent = in_flight;
    }
    for (int i = 0; i < connections; i++) push(epoll, &all[i]);

    uint64_t begun = now_ns(), measuring = 0, ended = 0;
    double cpu_before = cpu_s();
    struct epoll_event events[256];
    while (!ended) {
        int n = epoll_wait(epoll, events, 256, STALL_MS);
        if (n < 0 && errno != EINTR) fail("epoll_wait");
        if (n == 0) { errno = ETIMEDOUT; fail("no answer"); }
        uint64_t now = now_ns();
        if (!measuring && (double)(now - begun) / 1e9 >= warm_up_s) {
            printf("measuring\n");
            fflush(stdout);
            now = measuring = now_ns();
            cpu_before = cpu_s();
        }
        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) c->unsent += pull(c, measuring != 0);
            push(epoll, c);
        }
        if (measuring && ((double)(now - measuring) / 1e9 >= seconds || measured >= most)) ended = now_ns();
    }
    double own = cpu_s() - cpu_before, took = (double)(ended - measuring) / 1e9;
    qsort(latencies, measured, sizeof *latencies, smaller);
    size_t last = measured ? measured - 1 : 0;
    if (!measured) latencies[0] = 0;
    printf("{\"requests\": %zu, \"bytes\": %zu, \"errors\": %ld, \"seconds\": %.6f, \"cpu_s\": %.4f, \"p50_ns\": %u, "
           "\"p99_ns\": %u, \"p999_ns\": %u, \"max_ns\": %u}\n",
           measured, sent_bytes, errors, took, own, latencies[last / 2], latencies[last * 99 / 100],
           latencies[last * 999 / 1000], latencies[last]);
    return 0;
}
