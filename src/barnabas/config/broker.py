"""All that a broker can be told, put together from the parts that read it; how files and flags become settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any

from barnabas.config.cluster import ClusterConfig
from barnabas.config.declaring import declare, declare_int, declared
from barnabas.config.groups import GroupConfig
from barnabas.config.network import NetworkConfig
from barnabas.config.replication import ReplicationConfig
from barnabas.config.storage import StorageConfig
from barnabas.config.topic import TopicConfig, topic_settings
from barnabas.config.transactions import TransactionConfig
from barnabas.setting import ConfigError, Setting


@dataclass(frozen=True, kw_only=True)
class BrokerConfig(
    NetworkConfig, StorageConfig, GroupConfig, TransactionConfig, ClusterConfig, ReplicationConfig
):
    """What a broker can be told. Settings that topics inherit are in `topic_defaults`."""

    broker_id: int = declare_int(1, "The number this broker is known by in its cluster.", least=0)
    num_partitions: int = declare_int(
        1, "How many partitions a topic gets where its creation does not say.", least=1
    )
    default_replication_factor: int = declare_int(
        1, "How many replicas a topic gets where its creation does not say.", least=1
    )
    auto_create_topics_enable: bool = declare(True, "Whether asking for an unknown topic creates it.")
    delete_topic_enable: bool = declare(True, "Whether topics can be deleted.")

    topic_defaults: TopicConfig = field(default_factory=TopicConfig)
    given: Mapping[str, str] = field(default_factory=dict, hash=False)
    """The settings as a person wrote them, for DescribeConfigs."""


@cache
def broker_settings() -> dict[str, Setting]:
    """All settings a broker has, by Kafka's name: its own, and the defaults it hands to topics."""
    found = {s.name: s for s in map(declared, fields(BrokerConfig)) if s.doc}
    for topical in topic_settings().values():
        for name, scale in topical.synonyms:
            # Of several spellings only the coarsest has a default, as in Kafka: log.retention.hours is 168.
            scaled = (
                topical.default // scale
                if isinstance(topical.default, int) and scale > 1
                else topical.default
            )
            found[name] = replace(
                topical,
                name=name,
                default=scaled if name == topical.synonyms[-1][0] else None,
                doc=f"The default of a topic's {topical.name}. {topical.doc}",
                least=-1 if scale > 1 else topical.least,
                synonyms=(),
                dynamic=True,
            )
    return found


def broker_config(*places: Mapping[str, str]) -> tuple[BrokerConfig, list[str]]:
    """A broker's settings, and the names that are not known (to be warned about; Kafka has more than we do).

    Of a setting that is given in several places, as in a file and on the command line, the last one counts.
    """
    known = broker_settings()
    own = {declaration.name for declaration in fields(BrokerConfig)}
    given: dict[str, str] = {}
    for place in places:
        given |= _with_aliases(place)
    values: dict[str, Any] = {}
    unknown = [name for name in given if name not in known]
    for name in given.keys() - set(unknown):
        value = known[name].parse(given[name])
        if name.replace(".", "_") in own:
            values[name.replace(".", "_")] = value
    kept = {name: text for name, text in given.items() if name in known}
    return BrokerConfig(**values, topic_defaults=handed_down(kept), given=kept), unknown


def handed_down(given: Mapping[str, str]) -> TopicConfig:
    """The defaults that a broker's log.* settings make for its topics."""
    known = broker_settings()
    values: dict[str, Any] = {}
    for topical in topic_settings().values():
        # Of several spellings the finest unit wins, as in Kafka: log.retention.ms before .hours.
        for name, scale in topical.synonyms:
            if name in given:
                value = known[name].parse(given[name])
                scaled = value * scale if isinstance(value, int) and scale > 1 and value >= 0 else value
                values[topical.name.replace(".", "_")] = scaled
                break
    return TopicConfig(**values)


KAFKAS_OWN = frozenset(
    {
        "alter.config.policy.class.name",
        "background.threads",
        "control.plane.listener.name",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "early.start.listeners",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
        "log.cleaner.threads",
        "metadata.log.dir",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
        "process.roles",
        "queued.max.requests",
        "share.coordinator.state.topic.min.isr",
        "share.coordinator.state.topic.replication.factor",
    }
)
"""Settings of Kafka's sample files that mean nothing here: one thread serves, and no quorum is kept."""


def _with_aliases(given: Mapping[str, str]) -> dict[str, str]:
    """Kafka's other spellings: log.dir for log.dirs, node.id for broker.id. As in Kafka, ids must agree."""
    ids = {given[name].strip() for name in ("broker.id", "node.id") if name in given}
    if len(ids) > 1:
        raise ConfigError(
            "broker.id and node.id are two names of one setting: give one of them, or both the same value, "
            f"not {' and '.join(sorted(ids))}."
        )
    settled = dict(given)
    for alias, name in (("log.dir", "log.dirs"), ("node.id", "broker.id")):
        if alias in settled:
            settled.setdefault(name, settled.pop(alias))
            settled.pop(alias, None)
    return settled
