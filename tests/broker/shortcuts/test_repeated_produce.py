"""Produce requests that repeat are not decoded: the answers are what the general way gives."""

from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.broker.partitions.acceptance import ZSTD_SINCE
from barnabas.broker.shortcuts.repeated_produce import RepeatedProduce
from barnabas.errors import Code
from barnabas.testing import Broker
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.compression import Compression
from barnabas.wire.frames import decode_response
from barnabas.wire.messages.coordinator import FindCoordinatorRequest
from barnabas.wire.messages.produce import ProducePartitionResponse, ProduceResponse
from barnabas.wire.messages.topics import DeleteTopicsRequest, DeleteTopicState
from tests.broker.speaking import batch, connect, create, fetch, produce_request
from tests.raw import RawConnection, frame_of

VERSIONS = range(APIS[ApiKey.PRODUCE].lowest, APIS[ApiKey.PRODUCE].highest + 1)
MESSAGES_SINCE = 8


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[RawConnection]:
    with connect(broker) as connection:
        create(connection, "t", 4)
        yield connection


@pytest.fixture(params=[3, 7, 9, 12])
def version(request: pytest.FixtureRequest) -> int:
    """Without a log start, as kafkajs speaks it, the first compact one, the newest."""
    spoken: int = request.param
    return spoken


def watch(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Notes of each attempt whether it gave the answer."""
    taken: list[bool] = []
    answer = RepeatedProduce.answer

    def watched(self: RepeatedProduce, frame: memoryview, correlation_id: int, peer: Any) -> Any:
        found = answer(self, frame, correlation_id, peer)
        taken.append(found is not None)
        return found

    monkeypatch.setattr(RepeatedProduce, "answer", watched)
    return taken


def produce(client: RawConnection, frame: bytes) -> ProducePartitionResponse:
    client.send(frame)
    version = int.from_bytes(frame[6:8], "big")
    answered, response = decode_response(ProduceResponse, version, client.receive())
    assert answered == int.from_bytes(frame[8:12], "big")
    (topic,) = response.responses
    (row,) = topic.partition_responses
    return row


@pytest.mark.parametrize("version", VERSIONS)
def test_the_answer_to_a_repeated_request_differs_only_in_its_numbers(
    broker: Broker, client: RawConnection, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = []
    taken = watch(monkeypatch)
    for number in range(6):
        client.send(frame_of(produce_request("t", batch(b"x" * 50 * number)), version, correlation_id=number))
        answers.append(client.receive())
    assert taken == [True] * 5, "only the first was decoded"
    with connect(broker) as another:
        another.send(frame_of(produce_request("t", batch(b"y")), version, client_id="another"))
        answers.append(another.receive())
    rows = [decode_response(ProduceResponse, version, answer) for answer in answers]
    assert [answered for answered, _ in rows] == [0, 1, 2, 3, 4, 5, 1]
    for number, (_, response) in enumerate(rows):
        row = response.responses[0].partition_responses[0]
        assert row.base_offset == number
        row.base_offset = 0
        assert response == rows[0][1]


def test_partitions_in_turn_each_get_their_own_records(client: RawConnection, version: int) -> None:
    for number in range(20):
        row = produce(client, frame_of(produce_request("t", batch(b"%d" % number), number % 4), version))
        assert (row.index, row.base_offset) == (number % 4, number // 4)
    for index, found in enumerate(fetch(client, "t", dict.fromkeys(range(4), 0))):
        assert found.partition_index == index
        assert found.high_watermark == 5


def test_large_and_small_batches_in_one_envelope(client: RawConnection, version: int) -> None:
    for number, size in enumerate([10, 100, 20_000, 60, 3_000_00, 5]):
        row = produce(client, frame_of(produce_request("t", batch(b"x" * size)), version))
        assert (row.error_code, row.base_offset) == (0, number)


def test_a_bad_batch_in_a_known_envelope_is_refused_and_the_next_is_taken(
    client: RawConnection, version: int
) -> None:
    for number in range(3):
        assert produce(client, frame_of(produce_request("t", batch(b"good")), version)).base_offset == number
    broken = bytearray(batch(b"good"))
    broken[-1] ^= 1
    row = produce(client, frame_of(produce_request("t", bytes(broken)), version, correlation_id=77))
    assert (row.error_code, row.base_offset) == (Code.CORRUPT_MESSAGE, -1)
    assert row.error_message or version < MESSAGES_SINCE
    row = produce(client, frame_of(produce_request("t", b""), version))
    assert row.error_code == Code.INVALID_RECORD
    assert produce(client, frame_of(produce_request("t", batch(b"good")), version)).base_offset == 3


def test_a_duplicate_in_a_known_envelope_is_answered_with_its_first_offset(
    client: RawConnection, version: int
) -> None:
    facts = {"producer_id": 5, "producer_epoch": 0}
    for number in range(4):
        again = frame_of(produce_request("t", batch(b"x", base_sequence=number, **facts)), version)
        assert produce(client, again).base_offset == number
        assert produce(client, again).base_offset == number


def test_tagged_fields_in_a_known_envelope_are_skipped_as_ever(client: RawConnection) -> None:
    plain = frame_of(produce_request("t", batch(b"x")), 9)
    for number in range(3):
        assert produce(client, plain).base_offset == number
    tagged = plain[4:-1] + b"\x01\x05\x02ab"
    assert produce(client, len(tagged).to_bytes(4, "big") + tagged).base_offset == 3
    assert produce(client, plain).base_offset == 4


def test_a_known_envelope_cut_short_ends_its_connection_only(
    broker: Broker, client: RawConnection, version: int
) -> None:
    whole = frame_of(produce_request("t", batch(b"x")), version)
    records = len(batch(b"x"))
    for cut in (0, 1, 3, 40, records + 2, records + 4, records + 5, records + 6):
        with connect(broker) as victim:
            assert produce(victim, whole).error_code == 0
            part = whole[4 : len(whole) - cut]
            victim.send(len(part).to_bytes(4, "big") + part)
            if cut:
                assert victim.closes()
            else:
                assert victim.receive()
    assert produce(client, whole).error_code == 0


def test_a_topic_that_went_is_missed_in_a_known_envelope(client: RawConnection, version: int) -> None:
    frame = frame_of(produce_request("t", batch(b"x")), version)
    for number in range(3):
        assert produce(client, frame).base_offset == number
    client.ask(DeleteTopicsRequest([DeleteTopicState("t")], timeout_ms=5000), 6)
    assert produce(client, frame).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    create(client, "t", 4)
    assert produce(client, frame).base_offset == 0


def test_the_brokers_own_topics_stay_its_own(client: RawConnection, version: int) -> None:
    """What was refused once is not known, so it is refused again."""
    client.ask(FindCoordinatorRequest(coordinator_keys=["group"]), 4)
    frame = frame_of(produce_request("__consumer_offsets", batch(b"x")), version)
    for _ in range(3):
        assert produce(client, frame).error_code == Code.INVALID_TOPIC_EXCEPTION


def test_zstd_in_a_known_envelope_is_refused_to_versions_too_old_for_it(
    client: RawConnection, version: int
) -> None:
    for number in range(2):
        assert produce(client, frame_of(produce_request("t", batch(b"plain")), version)).base_offset == number
    squeezed = batch(b"x" * 500, codec=Compression.ZSTD)
    row = produce(client, frame_of(produce_request("t", squeezed), version))
    wanted = Code.NONE if version >= ZSTD_SINCE else Code.UNSUPPORTED_COMPRESSION_TYPE
    assert row.error_code == wanted
