"""A real broker inside a test: its own thread, port and temporary folder, up in a fraction of a second.

from barnabas.testing import Broker

with Broker() as broker:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
"""

import asyncio
import shutil
import tempfile
import threading
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from barnabas.broker.broker import Broker as RunningBroker
from barnabas.config import BrokerConfig, broker_config
from barnabas.errors import BarnabasError


class Broker:
    """A broker for as long as the `with` block lasts. Settings are Kafka's: `Broker({"num.partitions": 3})`.

    Given a folder, it keeps its data there, and a second one on the same folder goes on from it.
    Once stopped it can be started again: on its folder if it was given one, on an empty one if not, and with
    port 0 at a new address.
    Retention rests unless `log.retention.check.interval.ms` is set: tests write records of fixed, long gone hours, and
    those would vanish in the fifth minute.
    """

    def __init__(
        self,
        settings: Mapping[str, str | float] | None = None,
        *,
        data: Path | str | None = None,
        port: int = 0,
    ) -> None:
        self._is_temporary = data is None
        self.data = (
            Path(data) if data is not None else Path(tempfile.gettempdir()) / f"barnabas-{uuid.uuid4().hex}"
        )
        if "," in str(self.data):
            raise BarnabasError(
                f"The folder {str(self.data)!r} has a comma, which parts folders in log.dirs."
            )
        given = {
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "log.dirs": str(self.data),
            "group.initial.rebalance.delay.ms": "0",
            "log.retention.check.interval.ms": str(1 << 40),
            **{name: as_text(name, value) for name, value in (settings or {}).items()},
        }
        self._config, unknown = broker_config(given)
        if unknown:
            raise BarnabasError(f"There is no broker setting {unknown[0]!r}.")
        self.bootstrap = ""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._started = threading.Event()
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> "Broker":
        """Returns once it serves at `bootstrap`."""
        if self._thread is not None:
            raise BarnabasError("This broker was started already, and is not stopped.")
        self._started.clear()
        if self._is_temporary:
            self.data.mkdir(mode=0o700)
        self._thread = threading.Thread(target=self._run, name="barnabas-broker", daemon=True)
        self._thread.start()
        self._started.wait()
        if self._error is not None:
            self._end(self._thread)
        return self

    def stop(self) -> None:
        """A clean stop; the temporary folder goes with it. A broker that does not run is stopped already."""
        if self._thread is None:
            return
        if self._thread.is_alive() and self._loop is not None and self._stopping is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._end(self._thread)

    @property
    def is_running(self) -> bool:
        return self._thread is not None

    def __enter__(self) -> "Broker":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self) -> None:
        import uvloop

        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve())
        except BaseException as error:
            self._error = error
        finally:
            self._started.set()

    async def _serve(self) -> None:
        broker = self._made(self._config)
        await broker.start()
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self.bootstrap = broker.address
        self._started.set()
        await self._stopping.wait()
        await broker.stop()

    def _made(self, config: BrokerConfig) -> RunningBroker:
        return RunningBroker(config)

    def _end(self, thread: threading.Thread) -> None:
        """Wait for the thread, clear up, and raise what it died of."""
        thread.join()
        self._thread = None
        if self._is_temporary:
            shutil.rmtree(self.data, ignore_errors=True)
        error, self._error = self._error, None
        if error is not None:
            raise error


def as_text(name: str, value: str | float) -> str:
    """A setting as a properties file has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise BarnabasError(f"The setting {name} takes text, a number or a boolean, not {value!r}.")
