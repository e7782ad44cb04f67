"""What must be true whatever goes wrong. Knows what was acknowledged and what could be read, and no machine.

A reader of a simulation is the fastest there can be: it reads from each replica, leader or follower, whatever comes
below the watermark there, at the moment it does.
"""

from barnabas.types import Offset
from barnabas.wire.batch import Record, decode_batch, headers


class Broken(AssertionError):
    """A promise was broken."""


class Judge:
    """Mutable: what the world was told."""

    def __init__(self, *, sees_all: bool = True) -> None:
        """`sees_all`: readers have seen all that is acknowledged, before it is."""
        self._sees_all = sees_all
        self.seen: dict[int, bytes] = {}
        """Batches that could be read, by their first offset."""
        self.acknowledged: dict[bytes, int] = {}
        """Values by which the producer knows its records, and the offset that it was told."""

    def saw(self, broker: int, data: bytes, below: Offset) -> None:
        """Batches came below the watermark of a replica."""
        for at, header in headers(data):
            if header.base_offset >= below:
                return
            batch = data[at : at + header.size]
            if header.next_offset > below:
                raise Broken(
                    f"the watermark {below} of {broker} lies within the batch at {header.base_offset}"
                )
            if self.seen.setdefault(header.base_offset, batch) != batch:
                raise Broken(
                    f"broker {broker} shows another batch at {header.base_offset} than was seen there"
                )

    def acknowledge(self, value: bytes, offset: int) -> None:
        """A producer was told that a record is stored at an offset."""
        if self._sees_all and offset not in self.seen:
            raise Broken(f"offset {offset} was acknowledged before it was committed")
        self.acknowledged[value] = offset

    def conclude(self, logs: dict[int, bytes], watermark: int) -> None:
        """After all faults are over: each replica's log has what was seen and acknowledged, and all are the same."""
        first = next(iter(logs.values()))
        for broker, data in logs.items():
            found = {header.base_offset: data[at : at + header.size] for at, header in headers(data)}
            for offset, batch in self.seen.items():
                if found.get(offset) != batch:
                    what = "another one there" if offset in found else "lost it"
                    raise Broken(f"broker {broker} has {what}: the batch at {offset} that was seen")
            if data != first:
                raise Broken(f"the log of broker {broker} is not the same as another below {watermark}")
        values = {record.value: record.offset for record in _records(first)}
        for value, offset in self.acknowledged.items():
            if values.get(value) != offset:
                raise Broken(f"{value!r} was acknowledged at {offset} and is at {values.get(value)}")


def _records(data: bytes) -> list[Record]:
    return [record for at, header in headers(data) for record in decode_batch(data[at : at + header.size])]
