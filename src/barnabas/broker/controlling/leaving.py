"""A broker's farewell to its cluster: its partitions get other leaders before it lets go of its clients.

Called by the broker when it stops. Nothing depends on it: without a controller, or after
controlled.shutdown.max.retries attempts, the broker goes as one does that is killed, and elections take a little
longer.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from barnabas.errors import Code, Refused, counted
from barnabas.wire.messages.controlling import ControlledShutdownRequest, ControlledShutdownResponse

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker

ATTEMPT_MS = 5_000
HEARD_S = 2.0
"""How long the broker waits to hear that it leads nothing any more, once that is decided."""

log = logging.getLogger("barnabas.broker")


async def leave(broker: "Broker") -> None:
    """Come back when other brokers lead what can be led by another."""
    config = broker.config
    if not config.controlled_shutdown_enable:
        return
    broker.replication.stop_following()
    for attempt in range(config.controlled_shutdown_max_retries):
        if attempt:
            await asyncio.sleep(config.controlled_shutdown_retry_backoff_ms / 1000)
        try:
            remaining = await _asked(broker)
        except Refused as refused:
            log.warning("the controller could not be told of the stop: %s", refused.message)
            continue
        if not remaining:
            await broker.metadata.until(lambda image: not leads(broker), HEARD_S)
            return
        log.info("%s without another replica in sync", counted(remaining, "partition"))


def leads(broker: "Broker") -> bool:
    """Whether the broker leads a partition that has other replicas in sync."""
    return any(
        leader.tp.topic in broker.metadata.image.topics
        and len(broker.metadata.image.topics[leader.tp.topic].partitions[leader.tp.partition].isr) > 1
        for leader in broker.replicas.leaders()
    )


async def _asked(broker: "Broker") -> int:
    """How many partitions are still led here."""
    if broker.metadata.is_controller:
        remaining = await broker.controlling.let_stop(broker.id, broker.epoch)
        await broker.controlling.announced()
        return len(remaining)
    request = ControlledShutdownRequest(broker.id, broker.epoch)
    answer: ControlledShutdownResponse = await broker.to_controller.ask(request, ATTEMPT_MS)
    if answer.error_code:
        raise Refused(Code.of(answer.error_code))
    return len(answer.remaining_partitions)
