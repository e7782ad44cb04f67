"""Disks that are full for one process and not for others: what a broker sees when there is no room left.

    with FullDisks() as disks:
        ...                     # start programs
        disks.fill(pid)         # no file of this one grows any more
        disks.empty(pid)

A preloaded library refuses, with ENOSPC and before the kernel is asked, every write that would let a regular file grow,
whatever its file system. So errors are a full disk's, and what is freed meanwhile makes no room: `empty` does. Reads,
writes into what a file has already, new names, and what goes to stdout and stderr are let through.
"""

from barnabas.testing.preloaded import Preloaded

_SOURCE = r"""
static int is_full_for(int fd, off_t at, size_t size) {
    struct stat found;
    if (fd <= STDERR_FILENO || !wanted() || fstat(fd, &found) || !S_ISREG(found.st_mode)) return 0;
    if (at < 0) at = fcntl(fd, F_GETFL) & O_APPEND ? found.st_size : lseek(fd, 0, SEEK_CUR);
    if (at + (off_t)size <= found.st_size) return 0;
    errno = ENOSPC;
    return 1;
}

static size_t size_of(const struct iovec *parts, int count) {
    size_t size = 0;
    for (int i = 0; i < count; i++) size += parts[i].iov_len;
    return size;
}

ssize_t write(int fd, const void *data, size_t size) {
    return is_full_for(fd, -1, size) ? -1 : syscall(SYS_write, fd, data, size);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    return is_full_for(fd, -1, size_of(parts, count)) ? -1 : syscall(SYS_writev, fd, parts, count);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    return is_full_for(fd, at, size) ? -1 : syscall(SYS_pwrite64, fd, data, size, at);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off_t at) { return pwrite(fd, data, size, at); }
"""


class FullDisks(Preloaded):
    """Programs started inside the `with` block have disks that can be full."""

    def __init__(self) -> None:
        super().__init__("full disks", _SOURCE)

    def fill(self, pid: int) -> None:
        self.put(pid, 1)

    def empty(self, pid: int) -> None:
        self.put(pid, 0)
