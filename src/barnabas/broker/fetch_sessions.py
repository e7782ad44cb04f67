"""Fetch sessions of clients (KIP-227): a client says what has changed since its last fetch, and is told what has.

Owned by the broker; `handlers.fetch` begins each fetch here. Followers have sessions of their own kind
(`replication.followers_session`). A session is known by its id alone and outlives its connection.

Always holds: there are at most max.incremental.fetch.session.cache.slots of them. A session that was not used for two
minutes makes room for another; so does one that is that old and has fewer partitions than the newcomer.
"""

import random
from collections.abc import Iterator

from barnabas.errors import Code, Refused
from barnabas.types import Millis
from barnabas.wire.messages.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)

FINAL_EPOCH = -1
"""The epoch of a fetch without a session, and of one that ends its session."""
FULL_EPOCH = 0
"""The epoch of a fetch that wants a session."""
STALE_MS = 120_000
_LAST_EPOCH = 0x7FFFFFFF

_Key = tuple[str, int]


class CachedPartition:
    """Mutable: what a client wants of a partition, and what it was told last."""

    __slots__ = ("high_watermark", "log_start", "wanted")

    def __init__(self, wanted: FetchPartition) -> None:
        self.wanted = wanted
        self.high_watermark = self.log_start = -1

    def tell(self, row: FetchPartitionResponse) -> bool:
        """Note a row; whether the client has to hear of it."""
        is_new = bool(row.error_code or row.records or row.diverging_epoch) or row.preferred_read_replica >= 0
        is_new = is_new or (row.high_watermark, row.log_start_offset) != (self.high_watermark, self.log_start)
        self.high_watermark = -1 if row.error_code else row.high_watermark
        self.log_start = row.log_start_offset
        return is_new


class FetchSession:
    """Mutable: the partitions of a client, the one that was served longest ago first."""

    __slots__ = ("_is_new", "_partitions", "began_at", "epoch", "id", "used_at")

    def __init__(self, session_id: int, now: Millis) -> None:
        self.id = session_id
        self.epoch = FULL_EPOCH
        """That of the next fetch."""
        self.began_at = self.used_at = now
        self._partitions: dict[_Key, CachedPartition] = {}
        self._is_new = True

    def __len__(self) -> int:
        return len(self._partitions)

    def take(self, request: FetchRequest, now: Millis) -> None:
        """Go on with what a fetch changes; its topics are all that the session has from here on."""
        self.epoch = 1 if self.epoch == _LAST_EPOCH else self.epoch + 1
        self.used_at = now
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                self._partitions.pop((forgotten.topic, index), None)
        for topic in request.topics:
            for wanted in topic.partitions:
                cached = self._partitions.get((topic.topic, wanted.partition))
                if cached is None:
                    self._partitions[topic.topic, wanted.partition] = CachedPartition(wanted)
                else:
                    cached.wanted = wanted
        request.topics = list(self._topics())

    def _topics(self) -> Iterator[FetchTopic]:
        """All that is wanted, in the order in which it is to be served."""
        topic: FetchTopic | None = None
        for (name, _), cached in self._partitions.items():
            if topic is None or topic.topic != name:
                if topic is not None:
                    yield topic
                topic = FetchTopic(name, [])
            topic.partitions.append(cached.wanted)
        if topic is not None:
            yield topic

    def tell(self, response: FetchResponse) -> FetchResponse:
        """Leave out of an answer what the client knows; a new session is told of everything."""
        response.session_id = self.id
        is_new, self._is_new = self._is_new, False
        for topic in response.responses:
            rows = []
            for row in topic.partitions:
                cached = self._partitions.get((topic.topic, row.partition_index))
                if cached is None or cached.tell(row) or is_new:
                    rows.append(row)
                if cached is not None and row.records:
                    # Others are served first the next time.
                    key = topic.topic, row.partition_index
                    self._partitions[key] = self._partitions.pop(key)
            topic.partitions = rows
        response.responses = [topic for topic in response.responses if topic.partitions]
        return response


class FetchSessions:
    """Mutable: the sessions, by id."""

    def __init__(self) -> None:
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, request: FetchRequest, slots: int, now: Millis) -> FetchSession | None:
        """The session of a fetch, begun or gone on with; None where it has none. Raises Refused."""
        epoch = request.session_epoch
        if epoch in (FINAL_EPOCH, FULL_EPOCH):
            self._sessions.pop(request.session_id, None)
            if epoch == FINAL_EPOCH:
                return None
            session = self._make(request, slots, now)
        else:
            session = self._sessions.get(request.session_id)
            if session is None:
                raise Refused(Code.FETCH_SESSION_ID_NOT_FOUND)
            if session.epoch != epoch:
                raise Refused(Code.INVALID_FETCH_SESSION_EPOCH)
        if session is not None:
            session.take(request, now)
            if not len(session):
                del self._sessions[session.id]
                return None
        return session

    def _make(self, request: FetchRequest, slots: int, now: Millis) -> FetchSession | None:
        size = sum(len(topic.partitions) for topic in request.topics)
        if len(self._sessions) >= slots and not self._make_room(size, now):
            return None
        session_id = random.randint(1, _LAST_EPOCH)
        while session_id in self._sessions:
            session_id = random.randint(1, _LAST_EPOCH)
        session = self._sessions[session_id] = FetchSession(session_id, now)
        return session

    def _make_room(self, size: int, now: Millis) -> bool:
        if not self._sessions:
            return False
        oldest = min(self._sessions.values(), key=lambda session: session.used_at)
        if now - oldest.used_at > STALE_MS:
            del self._sessions[oldest.id]
            return True
        smallest = min(
            (each for each in self._sessions.values() if now - each.began_at > STALE_MS),
            key=len,
            default=None,
        )
        if smallest is None or len(smallest) >= size:
            return False
        del self._sessions[smallest.id]
        return True
