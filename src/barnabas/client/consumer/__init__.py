"""What people read with: positions and fetches, groups, commits, records."""
