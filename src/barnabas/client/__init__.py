"""The client library: `Producer` and `Consumer` for records, `Admin` for everything else.

Connections block and nothing runs in the background; every failure is a `Refused` with one sentence.
"""

from barnabas.client.admin import Admin
from barnabas.client.batches import RecordMetadata, Sent
from barnabas.client.consumer import Consumer, ConsumerRecord
from barnabas.client.producer import Producer

__all__ = ["Admin", "Consumer", "ConsumerRecord", "Producer", "RecordMetadata", "Sent"]
