"""What can go wrong for a client, as one family: everything is a `Refused` with a Code and a sentence.

Raised all over `client`; caught by its retries and, at the top, by the command line.
"""

from collections.abc import Sequence

from barnabas.errors import (
    BarnabasError,
    Code,
    LogTruncated,
    NetworkException,
    Refused,
    RequestTimedOut,
    Stale,
)
from barnabas.types import TopicPartition


class Unreachable(NetworkException):
    """No connection, or it broke before the answer came."""


class NoBroker(Unreachable):
    """Not one of the brokers answers."""


class TimedOut(RequestTimedOut):
    """The answer did not come in time."""


class Closed(Unreachable):
    """The client was closed before the answer came."""

    def __init__(self) -> None:
        super().__init__("The client is closed.")


def truncated(
    partition: TopicPartition, offset: int, divergent: int | None, advice: str | None = None
) -> LogTruncated:
    """What a reader is told that has to choose where to go on."""
    if advice is None:
        where = "" if divergent is None else f", to offset {divergent} for what is there now"
        advice = f"auto.offset.reset is none: seek first{where}."
    text = f"Partition {partition}: {rewritten(offset, divergent)}; {advice}"
    return LogTruncated(text, partition, offset, divergent)


def rewritten(offset: int, divergent: int | None) -> str:
    """What has become of records that were read up to before an offset."""
    if divergent is None:
        return (
            f"the log knows nothing of the records that were read before offset {offset}, it was written anew"
        )
    which = (
        f"offset {divergent} was" if offset == divergent + 1 else f"offsets {divergent} to {offset - 1} were"
    )
    return f"the log has lost its tail, and the records that were read at {which} rewritten or are gone"


STALE = frozenset(code for code in Code if code and issubclass(code.kind, Stale))
"""Codes after which fresh metadata, or another look for the coordinator, may lead to the right broker."""

RETRIABLE = frozenset(code for code in Code if code and code.kind.retriable)
"""Codes after which the same request may succeed."""


def may_pass(failure: Refused) -> bool:
    """Whether a caller that can wait should ask again.

    A topic that there is not, brokers that are not there and a client that was closed are told of at once.
    """
    is_plain = failure.code is Code.UNKNOWN_TOPIC_OR_PARTITION or isinstance(failure, (NoBroker, Closed))
    return failure.code in RETRIABLE and not is_plain


def refusal(code: int, about: str, message: str | None = None) -> Refused:
    """What a broker said no with; `about` names what it was about, such as "Topic 'orders'"."""
    known = Code.of(code)
    text = message or known.advice
    if known is Code.UNKNOWN_SERVER_ERROR and code != known:
        text = message or f"the broker answered with error {code}, which this client does not know."
    return Refused(known, text if text.startswith(about) else f"{about}: {text}")


def no_partition(topic: str, number: object, count: int) -> Refused:
    """A partition is named that the topic does not have."""
    text = f"Topic {topic!r} has no partition {number!r}, only {count}."
    return Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, text)


def never_sent(failure: BarnabasError) -> BarnabasError:
    """Why a record is given up that no broker can have."""
    return _with_fate(failure, "The record was never sent.", may_be_stored=False)


def in_doubt(failure: BarnabasError) -> BarnabasError:
    """Why a record is given up that a broker may have."""
    text = "The record may have been stored: it was sent, and no answer says that it was not."
    return _with_fate(failure, text, may_be_stored=True)


def _with_fate(failure: BarnabasError, text: str, *, may_be_stored: bool) -> BarnabasError:
    """The same failure, of the same class and code, with one more sentence."""
    told = failure.__class__.__new__(failure.__class__)
    told.args = (f"{failure} {text}",)
    told.may_be_stored = may_be_stored
    told.__cause__ = failure
    return told


def check(code: int, about: str, message: str | None = None) -> None:
    """Raise what a broker said no with, if it did."""
    if code:
        raise refusal(code, about, message)


def raise_first(failures: Sequence[Refused]) -> None:
    """Of several refusals raise the first that lasts; the others are noted with it."""
    if failures:
        first = min(failures, key=lambda failure: failure.retriable)
        for other in failures:
            if other is not first:
                first.add_note(str(other))
        raise first
