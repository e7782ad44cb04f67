"""Every setting of a client, declared once: Kafka's name with underscores, type and bounds, default, meaning.

From here come the checks and defaults of the constructors (`settings.checked`), their signatures, the tables of
docs/CLIENT.md (tools/client_settings_table.py) and how Spark's options are read. A setting that several clients
have is declared in what they share.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, TypedDict

from barnabas.client.partitioner import Partitioner
from barnabas.client.serializers import Deserializer, Serializer
from barnabas.client.settings import Facts, Float, Int, Long, PositiveInt, PositiveLong, facts_of, plain_types
from barnabas.setting import INT_MAX

BOOTSTRAP_SERVERS = "localhost:9092"


class ClientSettings(TypedDict, total=False):
    """What every client can be told."""

    request_timeout_ms: Annotated[
        PositiveInt,
        Facts(
            30_000,
            "how long an answer may take before the connection is given up; with Admin a question, tries included",
            is_shared=True,
        ),
    ]
    retry_backoff_ms: Annotated[
        Long, Facts(100, "pause before the second try; it doubles up to a second", is_shared=True)
    ]


class ConnectedSettings(ClientSettings, total=False):
    """What a client can be told that stays connected for long."""

    metadata_max_age_ms: Annotated[
        Long,
        Facts(
            300_000,
            "how often leaders, new topics and partitions are asked for though nothing went wrong",
            is_shared=True,
        ),
    ]
    connections_max_idle_ms: Annotated[
        PositiveLong, Facts(540_000, "after how long an idle connection is closed", is_shared=True)
    ]


class AdminSettings(ClientSettings, total=False):
    """What an Admin can be told."""

    client_id: Annotated[str, Facts("barnabas-admin", "what the broker's log calls this client")]


class ProducerSettings(ConnectedSettings, total=False):
    """What a Producer can be told."""

    client_id: Annotated[str, Facts("barnabas-producer", "what the broker's log calls this client")]
    acks: Annotated[
        str | int,
        Facts(
            "all",
            'what must have a record before it counts: `0` nothing, `1` the leader, `"all"` every replica in sync',
        ),
    ]
    enable_idempotence: Annotated[
        bool | None,
        Facts(None, "retries neither double nor reorder; `None`: wherever the other settings allow it"),
    ]
    transactional_id: Annotated[
        str | None,
        Facts(
            None,
            "makes `transaction()` possible: a name that this producer alone has, and keeps when it starts again",
        ),
    ]
    transaction_timeout_ms: Annotated[
        PositiveInt,
        Facts(60_000, "how long a transaction may stay open before its coordinator aborts it"),
    ]
    transaction_two_phase_commit_enable: Annotated[
        bool,
        Facts(
            False,
            "`prepare` leaves the end of a transaction to a decision elsewhere (KIP-939); it then has no timeout",
        ),
    ]
    compression_type: Annotated[str, Facts("none", "`none`, `gzip`, `snappy`, `lz4`, `zstd`")]
    linger_ms: Annotated[Float, Facts(5, "how long a batch waits for more records; `0` sends at once")]
    batch_size: Annotated[PositiveInt, Facts(16_384, "bytes at which a batch waits no longer")]
    buffer_memory: Annotated[PositiveLong, Facts(64 << 20, "bytes that may wait in all")]
    max_block_ms: Annotated[
        Float, Facts(60_000, "how long `send` waits for room, or for a topic to be known")
    ]
    max_request_size: Annotated[PositiveInt, Facts(1 << 20, "bytes of a batch, and so of a record, at most")]
    max_in_flight_requests_per_connection: Annotated[
        PositiveInt, Facts(5, "requests under way to one broker")
    ]
    retries: Annotated[Int, Facts(INT_MAX, "tries of one batch; time is the better bound")]
    delivery_timeout_ms: Annotated[
        PositiveInt, Facts(120_000, "how long a record may take in all, retries included")
    ]
    key_serializer: Annotated[
        str | Serializer | None, Facts(None, '`"str"`, `"json"`, or a function that gives bytes')
    ]
    value_serializer: Annotated[str | Serializer | None, Facts(None, "the same for values")]
    partitioner: Annotated[
        Partitioner | None,
        Facts(None, "a function of topic, key and number of partitions that gives a partition"),
    ]


class ConsumerSettings(ConnectedSettings, total=False):
    """What a Consumer can be told, besides the topics to read."""

    bootstrap_servers: Annotated[
        str | Iterable[str], Facts(BOOTSTRAP_SERVERS, "one broker or several to start from")
    ]
    client_id: Annotated[str, Facts("barnabas-consumer", "what the broker's log calls this client")]
    group_id: Annotated[str | None, Facts(None, "the group to share topics with, and to commit for")]
    group_instance_id: Annotated[
        str | None, Facts(None, "a name that lasts: a restart within the session is no rebalance")
    ]
    group_protocol: Annotated[
        str,
        Facts(
            "classic",
            '`"consumer"` is KIP-848: the broker assigns partitions, and no member stops for a rebalance',
            among=("classic", "consumer"),
        ),
    ]
    group_remote_assignor: Annotated[
        str | None, Facts(None, "the assignor with KIP-848: `uniform` or `range`")
    ]
    partition_assignment_strategy: Annotated[
        str | Iterable[str],
        Facts(
            ("range", "roundrobin"),
            "the assignors otherwise: `range`, `roundrobin`, `sticky`, `cooperative-sticky`",
        ),
    ]
    key_deserializer: Annotated[
        str | Deserializer | None, Facts(None, '`"str"`, `"json"`, or a function of bytes')
    ]
    value_deserializer: Annotated[str | Deserializer | None, Facts(None, "the same for values")]
    auto_offset_reset: Annotated[
        str,
        Facts(
            "latest",
            "where to begin without a position: `earliest`, `latest`, or `none` for an error; where a log has lost "
            "records that were read, `none` raises `errors.LogTruncated`, the others go back to where it was cut and "
            "warn",
            among=("earliest", "latest", "none"),
        ),
    ]
    enable_auto_commit: Annotated[
        bool, Facts(True, "commit what polls have given, now and then and on closing")
    ]
    auto_commit_interval_ms: Annotated[Int, Facts(5_000, "how often")]
    session_timeout_ms: Annotated[
        PositiveInt, Facts(45_000, "how long the group waits for a member that is silent")
    ]
    heartbeat_interval_ms: Annotated[PositiveInt, Facts(3_000, "how often a member is heard of")]
    max_poll_interval_ms: Annotated[
        PositiveInt, Facts(300_000, "how long a member may work between two polls")
    ]
    max_poll_records: Annotated[PositiveInt, Facts(500, "records of one poll, unless `poll` says otherwise")]
    isolation_level: Annotated[
        str,
        Facts(
            "read_uncommitted",
            "`read_committed` shows nothing of open and aborted transactions",
            among=("read_uncommitted", "read_committed"),
        ),
    ]
    allow_auto_create_topics: Annotated[
        bool, Facts(True, "subscribing may create a topic, where brokers do so")
    ]
    exclude_internal_topics: Annotated[bool, Facts(True, "a pattern does not match the brokers' own topics")]
    fetch_min_bytes: Annotated[Int, Facts(1, "bytes an answer waits for")]
    fetch_max_bytes: Annotated[PositiveInt, Facts(52_428_800, "bytes of an answer at most")]
    fetch_max_wait_ms: Annotated[Int, Facts(500, "how long an answer waits for them")]
    max_partition_fetch_bytes: Annotated[PositiveInt, Facts(1_048_576, "bytes of one partition in an answer")]
    check_crcs: Annotated[bool, Facts(True, "check the sum of every batch")]
    consumer_timeout_ms: Annotated[
        Float, Facts(float("inf"), "how long iteration waits for the next record before it ends")
    ]
    default_api_timeout_ms: Annotated[
        PositiveInt, Facts(60_000, "how long questions such as `end_offsets` and commits may take")
    ]


def reader_of(settings: type, name: str) -> Callable[[str], Any]:
    """How the text of a setting is read; what it gives raises ValueError for a text that means nothing."""
    types = plain_types(_annotations(settings)[name])
    if bool in types:
        return boolean
    if str in types:
        return str
    return _number if float in types else int


def default_of(settings: type, name: str) -> Any:
    """What a setting is unless it is given."""
    return facts_of(_annotations(settings)[name]).default


def boolean(text: str) -> bool:
    """true or false, in any case; a ValueError otherwise."""
    if text.strip().lower() not in ("true", "false"):
        raise ValueError
    return text.strip().lower() == "true"


def _number(text: str) -> float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _annotations(settings: type) -> Mapping[str, Any]:
    return settings.__annotations__
