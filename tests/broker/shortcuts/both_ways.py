"""Sends a frame so that a shortcut may answer it, and so that none can: the first request of a connection has none."""

from typing import Any

import pytest

from barnabas.testing import Broker
from tests.broker.speaking import connect
from tests.raw import RawConnection


class BothWays:
    """A connection that has learned, beside fresh ones. Counts how often the shortcut answered."""

    def __init__(self, broker: Broker, attempt: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken: list[bool] = []
        self.broker = broker
        self._warm = connect(broker)
        answer = attempt.answer

        def watched(each: Any, frame: memoryview, correlation_id: int, peer: Any) -> Any:
            found = answer(each, frame, correlation_id, peer)
            self.taken.append(found is not None)
            return found

        monkeypatch.setattr(attempt, "answer", watched)

    def learn(self, frame: bytes) -> None:
        """Let the warm connection see a frame."""
        self._warm.send(frame)
        self._warm.receive()

    def same(self, frame: bytes) -> bool:
        """Whether the shortcut answered; the answers are the same either way."""
        self.taken.clear()
        self._warm.send(frame)
        short = self._warm.receive()
        is_taken = self.taken == [True]
        self.taken.clear()
        with connect(self.broker) as fresh:
            fresh.send(frame)
            general = fresh.receive()
        assert not self.taken, "the first request of a connection takes the general way"
        assert short == general
        return is_taken

    def start(self, frame: bytes) -> RawConnection:
        """Send to the warm connection, and leave the answer to be received."""
        self.taken.clear()
        self._warm.send(frame)
        return self._warm

    def close(self) -> None:
        self._warm.close()
