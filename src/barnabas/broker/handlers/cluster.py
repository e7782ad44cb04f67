"""DescribeCluster v0-1: the brokers and the controller, without any topic.

UnregisterBroker v0: what the cluster keeps of a broker that never comes back, its settings, is forgotten.
"""

from typing import TYPE_CHECKING

from barnabas.broker.network.connection import Connection
from barnabas.broker.router import handles
from barnabas.cluster.image import BrokersConfigured, Change, ClusterImage
from barnabas.errors import Code, Refused
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker

BROKERS = 1


@handles(ApiKey.DESCRIBE_CLUSTER)
def describe_cluster(
    broker: "Broker", request: DescribeClusterRequest, peer: Connection
) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        raise Refused(Code.MISMATCHED_ENDPOINT_TYPE)
    image = broker.metadata.image
    brokers = [DescribeClusterBroker(b.id, b.host, b.port, b.rack) for b in image.brokers.values()]
    return DescribeClusterResponse(
        cluster_id=image.cluster_id, controller_id=image.controller, brokers=brokers
    )


@handles(ApiKey.UNREGISTER_BROKER, by_controller=True)
async def unregister_broker(
    broker: "Broker", request: UnregisterBrokerRequest, peer: Connection
) -> UnregisterBrokerResponse:
    await broker.metadata.change(lambda image: _forgotten(image, request.broker_id))
    return UnregisterBrokerResponse()


def _forgotten(image: ClusterImage, broker: int) -> list[Change]:
    if broker in image.brokers:
        raise Refused(
            Code.INVALID_REQUEST, f"Broker {broker} is alive: stop it first, it would register again."
        )
    is_needed = any(broker in each.replicas for topic in image.topics.values() for each in topic.partitions)
    if is_needed:
        raise Refused(
            Code.INVALID_REQUEST,
            f"Broker {broker} has replicas of partitions: move them to others first, with `barnabas reassign`.",
        )
    if not image.broker_configs.get(str(broker)):
        raise Refused(Code.BROKER_ID_NOT_REGISTERED)
    return [BrokersConfigured(str(broker), {})]
