"""How the broker's events look on stderr: one readable line each, or one JSON object each."""

import json
import logging
import time


class LineFormatter(logging.Formatter):
    """`2026-01-31 12:00:00.123 INFO  topics  created topic orders`."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        area = record.name.removeprefix("barnabas.")
        line = f"{moment}.{int(record.msecs):03d} {record.levelname:<7} {area:<12} {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class Json(logging.Formatter):
    """The same event for machines."""

    def format(self, record: logging.LogRecord) -> str:
        event = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname,
            "area": record.name.removeprefix("barnabas."),
            "event": record.getMessage(),
        }
        if record.exc_info:
            event["trace"] = self.formatException(record.exc_info)
        return json.dumps(event)


def log_to_stderr(style: str) -> None:
    """Send the events of all of Barnabas to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(Json() if style == "json" else LineFormatter())
    root = logging.getLogger("barnabas")
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
