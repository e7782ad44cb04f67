"""Promises of client/network: network, channel and metadata: requests are answered or refused, once and in time."""

import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from barnabas.client.consumer.questions import Questions
from barnabas.client.network.failures import Closed, NoBroker, TimedOut, Unreachable
from barnabas.client.network.metadata import Address, Metadata, Snapshot
from barnabas.client.network.metadata import Broker as MetadataBroker
from barnabas.client.network.network import Network
from barnabas.client.network.patience import Patience
from barnabas.errors import BarnabasError, Code, Refused
from barnabas.testing import Broker
from barnabas.types import BrokerId, TopicPartition
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.frames import decode_request, encode_response, read_request_header
from barnabas.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.wire.messages.coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.messages.fetch import FetchRequest, FetchResponse
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.wire.messages.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
)
from tests.client.unreliable import ScriptedServer
from tests.deadline import eventually
from tests.process import free_port

NODE = BrokerId(0)


class Peer:
    """The broker's end of a connection, for scripts: reads requests, writes answers."""

    def __init__(self, connection: socket.socket, address: Callable[[], Address]) -> None:
        self._connection = connection
        self._address = address

    def read(self) -> tuple[Any, Any]:
        """The header and the body of the next request."""
        (size,) = struct.unpack(">i", self.exactly(4))
        frame = memoryview(self.exactly(size))
        header = read_request_header(frame)
        return header, decode_request(header, frame)

    def exactly(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            # A process that was stopped and goes on gets less than it waits for.
            more = self._connection.recv(size - len(found), socket.MSG_WAITALL)
            if not more:
                raise ConnectionError("the client hung up")
            found += more
        return bytes(found)

    def answer(self, header: Any, message: Any) -> None:
        chunks: list[Any] = encode_response(message, header.api_version, header.correlation_id)
        self._connection.sendall(b"".join(chunks))

    def greet(self) -> None:
        header, _ = self.read()
        spoken = [
            ApiVersion(api_key=a.key, min_version=a.lowest, max_version=a.highest) for a in APIS.values()
        ]
        self.answer(header, ApiVersionsResponse(api_keys=spoken))

    def serve_metadata(self) -> tuple[Any, Any]:
        """Answers metadata until something else is asked, which is given back."""
        while True:
            header, request = self.read()
            if header.api_key != ApiKey.METADATA:
                return header, request
            self.answer(header, self.metadata())

    def metadata(self) -> MetadataResponse:
        host, port = self._address()
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=0, host=host, port=port)], controller_id=0
        )


@contextmanager
def scripted(script: Callable[[Peer], None]) -> Iterator[ScriptedServer]:
    where: list[Address] = []

    def run(connection: socket.socket) -> None:
        peer = Peer(connection, lambda: where[0])
        peer.greet()
        script(peer)

    with ScriptedServer(run) as server:
        where.append(Address("127.0.0.1", server.port))
        yield server


@contextmanager
def network(bootstrap: str, **settings: Any) -> Iterator[Network]:
    found = Network(bootstrap, client_id="test", **{"retry_backoff_ms": 5, **settings})
    found.start()
    try:
        yield found
    finally:
        found.close(10)


def know_the_brokers(found: Network) -> None:
    snapshot: Snapshot = found.wait_for(lambda done: found.refresh((), done), 10)
    assert snapshot.brokers


def coordinator_of(found: Network, node: BrokerId | None = NODE, **options: Any) -> FindCoordinatorResponse:
    request = FindCoordinatorRequest(key="g", coordinator_keys=["g"])
    return found.call(node, request, FindCoordinatorResponse, **{"timeout": 10, **options})


def in_its_thread(found: Network, action: Callable[[], object]) -> None:
    """Runs it in the network's thread, and waits until it has run."""

    def run(done: Callable[[None], None]) -> None:
        action()
        done(None)

    found.wait_for(run, 10)


def test_any_broker_answers(bootstrap: str) -> None:
    with network(bootstrap) as found:
        answer = found.call(None, MetadataRequest(topics=[]), MetadataResponse, timeout=10)
        assert answer.brokers


def test_a_node_is_asked_by_its_number(bootstrap: str) -> None:
    with network(bootstrap) as found:
        know_the_brokers(found)
        (node,) = found.metadata.snapshot.brokers
        assert coordinator_of(found, node).coordinators
        with pytest.raises(Refused, match="no broker 99") as refused:
            coordinator_of(found, BrokerId(99))
        assert refused.value.code is Code.BROKER_NOT_AVAILABLE


def test_a_bootstrap_by_name_is_looked_up(bootstrap: str) -> None:
    _, _, port = bootstrap.rpartition(":")
    with network(f"localhost:{port}") as found:
        assert found.call(None, MetadataRequest(topics=[]), MetadataResponse, timeout=10).brokers


def test_an_address_without_a_broker_is_said_soon() -> None:
    port = free_port()
    with (
        network(f"127.0.0.1:{port}") as found,
        pytest.raises(NoBroker, match=rf"No broker answers at 127.0.0.1:{port} \(connection refused\)\."),
    ):
        found.call(None, MetadataRequest(topics=[]), MetadataResponse, timeout=10)


def test_a_peer_that_takes_a_connection_and_says_nothing_is_told_of_as_such(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No broker of Kafka's, or one that stands still: it was said that it took no connection."""
    monkeypatch.setattr("barnabas.client.network.network._CONNECT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        where = f"127.0.0.1:{server.getsockname()[1]}"
        with (
            network(where) as found,
            pytest.raises(BarnabasError, match=r"took the connection, but said nothing in 0\.2 s"),
        ):
            found.call(None, MetadataRequest(topics=[]), MetadataResponse, timeout=10)


def test_one_address_that_answers_is_enough(bootstrap: str) -> None:
    dead = [f"127.0.0.1:{free_port()}" for _ in range(3)]
    with network(",".join([*dead, bootstrap, "no-such-host.invalid:1"])) as found:
        for _ in range(3):
            assert found.call(None, MetadataRequest(topics=[]), MetadataResponse, timeout=10).brokers


def test_requests_of_a_lane_are_pipelined_and_answered_in_order() -> None:
    together = 20

    def script(peer: Peer) -> None:
        first = peer.serve_metadata()
        # None is answered before all have come: they did not wait for one another.
        for header, request in [first, *(peer.read() for _ in range(together - 1))]:
            peer.answer(
                header, FindCoordinatorResponse(coordinators=[]) if request.coordinator_keys else None
            )

    order: list[int] = []
    all_there = threading.Event()

    def note(number: int, _: object) -> None:
        order.append(number)
        if len(order) == together:
            all_there.set()

    with scripted(script) as server, network(server.address) as found:
        know_the_brokers(found)
        request = FindCoordinatorRequest(coordinator_keys=["g"])

        def ask_all() -> None:
            for number in range(together):
                found.ask(NODE, request, FindCoordinatorResponse, partial(note, number))

        found.post(ask_all)
        assert all_there.wait(10)
    assert order == list(range(together))


def test_a_lane_never_waits_behind_another() -> None:
    def script(peer: Peer) -> None:
        header, _ = peer.serve_metadata()
        if header.api_key == ApiKey.FETCH:
            peer.read()  # never comes: the fetch is held for ever
        peer.answer(header, FindCoordinatorResponse())

    held: list[object] = []
    with scripted(script) as server, network(server.address) as found:
        know_the_brokers(found)
        found.post(lambda: found.ask(NODE, FetchRequest(), FetchResponse, held.append, wait=60, lane="fetch"))
        coordinator_of(found)
        assert held == []
    assert [type(each) for each in held] == [Closed]


def test_a_stalled_broker_costs_no_more_than_the_timeout_and_the_next_connection_works() -> None:
    stalled = threading.Event()

    def script(peer: Peer) -> None:
        header, _ = peer.serve_metadata()
        if not stalled.is_set():
            stalled.set()
            peer.read()  # says nothing until the client hangs up
        peer.answer(header, FindCoordinatorResponse())

    with scripted(script) as server, network(server.address, request_timeout_ms=2000) as found:
        know_the_brokers(found)
        began = time.monotonic()
        with pytest.raises(TimedOut, match=r"did not answer in 2 s"):
            coordinator_of(found, timeout=60)
        assert 1.9 < time.monotonic() - began < 30
        assert coordinator_of(found) == FindCoordinatorResponse()


def test_what_the_broker_may_take_on_purpose_comes_on_top_of_the_timeout() -> None:
    patience = threading.Event()

    def script(peer: Peer) -> None:
        header, _ = peer.serve_metadata()
        patience.wait(1.5)
        peer.answer(header, FindCoordinatorResponse())

    with scripted(script) as server, network(server.address, request_timeout_ms=1000) as found:
        know_the_brokers(found)
        assert coordinator_of(found, wait=10.0) == FindCoordinatorResponse()


def test_a_connection_cut_in_the_middle_refuses_all_that_was_asked_once() -> None:
    def script(peer: Peer) -> None:
        peer.serve_metadata()
        peer.read()
        peer._connection.sendall(struct.pack(">i", 1000) + b"half an answer")

    told: list[object] = []
    with scripted(script) as server, network(server.address) as found:
        know_the_brokers(found)
        request = FindCoordinatorRequest(coordinator_keys=["g"])

        def ask_twice() -> None:
            for _ in range(2):
                found.ask(NODE, request, FindCoordinatorResponse, told.append)

        found.post(ask_twice)
        eventually(lambda: len(told) == 2, "both outcomes")
        assert all(isinstance(each, Unreachable) and "closed by the other side" in str(each) for each in told)
    assert len(told) == 2


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (lambda header: b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak the Kafka protocol"),
        (lambda header: struct.pack(">iii", 8, header.correlation_id, 2**31 - 1), "cannot be read"),
        (lambda header: struct.pack(">ii", 4, header.correlation_id + 1), "answered request|cannot be read"),
    ],
)
def test_nonsense_ends_the_connection(reply: Callable[[Any], bytes], said: str) -> None:
    def script(peer: Peer) -> None:
        header, _ = peer.serve_metadata()
        peer._connection.sendall(reply(header))
        peer.read()

    with scripted(script) as server, network(server.address) as found:
        know_the_brokers(found)
        with pytest.raises(Unreachable, match=said):
            coordinator_of(found)


def test_a_version_that_is_not_shared_is_refused_and_the_connection_stays() -> None:
    connections: list[socket.socket] = []

    def script(connection: socket.socket) -> None:
        connections.append(connection)
        peer = Peer(connection, lambda: Address("127.0.0.1", server.port))
        header, _ = peer.read()
        only = [ApiVersion(api_key=ApiKey.METADATA, min_version=0, max_version=5)]
        peer.answer(header, ApiVersionsResponse(api_keys=only))
        peer.serve_metadata()

    with ScriptedServer(script) as server, network(server.address) as found:
        know_the_brokers(found)
        with pytest.raises(Refused, match="offers no version of FindCoordinator") as refused:
            coordinator_of(found)
        assert refused.value.code is Code.UNSUPPORTED_VERSION
        know_the_brokers(found)
        assert len(connections) == 1


def test_a_broker_older_than_our_first_question_is_asked_again() -> None:
    def script(connection: socket.socket) -> None:
        peer = Peer(connection, lambda: Address("127.0.0.1", server.port))
        header, _ = peer.read()
        assert header.api_version > 0
        only = ApiVersionsResponse(
            error_code=Code.UNSUPPORTED_VERSION,
            api_keys=[ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=0)],
        )
        peer.answer(header._replace(api_version=0), only)
        peer.greet()
        peer.serve_metadata()

    with ScriptedServer(script) as server, network(server.address) as found:
        know_the_brokers(found)


def test_a_request_that_cannot_be_written_is_refused_alone(bootstrap: str) -> None:
    with network(bootstrap) as found:
        know_the_brokers(found)
        (node,) = found.metadata.snapshot.brokers
        with pytest.raises(Refused, match="cannot be written") as refused:
            found.call(node, FetchRequest(max_bytes=1 << 40), FetchResponse, timeout=10)
        assert refused.value.code is Code.INVALID_REQUEST
        assert coordinator_of(found, node)


def test_requests_and_answers_of_many_megabytes_pass_whole() -> None:
    payload = os.urandom(1 << 20) * 40
    seen: list[bytes] = []

    def script(peer: Peer) -> None:
        header, request = peer.serve_metadata()
        seen.append(bytes(request.topic_data[0].partition_data[0].records))
        names = [MetadataResponseTopic(name="t" * 30_000) for _ in range(500)]
        peer.answer(header, ProduceResponse())
        header, _ = peer.read()
        peer.answer(header, MetadataResponse(topics=names))
        peer.read()

    with scripted(script) as server, network(server.address) as found:
        know_the_brokers(found)
        part = ProducePartition(index=0, records=memoryview(payload))
        request = ProduceRequest(acks=-1, topic_data=[ProduceTopic(name="t", partition_data=[part])])
        found.call(NODE, request, ProduceResponse, timeout=30)
        assert seen == [payload]
        answer = found.call(NODE, MetadataRequest(topics=[]), MetadataResponse, timeout=30)
        assert [len(each.name or "") for each in answer.topics] == [30_000] * 500


def test_a_broker_that_does_not_read_stalls_only_its_own_lane() -> None:
    def script(peer: Peer) -> None:
        header, _ = peer.serve_metadata()
        if header.api_key == ApiKey.FIND_COORDINATOR:
            peer.answer(header, FindCoordinatorResponse())
            peer.read()

    def deaf(connection: socket.socket) -> None:
        peer = Peer(connection, lambda: Address("127.0.0.1", server.port))
        peer.greet()
        if server._open.index(connection) == 1:
            leave.wait(30)
            return
        script(peer)

    leave = threading.Event()
    told: list[object] = []
    with ScriptedServer(deaf) as server, network(server.address, request_timeout_ms=30_000) as found:
        know_the_brokers(found)
        records = memoryview(bytes(64 << 20))
        part = ProducePartition(index=0, records=records)
        request = ProduceRequest(acks=-1, topic_data=[ProduceTopic(name="t", partition_data=[part])])
        found.post(lambda: found.ask(NODE, request, ProduceResponse, told.append, lane="big"))
        assert coordinator_of(found) == FindCoordinatorResponse()
        assert told == []
        leave.set()
    assert [type(each) for each in told] in ([Closed], [Unreachable])


def produce_of(size: int) -> ProduceRequest:
    part = ProducePartition(index=0, records=memoryview(bytes(size)))
    return ProduceRequest(acks=-1, topic_data=[ProduceTopic(name="t", partition_data=[part])])


def in_three(found: Network, told: list[Any]) -> list[Any]:
    """Asks a request that no buffer of the system holds, and two small ones behind it; once a part of it is sent."""
    asked: list[Any] = []

    def ask() -> None:
        asked.extend(
            found.ask(NODE, produce_of(size), ProduceResponse, told.append, lane="big")
            for size in (64 << 20, 1, 2)
        )

    in_its_thread(found, ask)
    eventually(lambda: asked[0].begins < asked[0].channel.written, "a part to be sent")
    return asked


@contextmanager
def slow_to_read(may_read: threading.Event, seen: list[Any]) -> Iterator[ScriptedServer]:
    """A broker that reads a second connection only when told to; `seen` gets the size of each request, or its end."""

    def run(connection: socket.socket) -> None:
        peer = Peer(connection, lambda: Address("127.0.0.1", server.port))
        peer.greet()
        if server._open.index(connection) == 1:
            may_read.wait(30)
            try:
                while True:
                    header, request = peer.read()
                    seen.append(len(request.topic_data[0].partition_data[0].records))
                    peer.answer(header, ProduceResponse())
            except ConnectionError:
                seen.append("hung up")
                return
        peer.serve_metadata()

    with ScriptedServer(run) as server:
        yield server


def test_a_request_of_which_nothing_is_sent_is_called_off_and_the_others_go_on() -> None:
    may_read, seen, told = threading.Event(), list[Any](), list[Any]()
    with slow_to_read(may_read, seen) as server, network(server.address) as found:
        know_the_brokers(found)
        large, first, second = in_three(found, told)
        calls_off: list[bool] = []
        in_its_thread(found, lambda: calls_off.append(first.recall()))
        may_read.set()
        eventually(lambda: len(told) == 2, "the answers")
        assert calls_off == [True]
        assert [large.was_sent, first.was_sent, second.was_sent] == [True, False, True]
        assert seen == [64 << 20, 2]
        assert told == [ProduceResponse(), ProduceResponse()]
        in_its_thread(found, lambda: calls_off.append(large.recall()))
        assert calls_off == [True, False]


def test_a_request_that_is_partly_sent_is_called_off_by_hanging_up() -> None:
    may_read, seen, told = threading.Event(), list[Any](), list[Any]()
    with slow_to_read(may_read, seen) as server, network(server.address) as found:
        know_the_brokers(found)
        large, first, second = in_three(found, told)
        calls_off: list[bool] = []
        in_its_thread(found, lambda: calls_off.append(large.recall()))
        eventually(lambda: len(told) == 2, "the others to hear of it")
        may_read.set()
        eventually(lambda: seen, "the end of the connection")
        assert calls_off == [True]
        assert [large.was_sent, first.was_sent, second.was_sent] == [False, False, False]
        assert seen == ["hung up"]
        assert [type(each) for each in told] == [Unreachable, Unreachable]


def test_a_request_that_waits_for_its_connection_is_called_off() -> None:
    told: list[Any] = []
    with network(f"127.0.0.1:{free_port()}", retry_backoff_ms=60_000) as found:
        with pytest.raises(NoBroker):
            know_the_brokers(found)  # the next attempt comes after a pause

        def ask() -> None:
            found.metadata.add_broker(MetadataBroker(NODE, "127.0.0.1", found.bootstrap[0].port))
            asked = found.ask(NODE, produce_of(1), ProduceResponse, told.append, lane="new")
            assert asked is not None
            assert asked.recall()
            assert not asked.was_sent
            assert not asked.channel or not asked.channel.is_busy

        in_its_thread(found, ask)
    assert told == []


def test_a_request_without_an_answer_is_done_when_it_is_written(bootstrap: str) -> None:
    with network(bootstrap) as found:
        know_the_brokers(found)
        (node,) = found.metadata.snapshot.brokers
        request = ProduceRequest(acks=0, topic_data=[])
        assert found.wait_for(lambda done: found.tell(node, request, done), 10) is None
        assert coordinator_of(found, node)


def test_a_broker_that_comes_back_is_found_again(tmp_path: Path) -> None:
    port = free_port()
    with network(f"127.0.0.1:{port}") as found:
        for _ in range(3):
            with Broker(data=tmp_path, port=port):
                know_the_brokers(found)
                (node,) = found.metadata.snapshot.brokers
                assert coordinator_of(found, node)
            with pytest.raises(Unreachable):
                coordinator_of(found, node)


def test_attempts_to_connect_are_paced() -> None:
    port = free_port()
    with network(f"127.0.0.1:{port}", retry_backoff_ms=50) as found:
        began = time.monotonic()
        for _ in range(5):
            with pytest.raises(NoBroker):
                found.call(None, MetadataRequest(topics=[]), MetadataResponse, timeout=10)
        # Pauses of 50, 100, 200 and 400 ms, give or take a fifth.
        assert time.monotonic() - began > 0.75 * 0.8


def test_requests_that_end_in_a_pause_do_not_prolong_it(tmp_path: Path) -> None:
    """Else a caller that asks again and again, with less patience than the pause is long, would never connect."""
    port = free_port()
    with network(f"127.0.0.1:{port}", retry_backoff_ms=2000, request_timeout_ms=700) as found:

        def is_answered() -> bool:
            try:
                return bool(
                    found.call(None, MetadataRequest(topics=[]), MetadataResponse, timeout=30).brokers
                )
            except Refused:
                return False

        assert not is_answered()
        with Broker(data=tmp_path, port=port):
            eventually(is_answered, "an answer of the broker that is there again", 60)


def test_a_node_that_moved_is_found_at_its_new_address() -> None:
    def script(peer: Peer) -> None:
        header, _ = peer.serve_metadata()
        peer.answer(header, FindCoordinatorResponse(coordinators=[]))
        peer.read()

    moved: list[Address] = []

    def old_home(peer: Peer) -> None:
        peer._address = lambda: moved[0]
        peer.serve_metadata()

    with scripted(script) as new, scripted(old_home) as old, network(old.address) as found:
        moved.append(Address("127.0.0.1", new.port))
        know_the_brokers(found)
        assert found.metadata.snapshot.brokers[NODE].port == new.port
        assert coordinator_of(found) == FindCoordinatorResponse()


def test_closing_ends_every_wait_and_leaves_nothing_open() -> None:
    def script(peer: Peer) -> None:
        peer.serve_metadata()
        peer.read()

    before = set(os.listdir("/proc/self/fd"))
    with scripted(script) as server:
        found = Network(server.address, client_id="test", name="to-be-gone")
        found.start()
        know_the_brokers(found)
        told: list[object] = []
        request = FindCoordinatorRequest(coordinator_keys=["g"])
        in_its_thread(found, lambda: found.ask(NODE, request, FindCoordinatorResponse, told.append))
        found.close(10)
        found.close(10)
        assert [type(each) for each in told] == [Closed]
        with pytest.raises(Closed):
            coordinator_of(found)
        with pytest.raises(Closed):
            found.post(lambda: None)
    assert "to-be-gone" not in {thread.name for thread in threading.enumerate()}
    # The broker of other tests lives in this process, too, and may be writing a file just now.
    eventually(lambda: set(os.listdir("/proc/self/fd")) <= before, "what was opened to be closed")


def test_a_callback_may_close_the_client_but_not_wait_for_it(bootstrap: str) -> None:
    with network(bootstrap) as found:
        know_the_brokers(found)
        problems: list[BaseException] = []

        def callback() -> None:
            try:
                coordinator_of(found, None)
            except BarnabasError as error:
                problems.append(error)
            found.close(10)

        found.post(callback)
        eventually(lambda: found.is_closed, "the client to be closed")
        assert "cannot wait there" in str(problems[0])


def test_a_client_that_was_never_started_can_be_closed() -> None:
    Network("127.0.0.1:1", client_id="test").close(1)


def test_a_callback_that_fails_is_shown_and_stops_nothing(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda problem: shown.append(problem.exc_type))

    def fail() -> None:
        raise ZeroDivisionError

    with network(bootstrap) as found:
        found.post(fail)
        in_its_thread(found, lambda: None)
        found.post(partial(found.later, 0.0, fail))
        know_the_brokers(found)
    assert shown == [ZeroDivisionError, ZeroDivisionError]


def test_timers_run_in_order_unless_cancelled() -> None:
    order: list[str] = []
    over = threading.Event()
    with network("127.0.0.1:1") as found:

        def start() -> None:
            # Far enough apart that a thread that is held up between two of these lines does not change their order.
            found.later(1.5, lambda: order.append("c"))
            found.later(0.01, lambda: order.append("a"))
            found.later(0.02, lambda: order.append("never")).cancel()
            found.later(0.02, lambda: order.append("b"))
            found.later(1.6, over.set)

        found.post(start)
        assert over.wait(10)
    assert order == ["a", "b", "c"]


def test_posts_of_many_threads_all_run_in_the_order_of_each() -> None:
    seen: list[tuple[int, int]] = []
    with network("127.0.0.1:1") as found:

        def post_many(thread: int) -> None:
            for number in range(500):
                found.post(lambda pair=(thread, number): seen.append(pair))  # type: ignore[misc]

        threads = [threading.Thread(target=post_many, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        in_its_thread(found, lambda: None)
    assert len(seen) == 4000
    for thread_number in range(8):
        assert [number for thread, number in seen if thread == thread_number] == list(range(500))


def test_a_forked_process_is_told_to_make_its_own() -> None:
    with network("127.0.0.1:1") as found:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                found.post(lambda: None)
            except BarnabasError as error:
                os.write(writing, str(error).encode())
            found.close(1)
            os._exit(0)
        os.close(writing)
        os.waitpid(child, 0)
        assert b"made before the process forked" in os.read(reading, 1000)
        os.close(reading)
        in_its_thread(found, lambda: None)


def test_idle_connections_are_closed_and_opened_again_when_needed(bootstrap: str) -> None:
    with network(bootstrap, connections_max_idle_ms=50) as found:
        for _ in range(2):
            know_the_brokers(found)
            eventually(lambda: not found._channels, "the connections to be closed")


def test_a_coordinator_is_found(bootstrap: str) -> None:
    with network(bootstrap) as found:
        (node,) = eventually(lambda: _found(found), "a coordinator")
        assert coordinator_of(found, node, lane="group")


def _found(found: Network) -> Any:
    try:
        node = found.wait_for(lambda done: found.find_coordinator("g", done), 10)
    except Refused:
        return None
    return (node,)


def test_wanted_topics_are_kept_fresh_and_subscribers_hear_of_them(bootstrap: str) -> None:
    name = f"wanted-{free_port()}"
    with network(bootstrap, metadata_max_age_ms=20) as found:
        heard: list[Snapshot] = []
        in_its_thread(found, lambda: found.metadata.subscribe(heard.append))
        in_its_thread(found, lambda: found.metadata.want([name]))
        eventually(lambda: found.metadata.snapshot.refused.get(name), "word that there is no such topic")
        in_its_thread(found, lambda: found.metadata.want([name], create=True))
        eventually(lambda: name in found.metadata.snapshot.topics, "the topic")
        partition = TopicPartition(name, 0)
        eventually(lambda: found.metadata.snapshot.leader(partition), "a leader")
        so_far = len(heard)
        eventually(lambda: len(heard) > so_far + 3, "more refreshes as the metadata grows old")
        in_its_thread(found, lambda: found.metadata.forget([name]))


def test_the_first_look_up_of_a_topic_waits_for_no_pause_and_takes_others_along() -> None:
    asked: list[list[str]] = []

    def script(peer: Peer) -> None:
        while True:
            header, request = peer.read()
            names = [topic.name for topic in request.topics or ()]
            asked.append(names)
            answer = peer.metadata()
            answer.topics = [MetadataResponseTopic(name=name) for name in names]
            peer.answer(header, answer)

    with scripted(script) as server, network(server.address, retry_backoff_ms=50_000) as found:
        know_the_brokers(found)
        in_its_thread(found, found.refresh_soon)
        eventually(lambda: len(asked) == 2, "a refresh, after which the next one has to wait", 10)

        def want_many() -> None:
            for number in range(100):
                found.metadata.want([f"many-{number}"])

        for number in range(20):
            in_its_thread(found, lambda: found.metadata.want([f"one-{number}"]))  # noqa: B023
            eventually(lambda: f"one-{number}" in found.metadata.snapshot.topics, "the topic", 10)  # noqa: B023
        in_its_thread(found, want_many)
        eventually(lambda: "many-99" in found.metadata.snapshot.topics, "the topics", 10)
    assert asked == [[], [], *([f"one-{number}"] for number in range(20)), [f"many-{n}" for n in range(100)]]


def test_a_topic_that_is_not_there_at_the_first_look_is_looked_for_again() -> None:
    asked: list[list[str]] = []

    def script(peer: Peer) -> None:
        while True:
            header, request = peer.read()
            names = [topic.name for topic in request.topics or ()]
            asked.append(names)
            answer = peer.metadata()
            code = Code.NONE if len(asked) > 4 else Code.LEADER_NOT_AVAILABLE
            answer.topics = [MetadataResponseTopic(name=name, error_code=code) for name in names]
            peer.answer(header, answer)

    with scripted(script) as server, network(server.address) as found:
        know_the_brokers(found)
        in_its_thread(found, lambda: found.metadata.want(["t"], create=True))
        eventually(lambda: "t" in found.metadata.snapshot.topics, "the topic")
    assert asked == [[], *[["t"]] * 4]


def test_metadata_that_many_find_stale_costs_one_request() -> None:
    requests = 0

    def script(peer: Peer) -> None:
        nonlocal requests
        while True:
            header, _ = peer.read()
            requests += 1
            peer.answer(header, peer.metadata())

    with scripted(script) as server, network(server.address, retry_backoff_ms=50) as found:
        know_the_brokers(found)
        heard: list[Snapshot] = []
        in_its_thread(found, lambda: found.metadata.subscribe(heard.append))

        def complain() -> None:
            for _ in range(1000):
                found.refresh_soon()

        found.post(complain)
        eventually(lambda: heard, "the refresh")
        in_its_thread(found, lambda: None)
    assert requests == 2


def told(*partitions: tuple[int, int], topic_id: int = 1, error: int = 0) -> MetadataResponse:
    """An answer about topic t whose partitions have these leaders and epochs."""
    from uuid import UUID

    found = [
        MetadataResponsePartition(partition_index=index, leader_id=leader, leader_epoch=epoch)
        for index, (leader, epoch) in enumerate(partitions)
    ]
    topic = MetadataResponseTopic(name="t", topic_id=UUID(int=topic_id), partitions=found, error_code=error)
    brokers = [MetadataResponseBroker(node_id=number, host="h", port=number + 1) for number in range(3)]
    return MetadataResponse(brokers=brokers, topics=[topic])


def leaders(metadata: Metadata) -> list[int]:
    return [partition.leader for partition in metadata.snapshot.topics["t"].partitions]


def test_a_leader_that_was_replaced_does_not_come_back() -> None:
    metadata = Metadata()
    metadata.update(told((1, 5), (2, 3)), ["t"])
    metadata.update(told((0, 4), (1, 4)), ["t"])
    assert leaders(metadata) == [1, 1]
    # A topic made anew counts its leaders from the beginning; so may brokers that give no ids.
    metadata.update(told((0, 0), (0, 0), topic_id=2), ["t"])
    assert leaders(metadata) == [0, 0]
    metadata.update(told((1, 7), (1, 7), topic_id=0), ["t"])
    metadata.update(told((2, 1), (2, 1), topic_id=0), ["t"])
    assert leaders(metadata) == [2, 2]


def test_a_snapshot_never_changes_and_tells_what_became_of_topics() -> None:
    metadata = Metadata()
    before = metadata.update(told((1, 0)), ["t"])
    after = metadata.update(told(error=Code.UNKNOWN_TOPIC_OR_PARTITION), ["t"])
    assert "t" in before.topics
    assert "t" not in after.topics
    assert after.refused == {"t": Code.UNKNOWN_TOPIC_OR_PARTITION}
    assert metadata.update(told((1, 0)), ["t"]).refused == {}
    assert before.leader(TopicPartition("t", 0)) == before.brokers[BrokerId(1)]
    assert before.leader(TopicPartition("t", 1)) is None
    assert before.leader(TopicPartition("other", 0)) is None
    # An answer about all topics leaves out what is gone; one about others says nothing of it.
    assert "t" in metadata.update(MetadataResponse(), []).topics
    assert metadata.update(MetadataResponse(), None).topics == {}


def test_a_pause_ends_with_its_time_with_what_fresh_metadata_changes_or_with_the_client() -> None:
    leader = 1

    def script(peer: Peer) -> None:
        while True:
            header, request = peer.read()
            answer = peer.metadata()
            partitions = [MetadataResponsePartition(partition_index=0, leader_id=leader, leader_epoch=leader)]
            answer.topics = [
                MetadataResponseTopic(name=each.name, partitions=partitions) for each in request.topics
            ]
            peer.answer(header, answer)

    with scripted(script) as server, network(server.address) as found:
        in_its_thread(found, lambda: found.metadata.want(["t"]))
        eventually(lambda: "t" in found.metadata.snapshot.topics, "the topic")
        began = time.monotonic()
        found.pause(0.2, is_stale=True)  # nothing has changed
        assert time.monotonic() - began >= 0.2
        leader = 2
        found.pause(60.0, is_stale=True)
        assert found.metadata.snapshot.topics["t"].partitions[0].leader == 2

        def close_in_a_pause() -> None:
            eventually(lambda: found.pauses, "a pause")
            found.close(10)

        closing = threading.Thread(target=close_in_a_pause)
        closing.start()
        with pytest.raises(Closed):
            found.pause(60.0, is_stale=False)
        closing.join(10)
        assert time.monotonic() - began < 50
        assert not found.pauses


def test_what_may_pass_is_borne_as_long_as_there_is_time_for_a_pause(bootstrap: str) -> None:
    asked: list[int] = []

    def ask(*, until: int, code: Code) -> int:
        asked.append(until)
        if len(asked) < until:
            raise Refused(code)
        return len(asked)

    with network(bootstrap) as found:
        stale: list[str] = []
        patience = Patience(found, 10.0, when_stale=lambda: stale.append("forget"))
        assert patience.ask(partial(ask, until=3, code=Code.NOT_COORDINATOR)) == 3
        assert stale == ["forget", "forget"]
        asked.clear()
        with pytest.raises(Refused, match=r"does not exist|no such"):
            Patience(found, 10.0).ask(partial(ask, until=2, code=Code.UNKNOWN_TOPIC_OR_PARTITION))
        assert asked == [2]
        asked.clear()
        with pytest.raises(Refused):
            Patience(found, 0.3).ask(partial(ask, until=1000, code=Code.COORDINATOR_LOAD_IN_PROGRESS))
        assert 2 < len(asked) < 1000


def test_offsets_that_a_leader_leaves_out_are_asked_for_again() -> None:
    asked = 0

    def script(peer: Peer) -> None:
        nonlocal asked
        while True:
            header, request = peer.read()
            if header.api_key == ApiKey.METADATA:
                answer = peer.metadata()
                partitions = [MetadataResponsePartition(partition_index=0, leader_id=0, leader_epoch=1)]
                answer.topics = [
                    MetadataResponseTopic(name=each.name, partitions=partitions)
                    for each in request.topics or []
                ]
                peer.answer(header, answer)
            else:
                asked += 1
                found = ListOffsetsPartitionResponse(partition_index=0, offset=7)
                topics = [ListOffsetsTopicResponse(name="t", partitions=[found])] if asked > 1 else []
                peer.answer(header, ListOffsetsResponse(topics=topics))

    with scripted(script) as server, network(server.address) as found:
        know_the_brokers(found)
        questions = Questions(found, read_committed=False, timeout=10.0)
        partition = TopicPartition("t", 0)
        assert questions.offsets({partition: -1})[partition].offset == 7
    assert asked == 2


def test_offsets_of_a_topic_that_is_not_read_are_found_at_its_new_leader() -> None:
    told_of = 0

    def script(peer: Peer) -> None:
        nonlocal told_of
        while True:
            header, request = peer.read()
            if header.api_key == ApiKey.METADATA:
                answer = peer.metadata()
                told_of += bool(request.topics)
                partitions = [MetadataResponsePartition(partition_index=0, leader_id=0, leader_epoch=told_of)]
                answer.topics = [
                    MetadataResponseTopic(name=each.name, partitions=partitions) for each in request.topics
                ]
                peer.answer(header, answer)
            else:
                epoch = request.topics[0].partitions[0].current_leader_epoch
                code = Code.FENCED_LEADER_EPOCH if epoch < 2 else Code.NONE
                found = ListOffsetsPartitionResponse(partition_index=0, error_code=code, offset=7)
                topics = [ListOffsetsTopicResponse(name="t", partitions=[found])]
                peer.answer(header, ListOffsetsResponse(topics=topics))

    with scripted(script) as server, network(server.address) as found:
        know_the_brokers(found)
        questions = Questions(found, read_committed=False, timeout=10.0)
        partition = TopicPartition("t", 0)
        assert questions.offsets({partition: -1})[partition].offset == 7
