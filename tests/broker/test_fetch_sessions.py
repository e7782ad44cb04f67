"""Fetch sessions (KIP-227): a client is told what has changed, and says what has."""

import pytest

from barnabas.broker.fetch_sessions import STALE_MS, FetchSessions
from barnabas.errors import Code, Refused
from barnabas.testing import Broker
from barnabas.types import Millis
from barnabas.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from tests.broker.speaking import batch, connect, create, produce
from tests.raw import RawConnection


def wanted(topic: str, **offsets: int) -> list[FetchTopic]:
    rows = [
        FetchPartition(int(name[1:]), fetch_offset=at, partition_max_bytes=1000)
        for name, at in offsets.items()
    ]
    return [FetchTopic(topic, rows)]


def ask(
    connection: RawConnection,
    session: tuple[int, int],
    topics: list[FetchTopic],
    forgotten: list[ForgottenTopic] | None = None,
) -> FetchResponse:
    request = FetchRequest(
        max_bytes=1 << 20,
        session_id=session[0],
        session_epoch=session[1],
        topics=topics,
        forgotten_topics_data=forgotten or [],
    )
    answer: FetchResponse = connection.ask(request, 12)
    return answer


def told(answer: FetchResponse) -> dict[int, tuple[int, bool]]:
    """Watermark and whether there are records, by partition."""
    return {
        row.partition_index: (row.high_watermark, bool(row.records))
        for topic in answer.responses
        for row in topic.partitions
    }


def test_a_session_tells_what_is_new_and_nothing_else(connection: RawConnection, topic: str) -> None:
    create(connection, topic, 3)
    produce(connection, topic, batch(b"a"), 1)
    first = ask(connection, (0, 0), wanted(topic, p0=0, p1=0, p2=0))
    assert first.session_id > 0
    assert told(first) == {0: (0, False), 1: (1, True), 2: (0, False)}
    again = ask(connection, (first.session_id, 1), wanted(topic, p1=1))
    assert (again.session_id, told(again)) == (first.session_id, {})
    produce(connection, topic, batch(b"b"), 2)
    assert told(ask(connection, (first.session_id, 2), [])) == {2: (1, True)}
    assert told(ask(connection, (first.session_id, 3), [])) == {2: (1, True)}, "it was not said to be read"
    assert told(ask(connection, (first.session_id, 4), wanted(topic, p2=1))) == {}


def test_a_partition_that_is_forgotten_is_told_of_no_more(connection: RawConnection, topic: str) -> None:
    create(connection, topic, 2)
    session = ask(connection, (0, 0), wanted(topic, p0=0, p1=0)).session_id
    produce(connection, topic, batch(b"a"), 0)
    produce(connection, topic, batch(b"b"), 1)
    answer = ask(connection, (session, 1), [], [ForgottenTopic(topic, [0])])
    assert told(answer) == {1: (1, True)}


def test_an_error_is_told_until_it_is_over(connection: RawConnection, topic: str) -> None:
    create(connection, topic)
    session = ask(connection, (0, 0), wanted(topic, p0=9)).session_id
    for epoch in (1, 2):
        (row,) = ask(connection, (session, epoch), []).responses[0].partitions
        assert row.error_code == Code.OFFSET_OUT_OF_RANGE
    assert told(ask(connection, (session, 3), wanted(topic, p0=0))) == {0: (0, False)}
    assert told(ask(connection, (session, 4), [])) == {}


def test_a_session_that_is_not_there_and_an_epoch_that_is_not_due_are_refused(
    connection: RawConnection, topic: str
) -> None:
    create(connection, topic)
    assert ask(connection, (12345, 1), []).error_code == Code.FETCH_SESSION_ID_NOT_FOUND
    session = ask(connection, (0, 0), wanted(topic, p0=0)).session_id
    assert ask(connection, (session, 2), []).error_code == Code.INVALID_FETCH_SESSION_EPOCH
    assert ask(connection, (session, 1), []).error_code == 0
    assert ask(connection, (session, -1), []).session_id == 0
    assert ask(connection, (session, 2), []).error_code == Code.FETCH_SESSION_ID_NOT_FOUND


def test_a_fetch_without_a_session_gets_none(connection: RawConnection, topic: str) -> None:
    create(connection, topic)
    for _ in range(3):
        answer = ask(connection, (0, -1), wanted(topic, p0=0))
        assert (answer.session_id, told(answer)) == (0, {0: (0, False)})


def test_without_slots_there_are_no_sessions() -> None:
    with Broker({"max.incremental.fetch.session.cache.slots": 0}) as broker, connect(broker) as connection:
        create(connection, "t")
        assert ask(connection, (0, 0), wanted("t", p0=0)).session_id == 0


def begin(sessions: FetchSessions, partitions: int, now: int) -> int:
    """The id of a new session of this size; 0 where there is no room."""
    rows = [FetchPartition(number) for number in range(partitions)]
    session = sessions.begin(FetchRequest(session_epoch=0, topics=[FetchTopic("t", rows)]), 2, Millis(now))
    return session.id if session is not None else 0


class TestRoom:
    """Two slots."""

    def test_a_session_that_was_not_used_makes_room(self) -> None:
        sessions = FetchSessions()
        old, used = begin(sessions, 5, 0), begin(sessions, 5, 0)
        assert begin(sessions, 9, 10) == 0
        sessions.begin(FetchRequest(session_id=used, session_epoch=1), 2, Millis(STALE_MS))
        assert begin(sessions, 1, STALE_MS + 1) > 0
        with pytest.raises(Refused):
            sessions.begin(FetchRequest(session_id=old, session_epoch=1), 2, Millis(STALE_MS + 1))

    def test_a_larger_session_takes_the_place_of_a_smaller_one_that_is_old(self) -> None:
        sessions = FetchSessions()
        small, large = begin(sessions, 2, 0), begin(sessions, 5, 0)
        for session in (small, large):
            sessions.begin(FetchRequest(session_id=session, session_epoch=1), 2, Millis(STALE_MS))
        assert begin(sessions, 2, STALE_MS + 1) == 0
        assert begin(sessions, 3, STALE_MS + 1) > 0
        assert len(sessions) == 2
