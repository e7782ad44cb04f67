"""The client library: `Producer` and `Consumer` for records, `Admin` for everything else.

Each client has one network thread that owns its connections; every failure is a `Refused` with one sentence.
Each name is imported when it is first used: whoever lists topics need not load a producer.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.client.admin import Admin
    from barnabas.client.async_producer import AsyncProducer
    from barnabas.client.batches import RecordMetadata, Sent
    from barnabas.client.consumer import Consumer, ConsumerRecord
    from barnabas.client.producer import Producer

__all__ = ["Admin", "AsyncProducer", "Consumer", "ConsumerRecord", "Producer", "RecordMetadata", "Sent"]

_HOMES = {
    "Admin": "admin",
    "AsyncProducer": "async_producer",
    "Consumer": "consumer",
    "ConsumerRecord": "consumer",
    "Producer": "producer",
    "RecordMetadata": "batches",
    "Sent": "batches",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"barnabas.client has no {name!r}")
    return getattr(import_module(f"barnabas.client.{home}"), name)
