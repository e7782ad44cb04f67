"""Recognises the produce requests of a client that repeats itself, and answers them without decoding them.

Called by the router before anything else. Most producers send one request again and again: a batch for one
partition, in the same envelope but for the correlation id. An envelope that was decoded once is known by its bytes
from then on; its answer is a real one, kept with the numbers left open. That takes 5 us off the 11 us that a request
with one small record costs the broker besides the socket.

Always holds: what is known here is exactly what decoding and encoding would give, byte for byte; whatever is
unusual is left to them, and nothing has happened then.
"""

from collections.abc import Callable
from struct import Struct
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.broker.handlers.produce import refused_row
from barnabas.errors import Refused
from barnabas.wire.decoding import varint_rest
from barnabas.wire.frames import RequestHeader, encode_request, encode_response
from barnabas.wire.messages.produce import (
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopicResponse,
)
from barnabas.wire.schema import Chunk

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker
    from barnabas.broker.connection import Connection

FIRST_VERSION = 9
"""From here on lengths are compact and a request ends in the counts of its tagged fields."""

NOT_REPEATING = -1
"""Told of a connection whose requests are not worth another look."""

_KNOWN_LIMIT = 4096
_LARGEST_TO_LEARN = 64 << 10
_NO_TAGS = b"\0\0\0"
"""Behind the records: the partition, the topic and the request each have no tagged field."""

_HEAD = Struct(">ii").unpack_from
"""API key and version as one number (Produce is 0, so that is its version), and the correlation id."""

_BODY_AT = 8
_NO_LIMIT = 2**63 - 1
_OPEN = Struct(">qqq").pack(-0x0102030405060708, -0x1112131415161718, -0x2122232425262728)


class Envelope(NamedTuple):
    """What surrounds a partition's batch, and its answer in pieces: the numbers go in between."""

    topic: str
    partition: int
    pack: Callable[..., bytes]
    length: bytes
    middle: bytes
    end: bytes


class Envelopes:
    """The envelopes this broker has seen, by version and bytes."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._metrics = broker.metrics.api("Produce")
        self._known: dict[int, dict[bytes, Envelope]] = {}

    def answer(self, frame: memoryview, peer: "Connection") -> list[Chunk] | None:
        """The answer to a produce request in a known envelope; None where the general way must be taken."""
        started = perf_counter()
        head, correlation_id = _HEAD(frame)
        known = self._known.get(head)
        if known is None:
            return None
        at = peer.envelope_size
        envelope = known.get(frame[_BODY_AT:at].tobytes())
        if envelope is None:
            return None
        try:
            size = frame[at]
            at += 1
            if size > 0x7F:
                size, at = varint_rest(frame, at, size)
        except IndexError:
            return None
        end = at + size - 1
        if frame[end:] != _NO_TAGS:
            return None
        broker = self._broker
        partition = broker.replicas.find(envelope.topic, envelope.partition)
        if partition is None or partition.log.config.flush_messages != _NO_LIMIT:
            return None
        try:
            first, _, append_time, _ = partition.append(frame[at:end], broker.clock.now())
        except Refused as refused:
            return self._refusal(envelope, head, correlation_id, refused)
        answer = envelope.pack(
            envelope.length,
            correlation_id,
            envelope.middle,
            first,
            append_time,
            partition.log.start,
            envelope.end,
        )
        self._metrics.observe(perf_counter() - started)
        return [answer]

    def learn(
        self,
        frame: memoryview,
        header: RequestHeader,
        request: ProduceRequest,
        response: ProduceResponse,
        peer: "Connection",
    ) -> None:
        """Remember the envelope of a request that was granted, if there may be more like it."""
        version = header.api_version
        if version < FIRST_VERSION or peer.envelope_size == NOT_REPEATING:
            return
        if len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
            return
        if response.responses[0].partition_responses[0].error_code:
            return
        (part,) = request.topic_data[0].partition_data
        if part.records is None or len(frame) > _LARGEST_TO_LEARN:
            return
        rest = len(part.records) + len(_NO_TAGS)
        size = len(frame) - rest - _bytes_of(len(part.records) + 1)
        known = self._known.setdefault(version, {})
        envelope = frame[_BODY_AT:size].tobytes()
        if envelope not in known:
            chunks: list[Any] = encode_request(request, version, header.correlation_id, header.client_id)
            plain = b"".join(chunks)
            if request.acks == 0 or request.transactional_id is not None or plain[4:] != frame:
                peer.envelope_size = NOT_REPEATING
                return
            if len(known) >= _KNOWN_LIMIT:
                known.clear()
            known[envelope] = _envelope(request.topic_data[0].name, part.index, version)
        peer.envelope_size = size

    def _refusal(
        self, envelope: Envelope, version: int, correlation_id: int, refused: Refused
    ) -> list[Chunk]:
        self._broker.note_refusal("Produce", refused, envelope.topic, envelope.partition)
        row = refused_row(envelope.partition, refused)
        response = ProduceResponse([ProduceTopicResponse(envelope.topic, [row])])
        return encode_response(response, version, correlation_id)


def _envelope(topic: str, index: int, version: int) -> Envelope:
    numbers = Struct(">qqq").unpack(_OPEN)
    row = ProducePartitionResponse(index, 0, *numbers)
    (answer,) = encode_response(ProduceResponse([ProduceTopicResponse(topic, [row])]), version, 0)
    whole = bytes(answer)  # type: ignore[arg-type]
    at = whole.index(_OPEN)
    middle, end = whole[8:at], whole[at + len(_OPEN) :]
    pack = Struct(f">4si{len(middle)}sqqq{len(end)}s").pack
    return Envelope(topic, index, pack, whole[:4], middle, end)


def _bytes_of(number: int) -> int:
    """How many bytes an unsigned varint takes."""
    return max((number.bit_length() + 6) // 7, 1)
