"""Faults of a cluster, each a small object: strike, and later mend.

    with Cluster(brokers=3, links=True) as cluster, faults.kill(faults.leader("orders")).on(cluster):
        ...                                # one broker is dead here
    cluster.wait_until_in_sync()

Owns nothing: what is broken is the cluster's. Used by fault tests of Barnabas and of others. A fault chooses its
brokers when it strikes, so the same fault can strike again and again. `mend` gives back what was taken, and returns
before the cluster has recovered: waiting for that, with a deadline, is the part of the test.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from barnabas.client.admin.admin import Admin
from barnabas.errors import BarnabasError
from barnabas.processes.zookeeper import ZooKeeperProcess
from barnabas.testing.cluster import Cluster
from barnabas.testing.full_disks import FullDisks
from barnabas.testing.wall_clocks import WallClocks

Mend = Callable[[], None]
Chosen = Callable[[Cluster], list[int]]
"""The brokers that a fault strikes."""

_ASK_MS = 10_000
_IN_SYNC_S = 120.0


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that happens to a cluster."""

    name: str
    strike: Callable[[Cluster], Mend]
    """Break it; what is given back mends it."""
    leaves_quorum: bool = True
    """Two of three brokers and their store go on, or soon do: writes succeed while the fault lasts."""

    @contextmanager
    def on(self, cluster: Cluster) -> Iterator[None]:
        """The cluster is broken inside of the `with` block, and mended at its end."""
        mend = self.strike(cluster)
        try:
            yield
        finally:
            mend()


# The brokers to strike


def leader(topic: str, partition: int = 0) -> Chosen:
    return _named("the leader", lambda cluster: [_roles(cluster, topic, partition)[0]])


def follower(topic: str, partition: int = 0) -> Chosen:
    return _named("a follower", lambda cluster: [_roles(cluster, topic, partition)[1]])


def controller() -> Chosen:
    def find(cluster: Cluster) -> list[int]:
        with Admin(cluster.bootstrap, request_timeout_ms=_ASK_MS) as admin:
            return [admin.describe_cluster().controller]

    return _named("the controller", find)


def all_brokers() -> Chosen:
    return _named("all brokers", lambda cluster: sorted(cluster.brokers))


def broker(number: int) -> Chosen:
    return _named(f"broker {number}", lambda cluster: [number])


def _named(name: str, find: Chosen) -> Chosen:
    find.__name__ = name
    return find


def _name(chosen: Chosen) -> str:
    return chosen.__name__


def _roles(cluster: Cluster, topic: str, partition: int) -> list[int]:
    """The leader of a partition, then its followers."""
    with Admin(cluster.bootstrap, request_timeout_ms=_ASK_MS) as admin:
        found = admin.describe_topic(topic).partitions[partition]
    return [found.leader, *(each for each in found.replicas if each != found.leader)]


# Processes


def kill(chosen: Chosen) -> Fault:
    """kill -9; started again at the end."""
    return Fault(
        f"kill -9 of {_name(chosen)}",
        lambda cluster: _end(cluster, chosen, cluster.kill),
        not _is_all(chosen),
    )


def stop(chosen: Chosen) -> Fault:
    """A clean stop; started again at the end."""

    def strike(cluster: Cluster) -> Mend:
        return _end(cluster, chosen, lambda number: _check_exit(number, cluster.stop(number)))

    return Fault(f"clean stop of {_name(chosen)}", strike, not _is_all(chosen))


def pause(chosen: Chosen) -> Fault:
    """SIGSTOP: connections stay, nothing answers."""

    def strike(cluster: Cluster) -> Mend:
        return _each(chosen(cluster), cluster.pause, cluster.resume)

    return Fault(f"pause of {_name(chosen)}", strike, not _is_all(chosen))


def wipe(chosen: Chosen) -> Fault:
    """kill -9, and the data is gone: a new disk in an old machine."""

    def end(cluster: Cluster, number: int) -> None:
        cluster.kill(number)
        shutil.rmtree(cluster.brokers[number].data)

    def strike(cluster: Cluster) -> Mend:
        return _end(cluster, chosen, lambda number: end(cluster, number))

    return Fault(f"wiped disk of {_name(chosen)}", strike)


def rolling_restart() -> Fault:
    """Each broker is stopped cleanly and started again, the next one when all are in sync."""

    def strike(cluster: Cluster) -> Mend:
        for number in sorted(cluster.brokers):
            cluster.restart(number)
            cluster.wait_until_in_sync(_IN_SYNC_S)
        return lambda: None

    return Fault("rolling restart", strike)


def kill_zookeeper() -> Fault:
    """kill -9 of all servers of the store: brokers go on without it."""

    def strike(cluster: Cluster) -> Mend:
        def mend() -> None:
            for each in cluster.zookeepers:
                each.start()
            for each in cluster.zookeepers:
                each.wait_ready()

        for each in cluster.zookeepers:
            each.kill()
        return mend

    return Fault("kill -9 of ZooKeeper", strike)


def kill_zookeepers_leader() -> Fault:
    """kill -9 of the server of an ensemble that leads the others."""

    def strike(cluster: Cluster) -> Mend:
        found = [each for each in cluster.zookeepers if each.mode() == "leader"]
        if not found:
            raise BarnabasError("No server of the ensemble leads: Cluster(zookeepers=3) has one that does.")
        found[0].kill()
        return lambda: _start(found[0])

    return Fault("kill -9 of ZooKeeper's leader", strike)


def _start(zookeeper: ZooKeeperProcess) -> None:
    zookeeper.start().wait_ready()


# Links: these need Cluster(links=True)


def cut_off(chosen: Chosen, *, store: bool = False) -> Fault:
    """Nothing passes between a broker and the others, and clients; nor the store, if asked to.

    A broker that its store still hears keeps what it leads, as in Kafka, and nothing can be written to that.
    """

    def strike(cluster: Cluster) -> Mend:
        return _each_cut(cluster, chosen, lambda number: cluster.links.isolate(number, store=store))

    return Fault(f"{_name(chosen)} is cut off{', from the store too' if store else ''}", strike, store)


def deafen(chosen: Chosen) -> Fault:
    """A broker is heard and hears nothing."""

    def strike(cluster: Cluster) -> Mend:
        return _each_cut(cluster, chosen, cluster.links.deafen)

    return Fault(f"{_name(chosen)} hears nothing", strike, leaves_quorum=False)


def mute(chosen: Chosen) -> Fault:
    """A broker hears and is not heard."""

    def strike(cluster: Cluster) -> Mend:
        return _each_cut(cluster, chosen, cluster.links.mute)

    return Fault(f"{_name(chosen)} is not heard", strike, leaves_quorum=False)


def cut_store(chosen: Chosen) -> Fault:
    """A broker loses its store alone: its session ends, and it goes on with the others."""

    def strike(cluster: Cluster) -> Mend:
        return _each_cut(cluster, chosen, cluster.links.cut_store)

    return Fault(f"{_name(chosen)} is cut off from the store", strike)


def part(topic: str, partition: int = 0) -> Fault:
    """A leader and one of its followers do not reach each other; both reach everything else."""

    def strike(cluster: Cluster) -> Mend:
        first, second, *_ = _roles(cluster, topic, partition)
        cluster.links.part(first, second)
        return cluster.heal

    return Fault("leader and follower are parted", strike)


def look_dead(chosen: Chosen) -> Fault:
    """A broker that lives resets and refuses every connection: the others give it up wrongly."""

    def strike(cluster: Cluster) -> Mend:
        return _each_cut(cluster, chosen, cluster.links.refuse)

    return Fault(f"{_name(chosen)} looks dead", strike)


def slow_down(chosen: Chosen, seconds: float = 0.05) -> Fault:
    """Everything that a broker is told or answers takes longer."""

    def strike(cluster: Cluster) -> Mend:
        return _each_cut(cluster, chosen, lambda number: cluster.links.delay(number, seconds))

    return Fault(f"{_name(chosen)} is slow", strike)


# Disks and clocks


def fill_disk(chosen: Chosen, disks: FullDisks) -> Fault:
    """No file of a broker grows any more: each write that would is refused with ENOSPC.

    What the broker leads is led by others meanwhile, and it does not count, until there is room.
    """

    def strike(cluster: Cluster) -> Mend:
        def put(number: int, change: Callable[[int], None]) -> None:
            process = cluster.brokers[number]
            if process.running:  # a broker that was started anew has room
                change(process.pid)

        return _each(
            chosen(cluster), lambda number: put(number, disks.fill), lambda number: put(number, disks.empty)
        )

    return Fault(f"full disk of {_name(chosen)}", strike)


def jump_clock(chosen: Chosen, clocks: WallClocks, seconds: float) -> Fault:
    """The time of day jumps, forward or back, and at the end back again."""

    def strike(cluster: Cluster) -> Mend:
        def jump(number: int, by: float) -> None:
            process = cluster.brokers[number]
            if process.running:
                clocks.jump(process.pid, by)

        return _each(chosen(cluster), lambda number: jump(number, seconds), lambda number: jump(number, 0))

    return Fault(f"clock of {_name(chosen)} jumps by {seconds:+g} s", strike)


def _each(numbers: list[int], strike: Callable[[int], object], mend: Callable[[int], object]) -> Mend:
    """Strike all of them; what mends them."""

    def mend_all() -> None:
        for number in numbers:
            mend(number)

    for number in numbers:
        strike(number)
    return mend_all


def _end(cluster: Cluster, chosen: Chosen, end: Callable[[int], object]) -> Mend:
    return _each(chosen(cluster), end, cluster.begin)


def _each_cut(cluster: Cluster, chosen: Chosen, cut: Callable[[int], None]) -> Mend:
    _each(chosen(cluster), cut, lambda _: None)
    return cluster.heal


def _is_all(chosen: Chosen) -> bool:
    return _name(chosen) == "all brokers"


def _check_exit(number: int, code: int) -> None:
    if code:
        raise BarnabasError(f"Broker {number} did not stop cleanly: it ended with {code}.")
