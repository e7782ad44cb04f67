"""Owns the records that were fetched and are being given out, in the user's thread.

Always holds: batches are decoded when their first record is asked for; a partition's position is the offset of the next
record that the user gets, also in the middle of a batch.
"""

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from barnabas.client.consumer.consumer_lock import ConsumerLock
from barnabas.client.consumer.consumer_record import ConsumerRecord, RecordDecoder, Run
from barnabas.client.consumer.fetches import Fetches
from barnabas.client.consumer.reading import Chunk
from barnabas.errors import BarnabasError, Code, Refused

if TYPE_CHECKING:
    import pyarrow as pa


class Delivery:
    """Mutable: the chunk in hand, and how far it is given out."""

    def __init__(
        self, fetches: Fetches, lock: ConsumerLock, decoder: RecordDecoder, on_room: Callable[[], None]
    ) -> None:
        self._fetches = fetches
        self._lock = lock
        self._decoder = decoder
        self._on_room = on_room
        self._chunk: Chunk | None = None
        self._version = 0
        self._runs: Iterator[Run] = iter(())
        self._run: Run | None = None
        self._at = 0

    @property
    def is_ready(self) -> bool:
        """Whether records can be given now; the lock must be held."""
        chunk = self._chunk
        if chunk is not None and not chunk.reading.is_paused and self._is_current(chunk):
            return True
        return self._fetches.has_chunk()

    def take(self, limit: int) -> list[ConsumerRecord]:
        """Up to `limit` records of what is here."""
        found: list[ConsumerRecord] = []
        self._drop_if_stale()
        try:
            while self._find_run():
                records = self._records(limit - len(found))
                self._go_to(self._at + len(records))
                found = found + records if found else records
                if len(found) >= limit:
                    break
        except BarnabasError as why:
            self._stumble(why)
            if not found:
                raise
        return found

    def records(self, limit: int) -> Iterator[ConsumerRecord]:
        """One by one, up to a limit, until nothing is here; a seek in between ends it."""
        self._drop_if_stale()
        try:
            if not self._find_run():
                return
            records = self._records(limit)
        except BarnabasError as why:
            self._stumble(why)
            raise
        chunk, version, at = self._chunk, self._version, self._at
        assert chunk is not None
        reading = chunk.reading
        # Hot: the position follows each record, so that a commit in the loop is right.
        for record in records:
            at += 1
            self._at = at
            reading.position = record.offset + 1
            yield record
            if self._chunk is not chunk or reading.version != version or reading.is_paused:
                return
        self._go_to(at)

    def _records(self, limit: int) -> list[ConsumerRecord]:
        assert self._chunk is not None
        assert self._run is not None
        return self._decoder.records(self._chunk.reading.partition, self._run, self._at, self._at + limit)

    def columns(
        self, names: Collection[str] | None, max_bytes: int, *, check_crcs: bool
    ) -> "pa.RecordBatch | None":
        """The chunk in hand, and more while there is and they are not too many bytes, as Arrow columns."""
        from barnabas.client.columns.columns import Fetched, decode

        self.put_back()
        size = 0
        chunks: list[Chunk] = []
        with self._lock:
            while size < max_bytes and (chunk := self._fetches.next_chunk()) is not None:
                chunks.append(chunk)
                size += len(chunk.data)
        if not chunks:
            return None
        if self._fetches.was_full or not all(chunk.reading.is_asked for chunk in chunks):
            self._on_room()
        fetched = [
            Fetched(*chunk.reading.partition, chunk.data, chunk.start, aborted=chunk.aborted)
            for chunk in chunks
        ]
        try:
            batch = decode(fetched, names, check_crcs=check_crcs)
        except BarnabasError:
            with self._lock:
                for chunk in chunks:
                    self._fetches.fetch_again(chunk.reading, chunk.start)
            raise
        for chunk in chunks:
            chunk.reading.position = chunk.end
        return batch if len(batch) else None

    def put_back(self) -> None:
        """Nothing of the chunk in hand is wanted now: what is left of it waits with the other chunks."""
        chunk, self._chunk = self._chunk, None
        self._run, self._at = None, 0
        if chunk is not None and self._is_current(chunk) and chunk.reading.position is not None:
            with self._lock:
                self._fetches.put_back(chunk._replace(start=chunk.reading.position))

    def _drop_if_stale(self) -> None:
        """What was fetched before a seek, or of a partition that is paused or gone, is not given."""
        if self._chunk is not None and (self._chunk.reading.is_paused or not self._is_current(self._chunk)):
            self.put_back()

    def _is_current(self, chunk: Chunk) -> bool:
        return self._fetches.is_current(chunk.reading, self._version)

    def _go_to(self, at: int) -> None:
        """The records before this place of the run are given."""
        assert self._chunk is not None
        assert self._run is not None
        offsets = self._run.columns.offsets
        self._at = at
        self._chunk.reading.position = offsets[at] if at < len(offsets) else self._run.after

    def _find_run(self) -> bool:
        """Whether there are records to give: of the run in hand, the next one, or another chunk."""
        while self._run is None or self._at >= len(self._run.columns.offsets):
            if self._chunk is not None:
                self._run = next(self._runs, None)
                if self._run is not None:
                    self._go_to(self._run.first)
                    continue
            with self._lock:
                self._chunk = chunk = self._fetches.next_chunk()
            self._run, self._at = None, 0
            if chunk is None:
                return False
            self._version = chunk.reading.version
            self._runs = self._decoder.runs(chunk)
            if self._fetches.was_full or not chunk.reading.is_asked:
                self._on_room()
        return True

    def _stumble(self, why: BarnabasError) -> None:
        """What cannot be read stays where it is: corrupt bytes are fetched again, anything else is the user's."""
        chunk = self._chunk
        if isinstance(why, Refused) and why.code is Code.CORRUPT_MESSAGE and chunk is not None:
            self._chunk, self._run, self._at = None, None, 0
            with self._lock:
                self._fetches.fetch_again(chunk.reading, chunk.reading.position or chunk.start)
        else:
            self.put_back()
