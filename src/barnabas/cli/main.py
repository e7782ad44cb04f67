"""The entry of the command `barnabas`. Starting a broker takes a short cut past typer, which costs 100 ms.

Always holds: the short cut understands less than typer does and never more; what it does not understand, and
--help, goes to typer, so there is one place (`app`) where every option is documented.
"""

import gc
import sys
from collections.abc import Sequence
from typing import Any

from barnabas.cli.exits import ends_well

_OPTIONS = {
    "up": {"--listen": "listen", "--data": "data"},
    "broker": {"--config": "config"},
}
_COMMON = {"--set": "settings", "--metrics": "metrics", "--log-format": "log_format"}


@ends_well
def run() -> None:
    """What pip installs as `barnabas`."""
    arguments = _start_arguments(sys.argv[1:])
    if arguments is None:
        from barnabas.cli.app import app

        app(prog_name="barnabas")
        return
    # Nothing made during the start is garbage: the collector would look for some a dozen times.
    gc.disable()
    from barnabas.cli import up

    command, options = arguments
    (up.up if command == "up" else up.broker)(**options)


def _start_arguments(argv: Sequence[str]) -> tuple[str, dict[str, Any]] | None:
    """The options of `up` and `broker`; None where typer has to look at them."""
    if not argv or argv[0] not in _OPTIONS:
        return None
    known = _OPTIONS[argv[0]] | _COMMON
    options: dict[str, Any] = {}
    rest = iter(argv[1:])
    for argument in rest:
        name, equals, value = argument.partition("=")
        if name not in known:
            return None
        given = value if equals else next(rest, None)
        if given is None or (not equals and given.startswith("-")):
            return None
        if name == "--set":
            options.setdefault("settings", []).append(given)
        else:
            options[known[name]] = given
    if argv[0] == "broker" and "config" not in options:
        return None
    if options.get("log_format", "text") not in ("text", "json"):
        return None
    return argv[0], options
