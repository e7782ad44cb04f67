"""The parts that `Stream.branch` makes of a stream."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.streams.stream import Stream


class Branches(Mapping[str, "Stream"]):
    """The parts of a stream by name: `parts["big"]`, `parts.big`, `big, rest = parts.values()`."""

    def __init__(self, streams: "Mapping[str, Stream]") -> None:
        self._streams = dict(streams)

    def __getitem__(self, name: str) -> "Stream":
        return self._streams[name]

    def __getattr__(self, name: str) -> "Stream":
        streams: dict[str, Stream] = self.__dict__.get("_streams", {})
        if name in streams:
            return streams[name]
        raise AttributeError(f"There is no branch {name}: there are {', '.join(streams)}.")

    def __iter__(self) -> Iterator[str]:
        return iter(self._streams)

    def __len__(self) -> int:
        return len(self._streams)
