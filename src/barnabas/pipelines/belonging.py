"""Owns what a checkpoint belongs to: one pipeline, with these sources and these sinks.

Called by `running` before anything is read. Always holds: a run whose pipeline, sources or sinks are others than those
that the checkpoint was made for reads and writes nothing, and one sentence says so. Spark itself would go on from the
offsets it finds, and leave out what the other run had read.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnabas.errors import BarnabasError
from barnabas.pipelines.declaration import Pipeline
from barnabas.pipelines.kept import delete, is_there, keep, read_kept
from barnabas.pipelines.places import Files, Place, Topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_FOLDER = "checkpoints"
_FILE = "pipeline.json"
_WHICH_TOPICS = ("subscribePattern", "assign")


@dataclass(frozen=True, slots=True)
class Owner:
    """What a checkpoint is for, in words: places by their names."""

    pipeline: str
    sources: Mapping[str, str]
    sinks: Mapping[str, str]

    def __str__(self) -> str:
        return f"{self.pipeline} from {', '.join(self.sources.values())} to {', '.join(self.sinks.values())}"


def owner_of(pipeline: Pipeline, settings: Mapping[str, Any], *, from_root: bool = True) -> Owner:
    """What a run with these parameters is; paths are told from the root on, or as they were given."""
    sources, sinks = pipeline.places(settings)
    return Owner(
        pipeline.name,
        {name: _told(place, from_root=from_root) for name, place in sources.items()},
        {name: _told(place, from_root=from_root) for name, place in sinks.items()},
    )


def default_checkpoint(pipeline: Pipeline, settings: Mapping[str, Any]) -> str:
    """The folder of a run that names none: another one for other sources or sinks."""
    owner = owner_of(pipeline, settings, from_root=False)
    return f"{DEFAULT_FOLDER}/{pipeline.name}-{sha256(_text(owner).encode()).hexdigest()[:8]}"


def claim(spark: "SparkSession", folder: str, owner: Owner, *, is_default: bool, reset: bool) -> None:
    """Make sure that the checkpoint is this run's; `reset` begins it anew."""
    if reset:
        delete(spark, folder)
    kept = read_kept(spark, f"{folder}/{_FILE}")
    if kept is None:
        before = f"{DEFAULT_FOLDER}/{owner.pipeline}"
        if (
            is_default
            and not reset
            and any(is_there(spark, f"{before}/{name}/offsets") for name in owner.sinks)
        ):
            raise BarnabasError(
                f"{before} has the checkpoint of a run of {owner.pipeline} that does not say what it read and wrote: "
                f"go on from it with --checkpoint {before}, or begin anew with --reset."
            )
        keep(spark, f"{folder}/{_FILE}", _text(owner))
    elif kept != _text(owner):
        raise BarnabasError(
            f"The checkpoint {folder} is that of {Owner(**json.loads(kept))}, and this is {owner}: say another "
            "--checkpoint, or --reset to begin anew."
        )


def _text(owner: Owner) -> str:
    return json.dumps(asdict(owner), sort_keys=True)


def _told(place: Place, *, from_root: bool) -> str:
    if isinstance(place, Files) and from_root:
        return replace(place, path=_from_root(place)).describe()
    if isinstance(place, Topic):
        which = [f"{name}={place.options[name]}" for name in _WHICH_TOPICS if name in place.options]
        return " ".join([place.describe(), *which])
    return place.describe()


def _from_root(place: Files) -> str:
    path = place.path.rstrip("/")
    is_name = place.format == "iceberg" and "/" not in path
    return path if is_name or "://" in path else str(Path(path.removeprefix("file:")).absolute())
