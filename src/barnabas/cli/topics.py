"""`barnabas topic create|list|describe|alter|delete`."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from barnabas.cli.exits import WrongUsage, ends_well
from barnabas.cli.options import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    Configs,
    IfExists,
    InZooKeeper,
    admin_of,
    delete_each,
    pairs,
)
from barnabas.errors import TopicAlreadyExists
from barnabas.setting import INT_MAX

if TYPE_CHECKING:
    from barnabas.client.admin.admin import Admin
    from barnabas.client.admin.health import ClusterView
    from barnabas.client.network.metadata import Partition, Topic
    from barnabas.types import TopicPartition

    Look: TypeAlias = Callable[[ClusterView, TopicPartition, Partition], bool]

app = typer.Typer(
    help="Create, list, describe, change and delete topics.", no_args_is_help=True, rich_markup_mode=None
)

_SHORT_MAX = 2**15 - 1

Name = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]


@app.command()
@ends_well
def create(
    name: Name,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", min=1, max=INT_MAX, help="How many; the broker's num.partitions if not given."
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option("--replication-factor", min=1, max=_SHORT_MAX, help="Replicas of each partition."),
    ] = None,
    config: Configs = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Be content if it exists.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    zookeeper: InZooKeeper = None,
) -> None:
    """Create a topic.

    \b
    barnabas topic create orders --partitions 4
    barnabas topic create users --config cleanup.policy=compact
    """
    with admin_of(bootstrap, zookeeper) as admin:
        try:
            admin.create_topic(
                name,
                partitions=partitions or -1,
                replication_factor=replication_factor or -1,
                configs=pairs(config, "--config"),
            )
        except TopicAlreadyExists:
            if not if_not_exists:
                raise
            return
    typer.echo(f"Created topic {name}.")


@app.command("list")
@ends_well
def list_topics(
    exclude_internal: Annotated[
        bool, typer.Option("--exclude-internal", help="Leave out topics of the broker's own.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    zookeeper: InZooKeeper = None,
) -> None:
    """Print the names of all topics, one a line."""
    with admin_of(bootstrap, zookeeper) as admin:
        for name in admin.list_topics(include_internal=not exclude_internal):
            typer.echo(name)


@app.command()
@ends_well
def describe(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC]...", help="Which topics; all if none is given.")
    ] = None,
    under_replicated: Annotated[
        bool,
        typer.Option(
            "--under-replicated",
            "--under-replicated-partitions",
            help="Only partitions with fewer replicas in sync than they have.",
        ),
    ] = False,
    offline: Annotated[
        bool, typer.Option("--offline", "--unavailable-partitions", help="Only partitions without a leader.")
    ] = False,
    at_min_isr: Annotated[
        bool,
        typer.Option(
            "--at-min-isr",
            "--at-min-isr-partitions",
            help="Only partitions with just min.insync.replicas in sync.",
        ),
    ] = False,
    under_min_isr: Annotated[
        bool,
        typer.Option(
            "--under-min-isr",
            "--under-min-isr-partitions",
            help="Only partitions with fewer than min.insync.replicas in sync.",
        ),
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    zookeeper: InZooKeeper = None,
) -> None:
    """Print partitions, leaders, replicas and the settings that differ from the defaults.

    \b
    barnabas topic describe orders
    barnabas topic describe --under-replicated
    """
    from barnabas.client.admin.health import ClusterView as View

    looks = (
        (under_replicated, View.is_under_replicated),
        (offline, View.is_offline),
        (at_min_isr, View.is_at_min_isr),
        (under_min_isr, View.is_under_min_isr),
    )
    chosen = [look for wanted, look in looks if wanted]
    with admin_of(bootstrap, zookeeper) as admin:
        if chosen:
            _print_chosen(admin, names or [], chosen)
        else:
            _print_all(admin, names or [])


def _print_all(admin: "Admin", names: list[str]) -> None:
    from barnabas.client.admin.configs import ConfigSource, Resource

    for topic in admin.describe_topics(names or None):
        found = admin.describe_configs(Resource.topic(topic.name))
        own = [f"{each.name}={each.value}" for each in found if each.source is ConfigSource.DYNAMIC_TOPIC]
        _print_topic(topic, own)


def _print_chosen(admin: "Admin", names: list[str], looks: "Sequence[Look]") -> None:
    """The partitions for which one of the looks says yes, without their topics' heads, as Kafka prints them."""
    seen = admin.view_of_topics(names or None)
    for tp, partition in seen.partitions():
        if any(look(seen, tp, partition) for look in looks):
            _print_partition(tp.topic, partition)


def _print_topic(topic: "Topic", configs: list[str]) -> None:
    from base64 import urlsafe_b64encode

    replicas = len(topic.partitions[0].replicas) if topic.partitions else 0
    topic_id = urlsafe_b64encode(topic.id.bytes).decode().rstrip("=")
    typer.echo(
        f"Topic: {topic.name}\tTopicId: {topic_id}\tPartitionCount: {len(topic.partitions)}\t"
        f"ReplicationFactor: {replicas}\tConfigs: {','.join(configs)}"
    )
    for each in topic.partitions:
        _print_partition(topic.name, each)


def _print_partition(topic: str, partition: "Partition") -> None:
    leader = str(partition.leader) if partition.leader >= 0 else "none"
    typer.echo(
        f"\tTopic: {topic}\tPartition: {partition.index}\tLeader: {leader}\t"
        f"Replicas: {_numbers(partition.replicas)}\tIsr: {_numbers(partition.isr)}"
    )


def _numbers(brokers: tuple[int, ...]) -> str:
    return ",".join(map(str, brokers))


@app.command()
@ends_well
def alter(
    name: Name,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", min=1, max=INT_MAX, help="Grow to this number; they cannot become fewer."
        ),
    ] = None,
    config: Configs = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option(
            "--delete-config", metavar="NAME", help="Put a setting back to its default; several times."
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    zookeeper: InZooKeeper = None,
) -> None:
    """Add partitions, or change settings.

    \b
    barnabas topic alter orders --partitions 8
    barnabas topic alter orders --config retention.ms=3600000 --delete-config segment.bytes
    """
    from barnabas.client.admin.configs import Resource

    changes: dict[str, str | None] = dict(pairs(config, "--config"))
    changes |= dict.fromkeys(delete_config or [])
    if partitions is None and not changes:
        raise WrongUsage("There is nothing to alter: give --partitions, --config or --delete-config.")
    with admin_of(bootstrap, zookeeper) as admin:
        if changes:
            admin.alter_configs(Resource.topic(name), changes)
        if partitions is not None:
            admin.create_partitions(name, partitions)
    typer.echo(f"Altered topic {name}.")


@app.command()
@ends_well
def delete(
    names: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="What to delete, for good.")],
    if_exists: IfExists = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    zookeeper: InZooKeeper = None,
) -> None:
    """Delete topics and all their records.

    \b
    barnabas topic delete orders
    """
    with admin_of(bootstrap, zookeeper) as admin:
        delete_each("topic", names, admin.delete_topic, if_exists)
