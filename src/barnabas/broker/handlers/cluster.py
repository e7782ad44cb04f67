"""DescribeCluster v0-1: the brokers and the controller, without any topic."""

from typing import TYPE_CHECKING

from barnabas.broker.network.connection import Connection
from barnabas.broker.router import handles
from barnabas.errors import Code, Refused
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
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
