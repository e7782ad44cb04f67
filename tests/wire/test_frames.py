"""What frames promise: the right header for a version, the length in front, Malformed for anything else."""

import random
from typing import Any

import pytest
from tests.wire.arbitrary import EVERY_MESSAGE, full, name_of

from barnabas.wire.apis import APIS, ApiKey, request_class, response_class
from barnabas.wire.codec import Malformed, encode
from barnabas.wire.frames import (
    RequestHeader,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    read_request_header,
)
from barnabas.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.messages.fetch import FetchPartitionResponse, FetchResponse, FetchTopicResponse
from barnabas.wire.messages.metadata import MetadataRequest, MetadataResponse

every_message = pytest.mark.parametrize(("cls", "version"), EVERY_MESSAGE, ids=name_of)


def joined(chunks: list[Any]) -> bytes:
    return b"".join(chunks)


@every_message
def test_a_framed_message_comes_back(cls: type[Any], version: int) -> None:
    message = full(cls, version)
    if cls is request_class(cls.api):
        frame = joined(encode_request(message, version, 5, "tester"))
        header = read_request_header(memoryview(frame), 4)
        assert header[:4] == (cls.api, version, 5, "tester")
        assert decode_request(header, frame) == message
    else:
        frame = joined(encode_response(message, version, 5))
        assert decode_response(cls, version, frame[4:]) == (5, message)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4


@pytest.mark.parametrize("client_id", [None, "", "x", "ü" * 100])
@pytest.mark.parametrize("version", [8, 9])
def test_any_client_id_comes_back(client_id: str | None, version: int) -> None:
    frame = joined(encode_request(MetadataRequest(), version, -1, client_id))
    header = read_request_header(memoryview(frame)[4:])
    assert header == RequestHeader(3, version, -1, client_id, header.body_at)
    assert decode_request(header, memoryview(frame)[4:]) == MetadataRequest()


def test_a_response_to_api_versions_has_the_oldest_header_in_every_version() -> None:
    for version in range(5):
        frame = joined(encode_response(ApiVersionsResponse(35, [ApiVersion(18, 0, 4)]), version, 9))
        assert frame[4:10] == b"\0\0\0\x09" + b"\0\x23"


def test_a_response_is_one_chunk_and_records_are_chunks_between() -> None:
    assert len(encode_response(MetadataResponse(), 12, 1)) == 1
    partition = FetchPartitionResponse(records=b"records")
    chunks = encode_response(FetchResponse(responses=[FetchTopicResponse("t", [partition])]), 12, 1)
    assert chunks[1] is partition.records
    assert len(chunks) == 3


def test_the_header_of_a_version_too_new_is_still_read() -> None:
    raw = b"\0\x12" + b"\0\x63" + b"\0\0\0\x07" + b"\0\x01c" + b"\0" + b"what comes here nobody knows"
    assert read_request_header(memoryview(raw))[:4] == (18, 99, 7, "c")


def test_the_header_of_an_unknown_api_is_still_read() -> None:
    raw = b"\x7f\xff" + b"\0\x63" + b"\0\0\0\x07" + b"\xff\xff"
    assert read_request_header(memoryview(raw)) == RequestHeader(0x7FFF, 99, 7, None, 10)
    raw = b"\xff\xff" + b"\xff\xff" + b"\0\0\0\x07" + b"\xff\xff"
    assert read_request_header(memoryview(raw)) == RequestHeader(-1, -1, 7, None, 10)


def test_unknown_tagged_fields_of_headers_are_stepped_over() -> None:
    request = b"\0\x12\0\x03\0\0\0\x07\0\x01c\x02\x00\x01x\x09\x00" + joined(
        encode(ApiVersionsRequest("a", "b"), 3)
    )
    header = read_request_header(memoryview(request))
    assert decode_request(header, request) == ApiVersionsRequest("a", "b")
    response = b"\0\0\0\x07" + b"\x01\x09\x02xx" + joined(encode(MetadataResponse(), 9))
    assert decode_response(MetadataResponse, 9, response) == (7, MetadataResponse())


@pytest.mark.parametrize(
    "raw",
    [
        b"\0\x12\0\x03\0\0\0\x07\xff\xfe\0",  # a client id of length -2
        b"\0\x12\0\x03\0\0\0\x07\x7f\xffshort",
        b"\0\x12\0\x03\0\0\0\x07\0\x02\xc3\x28\0",  # not UTF-8
        b"\0\x12\0\x03\0\0\0\x07\0\x01c\x01\x00\x7fx",  # a tagged field longer than the frame
        b"\0\x12\0\x03\0\0\0\x07\0\x01c\xff\xff\xff\xff\xff\xff",
    ],
)
def test_broken_headers_are_malformed(raw: bytes) -> None:
    with pytest.raises(Malformed):
        read_request_header(memoryview(raw))


def test_no_truncated_frame_is_taken_for_a_whole_one() -> None:
    request = joined(encode_request(full(ApiVersionsRequest, 3), 3, 7, "client"))[4:]
    for size in range(len(request)):
        with pytest.raises(Malformed):
            decode_request(read_request_header(memoryview(request)[:size]), memoryview(request)[:size])
    response = joined(encode_response(full(MetadataResponse, 12), 12, 7))[4:]
    for size in range(len(response)):
        with pytest.raises(Malformed):
            decode_response(MetadataResponse, 12, response[:size])


def test_noise_is_malformed_or_a_header_and_nothing_else() -> None:
    chance = random.Random(3)
    for _ in range(20_000):
        noise = memoryview(chance.randbytes(chance.randrange(40)))
        if len(noise) > 1 and chance.random() < 0.7:  # Most noise should get past the API key.
            noise = memoryview(chance.choice(list(APIS)).to_bytes(2, "big") + b"\0" + bytes(noise[2:]))
        try:
            header = read_request_header(noise)
            if header.api_key in APIS:
                decode_request(header, noise)
        except Malformed:
            pass


def test_the_table_of_apis_is_whole() -> None:
    assert set(APIS) == set(ApiKey)
    for key, api in APIS.items():
        assert key == api.key
        assert request_class(key).__name__ == api.name + "Request"
        assert response_class(key).__name__ == api.name + "Response"
        assert request_class(key).api is response_class(key).api is api.key
    assert {api.key for api in APIS.values() if api.announced_lowest != api.lowest} == {ApiKey.PRODUCE}
