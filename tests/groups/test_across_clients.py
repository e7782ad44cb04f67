"""Proves that members of different client libraries in one group agree on a protocol, and share the work."""

import pytest
from confluent_kafka.admin import AdminClient

from tests.deadline import eventually
from tests.groups.conftest import NewGroup, NewStream
from tests.groups.group import Kind

PYTHONS = [
    Kind("barnabas", ("sticky", "roundrobin", "range")),
    Kind("confluent", ("range", "roundrobin")),
    Kind("kafka-python", ("sticky", "roundrobin", "range")),
    Kind("aiokafka", ("roundrobin",)),
]


@pytest.mark.parametrize(
    ("kinds", "agreed"),
    [
        pytest.param(PYTHONS, "roundrobin", id="python"),
        pytest.param(
            [*PYTHONS, Kind("java", ("cooperative-sticky", "roundrobin"))],
            "roundrobin",
            id="python-java",
            marks=pytest.mark.java,
        ),
        pytest.param(
            [
                Kind("barnabas", ("cooperative-sticky",)),
                Kind("confluent", ("cooperative-sticky",)),
                Kind("kafka-python", ("cooperative-sticky",)),
                Kind("java", ("cooperative-sticky",)),
                Kind("barnabas", ("cooperative-sticky",)),
            ],
            "cooperative-sticky",
            id="cooperative",
            marks=pytest.mark.java,
        ),
        # Who comes first leads: ours shares out for the others, too.
        pytest.param(
            [
                Kind("barnabas", ("cooperative-sticky",)),
                Kind("confluent", ("cooperative-sticky",)),
                Kind("kafka-python", ("cooperative-sticky",)),
            ],
            "cooperative-sticky",
            id="cooperative-ours",
        ),
        pytest.param(
            [
                Kind("barnabas", ("sticky",)),
                Kind("aiokafka", ("sticky",)),
                Kind("kafka-python", ("sticky",)),
                Kind("java", ("sticky",)),
            ],
            "sticky",
            id="sticky",
            marks=pytest.mark.java,
        ),
        pytest.param(
            [Kind("confluent", ("uniform",), "consumer"), Kind("barnabas", ("uniform",), "consumer")],
            "uniform",
            id="kip-848-python",
        ),
        pytest.param(
            [
                Kind("confluent", ("uniform",), "consumer"),
                Kind("java", ("uniform",), "consumer"),
                Kind("barnabas", ("uniform",), "consumer"),
                Kind("java", ("uniform",), "consumer"),
            ],
            "uniform",
            id="kip-848",
            marks=pytest.mark.java,
        ),
    ],
)
def test_members_of_different_libraries_agree_on_a_protocol(
    kinds: list[Kind], agreed: str, groups_bootstrap: str, new_stream: NewStream, new_group: NewGroup
) -> None:
    stream = new_stream(groups_bootstrap)
    group = new_group(stream)
    for kind in kinds:
        group.join(kind)
        group.wait_until_shared_by(group.members)
        group.wait_for_progress(32)
    admin = AdminClient({"bootstrap.servers": groups_bootstrap})

    def told() -> tuple[str, dict[str, set[int]]]:
        found = admin.describe_consumer_groups([group.name])[group.name].result(60)
        return found.partition_assignor, {
            member.client_id: {place.partition for place in member.assignment.topic_partitions}
            for member in found.members
        }

    def believed() -> tuple[str, dict[str, set[int]]]:
        return agreed, {member.name: set(group.ledger.owned(member.name)) for member in group.members}

    # Once it rests: cooperative members may give a partition up in a second round.
    eventually(lambda: told() == believed(), f"the group to agree on {agreed} and on who owns what", 120)
    group.let_go(group.members[:1])
    group.wait_until_shared_by(group.members[1:])
    ends = stream.end()
    group.wait_until_committed(ends)
    group.let_go(group.members[1:])
    group.ledger.judge(ends)
