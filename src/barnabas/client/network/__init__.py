"""All connections of a client, one loop, and what the client knows of the cluster."""
