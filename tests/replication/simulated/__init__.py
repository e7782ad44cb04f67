"""A partition with three replicas under one seed: production machines and logs, everything else made up.

`simulation.run` is the door. `world` has time and the network, `broker` the shell around the machines, `controller`
what decides on leaders, `faults` what goes wrong, `judge` what must be true all the same.
"""
