"""The produce request with one small batch, that of a record that is waited for: written from a ready beginning.

Asked by `sender` in place of a ProduceRequest, and the same on the wire, byte for byte.
"""

from collections.abc import Callable
from typing import Any, ClassVar

from barnabas.types import Buffer, TopicPartition
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.codec import encode, encoder
from barnabas.wire.encoding import put_varint
from barnabas.wire.messages.produce import ProducePartition, ProduceRequest, ProduceTopic
from barnabas.wire.schema import Chunk

LARGEST = 32 * 1024
"""What is larger is better not copied into its request."""


class Envelope:
    """What surrounds the batches of one partition."""

    __slots__ = ("_acks", "_partition", "_timeout_ms", "_transactional_id", "beginning")

    def __init__(
        self, partition: TopicPartition, acks: int, timeout_ms: int, transactional_id: str | None = None
    ) -> None:
        self._partition = partition
        self._transactional_id = transactional_id
        self._acks = acks
        self._timeout_ms = timeout_ms
        chunks: list[Any] = encode(self.around(b""), APIS[ApiKey.PRODUCE].highest)
        whole = b"".join(chunks)
        self.beginning = whole[: -len(_EMPTY + _END)]
        """All in front of the batch's length, in any flexible version."""

    def around(self, records: Buffer) -> ProduceRequest:
        """The request, as one makes it for any number of batches."""
        part = ProducePartition(index=self._partition.partition, records=memoryview(records))
        topic = ProduceTopic(name=self._partition.topic, partition_data=[part])
        return ProduceRequest(self._transactional_id, self._acks, self._timeout_ms, [topic])


_EMPTY = b"\x01"
_END = b"\x00\x00\x00"
"""The partition, the topic and the request each have no tagged field."""


class OneBatch:
    """A batch in its envelope: a message. 5 us less than a ProduceRequest that is built for the occasion."""

    __slots__ = ("_envelope", "_records")
    api: ClassVar[ApiKey] = ApiKey.PRODUCE

    def __init__(self, envelope: Envelope, records: Buffer) -> None:
        self._envelope = envelope
        self._records = records

    @staticmethod
    def encoder_of(version: int) -> Callable[[Any, bytearray], list[Chunk]]:
        """How this is written in a version."""
        write = encoder(ProduceRequest, version)

        def in_general(message: OneBatch, out: bytearray) -> list[Chunk]:
            return write(message._envelope.around(message._records), out)

        return _write if version >= APIS[ApiKey.PRODUCE].flexible else in_general


def _write(message: OneBatch, out: bytearray) -> list[Chunk]:
    records = message._records
    out += message._envelope.beginning
    put_varint(out, len(records) + 1)
    out += records
    out += _END
    return [out]
