"""Promises of wire/conversation.py: each answer finds its request however the bytes come, and nonsense is told of."""

import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.errors import Code, Refused
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.codec import Malformed
from barnabas.wire.conversation import Call, Conversation, Nonsense
from barnabas.wire.frames import decode_request, encode_response, read_request_header
from barnabas.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.wire.messages.coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from barnabas.wire.messages.produce import ProduceRequest

ALL = [ApiVersion(api_key=a.key, min_version=a.lowest, max_version=a.highest) for a in APIS.values()]


def bytes_of(chunks: list[Any]) -> bytes:
    return b"".join(map(bytes, chunks))


def answer_to(call: Call, message: Any, *, version: int | None = None, correlation: int = 0) -> bytes:
    """What a peer says to a request, with another number where one is to be wrong."""
    at = call.version if version is None else version
    return bytes_of(encode_response(message, at, call.correlation_id + correlation))


def hear(
    conversation: Conversation[Call], data: bytes, cuts: list[int] | None = None
) -> list[tuple[Call, Any]]:
    """Give the conversation these bytes, in pieces that end at the cuts and where its buffer ends."""
    found: list[tuple[Call, Any]] = []
    at = 0
    for cut in [*sorted(cuts or []), len(data)]:
        while at < min(cut, len(data)):
            place = conversation.buffer()
            piece = data[at : min(cut, len(data), at + len(place))]
            place[: len(piece)] = piece
            found += conversation.received(len(piece))
            at += len(piece)
    return found


def agreed(*, scratch: int = 64, spoken: list[ApiVersion] | None = None) -> Conversation[Call]:
    """A conversation with a peer that has told what it speaks."""
    conversation: Conversation[Call] = Conversation("peer", "test", memoryview(bytearray(scratch)))
    header = read_request_header(memoryview(bytes_of(conversation.greet()))[4:])
    told = ApiVersionsResponse(api_keys=ALL if spoken is None else spoken)
    chunks: list[Any] = encode_response(told, header.api_version, header.correlation_id)
    assert hear(conversation, bytes_of(chunks)) == []
    assert conversation.is_agreed
    assert not conversation.must_greet
    return conversation


def asked(conversation: Conversation[Call], count: int = 1) -> list[Call]:
    calls = [Call(FindCoordinatorRequest(key=f"g{n}"), FindCoordinatorResponse) for n in range(count)]
    for call in calls:
        conversation.ask(call)
    return calls


def told(number: int, padding: int = 0) -> MetadataResponse:
    return MetadataResponse(controller_id=number, topics=[MetadataResponseTopic(name="t" * padding)])


@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=6),
    st.lists(st.integers(0, 3000), max_size=20),
    st.integers(1, 200),
)
@settings(deadline=None)
def test_each_answer_finds_its_request_wherever_the_bytes_are_torn(
    paddings: list[int], cuts: list[int], scratch: int
) -> None:
    conversation = agreed(scratch=scratch)
    calls = [Call(MetadataRequest(topics=[]), MetadataResponse) for _ in paddings]
    for call in calls:
        conversation.ask(call)
    answers = [told(number, padding) for number, padding in enumerate(paddings)]
    data = b"".join(answer_to(call, answer) for call, answer in zip(calls, answers, strict=True))
    assert hear(conversation, data, cuts) == list(zip(calls, answers, strict=True))
    assert not conversation.pending


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=8), st.integers(0, 2))
@settings(deadline=None)
def test_whatever_a_peer_says_ends_in_an_answer_in_nonsense_or_in_waiting(
    data: bytes, cuts: list[int], count: int
) -> None:
    conversation = agreed()
    calls = asked(conversation, count)
    try:
        found = hear(conversation, data, cuts)
    except Nonsense:
        return
    assert [call for call, _ in found] == calls[: len(found)]


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (lambda call: struct.pack(">i", -1), "does not speak the Kafka protocol"),
        (lambda call: struct.pack(">i", 3), "does not speak the Kafka protocol"),
        (lambda call: struct.pack(">i", (1 << 30) + 1), "does not speak the Kafka protocol"),
        (lambda call: b"HTTP/1.1 400 Bad Request", "does not speak the Kafka protocol"),
        (lambda call: struct.pack(">ii", 4, call.correlation_id), "cannot be read"),
        (
            lambda call: answer_to(call, FindCoordinatorResponse(), correlation=1),
            "answered request 3 where 2 was due",
        ),
        (
            lambda call: answer_to(call, FindCoordinatorResponse(), correlation=-1),
            "answered request 1 where 2 was due",
        ),
        (lambda call: answer_to(call, FindCoordinatorResponse()) * 2, "answered where nothing was asked"),
    ],
)
def test_what_cannot_be_an_answer_is_nonsense(said: Callable[[Call], bytes], sentence: str) -> None:
    conversation = agreed()
    (call,) = asked(conversation)
    with pytest.raises(Nonsense, match=sentence):
        hear(conversation, said(call))


def test_answers_before_the_nonsense_are_heard() -> None:
    conversation = agreed(scratch=1000)
    first, _ = asked(conversation, 2)
    data = answer_to(first, FindCoordinatorResponse()) + struct.pack(">i", -1)
    conversation.buffer()[: len(data)] = data
    heard = conversation.received(len(data))
    assert next(heard) == (first, FindCoordinatorResponse())
    with pytest.raises(Nonsense):
        next(heard)


def test_a_length_claims_no_memory_where_no_answer_is_due() -> None:
    conversation = agreed()
    with pytest.raises(Nonsense, match="nothing was asked"):
        hear(conversation, struct.pack(">i", 1 << 30))
    assert len(conversation.buffer()) == 64


@pytest.mark.parametrize(
    ("theirs", "version"),
    [((0, 99), APIS[ApiKey.METADATA].highest), ((0, 5), 5), ((99, 100), None), (None, None)],
)
def test_the_newest_version_that_both_speak_is_chosen(
    theirs: tuple[int, int] | None, version: int | None
) -> None:
    spoken = [] if theirs is None else [ApiVersion(ApiKey.METADATA, *theirs)]
    conversation = agreed(spoken=spoken)
    call = Call(MetadataRequest(topics=[]), MetadataResponse)
    if version is None:
        with pytest.raises(Refused, match="peer offers no version of Metadata") as refused:
            conversation.ask(call)
        assert refused.value.code is Code.UNSUPPORTED_VERSION
        assert not conversation.pending
        return
    frame = memoryview(bytes_of(conversation.ask(call)))[4:]
    header = read_request_header(frame)
    assert (header.api_version, header.client_id) == (version, "test")
    assert header.correlation_id == call.correlation_id
    assert decode_request(header, frame) == call.request


def test_a_peer_older_than_our_greeting_is_greeted_again() -> None:
    conversation: Conversation[Call] = Conversation("peer", "test")
    first = read_request_header(memoryview(bytes_of(conversation.greet()))[4:])
    refusal = ApiVersionsResponse(error_code=Code.UNSUPPORTED_VERSION)
    hear(conversation, bytes_of(encode_response(refusal, 0, first.correlation_id)))
    assert conversation.must_greet
    second = read_request_header(memoryview(bytes_of(conversation.greet()))[4:])
    assert second.api_version == 0
    hear(conversation, bytes_of(encode_response(ApiVersionsResponse(api_keys=ALL), 0, second.correlation_id)))
    assert conversation.is_agreed
    assert conversation.version_of(ApiKey.METADATA) == APIS[ApiKey.METADATA].highest


def test_a_peer_that_refuses_every_greeting_is_left() -> None:
    conversation: Conversation[Call] = Conversation("peer", "test")
    first = read_request_header(memoryview(bytes_of(conversation.greet()))[4:])
    refusal = ApiVersionsResponse(error_code=Code.CLUSTER_AUTHORIZATION_FAILED)
    with pytest.raises(Nonsense, match="peer: Not allowed"):
        hear(conversation, bytes_of(encode_response(refusal, first.api_version, first.correlation_id)))


def test_a_request_without_an_answer_is_done_when_it_is_next_in_line() -> None:
    conversation = agreed()
    (before,) = asked(conversation)
    silent = Call(ProduceRequest(acks=0, topic_data=[]), None)
    conversation.ask(silent)
    (after,) = asked(conversation)
    assert conversation.next_unanswered() is None
    assert hear(conversation, answer_to(before, FindCoordinatorResponse())) == [
        (before, FindCoordinatorResponse())
    ]
    with pytest.raises(Nonsense, match="nothing was asked"):
        hear(conversation, answer_to(after, FindCoordinatorResponse()))
    assert conversation.next_unanswered() is silent
    assert hear(conversation, answer_to(after, FindCoordinatorResponse())) == [
        (after, FindCoordinatorResponse())
    ]


def test_a_request_that_cannot_be_written_leaves_no_trace() -> None:
    conversation = agreed()
    wrong = Call(FindCoordinatorRequest(coordinator_keys=["\ud800"]), FindCoordinatorResponse)
    with pytest.raises(Malformed):
        conversation.ask(wrong)
    (call,) = asked(conversation)
    assert call.correlation_id == 2
    assert hear(conversation, answer_to(call, FindCoordinatorResponse())) == [
        (call, FindCoordinatorResponse())
    ]


def test_numbers_wrap_round() -> None:
    conversation = agreed()
    conversation._next_id = 0x7FFFFFFF - 1
    last, first = asked(conversation, 2)
    assert (last.correlation_id, first.correlation_id) == (0x7FFFFFFF, 0)
    data = answer_to(last, FindCoordinatorResponse()) + answer_to(first, FindCoordinatorResponse())
    assert [call for call, _ in hear(conversation, data)] == [last, first]


@pytest.mark.parametrize(("between_brokers", "version"), [(True, "highest"), (False, "offered")])
def test_brokers_speak_newer_versions_with_each_other_than_clients_are_offered(
    between_brokers: bool, version: str
) -> None:
    conversation: Conversation[Call] = Conversation("broker 2", "me", between_brokers=between_brokers)
    conversation.spoken = {each.api_key: (each.min_version, each.max_version) for each in ALL}
    for key, api in APIS.items():
        if getattr(api, version) >= api.lowest:
            assert conversation.version_of(ApiKey(key)) == getattr(api, version)
