"""For tests of your own: a real broker or a cluster in a `with` block, and fixtures for pytest.

`barnabas_broker` is a broker, `barnabas_cluster` a cluster of three.
"""

from typing import TYPE_CHECKING

from barnabas.testing.broker import Broker

if TYPE_CHECKING:
    from barnabas.testing.cluster import Cluster

__all__ = ["Broker", "Cluster"]


def __getattr__(name: str) -> object:
    # Clusters need more than a broker does: their modules are loaded by the tests that have one.
    if name == "Cluster":
        from barnabas.testing.cluster import Cluster

        return Cluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
