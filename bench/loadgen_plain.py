"""The load generator without a C compiler: same arguments, same output as loadgen.c, in plain Python.

Started by bench.loadgen as a process of its own. Connections, requests and seconds are bounded as in
loadgen.c.
"""

from __future__ import annotations

import json
import resource
import select
import socket
import struct
import sys
import time
from collections import deque
from pathlib import Path

STALL_S = 10.0


class ConnectionState:
    """One socket, the frame it repeats, when each request in flight began, and half an answer."""

    def __init__(self, port: int, frame: bytes, in_flight: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.setblocking(False)
        self.frame = memoryview(frame)
        self.unsent = in_flight
        self.sent = 0
        self.begun: deque[int] = deque()
        self.answer = b""

    def push(self) -> None:
        while self.unsent:
            if self.sent == 0:
                self.begun.append(time.monotonic_ns())
            try:
                self.sent += self.sock.send(self.frame[self.sent :])
            except BlockingIOError:
                return
            if self.sent < len(self.frame):
                return
            self.sent = 0
            self.unsent -= 1

    def pull(self, error_offset: int) -> tuple[list[int], int]:
        """The latencies of the answers that have come whole, and how many of them were errors."""
        data = self.answer + self.sock.recv(4096)
        if len(data) == len(self.answer):
            raise ConnectionError("the broker closed a connection")
        at, errors, took = 0, 0, []
        while len(data) - at >= 4:
            size = 4 + struct.unpack_from(">i", data, at)[0]
            if len(data) - at < size:
                break
            errors += data[at + error_offset : at + error_offset + 2] != b"\x00\x00"
            took.append(time.monotonic_ns() - self.begun.popleft())
            at += size
        self.answer = data[at:]
        self.unsent += len(took)
        return took, errors


def split(data: bytes) -> list[bytes]:
    frames, at = [], 0
    while at < len(data):
        size = 4 + struct.unpack_from(">i", data, at)[0]
        frames.append(data[at : at + size])
        at += size
    return frames


def own_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    port, connections, in_flight = (int(argument) for argument in sys.argv[1:4])
    warm_up_s, seconds = (float(argument) for argument in sys.argv[4:6])
    most, error_offset = (int(argument) for argument in sys.argv[6:8])
    frames = split(Path(sys.argv[8]).read_bytes())
    epoll = select.epoll()
    by_fd: dict[int, ConnectionState] = {}
    for number in range(connections):
        state = ConnectionState(port, frames[number % len(frames)], in_flight)
        by_fd[state.sock.fileno()] = state
        epoll.register(state.sock.fileno(), select.EPOLLIN)
        state.push()
    latencies: list[int] = []
    begun, measuring, errors, sent_bytes, cpu_before = time.monotonic(), 0.0, 0, 0, own_cpu_s()
    while True:
        now = time.monotonic()
        if not measuring and now - begun >= warm_up_s:
            print("measuring", flush=True)
            measuring, cpu_before = time.monotonic(), own_cpu_s()
        if measuring and (now - measuring >= seconds or len(latencies) >= most):
            break
        ready = epoll.poll(STALL_S)
        if not ready:
            raise TimeoutError("no answer")
        for fd, event in ready:
            state = by_fd[fd]
            if event & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
                took, refused = state.pull(error_offset)
                errors += refused
                if measuring:
                    latencies += took
                    sent_bytes += len(took) * len(state.frame)
            state.push()
            epoll.modify(fd, select.EPOLLIN | (select.EPOLLOUT if state.unsent else 0))
    ended, own = time.monotonic(), own_cpu_s() - cpu_before
    latencies.sort()
    last = len(latencies) - 1
    result = {
        "requests": len(latencies),
        "bytes": sent_bytes,
        "errors": errors,
        "seconds": ended - measuring,
        "cpu_s": own,
        "p50_ns": latencies[last // 2] if latencies else 0,
        "p99_ns": latencies[last * 99 // 100] if latencies else 0,
        "p999_ns": latencies[last * 999 // 1000] if latencies else 0,
        "max_ns": latencies[last] if latencies else 0,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    try:
        main()
    except (OSError, TimeoutError) as error:
        raise SystemExit(f"loadgen: {error}") from error
