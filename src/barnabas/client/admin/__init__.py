"""What people ask of a cluster."""
