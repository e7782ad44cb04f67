"""Promises of client/connection.py and client/cluster.py about brokers that are not there or not right."""

import socket
import struct

import pytest

from barnabas.client import Admin
from barnabas.client.cluster import Address, addresses
from barnabas.client.connection import Connection
from barnabas.client.failures import NoBroker, TimedOut, Unreachable
from barnabas.errors import BarnabasError, Code, Refused
from barnabas.wire.apis import ApiKey
from barnabas.wire.frames import encode_response
from barnabas.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.client.unreliable import ScriptedServer
from tests.process import free_port

HTTP = b"HTTP/1.1 400 Bad Request\r\n\r\n"


def read_request(client: socket.socket) -> tuple[int, int, int]:
    """The key, version and correlation id of the next request."""
    (size,) = struct.unpack(">i", client.recv(4, socket.MSG_WAITALL))
    frame = client.recv(size, socket.MSG_WAITALL)
    key, version, correlation_id = struct.unpack_from(">hhi", frame)
    return key, version, correlation_id


def answer_versions(client: socket.socket, *keys: ApiKey) -> None:
    _, version, correlation_id = read_request(client)
    spoken = [ApiVersion(api_key=key, min_version=0, max_version=5) for key in (ApiKey.API_VERSIONS, *keys)]
    chunks = encode_response(ApiVersionsResponse(api_keys=spoken), version, correlation_id)
    client.sendall(b"".join(chunks))  # type: ignore[arg-type]


def connect(server: ScriptedServer, timeout: float = 5.0) -> Connection:
    return Connection("127.0.0.1", server.port, client_id="test", timeout=timeout)


def test_both_sides_agree_on_the_newest_version_they_share(bootstrap: str) -> None:
    with ScriptedServer(lambda client: answer_versions(client, ApiKey.METADATA)) as server:
        connection = connect(server)
        assert connection.version_of(ApiKey.METADATA) == 5
        with pytest.raises(Refused, match="offers no version of Fetch") as refused:
            connection.version_of(ApiKey.FETCH)
        assert refused.value.code is Code.UNSUPPORTED_VERSION
        connection.close()


def test_a_broker_older_than_our_first_question_is_asked_again() -> None:
    def older(client: socket.socket) -> None:
        _, version, correlation_id = read_request(client)
        assert version > 0
        only = ApiVersionsResponse(
            error_code=Code.UNSUPPORTED_VERSION,
            api_keys=[ApiVersion(api_key=18, min_version=0, max_version=0)],
        )
        client.sendall(b"".join(encode_response(only, 0, correlation_id)))  # type: ignore[arg-type]
        answer_versions(client, ApiKey.METADATA)

    with ScriptedServer(older) as server:
        connection = connect(server)
        assert connection.version_of(ApiKey.METADATA) == 5
        connection.close()


def test_nobody_there_is_said_at_once() -> None:
    port = free_port()
    with pytest.raises(NoBroker, match=f"No broker answers at 127.0.0.1:{port} \\(connection refused\\)\\."):
        Admin(f"127.0.0.1:{port}").list_topics()


def test_several_addresses_that_do_not_answer_are_all_named() -> None:
    first, second = free_port(), free_port()
    with pytest.raises(NoBroker, match=f"127.0.0.1:{first}, 127.0.0.1:{second}"):
        Admin([f"127.0.0.1:{first}", f"127.0.0.1:{second}"]).list_topics()


def test_one_address_that_answers_is_enough(bootstrap: str) -> None:
    with Admin(f"127.0.0.1:{free_port()},{bootstrap}") as admin:
        assert admin.describe_cluster().brokers


def test_a_server_of_another_kind_is_recognised() -> None:
    with (
        ScriptedServer(lambda client: client.sendall(HTTP)) as server,
        pytest.raises(Unreachable) as unreachable,
    ):
        connect(server)
    assert str(unreachable.value) == f"{server.address} does not speak the Kafka protocol."


def test_a_hang_up_is_told() -> None:
    def hang_up(client: socket.socket) -> None:
        answer_versions(client, ApiKey.METADATA)
        read_request(client)
        client.sendall(struct.pack(">i", 100) + b"half")

    with ScriptedServer(hang_up) as server:
        connection = connect(server)
        with pytest.raises(Unreachable, match="closed by the other side"):
            connection.call(MetadataRequest(), MetadataResponse)
        assert not connection.is_open


def test_a_broker_that_stalls_costs_no_more_than_the_timeout() -> None:
    def stall(client: socket.socket) -> None:
        answer_versions(client, ApiKey.METADATA)
        while client.recv(1000):
            continue

    with ScriptedServer(stall) as server:
        connection = connect(server, timeout=0.2)
        with pytest.raises(TimedOut, match=r"did not answer in 0\.2 s"):
            connection.call(MetadataRequest(), MetadataResponse)
        assert not connection.is_open, "a late answer must not be taken for another's"


def test_the_answer_to_another_question_is_not_taken() -> None:
    def confuse(client: socket.socket) -> None:
        answer_versions(client, ApiKey.METADATA)
        _, version, correlation_id = read_request(client)
        client.sendall(b"".join(encode_response(MetadataResponse(), version, correlation_id + 1)))  # type: ignore[arg-type]

    with ScriptedServer(confuse) as server:
        connection = connect(server)
        with pytest.raises(Unreachable, match="answered request 3 where 2 was due"):
            connection.call(MetadataRequest(), MetadataResponse)


def test_an_answer_that_cannot_be_read_is_told() -> None:
    def garble(client: socket.socket) -> None:
        answer_versions(client, ApiKey.METADATA)
        _, _, correlation_id = read_request(client)
        client.sendall(struct.pack(">iii", 8, correlation_id, 2**31 - 1))

    with ScriptedServer(garble) as server:
        connection = connect(server)
        with pytest.raises(Unreachable, match="cannot be read"):
            connection.call(MetadataRequest(), MetadataResponse)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("localhost", [Address("localhost", 9092)]),
        ("a:1, b:2", [Address("a", 1), Address("b", 2)]),
        ("[::1]:99", [Address("::1", 99)]),
        ("[::1]", [Address("::1", 9092)]),
    ],
)
def test_addresses_are_understood(text: str, found: list[Address]) -> None:
    assert addresses(text) == found


@pytest.mark.parametrize("text", ["", "host:", "host:0", "host:65536", ":9092", "host:x"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(BarnabasError, match="host:port"):
        addresses(text)
