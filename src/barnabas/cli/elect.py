"""`barnabas elect`: other leaders for partitions, now."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.exits import WrongUsage, ends_well, try_each
from barnabas.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, InZooKeeper, admin_of
from barnabas.errors import Code, Refused, counted
from barnabas.types import TopicPartition

if TYPE_CHECKING:
    from barnabas.client.admin.admin import Admin


@ends_well
def elect(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TOPIC[:PARTITION]]...", help="Which partitions; all if none is given."),
    ] = None,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean", help="Let any live replica lead where none in sync is left: records may be lost."
        ),
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    zookeeper: InZooKeeper = None,
) -> None:
    """Let each partition be led by its preferred replica, the first of its replicas, where that is in sync.

    \b
    barnabas elect
    barnabas elect orders orders-eu:3
    barnabas elect --unclean orders:0
    """
    from barnabas.client.admin.placement import ElectionType

    if unclean and not names:
        raise WrongUsage("--unclean may lose records: name the partitions, TOPIC or TOPIC:PARTITION.")
    kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
    with admin_of(bootstrap, zookeeper) as admin:
        wanted = None if not names else list(_partitions(admin, names))
        outcomes = admin.elect_leaders(wanted, kind=kind)
    elected = [tp for tp, failure in outcomes.items() if failure is None]
    for tp in sorted(elected):
        typer.echo(f"Partition {tp} has its leader by election now.")
    failures = [each for _, each in sorted(outcomes.items()) if each is not None]
    content = [each for each in failures if each.code is Code.ELECTION_NOT_NEEDED]
    if content:
        typer.echo(f"{counted(len(content), 'partition')} needed none.")
    elif not outcomes:
        typer.echo("No partition needs an election.")
    try_each([each for each in failures if each not in content], _raise)


def _raise(failure: Refused) -> None:
    raise failure


def _partitions(admin: "Admin", names: Iterable[str]) -> Iterable[TopicPartition]:
    for name in names:
        topic, colon, number = name.partition(":")
        if colon and not number.isdigit():
            raise WrongUsage(f"A partition is named TOPIC:NUMBER, not {name!r}.")
        if colon:
            yield TopicPartition(topic, int(number))
        else:
            for each in admin.describe_topic(topic).partitions:
                yield TopicPartition(topic, each.index)
