"""Every message in every version, byte by byte beside kio, generated from Kafka's own definitions."""

import dataclasses
import datetime
import io
import types
from typing import Any, Union, get_args, get_origin
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_payload_module
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType
from tests.wire.arbitrary import EVERY_MESSAGE, Narrow, full, messages, name_of

from barnabas.wire.apis import ApiKey
from barnabas.wire.codec import decode, encode
from barnabas.wire.frames import encode_request, encode_response, read_request_header
from barnabas.wire.schema import fields_of

# Kafka 4 and kio have dropped these with ZooKeeper; test_between_brokers.py has Kafka 3.9's bytes of them.
DROPPED = {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA, ApiKey.CONTROLLED_SHUTDOWN}
every_message = pytest.mark.parametrize(
    ("cls", "version"), [row for row in EVERY_MESSAGE if row[0].api not in DROPPED], ids=name_of
)

# kio's types are narrower than the wire: only error codes that Kafka has, and times that a datetime can hold.
ERRORS = st.sampled_from([int(code) for code in ErrorCode])
AS_KIO_CAN: Narrow = {
    "error_code": ERRORS,
    "topic_config_error_code": ERRORS,
    "partition_error_code": ERRORS,
    "transaction_start_time_ms": st.integers(0, 2**41),
    "log_append_time_ms": st.integers(-1, 2**41),
    "retention_time_ms": st.integers(-1, 2**41),
}
WIRE_TYPES: dict[Any, str] = {
    "error_code": "int16",
    "timedelta_i32": "int32",
    "timedelta_i64": "int64",
    "datetime_i64": "int64",
}
OUR_TAGS = 10_000
"""Tags from here on are our own, for brokers of ours among themselves: Kafka skips them, and kio has none of them."""
EPOCH = datetime.datetime.fromtimestamp(0, tz=datetime.UTC)


def kio_class(cls: type[Any], version: int) -> type[Any]:
    side = EntityType.request if cls.__name__.endswith("Request") else EntityType.response
    found: type[Any] = getattr(load_payload_module(int(cls.api), version, side), cls.__name__)
    return found


def kafkas_fields(cls: type[Any], version: int) -> list[Any]:
    """The fields of a message that Kafka has, too."""
    return [f for f in fields_of(cls) if f.is_in(version) and (f.tag is None or f.tag < OUR_TAGS)]


def without_ours(message: Any) -> Any:
    """A message that has left out what only brokers of ours say."""
    blank = type(message)()
    ours = [f.name for f in fields_of(type(message)) if f.tag is not None and f.tag >= OUR_TAGS]
    return dataclasses.replace(message, **{name: getattr(blank, name) for name in ours}) if ours else message


def as_kio(message: Any, theirs: type[Any], version: int) -> Any:
    """The same message as an object of kio's. Fields correspond by their order, and nearly by their names."""
    present = kafkas_fields(type(message), version)
    fields = dataclasses.fields(theirs)
    assert [f.name.removesuffix("_ms") for f in present] == [f.name.removesuffix("_ms") for f in fields]
    values = {}
    for ours, field in zip(present, fields, strict=True):
        value = getattr(message, ours.name)
        if ours.tag is None or ours.struct is None or value is not None:
            values[field.name] = kio_value(value, field.type, field.metadata.get("kafka_type"), version)
    return theirs(**values)


def kio_value(value: Any, hint: Any, kafka_type: str | None, version: int) -> Any:
    if get_origin(hint) in (Union, types.UnionType):
        hint = next(option for option in get_args(hint) if option is not type(None))
    if isinstance(value, list):
        return tuple(kio_value(each, get_args(hint)[0], kafka_type, version) for each in value)
    if dataclasses.is_dataclass(value):
        return as_kio(value, hint, version)
    match kafka_type:
        case "error_code":
            return ErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(milliseconds=value)
        case "datetime_i64":
            return None if value == -1 else EPOCH + datetime.timedelta(milliseconds=value)
        case "uuid":
            return None if value == UUID(int=0) else value
    return value


def kio_bytes(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def check(message: Any, version: int) -> None:
    cls, message = type(message), without_ours(message)
    theirs = as_kio(message, kio_class(cls, version), version)
    raw = kio_bytes(theirs)
    assert b"".join(encode(message, version)) == raw  # type: ignore[arg-type]
    assert decode(cls, version, raw) == message
    assert entity_reader(type(theirs))(raw, 0)[0] == theirs


def check_fields(ours: type[Any], theirs: type[Any], version: int) -> None:
    for f, field in zip(kafkas_fields(ours, version), dataclasses.fields(theirs), strict=True):
        where = f"{ours.__name__}.{f.name} v{version}"
        options = (
            get_args(field.type) if get_origin(field.type) in (Union, types.UnionType) else (field.type,)
        )
        (hint,) = (option for option in options if option is not type(None))
        kafka_type = field.metadata.get("kafka_type")
        assert f.tag == field.metadata.get("tag"), where
        assert f.is_array == (get_origin(hint) is tuple), where
        if f.struct:
            check_fields(f.struct, get_args(hint)[0] if f.is_array else hint, version)
        else:
            assert f.kind is not None
            assert f.kind.name == WIRE_TYPES.get(kafka_type, kafka_type), where
        # kio has None for the zero UUID and for the time -1, and an object where we leave a tagged struct out.
        if kafka_type not in ("uuid", "datetime_i64") and not (
            f.struct and f.tag is not None and not f.is_array
        ):
            assert (version >= f.nullable_since) == (type(None) in options), where


@every_message
def test_every_field_has_the_type_tag_and_nullability_that_kio_gives_it(cls: type[Any], version: int) -> None:
    check_fields(cls, kio_class(cls, version), version)


@every_message
@settings(max_examples=8, deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_every_message_is_the_same_bytes_as_kios(cls: type[Any], version: int, data: st.DataObject) -> None:
    check(data.draw(messages(cls, version, AS_KIO_CAN)), version)


@every_message
def test_a_message_with_every_field_set_is_the_same_bytes_as_kios(cls: type[Any], version: int) -> None:
    check(full(cls, version), version)


@every_message
def test_headers_are_the_same_bytes_as_kios(cls: type[Any], version: int) -> None:
    message = without_ours(full(cls, version))
    theirs = as_kio(message, kio_class(cls, version), version)
    schema = theirs.__header_schema__
    if cls.__name__.endswith("Request"):
        frame = b"".join(encode_request(message, version, 77, "me"))  # type: ignore[arg-type]
        header = schema(
            request_api_key=int(cls.api), request_api_version=version, correlation_id=77, client_id="me"
        )
        assert read_request_header(memoryview(frame), 4).body_at == 4 + len(kio_bytes(header))
    else:
        frame = b"".join(encode_response(message, version, 77))  # type: ignore[arg-type]
        header = schema(correlation_id=77)
    expected = kio_bytes(header) + kio_bytes(theirs)
    assert frame == len(expected).to_bytes(4, "big") + expected
