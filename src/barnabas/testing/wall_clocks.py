"""Wall clocks that can be set, one a process: what a bad NTP server or a person does to a broker's time of day.

    with WallClocks() as clocks:
        ...                                # start programs
        clocks.jump(pid, seconds=3600)     # one of them lives an hour later from here on

A preloaded library adds to the time of day that the C library tells. Monotonic time, which runs timers, stays as it is,
as it does on a real machine. Used by `testing.faults`.
"""

from barnabas.testing.preloaded import Preloaded

_SOURCE = r"""
static int (*real_gettime)(clockid_t, struct timespec *);

int clock_gettime(clockid_t clock, struct timespec *at) {
    if (!real_gettime) real_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real_gettime(clock, at);
    if (result || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return result;
    long long ns = at->tv_nsec + wanted();
    at->tv_sec += ns / 1000000000;
    at->tv_nsec = ns % 1000000000;
    if (at->tv_nsec < 0) { at->tv_nsec += 1000000000; at->tv_sec--; }
    return 0;
}

int gettimeofday(struct timeval *at, void *zone) {
    struct timespec now;
    (void)zone;
    int result = clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return result;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"""


class WallClocks(Preloaded):
    """Programs started inside the `with` block have wall clocks that can be set."""

    def __init__(self) -> None:
        super().__init__("wall clocks", _SOURCE)

    def jump(self, pid: int, seconds: float) -> None:
        """Set a process's clock this far from the machine's, forward or back; 0 sets it right."""
        self.put(pid, int(seconds * 1e9))
