"""ApiVersions v0-4: what we speak, to clients what they are offered of it, to brokers all.

Newer versions than ours are answered by the router, in version 0.
"""

from typing import TYPE_CHECKING

from barnabas.broker.network.connection import Connection
from barnabas.broker.router import handles
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.messages.api_versions import (
    BROKER_SOFTWARE,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker

TRANSACTION_VERSION = "transaction.version"
EPOCH_A_TRANSACTION = 2
"""What all brokers here speak: each transaction has an epoch of its own, and partitions are added by their records."""


@handles(ApiKey.API_VERSIONS)
def api_versions(broker: "Broker", request: ApiVersionsRequest, peer: Connection) -> ApiVersionsResponse:
    to_broker = request.client_software_name == BROKER_SOFTWARE
    if to_broker:
        peer.is_of_broker()
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api.key, api.announced_lowest, highest)
            for api in sorted(APIS.values())
            if (highest := api.highest if to_broker else api.offered) >= 0
        ],
        # From 1 on, not from 0: clients before Kafka 3.9 take a 0 here for nonsense, and hang up.
        supported_features=[SupportedFeatureKey(TRANSACTION_VERSION, 1, EPOCH_A_TRANSACTION)],
        finalized_features_epoch=0,
        finalized_features=[
            FinalizedFeatureKey(TRANSACTION_VERSION, EPOCH_A_TRANSACTION, EPOCH_A_TRANSACTION)
        ],
    )
