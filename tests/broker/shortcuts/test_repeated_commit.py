"""Commits that repeat are not decoded: what is read from them is what decoding gives."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.shortcuts.repeated_commit import KnownCommit
from barnabas.testing import Broker
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.frames import decode_request, read_request_header
from barnabas.wire.messages.coordinator import FindCoordinatorRequest
from barnabas.wire.messages.offsets import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
    OffsetFetchGroup,
    OffsetFetchRequest,
    OffsetFetchTopic,
)
from tests.broker.speaking import connect, create
from tests.raw import frame_of

API = APIS[ApiKey.OFFSET_COMMIT]
VERSIONS = range(API.lowest, API.highest + 1)
OFFSETS = st.integers(-(2**63), 2**63 - 1)


def commit(*offsets: int, group: str = "g", generation: int = -1) -> OffsetCommitRequest:
    """One of these offsets for each partition, of two topics in turn."""
    topics = [OffsetCommitTopic("even"), OffsetCommitTopic("odd")]
    for index, offset in enumerate(offsets):
        topics[index % 2].partitions.append(OffsetCommitPartition(index // 2, offset))
    topics = [topic for topic in topics if topic.partitions]
    return OffsetCommitRequest(group, generation, topics=topics)


def seen(request: Any, version: int, correlation_id: int = 1) -> memoryview:
    return memoryview(frame_of(request, version, correlation_id))[4:]


def unasked() -> KnownCommit:
    """One that only reads: it carries nothing out."""
    return KnownCommit(None, None)  # type: ignore[arg-type]


def learned(frame: memoryview) -> KnownCommit:
    header = read_request_header(frame)
    known = unasked()
    known.learn(frame, header, decode_request(header, frame))
    return known


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
def test_what_is_read_is_what_decoding_gives(version: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 5))
    known = learned(seen(commit(*[data.draw(OFFSETS) for _ in range(count)]), version))
    for correlation_id in (2, -1, 2**31 - 1):
        frame = seen(commit(*[data.draw(OFFSETS) for _ in range(count)]), version, correlation_id)
        header = read_request_header(frame)
        assert known.read(frame, correlation_id) == (header, decode_request(header, frame))


@pytest.mark.parametrize("version", VERSIONS)
def test_any_other_byte_that_differs_is_left_to_the_decoder(version: int) -> None:
    frame = seen(commit(7, 8), version)
    known = learned(frame)
    free = 0
    for at in range(len(frame)):
        changed = bytearray(frame)
        changed[at] ^= 0x55
        free += known.read(memoryview(changed), 1) is not None
    assert free == 4 + 2 * 8, "the correlation id and two offsets"
    assert known.read(frame[:-1], 1) is None
    assert known.read(memoryview(bytes(frame) + b"\0"), 1) is None


def test_the_request_that_is_learned_keeps_its_offsets() -> None:
    frame = seen(commit(7, 8, 9), 9)
    header = read_request_header(frame)
    request = decode_request(header, frame)
    unasked().learn(frame, header, request)
    assert request == decode_request(header, frame)


def test_a_request_written_in_an_own_way_is_decoded_each_time() -> None:
    """A tagged field that nobody knows, at the end of the request, and no count of tags where it was."""
    frame = memoryview(bytes(seen(commit(7), 9))[:-1] + b"\x01\x05\x01x")
    assert learned(frame).read(frame, 1) is None


def test_a_large_commit_is_not_kept_with_its_connection() -> None:
    request = commit(7)
    request.topics[0].partitions[0].committed_metadata = "x" * 20_000
    frame = seen(request, 9)
    assert learned(frame).read(frame, 1) is None


def test_requests_that_never_repeat_are_not_learned_for_ever() -> None:
    known = unasked()
    for number in range(10):
        frame = seen(commit(1, group=f"group {number}"), 9)
        assert known.read(frame, 1) is None
        header = read_request_header(frame)
        known.learn(frame, header, decode_request(header, frame))
    assert known.read(seen(commit(2, group="group 9"), 9), 1) is None, "it was given up before"
    assert known.read(seen(commit(2, group="group 3"), 9), 1) is not None, "and this came last before that"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_takes_commits_that_repeat_and_those_that_do_not(version: int) -> None:
    with Broker() as broker, connect(broker) as client:
        create(client, "even", 2)
        create(client, "odd", 2)
        client.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
        wanted = OffsetFetchRequest(
            groups=[
                OffsetFetchGroup("g", topics=[OffsetFetchTopic("even", [0, 1]), OffsetFetchTopic("odd", [0])])
            ]
        )
        for offsets in [(1, 2, 3), (4, 5, 6), (7, 8), (9, 10), (11, 12, 13), (14, 15, 16)]:
            answer = client.ask(commit(*offsets), version)
            assert {part.error_code for topic in answer.topics for part in topic.partitions} == {0}
            even, odd = client.ask(wanted, 9).groups[0].topics
            found = [even.partitions[0], odd.partitions[0], even.partitions[1]]
            assert [part.committed_offset for part in found][: len(offsets)] == list(offsets)
        stale = client.ask(commit(17, 18, 19, generation=5), version)
        assert {part.error_code for topic in stale.topics for part in topic.partitions} != {0}
        again = client.ask(commit(20, 21, 22), version)
        assert {part.error_code for topic in again.topics for part in topic.partitions} == {0}
