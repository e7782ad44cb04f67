"""Rounds: who has sent something is heard, then answered, and nobody's failure is another's."""

import asyncio
import socket

from barnabas.broker.network.rounds import Rounds
from barnabas.testing import Broker
from barnabas.wire.messages.metadata import MetadataRequest
from tests.broker.speaking import batch, connect, create, fetch_request, produce_request
from tests.raw import frame_of


class Listener:
    """Reads what comes, and owes an answer that it sends when it is told to."""

    def __init__(self, rounds: Rounds, sock: socket.socket, told: list[str], name: str) -> None:
        self._rounds, self._sock, self._told, self._name = rounds, sock, told, name
        rounds.hear(sock.fileno(), self._read)

    def _read(self) -> None:
        word = self._sock.recv(100)
        self._told.append(f"{self._name} heard")
        if word == b"fail":
            raise RuntimeError(self._name)
        self._rounds.owing.append(self)

    def send_owed(self) -> None:
        self._told.append(f"{self._name} answered")
        self._sock.send(b"answer")


def run_rounds(words: list[bytes]) -> tuple[list[str], list[str]]:
    """What happened, in its order, when each of several clients had sent a word before the loop looked."""
    told: list[str] = []
    failures: list[str] = []

    async def talk() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: failures.append(str(context["exception"])))
        rounds = Rounds(loop)
        pairs = [socket.socketpair() for _ in words]
        names = "abc"
        for (near, _), name in zip(pairs, names, strict=False):
            near.setblocking(False)
            Listener(rounds, near, told, name)
        for (_, far), word in zip(pairs, words, strict=True):
            far.send(word)
        for (_, far), word in zip(pairs, words, strict=True):
            if word != b"fail":
                far.setblocking(False)
                await asyncio.wait_for(loop.sock_recv(far, 100), 60)
        for near, far in pairs:
            rounds.ignore(near.fileno())
            rounds.ignore(near.fileno())
            near.close()
            far.close()
        rounds.close()

    asyncio.run(talk())
    return told, failures


def test_all_are_heard_before_the_first_is_answered() -> None:
    told, failures = run_rounds([b"x", b"y", b"z"])
    assert sorted(told[:3]) == ["a heard", "b heard", "c heard"]
    assert sorted(told[3:]) == ["a answered", "b answered", "c answered"]
    assert not failures


def test_a_failing_connection_ends_only_itself() -> None:
    told, failures = run_rounds([b"x", b"fail", b"z"])
    assert sorted(told) == ["a answered", "a heard", "b heard", "c answered", "c heard"]
    assert failures == ["b"]


def test_many_requests_in_one_packet_are_answered_in_order() -> None:
    """More than Python would let call one another."""
    with Broker() as broker, connect(broker) as client:
        many = b"".join(frame_of(MetadataRequest([]), 12, correlation_id=n) for n in range(3000))
        client.send(many)
        for n in range(3000):
            assert int.from_bytes(client.receive()[:4], "big") == n


def test_many_requests_behind_one_that_waits_are_answered_in_order() -> None:
    with Broker() as broker, connect(broker) as client:
        create(client, "t")
        waiting = frame_of(fetch_request("t", {0: 0}, max_wait_ms=200), 12, correlation_id=7)
        client.send(
            waiting + b"".join(frame_of(MetadataRequest([]), 12, correlation_id=n) for n in range(3000))
        )
        assert int.from_bytes(client.receive()[:4], "big") == 7
        for n in range(3000):
            assert int.from_bytes(client.receive()[:4], "big") == n


def test_a_request_behind_another_wakes_a_fetch_that_waits_for_it() -> None:
    """It is served when the first one's answer has gone: the round is nearly over then."""
    with Broker() as broker, connect(broker) as waiting, connect(broker) as busy:
        create(busy, "t")
        create(busy, "another")
        waiting.send(frame_of(fetch_request("t", {0: 0}, max_wait_ms=60_000), 12))
        busy.ask(MetadataRequest([]), 12)  # so the fetch has been heard, too
        first = frame_of(produce_request("another", batch(b"hi")), 9)
        busy.send(first + frame_of(produce_request("t", batch(b"hello")), 9))
        assert b"hello" in waiting.receive()


def test_parked_requests_are_answered_first_then_new_ones_and_other_work_comes_last() -> None:
    order: list[str] = []

    async def talk() -> None:
        loop = asyncio.get_running_loop()
        rounds = Rounds(loop)
        near, far = socket.socketpair()
        done = loop.create_future()

        class Answer:
            def __init__(self, name: str) -> None:
                self.name = name

            def send_owed(self) -> None:
                order.append(self.name)

        def fail() -> None:
            raise RuntimeError("a waiting one fails")

        def heard() -> None:
            near.recv(10)
            rounds.afterwards(fail)
            rounds.afterwards(lambda: done.set_result(None))
            rounds.owing.append(Answer("heard"))
            rounds.wake(fail)
            rounds.wake(lambda: rounds.owing.append(Answer("waited")))
            rounds.wake(lambda: rounds.owing.append(Answer("waited too")))

        loop.set_exception_handler(lambda _, context: None)
        rounds.hear(near.fileno(), heard)
        far.send(b"x")
        await asyncio.wait_for(done, 60)
        rounds.ignore(near.fileno())
        rounds.close()
        near.close()
        far.close()

        rounds.afterwards(lambda: order.append("at once, as there is no round"))

    asyncio.run(talk())
    assert order == ["waited", "waited too", "heard", "at once, as there is no round"]
