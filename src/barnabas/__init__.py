"""A durable log that speaks the Kafka protocol: what people use of it, each name loaded when it is first used.

    from barnabas import Admin, Consumer, Producer

Always holds: `import barnabas` costs next to nothing and loads none of numpy, pyarrow and pyspark; the columns of
`send_table` and `poll_arrow` load theirs when they are called.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas import errors
    from barnabas.client.admin.admin import Admin
    from barnabas.client.admin.configs import Resource
    from barnabas.client.admin.topics import NewTopic
    from barnabas.client.consumer.async_consumer import AsyncConsumer
    from barnabas.client.consumer.consumer import Consumer, ConsumerRecord
    from barnabas.client.consumer.offsets import EARLIEST, LATEST, MAX_TIMESTAMP
    from barnabas.client.group_offsets import GroupMetadata
    from barnabas.client.producer.async_producer import AsyncProducer
    from barnabas.client.producer.batches import RecordMetadata, Sent
    from barnabas.client.producer.producer import Producer
    from barnabas.client.producer.sent_table import PartlySent
    from barnabas.client.producer.transaction_questions import PreparedTransaction
    from barnabas.errors import BarnabasError, Refused
    from barnabas.types import TopicPartition

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "Admin",
    "AsyncConsumer",
    "AsyncProducer",
    "BarnabasError",
    "Consumer",
    "ConsumerRecord",
    "GroupMetadata",
    "NewTopic",
    "PartlySent",
    "PreparedTransaction",
    "Producer",
    "RecordMetadata",
    "Refused",
    "Resource",
    "Sent",
    "TopicPartition",
    "errors",
]

_HOMES = {
    "EARLIEST": "client.consumer.offsets",
    "LATEST": "client.consumer.offsets",
    "MAX_TIMESTAMP": "client.consumer.offsets",
    "Admin": "client.admin.admin",
    "AsyncConsumer": "client.consumer.async_consumer",
    "AsyncProducer": "client.producer.async_producer",
    "BarnabasError": "errors",
    "Consumer": "client.consumer.consumer",
    "ConsumerRecord": "client.consumer.consumer",
    "GroupMetadata": "client.group_offsets",
    "NewTopic": "client.admin.topics",
    "PartlySent": "client.producer.sent_table",
    "PreparedTransaction": "client.producer.transaction_questions",
    "Producer": "client.producer.producer",
    "RecordMetadata": "client.producer.batches",
    "Refused": "errors",
    "Resource": "client.admin.configs",
    "Sent": "client.producer.batches",
    "TopicPartition": "types",
}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("barnabas.errors")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'barnabas' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"barnabas.{home}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
