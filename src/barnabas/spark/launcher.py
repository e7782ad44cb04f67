"""What Spark starts as `python` in a session of ours: asks the fork server for a warm process, or becomes one itself.

Run as `python -I -S launcher.py FORKSERVER ARGUMENT...`, by nothing but its path: nothing is imported that takes time.
Always holds: what Spark asked for runs, with its arguments, environment, folder, input and output, whether the fork
server is there or not; it ends when Spark ends this process.
"""

import contextlib
import json
import os
import signal
import socket
import sys

TAKEN = b"taken"


def main(forkserver: str, *arguments: str) -> None:
    environment = dict(os.environ)
    here = os.environ.get("SPARK_HOME")
    if here:
        # Spark puts archives of what is installed anyway before everything else. They hold no bytecode: 0.6 s to
        # compile them, in every process.
        path = environment.get("PYTHONPATH", "").split(os.pathsep)
        kept = [each for each in path if each and not each.startswith(os.path.join(here, ""))]
        environment["PYTHONPATH"] = os.pathsep.join(kept)
    if arguments[:1] == ("-m",):
        _ask(forkserver, arguments, environment)
    os.execve(sys.executable, [sys.executable, *arguments], environment)


def _ask(forkserver: str, arguments: tuple[str, ...], environment: dict[str, str]) -> None:
    """Wait for the end of the process that the fork server has made; come back if it makes none."""
    request = json.dumps({"arguments": arguments, "environment": environment, "folder": os.getcwd()}).encode()
    # A SIGTERM from here on is meant for the process that we are about to get: it is passed on when that is known.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(forkserver)
            socket.send_fds(connection, [len(request).to_bytes(4)], [0, 1, 2])
            connection.sendall(request)
            answer = connection.recv(64)
            if not answer.startswith(TAKEN):
                return
            _wait_for(int(answer.removeprefix(TAKEN)), connection)
    except OSError:
        return
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _wait_for(pid: int, connection: socket.socket) -> None:
    """Until that process has ended, and end as well: what Spark asked for runs once."""

    def pass_on(*_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)

    try:
        signal.signal(signal.SIGTERM, pass_on)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        connection.recv(1)  # nothing comes: it is closed when the process ends
    finally:
        os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
