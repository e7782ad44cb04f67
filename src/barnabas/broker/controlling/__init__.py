"""What a broker does as the controller of its cluster, and what it asks the controller for otherwise."""
