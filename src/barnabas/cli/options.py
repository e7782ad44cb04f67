"""Options that many commands share, declared once. Used by every command family."""

from typing import Annotated, TypeAlias

import typer

from barnabas.errors import BarnabasError

Bootstrap: TypeAlias = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "--bootstrap-server",
        envvar="BARNABAS_BOOTSTRAP",
        metavar="HOST:PORT,...",
        help="The broker to talk to.",
    ),
]
DEFAULT_BOOTSTRAP = "localhost:9092"

Configs: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--config", metavar="NAME=VALUE", help="A setting of the topic; can be given several times."
    ),
]


def pairs(settings: list[str] | None, option: str) -> dict[str, str]:
    """NAME=VALUE options as a mapping."""
    found: dict[str, str] = {}
    for setting in settings or []:
        name, equals, value = setting.partition("=")
        if not equals or not name.strip():
            raise BarnabasError(f"{option} takes NAME=VALUE, not {setting!r}.")
        found[name.strip()] = value
    return found
