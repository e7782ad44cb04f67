"""Fetches jars with Maven into a folder that is complete or not there at all. Used by the others here that own some.

They are fetched beside the folder, then renamed into place; two processes that want them at once fetch them once.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection
from pathlib import Path

CACHE = Path(__file__).resolve().parent.parent / ".cache"
FETCH_TIMEOUT_S = 600

Artifact = tuple[str, str, str]
"""Group, name and version."""


class NoJarsError(Exception):
    """Jars are not there and cannot be fetched; the message says what to do."""


def has(directory: Path, artifacts: Collection[Artifact]) -> bool:
    """Whether the jars of all of them are there."""
    return all((directory / f"{name}-{version}.jar").exists() for _, name, version in artifacts)


def provide(
    target: Path,
    artifacts: Collection[Artifact],
    *options: str,
    alone: bool = False,
    what: str,
    otherwise: str = "",
) -> None:
    """Fetch the artifacts into `target`, and what they need (not `alone`), unless they are there.

    `options` are those of Maven's dependency:copy-dependencies. For people: `what` they are, and what one can do
    `otherwise` where there is no Maven.
    """
    if has(target, artifacts):
        return
    maven = shutil.which("mvn")
    if maven is None:
        raise NoJarsError(f"{what} come with Maven: install `mvn`{otherwise}")
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f"{target.name}.lock").open("w") as lock:
        # Two runs at once (a test and the bench) fetch once: the second finds the folder complete.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not has(target, artifacts):
            _fetch(maven, target, artifacts, _pom(artifacts, alone=alone), options, what)


def _fetch(
    maven: str,
    target: Path,
    artifacts: Collection[Artifact],
    wanted: str,
    options: Collection[str],
    what: str,
) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f"{target.name}-fetch-") as work:
        fetched, pom = Path(work) / "libs", Path(work) / "pom.xml"
        pom.write_text(wanted)
        goal = ["dependency:copy-dependencies", *options, f"-DoutputDirectory={fetched}"]
        try:
            done = subprocess.run(
                [maven, "-q", "-B", "-f", str(pom), *goal],
                capture_output=True,
                text=True,
                timeout=FETCH_TIMEOUT_S,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired as late:
            raise NoJarsError(f"{what} were not fetched by Maven within {FETCH_TIMEOUT_S} s") from late
        if done.returncode or not has(fetched, artifacts):
            said = (done.stdout + done.stderr).strip().splitlines()
            raise NoJarsError(f"{what} could not be fetched by Maven: " + " | ".join(said[:3]))
        if target.exists():
            shutil.rmtree(target)
        fetched.rename(target)


def _pom(artifacts: Collection[Artifact], *, alone: bool) -> str:
    # Not -DexcludeTransitive, which looks up what it then leaves out.
    every = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
    without = f"<exclusions>{every}</exclusions>" if alone else ""
    wanted = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        f"{without}</dependency>"
        for group, name, version in artifacts
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>barnabas</groupId><artifactId>beside-us</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{wanted}</dependencies></project>"
    )


def main(folder_of: Callable[[Path | None], Path]) -> int:
    """The command of a module that owns jars: fetch them into the folder that is given, and print it."""
    directory = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else None
    try:
        folder = folder_of(directory)
    except NoJarsError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{folder}\n")
    return 0
