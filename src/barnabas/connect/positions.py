"""Owns the checkpoint of a polled source: which step was planned, which is done, where it stands.

Used by `flow`. Always holds: a step is on disk before a row of it is read, so that after a crash the same rows come
again under the same number; a position counts only once its step is done.
"""

import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from barnabas.connect.connector import Json, Step
from barnabas.connect.option import ConnectError

_KEPT = 20
"""Old steps that stay, for a person that looks into a checkpoint."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a flow stands."""

    number: int
    """The batch that comes next."""
    position: Json
    planned: Step | None
    """What that batch was going to be when the flow was stopped in it."""


class Positions:
    """A folder with one file a step: `00000012.json` is planned, `00000012.done` is done."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def standing(self) -> Standing:
        planned = sorted(self._folder.glob("*.json"))
        if not planned:
            return Standing(0, None, None)
        newest = planned[-1]
        step = _read_step(newest)
        number = int(newest.stem)
        if newest.with_suffix(".done").exists():
            return Standing(number + 1, step.position, None)
        before = _read_step(planned[-2]).position if len(planned) > 1 else None
        return Standing(number, before, step)

    def plan(self, number: int, step: Step) -> None:
        body = json.dumps({"plan": step.plan, "position": step.position})
        write_whole(self._folder / f"{number:08}.json", body)

    def done(self, number: int) -> None:
        write_whole(self._folder / f"{number:08}.done", "")
        for old in sorted(self._folder.glob("*.json"))[:-_KEPT]:
            old.with_suffix(".done").unlink(missing_ok=True)
            old.unlink()


def origin_of(folder: Path) -> str:
    """What names this checkpoint in the ids of its batches; made when it is first used."""
    file = folder / "origin"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(file, secrets.token_hex(4))
    return file.read_text()


def write_whole(path: Path, text: str) -> None:
    """A file that is there whole or not at all, whenever the machine stops."""
    beside = path.with_name(f".{path.name}.new")
    with beside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _read_step(path: Path) -> Step:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return Step(found["plan"], found["position"])
    except (ValueError, KeyError) as error:
        raise ConnectError(f"The checkpoint {path} is damaged: {error}.") from error
