"""Consumer groups: how fast offsets are committed, how long a rebalance takes, what a thousand groups weigh."""

from __future__ import annotations

import itertools
import socket
import statistics
import time
from collections.abc import Sequence

from bench import group_wire, librdkafka, loadgen, wire
from bench.measure import Case, Measured, Metric, SideState, Size, Wanted
from bench.members import MemberFailedError, make_room, members_of
from bench.processes import Usage, machine_busy_s
from bench.server import Server

NAME = "groups"
TITLE = "Consumer groups"
FRESH = False
ABOUT = (
    "Commits: OffsetCommit v9 of one offset, encoded beforehand, without a generation, a group a "
    "connection, one in flight on each. Rebalance: raw classic members that answer at once; those that stay "
    "send a heartbeat every 5 ms, evenly spread, so up to 5 ms of it are theirs; from the LeaveGroup request "
    "to the last SyncGroup answer, the median of many, and the same from the last heartbeat that told of it. "
    "Memory: a fresh broker, every member with a connection and an offset of its own; growth is from just "
    "before the first group. group.initial.rebalance.delay.ms=0 on both sides."
)
METRICS = (
    Metric("per_s", "commits", "/s", more_is_better=True),
    Metric("p50_us", "commit p50", "us"),
    Metric("p99_us", "commit p99", "us"),
    Metric("cpu_us", "broker CPU a commit", "us"),
    Metric("rebalance_ms", "rebalance, one leaves", "ms"),
    Metric("after_notice_ms", "rebalance, from the last notice", "ms"),
    Metric("rebalance_cpu_ms", "broker CPU of a leave and a return", "ms"),
    Metric("growth_mb", "memory growth", "MB"),
    Metric("rss_mb", "broker memory", "MB"),
)
HEARTBEAT_S = 0.005
FORMING_HEARTBEAT_S = 0.05
LIMIT_S = 60.0
MEMBERS_A_GROUP, GROUPS_AT_ONCE = 3, 250
FIRST_REBALANCES_UNREAD = 3
SETTLE_S = 1.0
_numbers = itertools.count(1)


def rounds(size: Size) -> int:
    return 2 if size is Size.QUICK else 3


def cases(size: Size) -> Sequence[Case]:
    quick = size is Size.QUICK
    seconds, groups = (1.5, 250) if quick else (3.0, 1000)
    commits = [
        Case(f"{n} client{'s' if n > 1 else ''}", seconds + 1.2, {"clients": n, "seconds": seconds})
        for n in (1, 16)
    ]
    rebalances = [
        Case(f"{n} members", 0.7 + times * 0.004 * n**0.5, {"members": n, "times": times})
        for n, times in ((3, 10 if quick else 40), (50, 5 if quick else 15))
    ]
    memory = Case(f"{groups:,} groups of 3", 6.0 + groups * 0.008, {"groups": groups})
    return (*commits, *rebalances, memory)


def run(side: SideState, case: Case) -> Measured:
    if "clients" in case.settings:
        return _commits(side.server, case.settings["clients"], case.settings["seconds"])
    if "members" in case.settings:
        return _rebalances(side.server, case.settings["members"], case.settings["times"])
    make_room(case.settings["groups"] * MEMBERS_A_GROUP)
    server = side.fresh()
    try:
        return _memory(server, case.settings["groups"])
    finally:
        server.stop()


def _commits(server: Server, clients: int, seconds: float) -> Measured:
    groups = _groups("commits", clients)
    _until_coordinated(server, groups[0])
    with librdkafka.topic(server, "commits", 1) as topic:
        frames = [group_wire.commit(group, topic, 0, 1_000_000) for group in groups]
        load = loadgen.Load(frames, group_wire.commit_error_offset(topic), clients, seconds=seconds)
        answered = loadgen.run(server, load)
    return Measured(
        {
            "per_s": answered.requests / answered.seconds,
            "p50_us": answered.p50_ns / 1e3,
            "p99_us": answered.p99_ns / 1e3,
            "cpu_us": answered.broker.cpu_s / answered.requests * 1e6,
        },
        {"per_s": answered.usage.limit},
        answered.usage.others,
    )


def _rebalances(server: Server, size: int, times: int) -> Measured:
    groups = _groups("rebalances", 1)
    _until_coordinated(server, groups[0])
    with librdkafka.topic(server, "rebalances", size) as topic, members_of(server, LIMIT_S) as loop:
        # Whoever joined first leads: the last one leaves, so that the leader stays.
        *others, leaver = loop.form(groups, topic, size, FORMING_HEARTBEAT_S)
        for _ in range(FIRST_REBALANCES_UNREAD):
            loop.leave(leaver, others, HEARTBEAT_S)
            loop.come_back(leaver, others, HEARTBEAT_S)
        before, busy_before = server.cost(), machine_busy_s()
        begun, process_s, thread_s = time.monotonic(), time.process_time(), time.thread_time()
        read = []
        for _ in range(times):
            read.append(loop.leave(leaver, others, HEARTBEAT_S))
            loop.come_back(leaver, others, HEARTBEAT_S)
        usage = Usage(
            time.monotonic() - begun,
            time.process_time() - process_s,
            time.thread_time() - thread_s,
            server.cost().since(before),
            machine_busy_s() - busy_before,
        )
    return Measured(
        {
            "rebalance_ms": statistics.median(one.seconds for one in read) * 1e3,
            "after_notice_ms": statistics.median(one.after_notice_s for one in read) * 1e3,
            "rebalance_cpu_ms": usage.broker.cpu_s / times * 1e3,
        },
        {"rebalance_ms": usage.limit},
        usage.others,
    )


def _memory(server: Server, count: int) -> Measured:
    groups = _groups("memory", count)
    _until_coordinated(server, groups[0])
    with (
        librdkafka.topic(server, "memory-groups", MEMBERS_A_GROUP) as topic,
        members_of(server, LIMIT_S) as loop,
    ):
        before = server.cost().rss_bytes
        for at in range(0, count, GROUPS_AT_ONCE):
            some = groups[at : at + GROUPS_AT_ONCE]
            members = loop.form(some, topic, MEMBERS_A_GROUP, FORMING_HEARTBEAT_S)
            loop.commit(members, MEMBERS_A_GROUP, 1_000_000)
        time.sleep(SETTLE_S)
        after = server.cost().rss_bytes
    return Measured({"growth_mb": (after - before) / 1e6, "rss_mb": after / 1e6})


def _groups(what: str, count: int) -> list[str]:
    """Names that no measurement has used before: a group that is new has nothing to replay or to replace."""
    number = next(_numbers)
    return [f"bench-{what}-{number}-{place}" for place in range(count)]


def _until_coordinated(server: Server, group: str) -> None:
    """Makes the broker create the topic of the offsets, which is not what is measured."""
    deadline = time.monotonic() + LIMIT_S
    with socket.create_connection((server.host, server.port), timeout=LIMIT_S) as sock:
        while not group_wire.found(wire.ask(sock, group_wire.find_coordinator(group))):
            if time.monotonic() > deadline:
                raise MemberFailedError(f"{server.name} names no coordinator for {group}")
            time.sleep(0.02)


def wanted(metric: str, case: Case, limits: Sequence[str]) -> Wanted | None:
    """Nothing that is asked of groups may be worse than Kafka's; what only explains it is not asked."""
    if metric == "per_s":
        return Wanted(1.0, at_least=True)
    asked = ("p99_us", "cpu_us", "rebalance_ms", "growth_mb", "rss_mb")
    return Wanted(1.0, at_least=False) if metric in asked else None
