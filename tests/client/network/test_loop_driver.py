"""Promises of client/network/loop_driver.py: a thread that waits drives, and no post or answer is forgotten."""

import asyncio
import os
import signal
import threading
import time
from _thread import LockType, allocate_lock
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

import pytest

from barnabas import Producer
from barnabas.client.network.failures import Closed
from barnabas.client.network.loop_driver import LoopDriver
from barnabas.client.network.network import Network
from barnabas.client.producer.batches import Sent
from barnabas.errors import BarnabasError
from barnabas.wire.messages.coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tests.client.network.test_network import NODE, Peer, know_the_brokers, network, scripted
from tests.client.test_faults import TOPIC, behind
from tests.client.unreliable import FaultyProxy
from tests.deadline import eventually

NewTopic = Callable[..., str]


def closed_gate() -> LockType:
    gate = allocate_lock()
    gate.acquire()
    return gate


def driver_of(found: Network) -> threading.Thread:
    """The thread that runs what is posted."""
    seen: list[threading.Thread] = []
    ran = threading.Event()

    def look() -> None:
        seen.append(threading.current_thread())
        ran.set()

    found.post(look)
    assert ran.wait(10)
    return seen[0]


@contextmanager
def driving(found: Network, gate: LockType) -> Iterator[list[Any]]:
    """A thread that waits for the gate, and drives; what came of it is in the list afterwards."""
    outcome: list[Any] = []
    thread = threading.Thread(target=lambda: outcome.append(found.wait(gate, 30)), name="user")
    thread.start()
    eventually(lambda: driver_of(found) is thread, "the user to drive")
    yield outcome
    thread.join(30)
    assert not thread.is_alive()


@pytest.mark.parametrize("threads", [2, 8])
def test_threads_that_wait_for_each_of_their_records_all_get_on(
    bootstrap: str, new_topic: NewTopic, threads: int
) -> None:
    topic = new_topic(2)
    found: list[tuple[int, int]] = []
    with Producer(bootstrap_servers=bootstrap, linger_ms=0) as producer:

        def work() -> None:
            for number in range(200):
                sent = producer.send(topic, b"%d" % number, partition=number % 2).result(30)
                found.append((sent.partition, sent.offset))

        workers = [threading.Thread(target=work) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
    assert sorted(found) == [(partition, offset) for partition in (0, 1) for offset in range(100 * threads)]


def test_threads_that_wait_and_threads_that_do_not_share_a_producer(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    with Producer(bootstrap_servers=bootstrap, linger_ms=0) as producer:
        told: list[Sent] = []

        def pour() -> None:
            for _ in range(2000):
                producer.send(topic, b"poured").add_done_callback(told.append)

        pouring = threading.Thread(target=pour)
        pouring.start()
        for _ in range(200):
            producer.send(topic, b"waited for").result(30)
        pouring.join(60)
        eventually(lambda: len(told) == 2000, "every callback")


def test_a_record_that_is_not_waited_for_leaves_soon_after_one_that_was(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    with Producer(bootstrap_servers=bootstrap, linger_ms=0) as producer:
        for _ in range(50):
            producer.send(topic, b"waited for").result(30)
            told = threading.Event()
            producer.send(topic, b"not waited for").add_done_callback(lambda _, told=told: told.set())  # type: ignore[misc]
            assert told.wait(10)
            producer.send(topic, b"waited for").result(30)
            eventually(producer.send(topic, b"not looked at").done, "a record")


def test_a_new_topic_is_found_by_the_thread_that_drove_last(bootstrap: str, new_topic: NewTopic) -> None:
    first, second = new_topic(), new_topic()
    with Producer(bootstrap_servers=bootstrap, linger_ms=0) as producer:
        producer.send(first, b"").result(30)
        assert len(producer.partitions_for(second)) == 1


def test_timers_run_while_a_user_drives_and_after(bootstrap: str) -> None:
    with network(bootstrap) as found:
        ran: list[str] = []
        gate = closed_gate()
        found.post(partial(found.later, 0.0, lambda: ran.append("before")))
        with driving(found, gate):
            found.post(partial(found.later, 0.01, lambda: ran.append("while")))
            found.post(partial(found.later, 0.02, gate.release))
        found.post(partial(found.later, 0.01, lambda: ran.append("after")))
        eventually(lambda: ran == ["before", "while", "after"], "all timers")
        eventually(lambda: driver_of(found).name == "barnabas-network", "its own thread to drive again")


def test_closing_while_a_user_drives_ends_both() -> None:
    def script(peer: Peer) -> None:
        peer.serve_metadata()
        peer.read()

    with scripted(script) as server, network(server.address, name="to-be-gone") as found:
        know_the_brokers(found)
        gate = closed_gate()
        told: list[object] = []

        def done(answer: object) -> None:
            told.append(answer)
            gate.release()

        request = FindCoordinatorRequest(coordinator_keys=["g"])
        found.post(lambda: found.ask(NODE, request, FindCoordinatorResponse, done))
        with driving(found, gate) as outcome:
            found.close(10)
        assert [type(each) for each in told] == [Closed]
        assert outcome == [True]
        assert "to-be-gone" not in {thread.name for thread in threading.enumerate()}


def test_a_producer_that_is_closed_tells_the_thread_that_drives(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    problems: list[BarnabasError] = []
    producer = Producer(bootstrap_servers=bootstrap, linger_ms=0)
    stop = threading.Event()

    def work() -> None:
        try:
            while not stop.is_set():
                producer.send(topic, b"").result(30)
        except BarnabasError as error:
            problems.append(error)

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    producer.send(topic, b"").result(30)
    producer.close(10)
    for worker in workers:
        worker.join(30)
        assert not worker.is_alive()
    assert len(problems) == 3


def test_waiting_ends_when_its_time_is_up(bootstrap: str) -> None:
    with network(bootstrap) as found:
        begun = time.monotonic()
        assert not found.wait(closed_gate(), 0.05)
        assert not found.wait(closed_gate(), 0)
        assert time.monotonic() - begun < 20
        know_the_brokers(found)


def test_a_network_busy_with_a_callback_goes_on_driving(bootstrap: str) -> None:
    with network(bootstrap) as found:
        begun, may_end = threading.Event(), threading.Event()

        def take_time() -> None:
            begun.set()
            may_end.wait(10)

        found.post(take_time)
        assert begun.wait(10)
        assert not found.wait(closed_gate(), 0.2)
        may_end.set()
        gate = closed_gate()
        found.post(gate.release)
        assert found.wait(gate, 10)


def test_a_user_that_asked_to_drive_in_vain_can_drive_later() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    driver = LoopDriver(interrupted, lambda: False, [])
    driver.take()  # the network's thread, played by this one
    with pytest.raises(KeyboardInterrupt):
        driver.try_to_drive(1.0, lambda: True)
    assert not driver.is_wanted
    driver._lock.release()
    assert driver.try_to_drive(0.0, lambda: True)


def test_callbacks_cannot_wait_in_whichever_thread_they_run(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    problems: list[BarnabasError] = []
    allowed: list[Sent] = []
    """Done before they had a callback: that is called at once, by the user and not by the network, and may wait."""
    adding: set[int] = set()
    with Producer(bootstrap_servers=bootstrap, linger_ms=0) as producer:

        def wait(record: Sent) -> None:
            by_the_user = threading.get_ident() in adding
            try:
                producer.send(topic, b"").result(10)
            except BarnabasError as error:
                problems.append(error)
            else:
                assert by_the_user
                allowed.append(record)

        for number in range(20):
            sent = producer.send(topic, b"")
            adding.add(threading.get_ident())
            sent.add_done_callback(wait)
            adding.clear()
            if number % 2:
                sent.result(10)
            else:
                eventually(sent.done, "the record")
        eventually(lambda: len(problems) + len(allowed) == 20, "every callback")
    assert {str(each) for each in problems} == {
        "A callback runs in the client's own thread and cannot wait there for an answer."
    }


def test_a_callback_that_fails_keeps_no_other_from_being_called(
    bootstrap: str, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda problem: shown.append(problem.exc_type))
    topic = new_topic()

    def fail(_: Sent) -> None:
        raise ZeroDivisionError

    def end(_: Sent) -> None:
        raise SystemExit

    with Producer(bootstrap_servers=bootstrap, linger_ms=60_000) as producer:
        sent = producer.send(topic, b"")
        for callback in (fail, end, fail):
            sent.add_done_callback(callback)
        assert sent.result(10).offset == 0
        assert producer.send(topic, b"").result(10).offset == 1
    assert sorted(map(str, shown)) == sorted(map(str, [ZeroDivisionError, ZeroDivisionError, SystemExit]))


@contextmanager
def handled(number: int, handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    before = signal.signal(number, handler)
    try:
        yield
        assert signal.getsignal(number) is handler
    finally:
        signal.signal(number, before)


def interrupt_when_driving(found: Network, number: int) -> threading.Thread:
    def run() -> None:
        eventually(lambda: driver_of(found) is threading.main_thread(), "the main thread to drive")
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_ctrl_c_ends_the_wait_and_leaves_the_client_working(bootstrap: str) -> None:
    with network(bootstrap) as found, handled(signal.SIGINT, signal.default_int_handler):
        know_the_brokers(found)
        for _ in range(3):
            interrupting = interrupt_when_driving(found, signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):
                found.wait(closed_gate(), 30)
            interrupting.join(10)
            know_the_brokers(found)


def test_ctrl_c_that_another_thread_is_given_ends_the_wait(bootstrap: str) -> None:
    with network(bootstrap) as found, handled(signal.SIGINT, signal.default_int_handler):
        know_the_brokers(found)
        ended = threading.Event()
        was_in_time: list[bool] = []

        def run() -> None:
            eventually(lambda: driver_of(found) is threading.main_thread(), "the main thread to drive")
            eventually(lambda: found._is_asleep, "the main thread to sleep")
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)
            # What ends a sleep otherwise, a look at an idle connection, comes after ten seconds.
            was_in_time.append(ended.wait(8))

        thread = threading.Thread(target=run)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            found.wait(closed_gate(), 30)
        ended.set()
        thread.join(10)
        assert was_in_time == [True]


def test_a_signal_never_interrupts_what_the_network_does(bootstrap: str) -> None:
    with network(bootstrap) as found, handled(signal.SIGTERM, signal.default_int_handler):
        done: list[int] = []

        def step() -> None:
            signal.raise_signal(signal.SIGTERM)
            done.extend(range(1000))

        def run() -> None:
            eventually(lambda: driver_of(found) is threading.main_thread(), "the main thread to drive")
            found.post(step)

        thread = threading.Thread(target=run)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            found.wait(closed_gate(), 30)
        thread.join(10)
        assert len(done) == 1000


def test_a_handler_of_a_signal_may_wait_itself(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with Producer(bootstrap_servers=bootstrap, linger_ms=0) as producer:
        offsets: list[int] = []

        def handle(_number: int, _frame: FrameType | None) -> None:
            offsets.append(producer.send(topic, b"").result(10).offset)
            gate.release()

        gate = closed_gate()
        found = producer._network
        with handled(signal.SIGUSR1, handle):
            interrupting = interrupt_when_driving(found, signal.SIGUSR1)
            assert found.wait(gate, 30)
            interrupting.join(10)
        assert offsets == [0]


def said_in_a_fork(sent: Any, way: str) -> str:
    """What a forked process hears that waits for a record, or a table, of its parent."""

    async def settled() -> None:
        async with asyncio.timeout(5):
            await sent

    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            if way == "result":
                sent.result(5)
            elif way == "await":
                asyncio.run(settled())
            else:
                sent.add_done_callback(print)
        except BarnabasError as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as said:
        return said.read()


@pytest.mark.parametrize("lock", ["free", "held by another thread"])
@pytest.mark.parametrize("way", ["result", "await", "callback"])
def test_a_forked_process_is_told_that_it_cannot_wait(
    bootstrap: str, new_topic: NewTopic, way: str, lock: str
) -> None:
    topic = new_topic()
    is_held, may_go = threading.Event(), threading.Event()

    def hold(producer: Producer) -> None:
        with producer._lock:
            is_held.set()
            may_go.wait(60)

    with Producer(bootstrap_servers=bootstrap, linger_ms=60_000) as producer:
        sent = producer.send(topic, b"before")
        holder = threading.Thread(target=hold, args=(producer,))
        if lock != "free":
            holder.start()
            assert is_held.wait(10)
        assert "made before the process forked" in said_in_a_fork(sent, way)
        may_go.set()
        assert sent.result(10).offset == 0


@pytest.mark.parametrize("way", ["result", "await", "callback"])
def test_a_forked_process_is_told_that_it_cannot_wait_for_a_table(way: str) -> None:
    pa = pytest.importorskip("pyarrow")
    with FaultyProxy() as proxy, behind(proxy), Producer(proxy.address) as producer:
        producer.send(TOPIC, b"before").result(10)
        proxy.stall()
        sent = producer.send_table(TOPIC, pa.table({"value": [b"a", b"b"]}))
        assert "made before the process forked" in said_in_a_fork(sent, way)
        proxy.flow()
        assert sent.result(10).rows == 2
