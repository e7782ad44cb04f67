"""What the codec promises: messages come back as they went, and no bytes whatever do harm."""

import random
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wire.arbitrary import EVERY_MESSAGE, full, messages, name_of

from barnabas.errors import BarnabasError
from barnabas.wire.apis import APIS, ApiKey, Versions
from barnabas.wire.codec import Malformed, decode, decoder, encode, encoder
from barnabas.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse, FinalizedFeatureKey
from barnabas.wire.messages.consumer_groups import Assignment, ConsumerGroupHeartbeatResponse
from barnabas.wire.messages.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    FetchTopicResponse,
    LeaderIdAndEpoch,
)
from barnabas.wire.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.wire.messages.produce import ProducePartition, ProduceRequest, ProduceTopic
from barnabas.wire.messages.topics import DeleteTopicsRequest
from barnabas.wire.schema import Bytes, Int16, NullableSince, Since, String, Tag, Uuid

every_message = pytest.mark.parametrize(("cls", "version"), EVERY_MESSAGE, ids=name_of)


def as_bytes(message: Any, version: int) -> bytes:
    return b"".join(encode(message, version))  # type: ignore[arg-type]


@every_message
@settings(max_examples=8, deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_every_message_comes_back_as_it_went(cls: type[Any], version: int, data: st.DataObject) -> None:
    message = data.draw(messages(cls, version))
    assert decode(cls, version, as_bytes(message, version)) == message


@every_message
def test_a_full_message_comes_back_from_any_place_in_any_kind_of_buffer(cls: type[Any], version: int) -> None:
    message = full(cls, version)
    raw = as_bytes(message, version)
    assert decode(cls, version, raw) == message
    assert decode(cls, version, bytearray(b"ahead" + raw), 5) == message
    assert decode(cls, version, memoryview(b"ahead" + raw), 5) == message


@every_message
def test_a_version_leaves_fields_it_does_not_have_at_their_defaults(cls: type[Any], version: int) -> None:
    newest = full(cls, APIS[cls.api].highest)
    once = decode(cls, version, as_bytes(newest, version))
    assert decode(cls, version, as_bytes(once, version)) == once


def test_fields_outside_their_versions_are_not_sent() -> None:
    names = DeleteTopicsRequest(topic_names=["a"], timeout_ms=7)
    assert decode(DeleteTopicsRequest, 5, as_bytes(names, 5)) == names
    assert decode(DeleteTopicsRequest, 6, as_bytes(names, 6)) == DeleteTopicsRequest(timeout_ms=7)


# --- chunks


class Slice:
    """Something to be sent of which the codec knows nothing but its length."""

    def __len__(self) -> int:
        return 1000


@every_message
def test_a_message_without_records_is_one_chunk(cls: type[Any], version: int) -> None:
    assert len(encode(cls(**({"topics": []} if cls is MetadataRequest else {})), version)) == 1


@pytest.mark.parametrize("version", [4, 11, 12])
def test_records_are_chunks_of_their_own_and_are_not_touched(version: int) -> None:
    first, second = Slice(), memoryview(b"second")
    partitions = [FetchPartitionResponse(0, records=first), FetchPartitionResponse(1, records=second)]
    chunks = encode(FetchResponse(responses=[FetchTopicResponse("t", partitions)]), version)
    assert chunks[1] is first
    assert chunks[3] is second
    assert [type(c) for c in chunks[::2]] == [bytearray] * (len(chunks) // 2 + len(chunks) % 2)


def test_decoded_records_are_a_view_into_the_buffer() -> None:
    request = ProduceRequest(topic_data=[ProduceTopic("t", [ProducePartition(0, memoryview(b"batch"))])])
    buffer = bytearray(as_bytes(request, 9))
    records = decode(ProduceRequest, 9, buffer).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    buffer[buffer.index(b"batch")] = ord("B")
    assert bytes(records) == b"Batch"


@dataclass(slots=True)
class BytesRequest:
    api: ClassVar[ApiKey] = ApiKey.API_VERSIONS

    data: Annotated[bytes | None, Bytes] = None
    ids: Annotated[list[UUID], Uuid] = field(default_factory=list)
    number: Annotated[int, Int16] = 0


@pytest.mark.parametrize("version", [0, 3])
@pytest.mark.parametrize("data", [None, b"", b"data", b"long" * 100])
def test_bytes_are_copies_and_ids_come_in_arrays_too(version: int, data: bytes | None) -> None:
    message = BytesRequest(data, [UUID(int=1), UUID(int=2)], 5)
    came = decode(BytesRequest, version, as_bytes(message, version))
    assert came == message
    assert type(came.data) in (bytes, type(None))


# --- compact encoding


def test_long_arrays_and_strings_of_compact_versions_come_back() -> None:
    request = FetchRequest(topics=[FetchTopic("t" * 40_000, [FetchPartition(n) for n in range(20_000)])])
    assert decode(FetchRequest, 12, as_bytes(request, 12)) == request


def test_tagged_fields_are_sent_only_where_they_say_something() -> None:
    silent = ApiVersionsResponse()
    spoken = ApiVersionsResponse(
        finalized_features=[FinalizedFeatureKey("f", 1, 1)], finalized_features_epoch=3
    )
    assert as_bytes(silent, 3)[-1] == 0
    assert as_bytes(spoken, 3)[-1] == 0  # of the feature's own tagged fields
    assert decode(ApiVersionsResponse, 3, as_bytes(spoken, 3)) == spoken
    assert decode(ApiVersionsResponse, 2, as_bytes(spoken, 2)) == silent


def test_a_tagged_struct_of_defaults_is_left_out() -> None:
    def response(leader: LeaderIdAndEpoch | None) -> FetchResponse:
        partition = FetchPartitionResponse(current_leader=leader)
        return FetchResponse(responses=[FetchTopicResponse("t", [partition])])

    assert as_bytes(response(LeaderIdAndEpoch()), 12) == as_bytes(response(None), 12)


@pytest.mark.parametrize(
    "unknown", [b"\x01\x63\x03abc", b"\x02\x63\x00\x64\x01x", b"\x01\xff\xff\xff\xff\x0f\x01x"]
)
def test_unknown_tagged_fields_are_stepped_over(unknown: bytes) -> None:
    for cls, version in EVERY_MESSAGE:
        if version >= APIS[cls.api].flexible:
            raw = as_bytes(cls(**({"topics": []} if cls is MetadataRequest else {})), version)
            assert raw[-1] == 0
            assert decode(cls, version, raw[:-1] + unknown) == decode(cls, version, raw)


def test_unknown_tagged_fields_inside_structs_are_stepped_over() -> None:
    raw = b"\x00\x00\x01\x00\x00\x00\x02\x02\x02t\x02\x00\x00\x00\x07\x03rr\x01\x05\x01x\x01\x06\x00\x00"
    topic = ProduceTopic("t", [ProducePartition(7, memoryview(b"rr"))])
    assert decode(ProduceRequest, 9, raw) == ProduceRequest(None, 1, 2, [topic])


# --- structs that may be null, and values that belong to no API


@pytest.mark.parametrize("version", [0, 1])
def test_a_struct_that_may_be_null_has_a_byte_in_front(version: int) -> None:
    without = ConsumerGroupHeartbeatResponse()
    empty = ConsumerGroupHeartbeatResponse(assignment=Assignment())
    assert as_bytes(without, version)[-2:] == b"\xff\x00"
    assert as_bytes(empty, version)[-4:] == b"\x01\x01\x00\x00"
    for each in (without, empty):
        assert decode(ConsumerGroupHeartbeatResponse, version, as_bytes(each, version)) == each


@dataclass(frozen=True, slots=True)
class Inner:
    number: Annotated[int, Int16] = 0
    names: Annotated[tuple[str, ...], String] = ()


@dataclass(frozen=True, slots=True)
class StoredValue:
    versions: ClassVar[Versions] = Versions(1, 2, 2)

    ids: Annotated[tuple[int, ...], Int16] = ()
    rows: tuple[Inner, ...] = ()
    inner: Inner = field(default_factory=Inner)
    tagged: Annotated[Inner | None, Tag(0), NullableSince(2), Since(2)] = None
    numbers: Annotated[tuple[int, ...] | None, Int16, Tag(1), Since(2)] = None


@pytest.mark.parametrize(
    ("version", "value"),
    [
        (1, StoredValue()),
        (1, StoredValue((1, 2), (Inner(3, ("a", "b")), Inner()), Inner(4))),
        (2, StoredValue()),
        (2, StoredValue((1, 2), (Inner(3, ("a",)),), Inner(4), Inner(5), ())),
        (2, StoredValue(tagged=None, numbers=(7, 8))),
    ],
)
def test_frozen_values_come_back_with_tuples(version: int, value: StoredValue) -> None:
    raw = bytearray()
    encoder(StoredValue, version)(value, raw)
    came = decoder(StoredValue, version)(bytes(raw), 0)
    assert came == value
    assert hash(came) == hash(value)


@pytest.mark.parametrize("version", [0, 3])
def test_a_stored_value_has_versions_of_its_own(version: int) -> None:
    with pytest.raises(Malformed, match="has versions 1 to 2"):
        decoder(StoredValue, version)


# --- malformed input


def mutations(raw: bytes, rounds: int) -> Iterator[bytes]:
    chance = random.Random(len(raw))
    for _ in range(rounds):
        mutant = bytearray(raw)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(mutant) + 1)
            match chance.randrange(4):
                case 0:
                    mutant[at : at + 1] = chance.randbytes(1)
                case 1:
                    mutant[at : at + 4] = chance.choice(
                        [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0"]
                    )
                case 2:
                    del mutant[at : at + chance.randint(1, 8)]
                case 3:
                    mutant[at:at] = chance.randbytes(chance.randint(1, 8))
        yield bytes(mutant)


@every_message
def test_no_truncated_message_is_taken_for_a_whole_one(cls: type[Any], version: int) -> None:
    raw = as_bytes(full(cls, version), version)
    for size in range(len(raw)):
        with pytest.raises(Malformed):
            decode(cls, version, raw[:size])


@every_message
def test_mutated_messages_are_malformed_or_decode_and_nothing_else(cls: type[Any], version: int) -> None:
    raw = as_bytes(full(cls, version), version)
    for mutant in mutations(raw, 150):
        try:
            came = decode(cls, version, mutant)
        except Malformed:
            continue
        assert type(came) is cls


@pytest.mark.parametrize(
    "request_of",
    [
        lambda n: ProduceRequest(topic_data=[ProduceTopic("")] * n),
        lambda n: ProduceRequest(topic_data=[ProduceTopic("", [ProducePartition(0)] * 1000)] * (n // 1000)),
        lambda n: DeleteTopicsRequest(topic_names=[""] * n),
    ],
)
def test_a_request_of_countless_tiny_things_is_refused(request_of: Any) -> None:
    version = 3
    small, large = (as_bytes(request_of(n), version) for n in (50_000, 110_000))
    decode(type(request_of(0)), version, small)
    tracemalloc.start()
    try:
        with pytest.raises(Malformed, match="elements"):
            decode(type(request_of(0)), version, large)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("claim", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\x7f\xff"])
def test_huge_lengths_cost_no_memory(claim: bytes) -> None:
    raws = [(cls, version, as_bytes(full(cls, version), version)) for cls, version in EVERY_MESSAGE]
    for cls, version, raw in raws:
        decode(cls, version, raw)  # compiles
    tracemalloc.start()
    try:
        for cls, version, raw in raws:
            for at in range(len(raw)):
                try:
                    decode(cls, version, raw[:at] + claim + raw[at + len(claim) :])
                except Malformed:
                    pass
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 500_000


@every_message
def test_bytes_behind_an_answer_are_malformed_and_behind_a_request_passed_over(
    cls: type[Any], version: int
) -> None:
    """librdkafka 2.16 sends three bytes too many with Metadata: Kafka does not mind, and neither may we."""
    message = full(cls, version)
    padded = as_bytes(message, version) + b"\0\0\0"
    if cls.__name__.endswith("Request"):
        assert decode(cls, version, padded) == decode(cls, version, as_bytes(message, version))
    else:
        with pytest.raises(Malformed, match="too many"):
            decode(cls, version, padded)


@pytest.mark.parametrize(
    ("cls", "version", "raw"),
    [
        (ApiVersionsRequest, 3, b"\x03\xc3\x28\x01\x00"),  # a string that is not UTF-8
        (ApiVersionsRequest, 3, b"\x00\x01\x00"),  # null where null is not allowed
        (ApiVersionsRequest, 3, b"\x81\x80\x80\x80\x80\x00\x01\x00"),  # a varint of six bytes
        (MetadataRequest, 0, b"\xff\xff\xff\xff"),  # a null array in a version that has none
        (MetadataRequest, 1, b"\x00\x00\x00\x01\xff\xfe"),  # a string of length -2
        (ProduceRequest, 8, b"\xff\xff\x00\x01\x00\x00\x00\x00\x80\x00\x00\x00"),  # an array of length -2**31
        (
            ApiVersionsResponse,
            3,
            b"\x00\x00\x01\x00\x00\x00\x00\x01\x01\x07" + bytes(7),
        ),  # tag shorter than its field
        (
            ApiVersionsResponse,
            3,
            b"\x00\x00\x01\x00\x00\x00\x00\x01\x01\x09" + bytes(9),
        ),  # tag longer than its field
    ],
)
def test_broken_lengths_and_strings_are_malformed(cls: type[Any], version: int, raw: bytes) -> None:
    with pytest.raises(Malformed):
        decode(cls, version, raw)


@pytest.mark.parametrize(
    ("cls", "version", "raw"),
    [
        (ApiVersionsRequest, 3, b"\x09short\x01\x00"),
        (MetadataRequest, 1, b"\x00\x00\x00\x01\x7f\xffshort"),
        # Four topics take eight bytes at the least, two compact ones six.
        (MetadataRequest, 1, b"\x00\x00\x00\x04\x00\x01a\x00\x01b"),
        (ProduceRequest, 9, b"\x00\x00\x01\x00\x00\x00\x02\x03\x02t\x01\x00\x00"),
        (FetchRequest, 7, bytes(17) + bytes(8) + b"\0\0\0\0" + b"\0\0\0\1\0\1t" + b"\0\0\0\2" + bytes(7)),
        (ApiVersionsResponse, 3, b"\x00\x00\x01\x00\x00\x00\x00\x01\x01\x09" + bytes(8)),
        (ApiVersionsRequest, 3, b"\x01\x01\x01\x05\x09short"),
    ],
)
def test_a_length_is_compared_with_the_bytes_left_before_it_is_believed(
    cls: type[Any], version: int, raw: bytes
) -> None:
    with pytest.raises(Malformed, match="claims"):
        decode(cls, version, raw)


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (MetadataRequest(topics=None), 0),  # null in a version that has none
        (MetadataResponse(cluster_id="a" * 40_000), 2),
        (MetadataResponse(controller_id=2**31), 2),
        (MetadataResponse(cluster_id="\ud800"), 2),
        (ApiVersionsRequest(), 5),
        (ApiVersionsRequest(), -1),
    ],
)
def test_what_a_version_cannot_carry_is_refused_in_one_sentence(message: Any, version: int) -> None:
    with pytest.raises(BarnabasError):
        encode(message, version)


def test_no_message_is_imported_before_it_is_needed() -> None:
    program = """
import sys
import barnabas.wire.apis, barnabas.wire.codec, barnabas.wire.frames
assert not [name for name in sys.modules if name.startswith("barnabas.wire.messages")]
barnabas.wire.apis.request_class(18)
came = [name for name in sys.modules if name.startswith("barnabas.wire.messages.")]
assert came == ["barnabas.wire.messages.api_versions"]
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
