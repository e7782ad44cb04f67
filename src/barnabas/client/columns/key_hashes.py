"""Java's hash of many keys at once, in numpy: where the rows of a table go. Used by `table_encoder`.

Always holds: it is `partitioner.murmur2` of each key.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from barnabas.client.columns.varints import Bytes, Ints
from barnabas.client.partitioner import murmur2

Words: TypeAlias = NDArray[np.uint32]

_M = np.uint32(0x5BD1E995)
_SEED = np.uint32(0x9747B28C)
_LONG = 512
"""Keys longer than this are hashed one by one: each four bytes of the longest key are a round for numpy."""


def murmur2_of(buffer: Bytes, at: Ints, size: Ints) -> Words:
    """The hash of each of these pieces of a buffer. 10 ns for a key of 4 bytes, 54 ns for one of 36."""
    hashes: Words = _SEED ^ size.astype(np.uint32)
    short = np.minimum(size, _LONG)
    words = _words(buffer)
    for done in range(4, int(short.max(initial=0)) + 1, 4):
        has_more = short >= done
        if has_more.all():
            hashes = _mix(hashes, words[at + (done - 4)])
        else:
            rows = np.flatnonzero(has_more)
            hashes[rows] = _mix(hashes[rows], words[at[rows] + (done - 4)])
    for rest in (1, 2, 3):
        rows = np.flatnonzero(short & 3 == rest)
        if rows.size:
            behind = at[rows] + (short[rows] - rest)
            for byte in range(rest):
                hashes[rows] ^= buffer[behind + byte].astype(np.uint32) << np.uint32(8 * byte)
            hashes[rows] *= _M
    hashes = (hashes ^ (hashes >> np.uint32(13))) * _M
    hashes ^= hashes >> np.uint32(15)
    for row in np.flatnonzero(size > _LONG):
        hashes[row] = murmur2(buffer[at[row] : at[row] + size[row]].tobytes())
    return hashes


def _mix(hashes: Words, word: Words) -> Words:
    word = word * _M
    word ^= word >> np.uint32(24)
    word *= _M
    word ^= hashes * _M
    return word


def _words(buffer: Bytes) -> Words:
    """The four bytes at every place as a number: a view, in which words overlap."""
    return np.ndarray((max(len(buffer) - 3, 0),), "<u4", buffer, strides=(1,))
