"""Promises of Admin that need no broker at all: a silent one is given up in time, with one clear error."""

import socket
import time

import pytest

from barnabas import Admin, errors
from tests.client.unreliable import ScriptedServer
from tests.process import free_port


def test_a_broker_that_says_nothing_is_given_up_in_time() -> None:
    started = time.monotonic()
    with (
        ScriptedServer(listen_only) as silent,
        Admin(silent.address, request_timeout_ms=300) as admin,
        pytest.raises(errors.Retriable, match=r"did not answer in 0\.3 s"),
    ):
        admin.list_topics()
    assert time.monotonic() - started < 20


def listen_only(connection: socket.socket) -> None:
    while connection.recv(1 << 16):
        pass


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_an_address_without_a_broker_is_one_clear_error(host: str) -> None:
    address = f"{host}:{free_port()}"
    with Admin(address) as admin, pytest.raises(errors.NetworkException) as refused:
        admin.describe_cluster()
    assert f"at {address} (" in str(refused.value)
    assert refused.value.retriable
