"""Records as Arrow columns, both ways."""
