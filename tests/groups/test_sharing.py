"""Proves that members share the work: one owner a partition as they come and go, whatever shares it out."""

import pytest

from tests.groups.conftest import NewGroup, NewStream
from tests.groups.group import Kind, marked

KINDS = [
    Kind("barnabas", ("range",)),
    Kind("barnabas", ("roundrobin",)),
    Kind("barnabas", ("sticky",)),
    Kind("barnabas", ("cooperative-sticky",)),
    Kind("barnabas", ("uniform",), "consumer"),
    Kind("barnabas", ("range",), "consumer"),
    Kind("confluent", ("range",)),
    Kind("confluent", ("roundrobin",)),
    Kind("confluent", ("cooperative-sticky",)),
    Kind("confluent", ("uniform",), "consumer"),
    Kind("confluent", ("range",), "consumer"),
    Kind("kafka-python", ("range",)),
    Kind("kafka-python", ("roundrobin",)),
    Kind("kafka-python", ("sticky",)),
    Kind("kafka-python", ("cooperative-sticky",)),
    Kind("aiokafka", ("range",)),
    Kind("aiokafka", ("roundrobin",)),
    Kind("aiokafka", ("sticky",)),
    Kind("java", ("range",)),
    Kind("java", ("roundrobin",)),
    Kind("java", ("sticky",)),
    Kind("java", ("cooperative-sticky",)),
    Kind("java", ("uniform",), "consumer"),
    Kind("java", ("range",), "consumer"),
]


@pytest.mark.parametrize("kind", marked(KINDS))
def test_each_record_goes_to_one_member_while_members_come_and_go(
    kind: Kind, groups_bootstrap: str, new_stream: NewStream, new_group: NewGroup
) -> None:
    stream = new_stream(groups_bootstrap)
    group = new_group(stream)
    first = group.join(kind)
    group.wait_until_shared_by(first)
    late = group.join(kind, kind)
    group.wait_until_shared_by([*first, *late])
    group.wait_for_progress()
    group.let_go(first)
    group.wait_until_shared_by(late)
    ends = stream.end()
    group.wait_until_committed(ends)
    group.let_go(late)
    group.ledger.judge(ends)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    marked(
        [
            Kind("barnabas", ("cooperative-sticky",)),
            Kind("confluent", ("roundrobin",)),
            Kind("confluent", ("uniform",), "consumer"),
            Kind("kafka-python", ("sticky",)),
            Kind("aiokafka", ("range",)),
            Kind("java", ("cooperative-sticky",)),
            Kind("java", ("uniform",), "consumer"),
        ]
    ),
)
def test_a_group_of_one_grows_to_eight_and_shrinks_again(
    kind: Kind, groups_bootstrap: str, new_stream: NewStream, new_group: NewGroup
) -> None:
    stream = new_stream(groups_bootstrap)
    group = new_group(stream)
    for size in (1, 3, 8):
        group.join(*[kind] * (size - len(group.members)))
        group.wait_until_shared_by(group.members)
        group.wait_for_progress(32)
    group.wait_until_balanced(2)
    group.let_go(group.members[:4])
    group.wait_until_shared_by(group.members[4:])
    ends = stream.end()
    group.wait_until_committed(ends)
    group.let_go(group.members[4:])
    group.ledger.judge(ends)


@pytest.mark.parametrize(
    "kind",
    marked(
        [
            Kind("confluent"),
            Kind("confluent", ("uniform",), "consumer"),
            Kind("kafka-python"),
            Kind("aiokafka"),
        ]
    )
    + marked([Kind("java"), Kind("java", ("uniform",), "consumer")]),
)
def test_two_groups_get_all_records_each(
    kind: Kind, groups_bootstrap: str, new_stream: NewStream, new_group: NewGroup
) -> None:
    stream = new_stream(groups_bootstrap)
    groups = [new_group(stream), new_group(stream)]
    for group in groups:
        group.join(kind, kind)
    for group in groups:
        group.wait_until_shared_by(group.members)
        group.wait_for_progress()
    ends = stream.end()
    for group in groups:
        group.wait_until_committed(ends)
        group.let_go(group.members)
        group.ledger.judge(ends)
