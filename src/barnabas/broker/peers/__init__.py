"""Other brokers of the cluster, as this one asks them."""
