"""ApiVersions v0-4: what we speak. Newer versions than ours are answered by the router, in version 0."""

from typing import TYPE_CHECKING

from barnabas.broker.network.connection import Connection
from barnabas.broker.router import handles
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker


@handles(ApiKey.API_VERSIONS)
def api_versions(broker: "Broker", request: ApiVersionsRequest, peer: Connection) -> ApiVersionsResponse:
    spoken = sorted(APIS.values())
    return ApiVersionsResponse(api_keys=[ApiVersion(a.key, a.announced_lowest, a.highest) for a in spoken])
