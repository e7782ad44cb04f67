"""Random numbers by their place: a number is a hash of the seed, what it is for, and the row it is for.

There is no state to carry from row to row, which is what lets a stream begin anywhere and be made in columns.
The hash is splitmix64's; some 10 ns a number.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias
from zlib import crc32

import numpy as np
import pyarrow as pa

Ints: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Words: TypeAlias = "np.ndarray[Any, np.dtype[np.uint64]]"
Floats: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"

_STEP = 0x9E3779B97F4A7C15
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_ALL_BITS = (1 << 64) - 1


class Dice:
    """All that is random about one stream under one seed."""

    def __init__(self, seed: int, stream: str) -> None:
        self._seed = (seed * _STEP + crc32(stream.encode())) & _ALL_BITS

    def words(self, purpose: str, at: Ints) -> Words:
        """64 random bits for each place."""
        salt = (self._seed ^ (crc32(purpose.encode()) * _STEP)) & _ALL_BITS
        mixed = at.astype(np.uint64) * np.uint64(_STEP) + np.uint64(salt)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
        mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
        return mixed ^ (mixed >> np.uint64(31))

    def chance(self, purpose: str, at: Ints) -> Floats:
        """A number in [0, 1) for each place."""
        return (self.words(purpose, at) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def below(self, limit: int, purpose: str, at: Ints) -> Ints:
        """A whole number in [0, limit) for each place."""
        return (self.words(purpose, at) % np.uint64(limit)).astype(np.int64)

    def pick(self, weights: Sequence[float], purpose: str, at: Ints) -> Ints:
        """Which of the weighted choices, for each place."""
        bounds = np.cumsum(np.asarray(weights, dtype=np.float64))
        found = np.searchsorted(bounds / bounds[-1], self.chance(purpose, at), side="right")
        return np.minimum(found, len(bounds) - 1).astype(np.int64)

    def normal(self, purpose: str, at: Ints) -> Floats:
        """A number of the normal distribution for each place (Box and Muller)."""
        radius = np.sqrt(-2.0 * np.log1p(-self.chance(purpose + " radius", at)))
        return np.asarray(radius * np.cos(2 * np.pi * self.chance(purpose + " angle", at)))


def falling(count: int, power: float = 1.0) -> list[float]:
    """Weights as popularity has them: the n-th is worth 1/n to a power."""
    return [1.0 / (place + 1) ** power for place in range(count)]


def words_of(choices: Sequence[str], which: Ints) -> Any:
    """The chosen texts as an Arrow column."""
    return pa.array(choices, pa.string()).take(pa.array(which))
