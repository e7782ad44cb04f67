"""The shells of replication: fetching from leaders, serving followers, changing the in-sync replicas."""
