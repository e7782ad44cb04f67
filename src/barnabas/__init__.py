"""A durable log that speaks the Kafka protocol: what people use of it, each name loaded when it is first used.

    from barnabas import Admin, Consumer, Producer

Always holds: `import barnabas` costs next to nothing and loads none of numpy, pyarrow and pyspark; the columns of
`send_table` and `poll_arrow` load theirs when they are called.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas import errors
    from barnabas.client.admin import Admin
    from barnabas.client.async_consumer import AsyncConsumer
    from barnabas.client.async_producer import AsyncProducer
    from barnabas.client.batches import RecordMetadata, Sent
    from barnabas.client.configs import Resource
    from barnabas.client.consumer import Consumer, ConsumerRecord
    from barnabas.client.offsets import EARLIEST, LATEST, MAX_TIMESTAMP
    from barnabas.client.producer import Producer
    from barnabas.client.sent_table import PartlySent
    from barnabas.client.topics import NewTopic
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
    "NewTopic",
    "PartlySent",
    "Producer",
    "RecordMetadata",
    "Refused",
    "Resource",
    "Sent",
    "TopicPartition",
    "errors",
]

_HOMES = {
    "EARLIEST": "client.offsets",
    "LATEST": "client.offsets",
    "MAX_TIMESTAMP": "client.offsets",
    "Admin": "client.admin",
    "AsyncConsumer": "client.async_consumer",
    "AsyncProducer": "client.async_producer",
    "BarnabasError": "errors",
    "Consumer": "client.consumer",
    "ConsumerRecord": "client.consumer",
    "NewTopic": "client.topics",
    "PartlySent": "client.sent_table",
    "Producer": "client.producer",
    "RecordMetadata": "client.batches",
    "Refused": "errors",
    "Resource": "client.configs",
    "Sent": "client.batches",
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
