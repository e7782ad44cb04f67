"""Owns the client that others must not disturb: it writes and reads all the while, and every answer is checked.

Called by the hostile tests, which do their worst beside it.
"""

import threading
from typing import Self

from barnabas.wire.batch import decode_batch
from tests.hostile.corpus import batch, fetch_request, produce_request
from tests.process import BrokerProcess
from tests.raw import RawConnection

TOPIC = "neighbour"
_ANSWER_S = 20.0


class Neighbour:
    """Produces a batch and fetches it, over and over, on a connection of its own.

    An answer comes within seconds, however busy the machine is; what the broker did meanwhile is measured in seconds
    of its own, because only those tell whether somebody else kept it from answering.
    """

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._failure: BaseException | None = None
        self.rounds = 0
        self.longest_s = 0.0
        """The most CPU seconds that the broker spent while the neighbour waited for one round."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        if self._failure is not None:
            raise AssertionError("the neighbour was disturbed") from self._failure
        assert self.rounds > 0, "the neighbour was never served"

    def _live(self) -> None:
        try:
            with RawConnection(self._broker.port, _ANSWER_S) as connection:
                self._round(connection)  # however soon the test is over
                while not self._stopping.is_set():
                    self._round(connection)
        except BaseException as problem:  # handed to the test, which waits in another thread
            self._failure = problem

    def _round(self, connection: RawConnection) -> None:
        began = self._broker.busy_s()
        answer = connection.ask(produce_request(TOPIC, batch()), 9).responses[0].partition_responses[0]
        assert answer.error_code == 0
        read = connection.ask(fetch_request(TOPIC, answer.base_offset), 12).responses[0].partitions[0]
        assert read.error_code == 0
        assert decode_batch(bytes(read.records))[0].offset == answer.base_offset
        self.longest_s = max(self.longest_s, self._broker.busy_s() - began)
        self.rounds += 1
        self._stopping.wait(0.005)  # a neighbour, not a load
