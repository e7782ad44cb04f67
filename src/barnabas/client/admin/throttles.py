"""How fast replicas may be copied while partitions move, with Kafka's settings for it.

Used by Admin. Rates are settings of brokers, in bytes a second; the replicas that they count for are settings of
topics: those that a move copies from, and those that it copies to. Both stay until they are lifted.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from barnabas.client.admin.configs import (
    ConfigSource,
    Operation,
    Resource,
    alter_configs,
    describe_configs,
)
from barnabas.client.admin.plans import Plan
from barnabas.client.network.routing import Cluster
from barnabas.errors import Code, Refused
from barnabas.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

_LEADERS, _FOLLOWERS = "leader.replication.throttled", "follower.replication.throttled"
RATES = (f"{_LEADERS}.rate", f"{_FOLLOWERS}.rate")
REPLICAS = (f"{_LEADERS}.replicas", f"{_FOLLOWERS}.replicas")

_SET_BY_HAND = {ConfigSource.DYNAMIC_BROKER, ConfigSource.DYNAMIC_TOPIC}

_GONE = {
    Code.RESOURCE_NOT_FOUND,
    Code.BROKER_NOT_AVAILABLE,
    Code.NETWORK_EXCEPTION,
    Code.REQUEST_TIMED_OUT,
}
"""What is said of a broker that was there a moment ago: it died, and its session has ended or not."""


class Lifted(NamedTuple):
    """What has come of lifting a throttle; true where one was set."""

    was_set: bool
    missed: list[int]
    """The brokers that could not be asked."""

    def __bool__(self) -> bool:
        return self.was_set


class Throttled(NamedTuple):
    """What a plan copies: by topic the replicas that send and those that fetch, and the brokers that have them."""

    topics: dict[str, tuple[list[str], list[str]]]
    brokers: list[int]


def throttled_by(current: Plan, plan: Plan) -> Throttled:
    """The replicas that are busy while partitions go from where they are to where a plan wants them. PURE."""
    topics: dict[str, tuple[list[str], list[str]]] = {}
    brokers: set[int] = set()
    for tp, wanted in sorted(plan.items()):
        sources = current.get(tp, ())
        new = [broker for broker in wanted if broker not in sources]
        if not new:
            continue
        leaders, followers = topics.setdefault(tp.topic, ([], []))
        # Any of them may come to lead meanwhile.
        leaders += [f"{tp.partition}:{broker}" for broker in sorted(sources)]
        followers += [f"{tp.partition}:{broker}" for broker in new]
        brokers.update(sources, new)
    return Throttled(topics, sorted(brokers))


def set_throttle(
    cluster: Cluster, throttled: Throttled, rate: int, alive: Iterable[int], *, timeout: float
) -> None:
    """Hold these replicas to a rate, in place of what was set before; comes back when the brokers know of it.

    Brokers that are gone copy nothing.
    """
    brokers = sorted(set(throttled.brokers) & set(alive))
    topics = {
        Resource.topic(topic): {name: ",".join(side) for name, side in zip(REPLICAS, sides, strict=True)}
        for topic, sides in throttled.topics.items()
    }
    rates = dict.fromkeys(RATES, str(rate))
    for resource, values in [*((Resource.broker(broker), rates) for broker in brokers), *topics.items()]:
        wishes = [(name, Operation.SET, value) for name, value in values.items()]
        alter_configs(cluster, resource, wishes, validate_only=False, timeout=timeout)
    for broker in brokers:
        _until_known(cluster, broker, {Resource.broker(broker): rates, **topics}, timeout)


def _until_known(
    cluster: Cluster, broker: int, wanted: Mapping[Resource, Mapping[str, str]], timeout: float
) -> None:
    """Come back when a broker has these settings: it hears of them from the store, in a moment."""
    request = DescribeConfigsRequest(
        [DescribeConfigsResource(resource.type, resource.name, list(wanted[resource])) for resource in wanted]
    )

    def ask() -> None:
        found = cluster.broker(broker).call(request, DescribeConfigsResponse).results
        known = [{row.name: row.value for row in each.configs} for each in found]
        if known != [dict(values) for values in wanted.values()]:
            raise Refused(Code.REQUEST_TIMED_OUT, f"Broker {broker} has not heard of its throttle.")

    cluster.retry(ask, timeout=timeout)


def rates_of(cluster: Cluster, brokers: Iterable[int], *, timeout: float) -> dict[int, int]:
    """The brokers that have a throttle, and how many bytes a second each lets through; not of brokers that are gone."""
    found: dict[int, int] = {}
    for broker in brokers:
        try:
            rows = describe_configs(
                cluster, Resource.broker(broker), RATES, documentation=False, timeout=timeout
            )
        except Refused as why:
            if why.code not in _GONE:
                raise
            continue
        rates = [int(row.value or 0) for row in rows if row.source in _SET_BY_HAND]
        if rates:
            found[broker] = min(rates)
    return found


def lift_throttle(
    cluster: Cluster, topics: Iterable[str], brokers: Iterable[int], *, timeout: float
) -> Lifted:
    """Hold nothing back any more. A broker that is gone keeps its rate, which counts for no replica then."""
    # Topics first: with no replica to count for, rates hold nothing back, whatever becomes of the brokers meanwhile.
    lifted = [_reset(cluster, Resource.topic(topic), REPLICAS, timeout) for topic in topics]
    missed = []
    for broker in brokers:
        try:
            lifted.append(_reset(cluster, Resource.broker(broker), RATES, timeout))
        except Refused as why:
            if why.code not in _GONE:
                raise
            missed.append(broker)
    return Lifted(any(lifted), missed)


def _reset(cluster: Cluster, resource: Resource, names: Sequence[str], timeout: float) -> bool:
    rows = describe_configs(cluster, resource, names, documentation=False, timeout=timeout)
    # Whatever the broker says that was asked: it may not have heard yet of a throttle that was set just now.
    wishes = [(name, Operation.DELETE, None) for name in names]
    alter_configs(cluster, resource, wishes, validate_only=False, timeout=timeout)
    return any(row.source in _SET_BY_HAND for row in rows)
