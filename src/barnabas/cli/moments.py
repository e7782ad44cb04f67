"""How a person says when: a date and time, milliseconds since 1970, or how long ago. Used by `consume` and `group`."""

import re
import time
from datetime import datetime

from barnabas.cli.exits import WrongUsage

_UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def moment(text: str) -> int:
    """A point in time in milliseconds."""
    if re.fullmatch(r"\d+", text):
        return int(text)
    ago = re.fullmatch(r"(\d+)([smhd])", text)
    if ago:
        return int(time.time() * 1000) - int(ago[1]) * _UNITS[ago[2]]
    try:
        return int(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except ValueError:
        raise WrongUsage(
            f"{text!r} is no time: say 2026-01-31T12:00, milliseconds since 1970, or 10m."
        ) from None
