"""Owns the records that were fetched and are being given out, in the user's thread.

Always holds: a batch is decoded when its first record is asked for; a partition's position is the offset of the next
record that the user gets, also in the middle of a batch.
"""

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from barnabas.client.consumer_record import ConsumerRecord, RecordDecoder
from barnabas.client.fetches import Chunk, Fetches
from barnabas.client.turn import Turn
from barnabas.errors import BarnabasError, Code, Refused

if TYPE_CHECKING:
    import pyarrow as pa


class HandOut:
    """Mutable: the chunk in hand, and how far it is given out."""

    def __init__(
        self, fetches: Fetches, turn: Turn, decoder: RecordDecoder, on_room: Callable[[], None]
    ) -> None:
        self._fetches = fetches
        self._turn = turn
        self._decoder = decoder
        self._on_room = on_room
        self._chunk: Chunk | None = None
        self._version = 0
        self._batches: Iterator[tuple[list[ConsumerRecord], int]] = iter(())
        self._records: list[ConsumerRecord] = []
        self._at = 0
        self._after = 0

    @property
    def is_ready(self) -> bool:
        """Whether records can be given now; the turn must be held."""
        chunk = self._chunk
        if chunk is not None and not chunk.reading.is_paused and self._is_current(chunk):
            return True
        return self._fetches.has_chunk()

    def take(self, limit: int) -> list[ConsumerRecord]:
        """Up to so many records of what is here."""
        found: list[ConsumerRecord] = []
        self._drop_if_stale()
        try:
            while self._at < len(self._records) or self._next_batch():
                end = self._at + limit - len(found)
                records = self._records
                if self._at == 0 and end >= len(records) and not found:
                    found = records
                else:
                    found += records[self._at : end]
                self._give_up_to(min(end, len(records)))
                if len(found) >= limit:
                    break
        except BarnabasError as why:
            self._stumble(why)
            if not found:
                raise
        return found

    def records(self, limit: int) -> Iterator[ConsumerRecord]:
        """One by one, up to so many, until nothing is here; a seek in between ends it."""
        given = 0
        self._drop_if_stale()
        while given < limit:
            if self._at >= len(self._records):
                try:
                    if not self._next_batch():
                        return
                except BarnabasError as why:
                    self._stumble(why)
                    raise
            record = self._records[self._at]
            self._give_up_to(self._at + 1)
            given += 1
            yield record
            if self._chunk is not None and not self._is_current(self._chunk):
                return

    def columns(
        self, names: Collection[str] | None, max_bytes: int, *, check_crcs: bool
    ) -> "pa.RecordBatch | None":
        """The chunk in hand, and more while there is and they are not too many bytes, as Arrow columns."""
        from barnabas.client.columns import Fetched, decode

        self.put_back()
        size = 0
        chunks: list[Chunk] = []
        with self._turn:
            while size < max_bytes and (chunk := self._fetches.next_chunk()) is not None:
                chunks.append(chunk)
                size += len(chunk.data)
        if not chunks:
            return None
        self._on_room()
        fetched = [
            Fetched(*chunk.reading.partition, chunk.data, chunk.start, aborted=chunk.aborted)
            for chunk in chunks
        ]
        try:
            batch = decode(fetched, names, check_crcs=check_crcs)
        except BarnabasError:
            with self._turn:
                for chunk in chunks:
                    self._fetches.seek(chunk.reading.partition, chunk.start)
            raise
        for chunk in chunks:
            chunk.reading.position = chunk.end
        return batch if len(batch) else None

    def put_back(self) -> None:
        """Nothing of the chunk in hand is wanted now: what is left of it waits with the other chunks."""
        chunk, self._chunk = self._chunk, None
        self._records, self._at = [], 0
        if chunk is not None and self._is_current(chunk) and chunk.reading.position is not None:
            with self._turn:
                self._fetches.put_back(chunk._replace(start=chunk.reading.position))

    def _drop_if_stale(self) -> None:
        """Nobody shall get what was fetched before a seek, or of a partition that is paused or gone."""
        if self._chunk is not None and (self._chunk.reading.is_paused or not self._is_current(self._chunk)):
            self.put_back()

    def _is_current(self, chunk: Chunk) -> bool:
        return self._fetches.is_current(chunk.reading, self._version)

    def _give_up_to(self, at: int) -> None:
        assert self._chunk is not None
        self._at = at
        is_over = at >= len(self._records)
        self._chunk.reading.position = self._after if is_over else self._records[at].offset

    def _next_batch(self) -> bool:
        """The next batch with records; False where none is here."""
        while True:
            if self._chunk is not None:
                for records, after in self._batches:
                    self._records, self._after, self._at = records, after, 0
                    if records:
                        return True
                    self._give_up_to(0)
                self._chunk.reading.position = self._chunk.end
            with self._turn:
                self._chunk = chunk = self._fetches.next_chunk()
            self._records, self._at = [], 0
            if chunk is None:
                return False
            self._version = chunk.reading.version
            self._batches = self._decoder.batches(chunk)
            self._on_room()

    def _stumble(self, why: BarnabasError) -> None:
        """What cannot be read stays where it is: corrupt bytes are fetched again, anything else is the user's."""
        chunk = self._chunk
        if isinstance(why, Refused) and why.code is Code.CORRUPT_MESSAGE and chunk is not None:
            self._chunk, self._records, self._at = None, [], 0
            with self._turn:
                self._fetches.seek(chunk.reading.partition, chunk.reading.position or chunk.start)
        else:
            self.put_back()
