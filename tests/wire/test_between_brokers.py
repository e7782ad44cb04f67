"""What controller and brokers say to each other, byte by byte beside Apache Kafka 3.9.2, the last that speaks it.

`kafka_3_9_bytes.txt` has what kafka-clients 3.9.2 writes for messages that are full in the way of `arbitrary.full`: a
message, its version and the bytes in each line. Kafka 4 dropped these APIs with ZooKeeper, and so did kio.
"""

from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.wire.arbitrary import full

from barnabas.wire.apis import APIS, request_class, response_class
from barnabas.wire.codec import decode, encode
from barnabas.wire.schema import fields_of

FIRST_OWN_TAG = 10_000

ROWS = [line.split() for line in Path(__file__).with_name("kafka_3_9_bytes.txt").read_text().splitlines()]
FAMILY = {
    cls.__name__: cls
    for key, api in APIS.items()
    if api.family == "controlling"
    for cls in (request_class(key), response_class(key))
}


def without_own_tags(message: Any) -> Any:
    """The same message with the defaults where only Barnabas has a field."""
    for f in fields_of(type(message)):
        value = getattr(message, f.name)
        if f.tag is not None and f.tag >= FIRST_OWN_TAG:
            setattr(message, f.name, [] if f.is_array else f.default)
        elif isinstance(value, list):
            for each in value:
                if is_dataclass(each):
                    without_own_tags(each)
    return message


@pytest.mark.parametrize(("name", "version", "written"), ROWS, ids=lambda row: str(row)[:30])
def test_a_full_message_is_the_same_bytes_as_kafkas(name: str, version: str, written: str) -> None:
    message = without_own_tags(full(FAMILY[name], int(version)))
    raw = bytes.fromhex(written)
    assert b"".join(encode(message, int(version))) == raw  # type: ignore[arg-type]
    assert decode(FAMILY[name], int(version), raw) == message


def test_there_are_bytes_of_every_message_in_every_version() -> None:
    spoken = {
        (name, version)
        for name, cls in FAMILY.items()
        for version in range(APIS[cls.api].lowest, APIS[cls.api].highest + 1)
    }
    assert {(name, int(version)) for name, version, _ in ROWS} == spoken


def test_clients_are_offered_nothing_of_it() -> None:
    assert all(api.offered == -1 for api in APIS.values() if api.family == "controlling")
