"""What people send with: the accumulator, the sender, and the fast way into an open batch."""
