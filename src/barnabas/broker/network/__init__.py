"""Sockets of the broker: listening, rounds of hearing and answering, one connection."""
