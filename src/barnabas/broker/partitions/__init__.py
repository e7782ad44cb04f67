"""The partitions on this broker: their roles, what enters them, what lasts of them."""
