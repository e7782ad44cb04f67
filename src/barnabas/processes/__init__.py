"""Programs on this machine that end with the process that started them: brokers, ZooKeeper, a cluster of both."""
