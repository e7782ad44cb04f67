"""What can go wrong for a client, as one family: everything is a `Refused` with a Code and a sentence.

Raised all over `client`; caught by its retries and, at the top, by the command line.
"""

from barnabas.errors import Code, Refused


class Unreachable(Refused):
    """No connection, or it broke before the answer came."""

    def __init__(self, message: str) -> None:
        super().__init__(Code.NETWORK_EXCEPTION, message)


class NoBroker(Unreachable):
    """Not one of the brokers answers."""


class TimedOut(Refused):
    """The answer did not come in time."""

    def __init__(self, message: str) -> None:
        super().__init__(Code.REQUEST_TIMED_OUT, message)


STALE = frozenset(
    {
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.LEADER_NOT_AVAILABLE,
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.BROKER_NOT_AVAILABLE,
        Code.REPLICA_NOT_AVAILABLE,
        Code.NETWORK_EXCEPTION,
        Code.NOT_CONTROLLER,
        Code.KAFKA_STORAGE_ERROR,
        Code.LISTENER_NOT_FOUND,
        Code.FENCED_LEADER_EPOCH,
        Code.UNKNOWN_LEADER_EPOCH,
        Code.UNKNOWN_TOPIC_ID,
        Code.NOT_COORDINATOR,
        Code.COORDINATOR_NOT_AVAILABLE,
    }
)
"""Codes after which fresh metadata, or another look for the coordinator, may lead to the right broker."""

RETRIABLE = STALE | {
    Code.REQUEST_TIMED_OUT,
    Code.CORRUPT_MESSAGE,
    Code.NOT_ENOUGH_REPLICAS,
    Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    Code.COORDINATOR_LOAD_IN_PROGRESS,
    Code.UNSTABLE_OFFSET_COMMIT,
    Code.OFFSET_NOT_AVAILABLE,
    Code.THROTTLING_QUOTA_EXCEEDED,
}
"""Codes after which the same request may succeed."""


def check(code: int, about: str, message: str | None = None) -> None:
    """Raise what a broker said no with; `about` names what it was about, such as "Topic 'orders'"."""
    if code:
        known = Code.of(code)
        text = message or known.advice
        if known is Code.UNKNOWN_SERVER_ERROR and code != known:
            text = message or f"the broker answered with error {code}, which this client does not know."
        raise Refused(known, text if text.startswith(about) else f"{about}: {text}")
