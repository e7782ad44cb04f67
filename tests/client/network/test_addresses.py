"""Promises of client/network/metadata.py about what is an address, and of Admin about several."""

import pytest

from barnabas import Admin
from barnabas.client.network.failures import NoBroker
from barnabas.client.network.metadata import Address, addresses
from barnabas.errors import BarnabasError
from tests.process import free_port


def test_several_addresses_that_do_not_answer_are_all_named() -> None:
    first, second = (f"127.0.0.1:{free_port()}" for _ in range(2))
    with Admin(f"{first},{second}") as admin, pytest.raises(NoBroker, match=f"{first}, {second}"):
        admin.list_topics()


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
