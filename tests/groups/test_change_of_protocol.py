"""Proves that a group changes from the classic protocol to KIP-848 and back while it works."""

import pytest

from tests.groups.conftest import NewGroup, NewStream
from tests.groups.group import Kind

JAVA = pytest.mark.java


@pytest.mark.parametrize(
    ("classic", "newer"),
    [
        pytest.param(Kind("confluent"), Kind("confluent", ("uniform",), "consumer"), id="confluent-range"),
        pytest.param(
            Kind("confluent", ("cooperative-sticky",)),
            Kind("confluent", ("uniform",), "consumer"),
            id="confluent-cooperative-sticky",
        ),
        pytest.param(
            Kind("kafka-python", ("roundrobin",)),
            Kind("confluent", ("uniform",), "consumer"),
            id="kafka-python-confluent",
        ),
        pytest.param(Kind("aiokafka"), Kind("confluent", ("range",), "consumer"), id="aiokafka-confluent"),
        pytest.param(
            Kind("java", ("cooperative-sticky",)),
            Kind("java", ("uniform",), "consumer"),
            id="java-cooperative-sticky",
            marks=JAVA,
        ),
    ],
)
@pytest.mark.slow
def test_a_group_is_upgraded_and_downgraded_while_it_works(
    classic: Kind, newer: Kind, groups_bootstrap: str, new_stream: NewStream, new_group: NewGroup
) -> None:
    stream = new_stream(groups_bootstrap)
    group = new_group(stream)
    old = group.join(classic, classic)
    group.wait_until_shared_by(old)
    group.wait_for_progress()
    new = group.join(newer, newer)
    group.wait_until_shared_by([*old, *new])
    group.wait_for_progress()
    group.let_go(old)
    group.wait_until_shared_by(new)
    group.wait_for_progress()
    last = group.join(classic)
    group.wait_until_shared_by([*new, *last])
    group.let_go(new)
    group.wait_until_shared_by(last)
    ends = stream.end()
    group.wait_until_committed(ends)
    group.let_go(last)
    group.ledger.judge(ends)
