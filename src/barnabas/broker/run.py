"""Runs a broker as this process: until SIGTERM or Ctrl-C, which stop it cleanly.

Called by the command line. The garbage collector is told that what is here after the start stays: without that
it walks over all modules again and again, in the middle of requests.
"""

import asyncio
import gc
import logging
import resource
import signal
from collections.abc import Callable
from contextlib import suppress

from barnabas.broker.broker import Broker
from barnabas.config import BrokerConfig

log = logging.getLogger("barnabas.broker")


def run(config: BrokerConfig, ready: Callable[[Broker], None]) -> None:
    """Serve until told to stop. `ready` is called once clients can connect."""
    import uvloop

    _raise_file_limit()
    uvloop.run(_serve(config, ready))


def _raise_file_limit() -> None:
    """A partition is a file and so is a connection: the 1,024 that many systems begin with are soon used up."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):  # macOS does not mean what it says of its hard limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _serve(config: BrokerConfig, ready: Callable[[Broker], None]) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    broker = Broker(config)
    await broker.start()
    gc.freeze()
    gc.enable()
    gc.set_threshold(20_000, 20, 20)
    ready(broker)
    broker.halted.add_done_callback(lambda _: stopping.set())
    await stopping.wait()
    log.info("stopping")
    await broker.stop()
    log.info("stopped")
    if broker.halted.done():
        raise broker.halted.result()
