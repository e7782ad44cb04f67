"""How a person says when: a date and time, milliseconds since 1970, or how long ago. Used by `consume` and `group`."""

import re
import time
from datetime import datetime

from barnabas.cli.exits import WrongUsage
from barnabas.setting import LONG_MAX

_UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def moment(text: str) -> int:
    """A point in time in milliseconds. None before 1970: Kafka gives negative ones meanings of their own."""
    try:
        at = _milliseconds(text)
    except (ValueError, OverflowError):
        raise WrongUsage(
            f"{text!r} is no time: say 2026-01-31T12:00, milliseconds since 1970, or 10m."
        ) from None
    if not 0 <= at <= LONG_MAX:
        raise WrongUsage(f"{text!r} is before 1970, or too far in the future, for the time of a record.")
    return at


def _milliseconds(text: str) -> int:
    if re.fullmatch(r"\d+", text):
        return int(text)
    ago = re.fullmatch(r"(\d+)([smhd])", text)
    if ago:
        return int(time.time() * 1000) - int(ago[1]) * _UNITS[ago[2]]
    return int(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
