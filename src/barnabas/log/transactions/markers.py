"""The bytes of a transaction marker: the control batch that ends a producer's transaction in a partition.

The leader makes one where a transaction coordinator asks for it; the log, the cleaner and coordinators read them.
"""

from struct import Struct
from typing import NamedTuple

from barnabas.errors import Code, Refused
from barnabas.types import Buffer, Millis
from barnabas.wire.batch import Record, decode_batch, encode_batch

_VERSION = 0
_ABORT, _COMMIT = 0, 1
_KEY = Struct(">hh")
_VALUE = Struct(">hi")


class Marker(NamedTuple):
    """What a control batch says about a transaction."""

    commit: bool
    coordinator_epoch: int


def marker_batch(
    producer_id: int, producer_epoch: int, coordinator_epoch: int, *, commit: bool, now: Millis
) -> bytearray:
    """The control batch that ends a transaction, to be given its offset and leader epoch."""
    key = _KEY.pack(_VERSION, _COMMIT if commit else _ABORT)
    record = Record(0, now, key, _VALUE.pack(_VERSION, coordinator_epoch))
    batch = encode_batch(
        [record],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )
    return bytearray(batch)


def read_marker(batch: Buffer) -> Marker | None:
    """What a control batch says; None where the cleaner has emptied it or it is no end of a transaction."""
    records = decode_batch(batch)
    if not records or records[0].key is None or records[0].value is None:
        return None
    try:
        kind = _KEY.unpack_from(records[0].key)[1]
        coordinator_epoch = _VALUE.unpack_from(records[0].value)[1]
    except Exception as error:
        raise Refused(Code.CORRUPT_MESSAGE, "a control batch does not hold a transaction marker") from error
    return Marker(kind == _COMMIT, coordinator_epoch) if kind in (_ABORT, _COMMIT) else None
