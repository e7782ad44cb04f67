"""All that happens in a run, as one number: two runs of a seed that part anywhere have different ones.

The network adds every message, the cluster every note, a machine what its disk was asked for. What is added has no
addresses of objects in it, and comes in an order of its own.
"""

from hashlib import blake2b


class Fingerprint:
    """Mutable: the number so far."""

    def __init__(self) -> None:
        self._digest = blake2b(digest_size=16)

    def add(self, *what: object, data: bytes = b"") -> None:
        """Something has happened; `data` are the bytes in it."""
        self._digest.update(repr(what).encode())
        self._digest.update(data)

    def __str__(self) -> str:
        return self._digest.hexdigest()
