"""Calls what others gave us, in the loop of a network: a failure there is shown, and harms no other."""

import sys
import threading
from collections.abc import Callable
from typing import Any


def guarded(action: Callable[..., object], *arguments: Any) -> None:
    """Call it, whatever it raises: even SystemExit would end the client's thread, or the wait of a driving user."""
    try:
        action(*arguments)
    except BaseException:
        show_failure()


def show_failure() -> None:
    """Show the exception that is being handled, as that of a thread."""
    threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
