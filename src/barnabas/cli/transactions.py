"""`barnabas transaction list|describe|abort|find-hanging`."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.exits import WrongUsage, ends_well
from barnabas.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, InZooKeeper, admin_of, print_table
from barnabas.types import TopicPartition

if TYPE_CHECKING:
    from barnabas.client.admin.admin import Admin
    from barnabas.client.admin.transactions import TransactionDescription

app = typer.Typer(
    help="List, describe and abort transactions, and find those that no coordinator ends.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_NOTHING = "-"


@app.command("list")
@ends_well
def list_transactions(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Only those in this state, as Ongoing; several times."),
    ] = None,
    running_longer_than_ms: Annotated[
        int, typer.Option(metavar="MS", help="Only transactions that have been open for longer than this.")
    ] = -1,
    pattern: Annotated[
        str | None, typer.Option(metavar="REGEX", help="Only ids that match this expression as a whole.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    zookeeper: InZooKeeper = None,
) -> None:
    """Print all transactional ids with their coordinators, producers and states.

    \b
    barnabas transaction list --state Ongoing --running-longer-than-ms 60000
    """
    with admin_of(bootstrap, zookeeper) as admin:
        found = admin.list_transactions(
            states=state or (), longer_than_ms=running_longer_than_ms, pattern=pattern
        )
    rows = [(each.id, str(each.coordinator), str(each.producer_id), each.state) for each in found]
    print_table([("TRANSACTIONAL-ID", "COORDINATOR", "PRODUCER-ID", "STATE"), *rows])


@app.command()
@ends_well
def describe(
    names: Annotated[list[str], typer.Argument(metavar="TRANSACTIONAL-ID...", help="Which ids.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    zookeeper: InZooKeeper = None,
) -> None:
    """Print what its coordinator knows of a transactional id.

    \b
    barnabas transaction describe payments-1
    """
    with admin_of(bootstrap, zookeeper) as admin:
        for name in names:
            _print(admin.describe_transaction(name))


def _print(found: "TransactionDescription") -> None:
    started = _NOTHING
    if found.started is not None:
        started = datetime.fromtimestamp(found.started / 1000, UTC).isoformat(timespec="milliseconds")
    typer.echo(
        f"TransactionalId: {found.id}\tState: {found.state}\tProducerId: {found.producer_id}\t"
        f"ProducerEpoch: {found.epoch}\tTimeoutMs: {found.timeout_ms}\tStarted: {started}\t"
        f"Coordinator: {found.coordinator}\tPartitions: {' '.join(map(str, found.partitions)) or _NOTHING}"
    )


@app.command()
@ends_well
def abort(
    name: Annotated[
        str | None, typer.Argument(metavar="[TRANSACTIONAL-ID]", help="Whose open transaction ends.")
    ] = None,
    partition: Annotated[
        str | None,
        typer.Option(metavar="TOPIC:PARTITION", help="Where a transaction hangs: see find-hanging."),
    ] = None,
    start_offset: Annotated[
        int | None, typer.Option(metavar="OFFSET", help="The first offset of the one that hangs.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    zookeeper: InZooKeeper = None,
) -> None:
    """Abort the open transaction of an id, and fence its producer; or end one that hangs, in its partition only.

    \b
    barnabas transaction abort payments-1
    barnabas transaction abort --partition orders:3 --start-offset 1200
    """
    if (name is None) == (partition is None) or (partition is None) != (start_offset is None):
        raise WrongUsage("Give a transactional id, or --partition and --start-offset.")
    with admin_of(bootstrap, zookeeper) as admin:
        if name is not None:
            admin.fence_producer(name)
            typer.echo(f"Producers of {name} are fenced, and a transaction that was open is aborted.")
        elif partition is not None and start_offset is not None:
            tp = _partition(partition)
            admin.abort_hanging_transaction(tp, start_offset)
            typer.echo(f"The transaction from offset {start_offset} of {tp} on is aborted.")


def _partition(text: str) -> TopicPartition:
    topic, _, number = text.rpartition(":")
    if not topic or not number.isdecimal():
        raise WrongUsage(f"{text!r} is no TOPIC:PARTITION.")
    return TopicPartition(topic, int(number))


@app.command("find-hanging")
@ends_well
def find_hanging(
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC]...", help="Where; in all topics if none is given.")
    ] = None,
    open_for_ms: Annotated[
        int,
        typer.Option(
            metavar="MS", help="Look at those that wrote nothing for this long; transaction.max.timeout.ms."
        ),
    ] = 900_000,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    zookeeper: InZooKeeper = None,
) -> None:
    """Print transactions that are open in a partition, and that no coordinator is going to end.

    \b
    barnabas transaction find-hanging orders
    """
    with admin_of(bootstrap, zookeeper) as admin:
        found = admin.find_hanging_transactions(_partitions(admin, topics), open_for_ms=open_for_ms)
    if not found:
        typer.echo("No transaction hangs.")
        return
    rows = [("TOPIC", "PARTITION", "START-OFFSET", "PRODUCER-ID", "PRODUCER-EPOCH", "TRANSACTIONAL-ID")]
    for each in found:
        producer = each.producer
        rows.append(
            (
                each.partition.topic,
                str(each.partition.partition),
                str(producer.transaction_start),
                str(producer.id),
                str(producer.epoch),
                each.transactional_id or _NOTHING,
            )
        )
    print_table(rows)


def _partitions(admin: "Admin", topics: list[str] | None) -> list[TopicPartition]:
    described = admin.describe_topics(topics or None)
    return [
        TopicPartition(topic.name, index) for topic in described for index in range(len(topic.partitions))
    ]
