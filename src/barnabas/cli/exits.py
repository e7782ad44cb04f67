"""How a command ends: its exit code, and one sentence on stderr when it failed. Never a traceback.

Used by `main` and around every command. 0 done, 1 failed, 2 wrong usage (ours or typer's), 130 Ctrl-C, 141 the
reader of a pipe went away. BARNABAS_DEBUG=1 shows the traceback of what is our fault.
"""

import os
import sys
from collections.abc import Callable, Iterable
from functools import wraps
from typing import BinaryIO, NoReturn, ParamSpec, TypeVar

from barnabas.errors import BarnabasError

P = ParamSpec("P")
T = TypeVar("T")

FAILED = 1
WRONG_USAGE = 2
INTERRUPTED = 130
PIPE_CLOSED = 141


class WrongUsage(BarnabasError):
    """What was typed makes no sense, whatever the broker may say to it."""


def ends_well(command: Callable[P, T]) -> Callable[P, T]:
    """Wrap a command so that whatever goes wrong in it becomes a sentence and an exit code."""

    @wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            result = command(*args, **kwargs)
            _flush()  # a pipe that is closed already must be noticed here, not at exit
        except WrongUsage as error:
            fail(str(error), WRONG_USAGE)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        except BrokenPipeError:
            _leave_quietly()
        except (BarnabasError, OSError) as error:
            fail(_sentence(error))
        except Exception as error:
            if os.environ.get("BARNABAS_DEBUG"):
                raise
            fail(
                f"Something unforeseen went wrong ({type(error).__name__}: {error}); BARNABAS_DEBUG=1 shows where."
            )
        return result

    return wrapped


def try_each(things: Iterable[T], do: Callable[[T], None]) -> None:
    """Do it to each, tell of every one that it fails for, and fail at the end. No broker to ask ends it at once."""
    from barnabas.errors import NetworkException, RequestTimedOut

    failed = False
    for thing in things:
        try:
            do(thing)
        except (BrokenPipeError, NetworkException, RequestTimedOut):
            raise
        except (BarnabasError, OSError) as error:
            _tell(_sentence(error))
            failed = True
    if failed:
        sys.exit(FAILED)


def fail(sentence: str, code: int = FAILED) -> NoReturn:
    """Say what is wrong and end."""
    _tell(sentence)
    sys.exit(code)


def _sentence(error: BarnabasError | OSError) -> str:
    if isinstance(error, BarnabasError):
        return str(error)
    about = f"{error.filename}: " if error.filename else ""
    return f"{about}{error.strerror or error}."


def _tell(sentence: str) -> None:
    _flush()
    sys.stderr.write(f"barnabas: {sentence}\n")


def output() -> BinaryIO:
    """Stdout, for bytes."""
    if sys.stdout is None:
        raise BarnabasError("There is nowhere to print to: stdout is closed.")
    return sys.stdout.buffer


def _flush() -> None:
    # There is no stdout at all where the shell has closed it (>&-).
    if sys.stdout is not None:
        sys.stdout.flush()


def _leave_quietly() -> NoReturn:
    # Python flushes stdout once more at exit: let that go nowhere, or it complains.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(PIPE_CLOSED)
