"""A store through what happens to a real ZooKeeper and to the way there: in bounded time, and back by itself."""

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from barnabas.cluster.image import BrokerImage, PartitionImage, TopicCreated, TopicImage
from barnabas.cluster.store import ClaimLost, Deposed, Event, OutcomeUnknown, Registered, Stale, Update
from barnabas.cluster.zookeeper import ZooKeeperStore, open_store
from barnabas.config import BrokerConfig, broker_config
from barnabas.errors import BarnabasError
from barnabas.processes import zookeeper as processes
from barnabas.processes.zookeeper import ZooKeeperProcess, free_ports, start_ensemble, start_zookeeper
from barnabas.testing.proxy import Proxy
from barnabas.types import BrokerId
from tests.deadline import eventually

pytestmark = pytest.mark.java

ONE, TWO = BrokerId(1), BrokerId(2)
SESSION_MS = 2000
PATIENT_MS = 30_000
"""A session that does not end because the machine is busy."""
BOUND_S = 30.0
"""Far more than it takes on a quiet machine, far less than for ever."""
Opener = Callable[..., tuple[ZooKeeperStore, list[Event]]]


@pytest.fixture
def open_one(tmp_path: Path) -> Iterator[Opener]:
    opened: list[ZooKeeperStore] = []

    def open_it(connect: str, session_ms: int = SESSION_MS) -> tuple[ZooKeeperStore, list[Event]]:
        lasting = {"zookeeper_session_timeout_ms": str(session_ms)}
        store = open_store(config(connect, tmp_path / str(len(opened)), **lasting))
        events: list[Event] = []
        store.subscribe(events.append)
        opened.append(store)
        return store, events

    yield open_it
    for store in opened:
        store.close()


def config(connect: str, data: Path, **more: str) -> BrokerConfig:
    given = {
        "zookeeper.connect": connect,
        "zookeeper.session.timeout.ms": str(SESSION_MS),
        "zookeeper.connection.timeout.ms": "20000",
        "zookeeper.chroot.create": "true",
        "log.dirs": str(data),
    }
    made, unknown = broker_config(given | {name.replace("_", "."): value for name, value in more.items()})
    assert not unknown
    return made


def controlling(store: ZooKeeperStore, number: BrokerId = ONE) -> ZooKeeperStore:
    store.register(BrokerImage(number, "localhost", 9000 + number))
    assert store.claim(number) is not None
    return store


def create(store: ZooKeeperStore, name: str) -> None:
    made = TopicImage(name, uuid.uuid4(), (PartitionImage((ONE,), (ONE,), ONE),))
    store.commit([TopicCreated(made)], store.image.version)


def creates(store: ZooKeeperStore, name: str) -> bool:
    """Whether a topic is there in the end, whatever became of attempts before."""
    with suppress(OSError, OutcomeUnknown, Stale):
        if name not in store.image.topics:
            create(store, name)
        return True
    return False


def is_deposed(store: ZooKeeperStore) -> bool:
    try:
        with suppress(OSError):
            create(store, "t")
    except Deposed:
        return True
    return False


def port_of(server: ZooKeeperProcess) -> int:
    return int(server.address.rsplit(":", 1)[1])


def has(events: list[Event], kind: type) -> bool:
    return any(isinstance(event, kind) for event in events)


def is_whole(events: list[Event]) -> bool:
    return any(isinstance(event, Update) and event.is_whole for event in events)


def test_a_reset_connection_keeps_session_and_claim(
    zookeeper: ZooKeeperProcess, zookeeper_connect: str, open_one: Opener
) -> None:
    chroot = zookeeper_connect.partition("/")[2]
    with Proxy(port_of(zookeeper)) as proxy:
        store, events = open_one(f"{proxy.address}/{chroot}", PATIENT_MS)
        other, _ = open_one(zookeeper_connect, PATIENT_MS)
        controlling(store)
        epoch = store.image.brokers[ONE].epoch
        events.clear()
        proxy.reset()
        other.register(BrokerImage(TWO, "localhost", 9002))
        eventually(lambda: is_whole(events), "everything to be read again")
        eventually(lambda: TWO in store.image.brokers, "the other broker to be seen")
        assert not has(events, ClaimLost)
        assert store.image.brokers[ONE].epoch == epoch
        eventually(lambda: creates(store, "t"), "a topic to be made")
        store.close()


def test_a_cut_longer_than_the_session_ends_it_and_the_broker_is_back_in_a_new_life(
    zookeeper: ZooKeeperProcess, zookeeper_connect: str, open_one: Opener
) -> None:
    chroot = zookeeper_connect.partition("/")[2]
    with Proxy(port_of(zookeeper)) as proxy:
        store, events = open_one(f"{proxy.address}/{chroot}")
        other, _ = open_one(zookeeper_connect)
        controlling(store)
        other.register(BrokerImage(TWO, "localhost", 9002))
        eventually(lambda: TWO in store.image.brokers, "the other broker to be seen")
        epoch = store.image.brokers[ONE].epoch
        events.clear()
        proxy.cut()
        began = time.monotonic()
        with pytest.raises((OSError, OutcomeUnknown)):
            create(store, "t")
        assert time.monotonic() - began < BOUND_S
        eventually(lambda: other.claim(TWO), "the other broker to become the controller")
        assert set(other.image.brokers) == {TWO}
        eventually(lambda: is_deposed(store), "the claim to count no more")
        proxy.heal()
        eventually(lambda: has(events, Registered), "the broker to register anew")
        assert has(events, ClaimLost)
        eventually(lambda: ONE in other.image.brokers, "the broker to be seen again")
        assert other.image.brokers[ONE].epoch > epoch
        assert store.claim(ONE) is None
        create(other, "t")
        store.close()


def test_a_zookeeper_that_was_killed_and_comes_back_finds_its_brokers_again(
    tmp_path: Path, open_one: Opener
) -> None:
    server = start_zookeeper(tmp_path / "zookeeper")
    try:
        store, events = open_one(server.address)
        controlling(store)
        create(store, "before")
        events.clear()
        server.kill()
        began = time.monotonic()
        with pytest.raises((OSError, OutcomeUnknown)):
            create(store, "during")
        assert time.monotonic() - began < BOUND_S
        server.start().wait_ready()
        eventually(lambda: is_whole(events), "everything to be read again")
        if has(events, ClaimLost):
            eventually(lambda: store.claim(ONE), "the claim to be had again")
        eventually(lambda: creates(store, "after"), "a topic to be made")
        assert {"before", "after"} <= set(store.image.topics)
    finally:
        server.kill()


def test_a_zookeeper_that_stands_still_costs_bounded_time(tmp_path: Path, open_one: Opener) -> None:
    server = start_zookeeper(tmp_path / "zookeeper")
    try:
        store, events = open_one(server.address)
        controlling(store)
        events.clear()
        server.pause()
        began = time.monotonic()
        with pytest.raises((OSError, OutcomeUnknown)):
            create(store, "t")
        assert time.monotonic() - began < BOUND_S
        server.resume()
        eventually(lambda: is_whole(events), "everything to be read again")
    finally:
        server.resume()
        server.kill()


@pytest.mark.slow(seconds=10)
def test_an_ensemble_whose_leader_is_killed_goes_on(tmp_path: Path, open_one: Opener) -> None:
    servers = start_ensemble(tmp_path / "ensemble")
    try:
        connect = ",".join(server.address for server in servers)
        store, _ = open_one(connect + "/kafka")
        controlling(store)
        create(store, "before")
        next(server for server in servers if server.mode() == "leader").kill()

        def is_made() -> bool:
            with suppress(OSError, OutcomeUnknown, Deposed):
                return store.claim(ONE) is not None and creates(store, "after")
            return False

        eventually(is_made, "a topic to be made")
        assert {"before", "after"} <= set(store.image.topics)
    finally:
        for server in servers:
            server.kill()


# Wrong set-ups


def refused(connect: str, data: Path, **more: str) -> str:
    began = time.monotonic()
    with pytest.raises(BarnabasError) as caught:
        open_store(config(connect, data, **{"zookeeper_connection_timeout_ms": "1500"} | more))
    assert time.monotonic() - began < BOUND_S
    return str(caught.value)


def test_a_zookeeper_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    assert refused(address, tmp_path).startswith(
        f"ZooKeeper at {address} does not answer: no session within 1.5 s."
    )


def test_an_address_that_is_none_is_a_sentence(tmp_path: Path) -> None:
    assert "has to be like host1:2181,host2:2181/chroot" in refused("h:x,:", tmp_path)


def test_a_chroot_that_is_missing_is_a_sentence_and_stays_missing(
    zookeeper_connect: str, tmp_path: Path
) -> None:
    for _ in range(2):
        patient = {"zookeeper_connection_timeout_ms": "20000"}
        sentence = refused(zookeeper_connect, tmp_path, zookeeper_chroot_create="false", **patient)
        assert sentence.startswith(f"ZooKeeper at {zookeeper_connect} has no such chroot")


@pytest.mark.slow(seconds=10)
def test_an_ensemble_without_its_majority_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = (*processes._JAVA_OPTIONS, "-Dreadonlymode.enabled=true")
    monkeypatch.setattr(processes, "_JAVA_OPTIONS", options)
    servers = start_ensemble(tmp_path / "ensemble")
    try:
        for server in servers[1:]:
            server.kill()
        eventually(lambda: servers[0].mode() == "read-only", "the last server to be read-only")
        assert "is read-only: most of its servers cannot be reached" in refused(
            servers[0].address, tmp_path / "data"
        )
    finally:
        for server in servers:
            server.kill()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_client_that_fails_in_a_way_that_kazoo_does_not_know_begins_anew(
    zookeeper_connect: str, open_one: Opener
) -> None:
    store, events = open_one(zookeeper_connect)
    controlling(store)
    events.clear()
    connection = store._client._client._connection  # type: ignore[attr-defined]
    healthy = connection._read_socket

    def fails(timeout: float) -> None:
        connection._read_socket = healthy
        raise ValueError("unforeseen")

    connection._read_socket = fails
    with pytest.raises((OSError, OutcomeUnknown)):
        create(store, "t")
    eventually(lambda: has(events, Registered), "the broker to register anew")
    assert has(events, ClaimLost)
    eventually(lambda: store.claim(ONE), "the claim to be had again")
    eventually(lambda: creates(store, "u"), "a topic to be made")
