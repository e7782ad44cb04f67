"""Misuses connections: absurd lengths, half frames, crowds, deaf clients. Others are served, memory is bounded."""

import socket
import struct
from contextlib import ExitStack

import pytest

from barnabas.errors import Code
from barnabas.wire.apis import APIS
from barnabas.wire.codec import decode
from barnabas.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.messages.metadata import MetadataRequest
from barnabas.wire.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
)
from tests.hostile import corpus
from tests.hostile.neighbour import Neighbour
from tests.other_clients.adapters.confluent import ConfluentAdapter
from tests.process import BrokerProcess
from tests.raw import Gone, RawConnection, frame_of

CROWD = 1_000


@pytest.mark.parametrize("length", [0x7FFFFFFF, -1, -0x80000000, 101 << 20, 0, 3])
def test_a_length_that_cannot_be_ends_the_connection(victim: BrokerProcess, length: int) -> None:
    before = victim.rss_mib()
    with Neighbour(victim), RawConnection(victim.port) as connection:
        connection.send(struct.pack(">i", length) + b"x" * 64)
        assert connection.closes()
    assert victim.rss_mib() < before + 20


def test_half_frames_left_open_take_no_memory_for_what_did_not_come(victim: BrokerProcess) -> None:
    before = victim.rss_mib()
    with ExitStack() as open_ones, Neighbour(victim) as neighbour:
        for _ in range(200):
            connection = open_ones.enter_context(RawConnection(victim.port))
            connection.send(struct.pack(">i", 50 << 20) + b"x" * 100)
        _is_served(victim)
        assert victim.rss_mib() < before + 50
    assert neighbour.longest_s < 2


def test_a_frame_that_comes_byte_by_byte_is_answered(victim: BrokerProcess) -> None:
    with RawConnection(victim.port) as connection:
        for byte in frame_of(ApiVersionsRequest("slow", "1"), 3, 99):
            connection.send(bytes([byte]))
        assert struct.unpack_from(">i", connection.receive()) == (99,)


def test_a_thousand_idle_connections_do_not_disturb_others(victim: BrokerProcess) -> None:
    before = victim.rss_mib()
    with ExitStack() as crowd, Neighbour(victim) as neighbour:
        idle = [crowd.enter_context(RawConnection(victim.port)) for _ in range(CROWD)]
        _is_served(victim)
        assert victim.rss_mib() < before + 100
        for connection in idle[:: CROWD // 10]:
            assert connection.ask(MetadataRequest([]), 12).brokers
    assert neighbour.longest_s < 2


def test_requests_sent_at_once_are_answered_in_order(victim: BrokerProcess) -> None:
    with RawConnection(victim.port) as connection:
        requests = [frame_of(MetadataRequest([]), 12, number) for number in range(500)]
        connection.send(b"".join(requests))
        answered = [struct.unpack_from(">i", connection.receive())[0] for _ in requests]
    assert answered == list(range(500))


def test_a_client_that_does_not_read_costs_no_memory(victim: BrokerProcess) -> None:
    """It asks for 4 MiB a thousand times and takes nothing: answers must not pile up in the broker."""
    with ConfluentAdapter(victim.bootstrap) as client:
        client.create_topic("deaf", 1)
    large = corpus.batch(15_000)
    with RawConnection(victim.port) as connection:
        for _ in range(8):
            answer = connection.ask(corpus.produce_request("deaf", large), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0
    before = victim.rss_mib()
    asked = frame_of(corpus.fetch_request("deaf", 0, 4 << 20), 12)
    with Neighbour(victim) as neighbour, RawConnection(victim.port) as deaf:
        deaf.socket.setblocking(False)
        try:
            for _ in range(1_000):
                deaf.socket.send(asked)
        except BlockingIOError:
            pass  # the broker has stopped taking requests in: that is one way to stay small
        for _ in range(20):
            _is_served(victim)
        assert victim.rss_mib() < before + 64
    assert neighbour.longest_s < 2


def test_a_client_that_leaves_without_its_answer_leaves_nothing_half_done(victim: BrokerProcess) -> None:
    names = [f"left-{number}" for number in range(200)]
    for number, name in enumerate(names):
        asked = frame_of(CreateTopicsRequest([CreatableTopic(name, 2, 1)]), 7)
        with RawConnection(victim.port) as leaving:
            # With and without a request before it, so that some are cut off before they are begun.
            leaving.send(frame_of(MetadataRequest([]), 12) * (number % 3) + asked)
    with RawConnection(victim.port) as staying:
        found = {topic.name: topic for topic in staying.ask(MetadataRequest(None), 12).topics}
        for name in names:
            if name in found:
                assert [p.leader_id >= 0 for p in found[name].partitions] == [True, True]
                answer = staying.ask(corpus.produce_request(name, corpus.batch(), 1), 9)
                assert answer.responses[0].partition_responses[0].error_code == 0
            else:
                made = staying.ask(CreateTopicsRequest([CreatableTopic(name, 2, 1)]), 7)
                assert made.topics[0].error_code in (0, Code.TOPIC_ALREADY_EXISTS)


def test_clients_that_are_cut_off_leave_no_trace(victim: BrokerProcess) -> None:
    """The connection is reset while one answer is on its way and another is being made."""
    asked = frame_of(ApiVersionsRequest("cut", "1"), 3) + frame_of(MetadataRequest(None), 12)
    with Neighbour(victim):
        for _ in range(2_000):
            with RawConnection(victim.port) as cut:
                cut.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                cut.send(asked)
    _is_served(victim)
    assert not [line for line in victim.output if "Traceback" in line or "never awaited" in line]


def test_an_api_we_do_not_know_costs_the_connection_or_gets_an_answer(victim: BrokerProcess) -> None:
    with Neighbour(victim):
        for key in [*range(-2, 100), 0x7FFF, -0x8000]:
            for version in (0, 99, -1):
                _answers_or_hangs_up(victim, struct.pack(">hhih", key, version, 1, -1) + b"\0" * 16)
        for api in APIS.values():
            _answers_or_hangs_up(victim, struct.pack(">hhih", api.key, api.highest + 1, 1, -1) + b"\0" * 16)
    _is_served(victim)


def test_api_versions_too_new_is_answered_in_the_oldest_words(victim: BrokerProcess) -> None:
    with RawConnection(victim.port) as connection:
        body = struct.pack(">hhih", 18, 99, 5, -1) + b"\0\5fuzz\2one\0"
        connection.send(struct.pack(">i", len(body)) + body)
        frame = connection.receive()
        assert struct.unpack_from(">i", frame) == (5,)
        answer = decode(ApiVersionsResponse, 0, frame, 4)
        assert answer.error_code == Code.UNSUPPORTED_VERSION
        spoken = {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}
        assert spoken[18] == (APIS[18].lowest, APIS[18].highest)
        assert connection.ask(ApiVersionsRequest("fuzz", "1"), 3).error_code == 0


def test_a_topic_of_two_thousand_million_partitions_is_refused(victim: BrokerProcess) -> None:
    before = victim.rss_mib()
    with Neighbour(victim) as neighbour, RawConnection(victim.port) as connection:
        for count in (0x7FFFFFFF, 1_000_000):
            made = connection.ask(CreateTopicsRequest([CreatableTopic(f"huge-{count}", count, 1)]), 7)
            assert made.topics[0].error_code != 0
            wish = CreatePartitionsTopic(corpus.TOPIC, count)
            assert connection.ask(CreatePartitionsRequest([wish]), 3).results[0].error_code != 0
    assert neighbour.longest_s < 2
    assert victim.rss_mib() < before + 50


def _is_served(victim: BrokerProcess) -> None:
    with RawConnection(victim.port) as connection:
        assert connection.ask(MetadataRequest([]), 12).brokers


def _answers_or_hangs_up(victim: BrokerProcess, body: bytes) -> None:
    with RawConnection(victim.port) as connection:
        connection.send(struct.pack(">i", len(body)) + body)
        try:
            connection.receive()
        except Gone:
            pass
