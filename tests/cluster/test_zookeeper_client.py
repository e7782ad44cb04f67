"""What the port to ZooKeeper promises, of the real one through kazoo and of the fake one alike."""

from collections.abc import Callable, Iterator

import pytest

from barnabas.cluster.zookeeper.client import (
    Check,
    Create,
    Delete,
    Node,
    Reason,
    RefusedByZooKeeper,
    SessionState,
    SetData,
    ZkOperation,
    ZooKeeperClient,
)
from barnabas.testing.zookeeper import FakeZooKeeper
from tests.deadline import eventually

Opener = Callable[[], tuple[ZooKeeperClient, list[str]]]


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.java)])
def open_client(request: pytest.FixtureRequest) -> Iterator[Opener]:
    """Opens clients of one ZooKeeper; each comes with the list of paths that it is told of."""
    opened: list[ZooKeeperClient] = []
    fake = FakeZooKeeper()
    connect = request.getfixturevalue("zookeeper_connect") if request.param == "real" else ""

    def one() -> ZooKeeperClient:
        if request.param == "fake":
            return fake.open()
        from barnabas.cluster.zookeeper.kazoo_client import KazooZooKeeper

        return KazooZooKeeper(connect, 10_000, 10_000)

    def open_one() -> tuple[ZooKeeperClient, list[str]]:
        client = one()
        told: list[str] = []
        client.start(lambda state: None, told.append)
        client.make_root()
        opened.append(client)
        return client, told

    yield open_one
    for client in opened:
        client.close()


def refused(client: ZooKeeperClient, *operations: ZkOperation) -> tuple[Reason, int]:
    with pytest.raises(RefusedByZooKeeper) as caught:
        client.multi(operations)
    return caught.value.reason, caught.value.index


def node(client: ZooKeeperClient, path: str) -> Node:
    (found,) = client.read([path])
    assert found is not None
    return found


def test_nodes_are_made_changed_and_counted(open_client: Opener) -> None:
    client, _ = open_client()
    assert client.read(["/", "/a", "/b"])[1:] == [None, None]
    assert client.multi([Create("/a", b"one"), Create("/a/b")]) == ["/a", "/a/b"]
    assert client.children("/a") == ["b"]
    assert client.children("/nowhere") is None
    first = node(client, "/a")
    assert (first.data, first.version, first.session) == (b"one", 0, 0)
    client.multi([SetData("/a", b"two", 0)])
    second = node(client, "/a")
    assert (second.data, second.version, second.created) == (b"two", 1, first.created)
    client.multi([Delete("/a/b"), Delete("/a", 1)])
    client.multi([Create("/a")])
    assert node(client, "/a").created > first.created
    assert client.zxid >= node(client, "/a").created


def test_a_multi_is_done_whole_or_not_at_all_and_says_what_was_refused(open_client: Opener) -> None:
    client, told = open_client()
    client.multi([Create("/a"), Create("/v", b"0")])
    client.children("/", watched=True)
    client.read(["/v"], watched=True)
    assert refused(client, Create("/b"), Create("/a")) == (Reason.NODE_EXISTS, 1)
    assert refused(client, SetData("/v", b"1"), Check("/v", 7)) == (Reason.BAD_VERSION, 1)
    assert refused(client, Check("/v", 1), Create("/b")) == (Reason.BAD_VERSION, 0)
    assert refused(client, Delete("/nowhere")) == (Reason.NO_NODE, 0)
    assert refused(client, Create("/nowhere/a")) == (Reason.NO_NODE, 0)
    assert refused(client, Create("/b"), Create("/b/c"), Delete("/b")) == (Reason.NOT_EMPTY, 2)
    assert refused(client, Delete("/v", 3)) == (Reason.BAD_VERSION, 0)
    assert client.children("/") == ["a", "v"]
    assert node(client, "/v").data == b"0"
    client.multi([Check("/v", 0), Create("/b")])
    eventually(lambda: told == ["/"], "the one change that was made")


def test_numbered_nodes_follow_one_another(open_client: Opener) -> None:
    client, _ = open_client()
    client.multi([Create("/n")])
    made = [client.multi([Create("/n/x_", b"", is_sequential=True)])[0] for _ in range(3)]
    client.multi([Delete(made[2])])
    made += client.multi([Create("/n/x_", b"", is_sequential=True)])
    assert made == sorted(set(made))
    assert all(len(path) == len("/n/x_") + 10 for path in made)


def test_a_watch_goes_off_once_for_what_it_looks_at(open_client: Opener) -> None:
    client, told = open_client()
    other, _ = open_client()
    client.multi([Create("/a"), Create("/b")])
    client.read(["/a", "/not-yet"], watched=True)
    client.children("/b", watched=True)
    other.multi([SetData("/a", b"1")])
    eventually(lambda: told == ["/a"], "the change to be told")
    other.multi([SetData("/a", b"2")])
    other.multi([Create("/not-yet")])
    eventually(lambda: told == ["/a", "/not-yet"], "the node to be told")
    other.multi([SetData("/b", b"1")])
    other.multi([Create("/b/c")])
    eventually(lambda: told == ["/a", "/not-yet", "/b"], "the child to be told")
    client.read(["/a"], watched=True)
    other.multi([Delete("/a")])
    eventually(lambda: told[3:] == ["/a"], "the end to be told")


def test_nodes_of_a_session_end_with_it(open_client: Opener) -> None:
    one, told = open_client()
    other, _ = open_client()
    other.multi([Create("/mine", is_ephemeral=True), Create("/kept")])
    assert one.session != other.session
    assert node(one, "/mine").session == other.session
    assert not one.wait_gone("/mine", 0.01)
    one.read(["/mine"], watched=True)
    other.close()
    eventually(lambda: told == ["/mine"], "the end to be told")
    assert one.read(["/mine"]) == [None]
    assert one.wait_gone("/mine", 0)
    assert node(one, "/kept").session == 0


def test_many_nodes_are_read_at_once(open_client: Opener) -> None:
    client, _ = open_client()
    client.multi([Create("/m"), *(Create(f"/m/{index}", b"%d" % index) for index in range(500))])
    paths = [f"/m/{index}" for index in range(4500)]
    found = client.read(paths)
    assert [one.data if one else None for one in found] == [b"%d" % i for i in range(500)] + [None] * 4000
    assert found[7] == node(client, "/m/7")
    assert client.read([]) == []


def test_work_is_done_in_order(open_client: Opener) -> None:
    client, _ = open_client()
    done: list[int] = []
    for number in range(5):
        client.dispatch(lambda number=number: done.append(number))  # type: ignore[misc]
    eventually(lambda: done == [0, 1, 2, 3, 4], "the work to be done")


def test_a_fake_session_that_is_cut_off_hears_nothing_and_reads_anew() -> None:
    fake = FakeZooKeeper()
    one, two = fake.open(), fake.open()
    states: list[SessionState] = []
    told: list[str] = []
    one.start(states.append, told.append)
    two.start(lambda state: None, lambda path: None)
    two.multi([Create("/a")])
    one.multi([Create("/e", is_ephemeral=True)])
    one.read(["/a"], watched=True)
    one.cut()
    two.multi([SetData("/a", b"1")])
    with pytest.raises(OSError, match="no connection"):
        one.read(["/a"])
    one.heal()
    assert (states, told) == ([SessionState.DISCONNECTED, SessionState.CONNECTED], [])
    assert node(one, "/e").session == one.session
    before = one.session
    one.expire()
    assert states[2:] == [SessionState.DISCONNECTED, SessionState.EXPIRED, SessionState.CONNECTED]
    assert one.session != before
    assert one.read(["/e"]) == [None]


def test_a_fake_gives_its_callbacks_to_the_schedule() -> None:
    waiting: list[Callable[[], None]] = []
    fake = FakeZooKeeper(schedule=waiting.append)
    client = fake.open()
    told: list[str] = []
    client.start(lambda state: None, told.append)
    client.read(["/a"], watched=True)
    client.multi([Create("/a")])
    assert told == []
    for work in waiting:
        work()
    assert told == ["/a"]
