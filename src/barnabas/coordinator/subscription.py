"""Reads which topics a consumer asks for, from the metadata it joins a classic group with.

Called by `classic`. Every version of that metadata begins as version 0 does: a version, then the topics. What
follows is the clients' own affair.
"""

from struct import Struct, error

_VERSION_AND_COUNT = Struct(">hi")
_LENGTH = Struct(">h")


def subscribed_topics(metadata: bytes) -> set[str] | None:
    """The names, or None where the bytes are something else."""
    try:
        _, count = _VERSION_AND_COUNT.unpack_from(metadata)
        at = _VERSION_AND_COUNT.size
        if not 0 <= count <= len(metadata):
            return None
        names = set()
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, at)
            at += _LENGTH.size
            if not 0 <= length <= len(metadata) - at:
                return None
            names.add(metadata[at : at + length].decode())
            at += length
    except (error, UnicodeDecodeError):
        return None
    return names
