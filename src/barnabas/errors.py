"""Kafka's error codes with our words for them, and the exceptions that carry them: a class a code.

`Refused` is how any layer below the router says no: the router, and only it, turns it into a response. A client
raises the same: `except errors.MessageTooLarge` catches one code, `except errors.Retriable` all that may pass.
Always holds: `Refused(code)` is of the code's own class, whose name is the code's in CamelCase. The classes live in
`error_classes` and are made when the first is needed: 3 ms that the start of a broker does not pay.
"""

from enum import IntEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from barnabas.error_classes import *  # noqa: F403


class Code(IntEnum):
    """The error codes of the wire protocol, with a sentence for a person."""

    advice: str
    _kind: "type[Refused]"

    def __new__(cls, value: int, advice: str = "") -> "Code":
        code = int.__new__(cls, value)
        code._value_ = value
        code.advice = advice
        return code

    @property
    def kind(self) -> "type[Refused]":
        """The class of the exceptions with this code."""
        try:
            return self._kind
        except AttributeError:
            import_module("barnabas.error_classes")
            return self._kind

    UNKNOWN_SERVER_ERROR = -1, "Something unforeseen went wrong in the broker; its log has the details."
    NONE = 0, ""
    OFFSET_OUT_OF_RANGE = 1, "The offset is not in the log: it was deleted by retention, or not written yet."
    CORRUPT_MESSAGE = 2, "A record batch failed its checksum or is malformed."
    UNKNOWN_TOPIC_OR_PARTITION = 3, "This topic or partition does not exist here."
    INVALID_FETCH_SIZE = 4, "The fetch size is invalid."
    LEADER_NOT_AVAILABLE = 5, "The partition has no leader at the moment; try again."
    NOT_LEADER_OR_FOLLOWER = 6, "This broker does not lead the partition; ask for fresh metadata."
    REQUEST_TIMED_OUT = 7, "The request was not completed in the time it allowed."
    BROKER_NOT_AVAILABLE = 8, "The broker is not available."
    REPLICA_NOT_AVAILABLE = 9, "The replica is not available on this broker."
    MESSAGE_TOO_LARGE = 10, "A record batch is larger than max.message.bytes allows."
    STALE_CONTROLLER_EPOCH = 11, "The controller that sent this has been replaced."
    OFFSET_METADATA_TOO_LARGE = 12, "An offset commit's metadata is larger than offset.metadata.max.bytes."
    NETWORK_EXCEPTION = 13, "The connection was lost before the answer came."
    COORDINATOR_LOAD_IN_PROGRESS = 14, "The coordinator is still loading; try again."
    COORDINATOR_NOT_AVAILABLE = 15, "There is no coordinator for this group or transaction now; try again."
    NOT_COORDINATOR = 16, "This broker is not the coordinator; look it up again."
    INVALID_TOPIC_EXCEPTION = 17, "The topic name is invalid, or the topic is internal."
    RECORD_LIST_TOO_LARGE = 18, "The request has more record data than a segment can take."
    NOT_ENOUGH_REPLICAS = 19, "Fewer replicas are in sync than min.insync.replicas asks for."
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, "The records are written, but on too few replicas."
    INVALID_REQUIRED_ACKS = 21, "The acks are invalid: they must be 0, 1 or -1 (all)."
    ILLEGAL_GENERATION = 22, "The group has moved on to another generation; join again."
    INCONSISTENT_GROUP_PROTOCOL = 23, "The member and its group have no protocol in common."
    INVALID_GROUP_ID = 24, "The group id is invalid."
    UNKNOWN_MEMBER_ID = 25, "The group does not know this member; join again."
    INVALID_SESSION_TIMEOUT = (
        26,
        "The session timeout is invalid: group.min/max.session.timeout.ms do not allow it.",
    )
    REBALANCE_IN_PROGRESS = 27, "The group is rebalancing; join again."
    INVALID_COMMIT_OFFSET_SIZE = 28, "The offset commit is invalid: it is too large to be stored."
    TOPIC_AUTHORIZATION_FAILED = 29, "Not allowed to do this with the topic."
    GROUP_AUTHORIZATION_FAILED = 30, "Not allowed to do this with the group."
    CLUSTER_AUTHORIZATION_FAILED = 31, "Not allowed to do this with the cluster."
    INVALID_TIMESTAMP = 32, "A record's timestamp is invalid: the topic does not accept it."
    UNSUPPORTED_SASL_MECHANISM = 33, "The broker does not offer this SASL mechanism."
    ILLEGAL_SASL_STATE = 34, "The request does not fit the state of the SASL conversation."
    UNSUPPORTED_VERSION = 35, "The broker does not speak this version of the request."
    TOPIC_ALREADY_EXISTS = 36, "A topic of this name already exists."
    INVALID_PARTITIONS = 37, "The number of partitions is invalid."
    INVALID_REPLICATION_FACTOR = 38, "The replication factor is invalid, or there are too few brokers."
    INVALID_REPLICA_ASSIGNMENT = 39, "The replica assignment is invalid."
    INVALID_CONFIG = 40, "A setting does not exist, or its value is invalid."
    NOT_CONTROLLER = 41, "This broker is not the controller."
    INVALID_REQUEST = 42, "The request is invalid: it contradicts itself or is malformed."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, "Only record batches of magic 2 are accepted."
    POLICY_VIOLATION = 44, "The request breaks a policy of this cluster."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, "A batch before this one is missing: the sequence numbers have a gap."
    DUPLICATE_SEQUENCE_NUMBER = 46, "This batch was stored before."
    INVALID_PRODUCER_EPOCH = 47, "The producer's epoch is invalid: a newer producer has taken over."
    INVALID_TXN_STATE = 48, "The state of the transaction is invalid for this."
    INVALID_PRODUCER_ID_MAPPING = 49, "The producer id is invalid for this transactional id."
    INVALID_TRANSACTION_TIMEOUT = (
        50,
        "The transaction timeout is invalid: larger than transaction.max.timeout.ms.",
    )
    CONCURRENT_TRANSACTIONS = 51, "Another operation on this transaction is under way; try again."
    TRANSACTION_COORDINATOR_FENCED = 52, "The transaction coordinator has been replaced."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, "Not allowed to use this transactional id."
    SECURITY_DISABLED = 54, "Security is not switched on."
    OPERATION_NOT_ATTEMPTED = 55, "Not tried, because another part of the same request failed."
    KAFKA_STORAGE_ERROR = 56, "The broker's disk failed or is full; its log has the details."
    LOG_DIR_NOT_FOUND = 57, "The data directory does not exist on this broker."
    SASL_AUTHENTICATION_FAILED = 58, "Authentication failed."
    UNKNOWN_PRODUCER_ID = 59, "The broker no longer remembers this producer id."
    REASSIGNMENT_IN_PROGRESS = 60, "A reassignment of the partition is under way."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, "Delegation tokens are not switched on."
    DELEGATION_TOKEN_NOT_FOUND = 62, "The delegation token does not exist."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, "The delegation token belongs to another user."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, "Delegation tokens cannot be asked for on this connection."
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, "Not allowed to use delegation tokens."
    DELEGATION_TOKEN_EXPIRED = 66, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, "The principal type is invalid."
    NON_EMPTY_GROUP = 68, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, "The group does not exist."
    FETCH_SESSION_ID_NOT_FOUND = 70, "The fetch session does not exist."
    INVALID_FETCH_SESSION_EPOCH = 71, "The fetch session's epoch is invalid."
    LISTENER_NOT_FOUND = 72, "A listener of this name does not exist at the leader."
    TOPIC_DELETION_DISABLED = 73, "Topics cannot be deleted here: delete.topic.enable is false."
    FENCED_LEADER_EPOCH = 74, "The leader epoch is older than the broker's; ask for fresh metadata."
    UNKNOWN_LEADER_EPOCH = 75, "The leader epoch is newer than the broker's; try again."
    UNSUPPORTED_COMPRESSION_TYPE = 76, "The compression is not supported."
    STALE_BROKER_EPOCH = 77, "The broker epoch is old."
    OFFSET_NOT_AVAILABLE = 78, "The leader's high watermark has not caught up yet; try again."
    MEMBER_ID_REQUIRED = 79, "Join again with the member id in this answer."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, "The preferred leader is not available."
    GROUP_MAX_SIZE_REACHED = 81, "The group is full: group.max.size."
    FENCED_INSTANCE_ID = 82, "Another member with the same group.instance.id has taken over."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, "No replica that may lead is available."
    ELECTION_NOT_NEEDED = 84, "The partition needs no election."
    NO_REASSIGNMENT_IN_PROGRESS = 85, "No reassignment is under way."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, "The group is subscribed to the topic: its offsets cannot be deleted."
    INVALID_RECORD = 87, "A record is invalid for this topic."
    UNSTABLE_OFFSET_COMMIT = 88, "Offsets of an open transaction are pending; try again."
    THROTTLING_QUOTA_EXCEEDED = 89, "The quota for this kind of request is used up; try again later."
    PRODUCER_FENCED = 90, "A newer producer with this transactional id has taken over."
    RESOURCE_NOT_FOUND = 91, "The resource does not exist."
    DUPLICATE_RESOURCE = 92, "The resource is named twice."
    UNACCEPTABLE_CREDENTIAL = 93, "The credential is not acceptable."
    INCONSISTENT_VOTER_SET = 94, "The voter sets differ."
    INVALID_UPDATE_VERSION = 95, "The version of the update is invalid."
    FEATURE_UPDATE_FAILED = 96, "The features could not be updated."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, "The principal could not be read."
    SNAPSHOT_NOT_FOUND = 98, "The snapshot does not exist."
    POSITION_OUT_OF_RANGE = 99, "The position is outside the snapshot."
    UNKNOWN_TOPIC_ID = 100, "A topic with this id does not exist here."
    DUPLICATE_BROKER_REGISTRATION = 101, "A broker with this id is registered already."
    BROKER_ID_NOT_REGISTERED = 102, "No broker with this id is registered."
    INCONSISTENT_TOPIC_ID = 103, "The topic id does not belong to the topic."
    INCONSISTENT_CLUSTER_ID = 104, "The cluster id is another cluster's."
    TRANSACTIONAL_ID_NOT_FOUND = 105, "The transactional id does not exist."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, "The fetch session mixes topic ids and names."
    INELIGIBLE_REPLICA = 107, "The replica may not join the in-sync set now."
    NEW_LEADER_ELECTED = 108, "A new leader was elected by the same change."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, "The offset is in tiered storage."
    FENCED_MEMBER_EPOCH = 110, "The member's epoch is not the coordinator's; join again."
    UNRELEASED_INSTANCE_ID = 111, "The group.instance.id is still held by another member."
    UNSUPPORTED_ASSIGNOR = 112, "The assignor is not supported."
    STALE_MEMBER_EPOCH = 113, "The member's epoch is old; heartbeat, then try again."
    MISMATCHED_ENDPOINT_TYPE = 114, "The request came to the wrong kind of endpoint."
    UNSUPPORTED_ENDPOINT_TYPE = 115, "This kind of endpoint is not supported."
    UNKNOWN_CONTROLLER_ID = 116, "The controller does not exist."
    TELEMETRY_TOO_LARGE = 118, "The telemetry is too large."
    INVALID_REGISTRATION = 119, "The registration is invalid."
    TRANSACTION_ABORTABLE = 120, "The transaction must be aborted before another can begin."
    INVALID_REGULAR_EXPRESSION = 128, "The regular expression is invalid."

    @classmethod
    def of(cls, value: int) -> "Code":
        """The code of this number; one we never heard of counts as UNKNOWN_SERVER_ERROR."""
        try:
            return cls(value)
        except ValueError:
            return cls.UNKNOWN_SERVER_ERROR


def counted(number: int, what: str) -> str:
    """`1 partition`, `2 partitions`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def reason_of(error: OSError) -> str:
    """Why the system said no, for the end of a sentence: without its number, without the path."""
    return (error.strerror or str(error)).lower()


class BarnabasError(Exception):
    """Anything a person may see as one sentence instead of a traceback."""

    may_be_stored: bool = False
    """Of a record that failed: its request was sent and no answer came, so a broker may have it. False: none has."""


class Refused(BarnabasError):
    """A request, or a part of one, that gets an error code for an answer."""

    code: Code
    retriable: ClassVar[bool] = False
    """Whether the same request may succeed later."""

    def __init_subclass__(cls, code: Code | None = None) -> None:
        if code is not None:
            cls.code = code
            cls.__doc__ = code.advice
            code._kind = cls

    def __init__(self, code: Code, message: str | None = None) -> None:
        self.args = (message or code.advice,)
        self.__class__ = code.kind

    @property
    def message(self) -> str:
        return str(self.args[0])


class KafkaError(Refused):
    """A refusal with a class of its own, which says the code."""

    def __init__(self, message: str | None = None) -> None:
        self.args = (message or self.code.advice,)


class Retriable(KafkaError):
    """The same request may succeed later. Clients try again by themselves, until their time is up."""

    retriable = True


class Stale(Retriable):
    """The request went where it should not: fresh metadata, or another look for the coordinator, may help."""


def __getattr__(name: str) -> Any:
    classes = import_module("barnabas.error_classes")
    if name not in classes.__all__:
        raise AttributeError(f"barnabas.errors has no {name!r}")
    return getattr(classes, name)
