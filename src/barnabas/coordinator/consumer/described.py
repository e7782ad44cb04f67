"""A KIP-848 group as ConsumerGroupDescribe shows it. Called by `group`."""

from collections.abc import Mapping
from uuid import UUID

from barnabas.config import BrokerConfig
from barnabas.coordinator.consumer.assignors import Target
from barnabas.coordinator.consumer.member import Held
from barnabas.coordinator.consumer.state import ConsumerGroupState
from barnabas.coordinator.consumer.targets import preferred_assignor
from barnabas.coordinator.group import Topics
from barnabas.wire.messages.consumer_groups import (
    ConsumerGroupMember,
    DescribedAssignment,
    DescribedConsumerGroup,
    DescribedTopicPartitions,
)


def described(state: ConsumerGroupState, config: BrokerConfig, topics: Topics) -> DescribedConsumerGroup:
    """The group, its members, and what each of them has and should have, by the names that topics have now."""
    names = {facts.id: name for name, facts in topics.items()}
    return DescribedConsumerGroup(
        group_id=state.id,
        group_state=state.phase,
        group_epoch=state.epoch,
        assignment_epoch=state.target_epoch,
        assignor_name=preferred_assignor(state.members.values(), config),
        members=[
            ConsumerGroupMember(
                member_id=member.id,
                instance_id=member.instance_id,
                rack_id=member.rack_id,
                member_epoch=member.epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=list(member.topics),
                subscribed_topic_regex=member.regex,
                assignment=_named(member.assigned, names),
                target_assignment=_named(state.targets.get(member.id, {}), names),
                member_type=1 if member.classic is None else 0,
            )
            for member in state.members.values()
        ],
    )


def _named(held: Held | Target, names: Mapping[UUID, str]) -> DescribedAssignment:
    return DescribedAssignment(
        [
            DescribedTopicPartitions(topic, names[topic], sorted(partitions))
            for topic, partitions in held.items()
            if topic in names
        ]
    )
