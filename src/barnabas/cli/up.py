"""`barnabas up` and `barnabas broker`: one broker in this process, until Ctrl-C.

The imports that cost time are inside the functions: a broker is to be up in a blink.
"""

import logging
import os
from collections.abc import Sequence

from barnabas.cli.exits import WrongUsage
from barnabas.config import KAFKAS_OWN, broker_config, broker_settings
from barnabas.errors import BarnabasError

log = logging.getLogger("barnabas.broker")


def up(
    listen: str = "127.0.0.1:9092",
    data: str = "data",
    settings: Sequence[str] = (),
    metrics: str = "",
    log_format: str = "text",
) -> None:
    """Start one broker that keeps its data in a folder."""
    if "," in data:
        raise WrongUsage(
            f"--data takes one folder, without a comma: say --set log.dirs={data!r} for several."
        )
    if os.path.exists(os.path.join(data, "broker-1.properties")):
        raise WrongUsage(f"{data} has the data of a cluster: say with --brokers how many brokers it has.")
    given = {"listeners": _as_listener(listen), "log.dirs": data}
    _run(given, broker_pairs(settings), metrics, log_format)


def broker(config: str, settings: Sequence[str] = (), metrics: str = "", log_format: str = "text") -> None:
    """Start one broker from a server.properties file as Kafka has them."""
    from barnabas.properties import read_properties

    try:
        with open(config, encoding="utf-8") as file:
            given = read_properties(file.read())
    except OSError as error:
        raise BarnabasError(f"Cannot read {config}: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise BarnabasError(f"Cannot read {config}: it is not UTF-8 text.") from None
    _run(given, broker_pairs(settings), metrics, log_format)


def _run(given: dict[str, str], over: dict[str, str], metrics: str, log_format: str) -> None:
    from barnabas.broker.run import run
    from barnabas.cli.logs import log_to_stderr

    log_to_stderr(log_format)
    config, unknown = broker_config(given, over, {"metrics.listen": metrics} if metrics else {})
    for name in unknown:
        if name in KAFKAS_OWN:
            log.info("%s is not used here", name)
        else:
            log.warning("there is no setting %s: it is left out%s", name, _nearest(name))
    run(config, lambda running: print(f"ready on {running.address}", flush=True))  # noqa: T201


def _as_listener(listen: str) -> str:
    return listen if "://" in listen else f"PLAINTEXT://{listen}"


def broker_pairs(settings: Sequence[str]) -> dict[str, str]:
    found = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise WrongUsage(f"--set takes NAME=VALUE, not {setting!r}.")
        found[name.strip()] = value.strip()
    return found


def _nearest(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, broker_settings(), n=1)
    return f" (is {near[0]} meant?)" if near else ""
