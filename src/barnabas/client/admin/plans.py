"""Plans of which brokers are to have which partitions: made, read and written. PURE.

Used by `barnabas reassign` and by scripts. Plans are written as Kafka's kafka-reassign-partitions has them:
{"version": 1, "partitions": [{"topic", "partition", "replicas"}]}. Always holds: a plan that is made moves no replica
that may stay, leaves brokers even in replicas and in preferred leaders, and puts replicas of a partition into
different racks where there are enough.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from barnabas.errors import BarnabasError, Code, Refused, counted
from barnabas.types import TopicPartition

Plan = Mapping[TopicPartition, Sequence[int]]
"""The replicas that each partition is to have, the preferred leader first."""

Racks = Mapping[int, str | None]
"""The brokers that partitions may go to, and the rack of each."""


def spread(
    current: Plan, brokers: Racks, replication_factor: int | None = None
) -> dict[TopicPartition, list[int]]:
    """The same partitions on these brokers alone; with another number of replicas where one is given."""
    if not brokers:
        raise BarnabasError("There is no broker to move partitions to.")
    wanted = {tp: replication_factor or len(replicas) for tp, replicas in current.items()}
    most = max(wanted.values(), default=0)
    if most > len(brokers):
        raise Refused(
            Code.INVALID_REPLICATION_FACTOR,
            f"{most} replicas of a partition need as many brokers, and the plan has {counted(len(brokers), 'broker')}.",
        )
    draft = _Draft(brokers)
    for tp in sorted(current):
        draft.keep(tp, [broker for broker in current[tp] if broker in brokers][: wanted[tp]])
    for tp in sorted(current):
        draft.fill(tp, wanted[tp])
    draft.even_out()
    draft.spread_leaders()
    return draft.plan


class _Draft:
    """Mutable: the plan while it is made, and how much each broker has of it."""

    def __init__(self, brokers: Racks) -> None:
        self._racks = brokers
        self._load: Counter[int] = Counter(dict.fromkeys(brokers, 0))
        self.plan: dict[TopicPartition, list[int]] = {}

    def keep(self, tp: TopicPartition, replicas: list[int]) -> None:
        self.plan[tp] = replicas
        self._load.update(replicas)

    def fill(self, tp: TopicPartition, wanted: int) -> None:
        """Give a partition the replicas that it lacks, each to the broker with the least."""
        replicas = self.plan[tp]
        while len(replicas) < wanted:
            free = [broker for broker in self._racks if broker not in replicas]
            chosen = min(
                free, key=lambda broker: (self._crowding(broker, replicas), self._load[broker], broker)
            )
            replicas.append(chosen)
            self._load[chosen] += 1

    def even_out(self) -> None:
        """Move replicas from the brokers with the most to those with the least, until one more makes no difference."""
        while move := self._best_move():
            tp, giver, taker = move
            replicas = self.plan[tp]
            replicas[replicas.index(giver)] = taker
            self._load[giver] -= 1
            self._load[taker] += 1

    def _best_move(self) -> tuple[TopicPartition, int, int] | None:
        takers = sorted(self._load, key=lambda broker: (self._load[broker], broker))
        for giver in reversed(takers):
            for taker in takers:
                if self._load[giver] - self._load[taker] < 2:
                    break
                for tp, replicas in self.plan.items():
                    if giver in replicas and taker not in replicas and self._may_swap(replicas, giver, taker):
                        return tp, giver, taker
        return None

    def _may_swap(self, replicas: Sequence[int], giver: int, taker: int) -> bool:
        """Whether the partition is spread over racks as well with the other broker."""
        others = [broker for broker in replicas if broker != giver]
        return self._crowding(taker, others) <= self._crowding(giver, others)

    def _crowding(self, broker: int, others: Iterable[int]) -> int:
        rack = self._racks[broker]
        return 0 if rack is None else sum(self._racks.get(other) == rack for other in others)

    def spread_leaders(self) -> None:
        """Put first in each partition the broker that is first in the fewest: the order of the others stays."""
        share = len(self.plan) / len(self._racks)
        leads: Counter[int] = Counter(replicas[0] for replicas in self.plan.values() if replicas)
        for replicas in self.plan.values():
            first = replicas[0]
            best = min(replicas, key=lambda broker: leads[broker])
            if leads[first] > share and leads[first] - leads[best] > 1:
                replicas.remove(best)
                replicas.insert(0, best)
                leads[first] -= 1
                leads[best] += 1


def moved(current: Plan, plan: Plan) -> dict[TopicPartition, list[int]]:
    """What of a plan is different from how things are."""
    return {
        tp: list(replicas) for tp, replicas in plan.items() if list(current.get(tp, ())) != list(replicas)
    }


def read_plan(text: str) -> dict[TopicPartition, list[int]]:
    """A plan from Kafka's JSON. What is not one, or has a partition or a broker twice, is told in a sentence."""
    try:
        rows = json.loads(text)["partitions"]
        found = [(TopicPartition(row["topic"], row["partition"]), row["replicas"]) for row in rows]
    except (ValueError, KeyError, TypeError):
        raise BarnabasError(
            'This is no plan: it must be like {"version": 1, "partitions": [{"topic": "orders", "partition": 0, '
            '"replicas": [1, 2]}]}.'
        ) from None
    plan: dict[TopicPartition, list[int]] = {}
    for tp, replicas in found:
        if tp in plan:
            raise BarnabasError(f"The plan names partition {tp} twice.")
        plan[tp] = _checked(tp, replicas)
    if not plan:
        raise BarnabasError("The plan is empty: it moves no partition.")
    return plan


def _checked(tp: TopicPartition, replicas: Any) -> list[int]:
    are_numbers = isinstance(replicas, list) and all(type(each) is int for each in replicas)
    if not isinstance(tp.topic, str) or type(tp.partition) is not int or not are_numbers or not replicas:
        raise BarnabasError(
            f"The plan is wrong for {tp.topic}-{tp.partition}: replicas are numbers of brokers."
        )
    twice = [broker for broker in replicas if replicas.count(broker) > 1]
    if twice:
        raise BarnabasError(f"The plan gives partition {tp} to broker {twice[0]} twice.")
    return list(replicas)


def plan_text(plan: Plan) -> str:
    """A plan as Kafka's JSON, in one line."""
    rows = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "replicas": list(brokers),
            "log_dirs": ["any"] * len(brokers),
        }
        for tp, brokers in sorted(plan.items())
    ]
    return json.dumps({"version": 1, "partitions": rows}, separators=(",", ":"))


def check_brokers(plan: Plan, alive: Iterable[int]) -> None:
    """Refuse a plan that names brokers that there are not."""
    known = set(alive)
    for tp, brokers in plan.items():
        for broker in brokers:
            if broker not in known:
                there = ", ".join(map(str, sorted(known)))
                raise Refused(
                    Code.INVALID_REPLICA_ASSIGNMENT,
                    f"The plan gives partition {tp} to broker {broker}, which is not in the cluster ({there} are).",
                )
