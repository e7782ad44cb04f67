"""Where the replicas of new partitions go: leaders and replicas spread evenly over brokers and racks. PURE.

Called by the controller for topics that name no brokers. The chance that lets topics begin at different brokers comes
in as a number. Always holds, with racks of the same size or without any: brokers lead equally many of a topic's
partitions, give or take one, and have equally many replicas, give or take one a round. Where there are as many racks as
replicas, no two replicas share one; with fewer racks, each rack has a replica.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

from barnabas.cluster.image import BrokerImage
from barnabas.types import BrokerId


def spread(
    brokers: Iterable[BrokerImage], partitions: Iterable[int], factor: int, chance: int
) -> Iterator[list[BrokerId]]:
    """The replicas of each partition, the leader first. The partitions of a topic that come later go on evenly, where
    the same brokers are there and `chance` is the same.
    """
    line = alternating(list(brokers))
    count = len(line)
    for partition in partitions:
        first = (partition + chance) % count
        # Every round the followers stand further off: the partitions of a leader are not all with the same broker.
        yield list(_replicas(line, first, factor, partition // count + chance // count))


def _replicas(line: Sequence[BrokerImage], first: int, factor: int, shift: int) -> Iterator[BrokerId]:
    count = len(line)
    racks = {broker.rack for broker in line} if all(broker.rack is not None for broker in line) else set()
    chosen, seen = [first], {line[first].rack}
    yield line[first].id
    for step in range(count - 1):
        if len(chosen) == factor:
            return
        at = (first + 1 + (shift + step) % (count - 1)) % count
        if racks and line[at].rack in seen and len(seen) < len(racks):
            continue
        chosen.append(at)
        seen.add(line[at].rack)
        yield line[at].id
    # Each rack has one by now: the rest goes to brokers that were passed over.
    for at in range(first, first + count):
        if len(chosen) < factor and at % count not in chosen:
            chosen.append(at % count)
            yield line[at % count].id


def alternating(brokers: Sequence[BrokerImage]) -> list[BrokerImage]:
    """Brokers such that neighbours are in different racks, as far as that can be; by number where one has no rack."""
    ordered = sorted(brokers, key=lambda broker: broker.id)
    if any(broker.rack is None for broker in ordered):
        return ordered
    racks: dict[str | None, list[BrokerImage]] = {}
    for broker in ordered:
        racks.setdefault(broker.rack, []).append(broker)
    columns = zip_longest(*(racks[rack] for rack in sorted(racks, key=str)))
    return [broker for column in columns for broker in column if broker is not None]
