"""Every option of `format("barnabas")`, declared once: name, use, default, meaning; and settings of Kafka's clients.

Used by `options`, which parses what is given, and by tools/spark_options_table.py. Spark's names where its Kafka source
has the same.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Flag, auto
from typing import Any

from barnabas.client.declared import ConsumerSettings, ProducerSettings, reader_of


class Use(Flag):
    """What an option is for."""

    BATCH = auto()
    STREAM = auto()
    WRITE = auto()
    READ = BATCH | STREAM
    ALL = READ | WRITE


@dataclass(frozen=True, slots=True)
class Option:
    """One declared option."""

    name: str
    use: Use
    default: str
    doc: str


OPTIONS = (
    Option(
        "kafka.bootstrap.servers", Use.ALL, "", "Where the brokers are: host:port,host:port. Must be given."
    ),
    Option("subscribe", Use.READ, "", "Topics to read, parted by commas."),
    Option("subscribePattern", Use.READ, "", "Topics to read: a regular expression for the whole name."),
    Option("assign", Use.READ, "", 'Partitions to read, as JSON: {"orders":[0,1]}.'),
    Option(
        "startingOffsets",
        Use.READ,
        "earliest; streaming: latest",
        'earliest, latest (streaming only), or JSON: {"orders":{"0":23,"1":-2}}, where -2 is earliest and -1 latest. '
        "A query that goes on from its checkpoint does not look at it.",
    ),
    Option("endingOffsets", Use.BATCH, "latest", "latest, or JSON as above, where -1 is latest."),
    Option("startingTimestamp", Use.READ, "", "Milliseconds: begin with the first record at or after it."),
    Option("endingTimestamp", Use.BATCH, "", "Milliseconds: end before the first record at or after it."),
    Option(
        "startingOffsetsByTimestamp",
        Use.READ,
        "",
        'Milliseconds by partition: {"orders":{"0":1700000000000}}.',
    ),
    Option("endingOffsetsByTimestamp", Use.BATCH, "", "Milliseconds by partition, as above."),
    Option(
        "startingOffsetsByTimestampStrategy",
        Use.READ,
        "error",
        "error or latest: what to do where no record is as late as the starting time.",
    ),
    Option(
        "failOnDataLoss",
        Use.READ,
        "true",
        "false: what retention took before it was read costs a warning only.",
    ),
    Option(
        "maxOffsetsPerTrigger",
        Use.STREAM,
        "no limit",
        "At most this many offsets a batch, shared out by backlog.",
    ),
    Option(
        "minOffsetsPerTrigger",
        Use.STREAM,
        "none",
        "Wait for this many offsets, but not past maxTriggerDelay.",
    ),
    Option("maxTriggerDelay", Use.STREAM, "15m", "How long minOffsetsPerTrigger may wait: 30s, 15m, 2h."),
    Option("minPartitions", Use.READ, "", "Split large partitions until there are about this many tasks."),
    Option("maxRecordsPerPartition", Use.READ, "", "Split partitions so that no task reads more offsets."),
    Option("includeHeaders", Use.ALL, "false", "true: the column headers is there too."),
    Option(
        "maxOutOfOrderness",
        Use.BATCH,
        "",
        "Taken, and without effect: endingTimestamp says where a read ends.",
    ),
    Option(
        "topic",
        Use.WRITE,
        "",
        "The topic of all rows; without it each row names its own in the column topic.",
    ),
    Option(
        "checkpointLocation", Use.WRITE, "", "Spark's own: where a streaming query keeps how far it has come."
    ),
    Option("queryName", Use.WRITE, "", "Spark's own: what a streaming query is called."),
    Option("groupIdPrefix", Use.READ, "", "Taken, and without effect: nothing is read through a group."),
    Option(
        "kafkaConsumer.pollTimeoutMs",
        Use.READ,
        "",
        "Taken, and without effect: see kafka.request.timeout.ms.",
    ),
    Option(
        "fetchOffset.numRetries", Use.READ, "", "Taken, and without effect: see kafka.request.timeout.ms."
    ),
    Option(
        "fetchOffset.retryIntervalMs", Use.READ, "", "Taken, and without effect: see kafka.retry.backoff.ms."
    ),
)


CLIENT_SETTINGS: Mapping[str, Use] = {
    "client.id": Use.ALL,
    "request.timeout.ms": Use.ALL,
    "retry.backoff.ms": Use.ALL,
    "fetch.max.bytes": Use.READ,
    "check.crcs": Use.READ,
    "isolation.level": Use.READ,
    "acks": Use.WRITE,
    "enable.idempotence": Use.WRITE,
    "compression.type": Use.WRITE,
    "batch.size": Use.WRITE,
    "linger.ms": Use.WRITE,
    "buffer.memory": Use.WRITE,
    "max.request.size": Use.WRITE,
    "max.block.ms": Use.WRITE,
    "delivery.timeout.ms": Use.WRITE,
}
"""What follows `kafka.` and goes to the client, with underscores for dots; what they take, the client declares."""

WITHOUT_EFFECT = frozenset(
    {
        "auto.commit.interval.ms",
        "connections.max.idle.ms",
        "fetch.max.wait.ms",
        "fetch.min.bytes",
        "group.id",
        "heartbeat.interval.ms",
        "max.in.flight.requests.per.connection",
        "max.partition.fetch.bytes",
        "max.poll.interval.ms",
        "max.poll.records",
        "metadata.max.age.ms",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retries",
        "send.buffer.bytes",
        "session.timeout.ms",
    }
)
"""Settings of Kafka's clients that change nothing of what is read or written here: taken, for queries
that were written for them."""

OURS_TO_DECIDE = {
    "auto.offset.reset": "say startingOffsets instead",
    "enable.auto.commit": "offsets are in the query's checkpoint",
    "interceptor.classes": "there are none",
    "key.deserializer": "keys are bytes; cast or decode them with Spark",
    "key.serializer": "keys are bytes or strings; make them with Spark",
    "value.deserializer": "values are bytes; cast or decode them with Spark",
    "value.serializer": "values are bytes or strings; make them with Spark",
}


def reader_of_setting(setting: str) -> Callable[[str], Any]:
    """How the text of a client's setting is read; a ValueError tells of one that means nothing."""
    writes = CLIENT_SETTINGS[setting] is Use.WRITE
    return reader_of(ProducerSettings if writes else ConsumerSettings, setting.replace(".", "_"))
