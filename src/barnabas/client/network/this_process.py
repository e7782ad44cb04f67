"""Knows the process that runs this: a fork makes another one, with one thread, which is its main one."""

import os
import threading


class ThisProcess:
    """Kept up to date by the fork itself: asking the system takes a call each time."""

    def __init__(self) -> None:
        self.generation = 0
        """Another number in a process that was forked."""
        self.main_thread = threading.main_thread().ident

    def forked(self) -> None:
        self.generation += 1
        self.main_thread = threading.main_thread().ident


this_process = ThisProcess()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=this_process.forked)
