"""Whole brokers under one seed: virtual time, disks that forget, a network that is cut, a ZooKeeper in memory.

`cluster.SimulatedCluster` is the door. Everything runs in one thread: `loop` has time, `lives` what belongs to which
process, `network` the connections, `machine` a broker with its disk through all of its lives, `fingerprint` what tells
two runs apart.
"""
