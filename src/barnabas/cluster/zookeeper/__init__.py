"""A cluster's state in ZooKeeper, in the znodes and JSON of Kafka 3.x: an adapter of `cluster.store`.

`store` is what a broker has, `opening` makes it; `preparing`, `registration`, `controllership` and `settings_feed` are
its parts. `znodes`, `changes` and `reading` know what is where. `client` is the port to ZooKeeper itself,
`kazoo_client` its adapter: importing this package does not import kazoo.
"""

from barnabas.cluster.zookeeper.opening import open_store as open_store
from barnabas.cluster.zookeeper.store import ZooKeeperStore as ZooKeeperStore
