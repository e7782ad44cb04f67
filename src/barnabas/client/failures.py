"""What can go wrong for a client, as one family: everything is a `Refused` with a Code and a sentence.

Raised all over `client`; caught by its retries and, at the top, by the command line.
"""

from barnabas.errors import Code, NetworkException, Refused, RequestTimedOut, Stale


class Unreachable(NetworkException):
    """No connection, or it broke before the answer came."""


class NoBroker(Unreachable):
    """Not one of the brokers answers."""


class TimedOut(RequestTimedOut):
    """The answer did not come in time."""


STALE = frozenset(code for code in Code if code and issubclass(code.kind, Stale))
"""Codes after which fresh metadata, or another look for the coordinator, may lead to the right broker."""

RETRIABLE = frozenset(code for code in Code if code and code.kind.retriable)
"""Codes after which the same request may succeed."""


def check(code: int, about: str, message: str | None = None) -> None:
    """Raise what a broker said no with; `about` names what it was about, such as "Topic 'orders'"."""
    if code:
        known = Code.of(code)
        text = message or known.advice
        if known is Code.UNKNOWN_SERVER_ERROR and code != known:
            text = message or f"the broker answered with error {code}, which this client does not know."
        raise Refused(known, text if text.startswith(about) else f"{about}: {text}")
