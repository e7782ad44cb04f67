"""What a machine can hold of the house style: words, names and sizes. The rest is for readers."""

import ast
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "barnabas"

FILLER = re.compile(
    r"\b(who|whoever|nobody|somebody|anybody|everybody|so (?:many|much|long))\b", re.IGNORECASE
)
"""The subject of a sentence is the thing: a parked fetch, a member, a segment."""
FILLER_LEFT: dict[str, int] = {}
"""Lines of a folder that may still have some: a number only falls, and today there is none."""

NAMES_THAT_SAY_NOTHING = {"common", "helper", "helpers", "manager", "misc", "tools", "util", "utils"}
NAMES_OF_OLD = {
    "asking",
    "complaints",
    "eagerness",
    "envelopes",
    "handout",
    "intake",
    "kinds",
    "known_commits",
    "moments",
    "nursery",
    "participation",
    "ready_fetch",
    "turn",
    "weaving",
    "wheel",
}
"""Module names that needed a glossary, and were replaced."""

SHARED_NAMES = {
    "Broker": "the broker; what a client knows of one; one for tests",
    "DEFAULT_BOOTSTRAP": "the same address in layers that may not import one another",
    "LATEST": "the end of a log, in three notations",
    "NEVER": "a time that does not come, in each part's unit",
    "Run": "a pipeline's, a stream's, and one of records",
    "STREAM": "each stream of generated records has one",
    "Subscription": "as Kafka's word, on the wire, in the consumer and in Spark's options",
    "Topic": "a place of a pipeline, an option of a command, what a client knows of one",
    "Topics": "topics by name",
    "Words": "arrays of 64-bit words",
}
"""Public names in three or more modules, and why that is right."""

LINES = 600
FILES = 26
SUBJECT = 72
SUBJECTS_SINCE = "2491482"


def modules() -> list[Path]:
    found = sorted(SOURCE.rglob("*.py"))
    assert found
    return found


def inside(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def test_sentences_are_about_things() -> None:
    lines = defaultdict(list)
    for path in modules():
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if FILLER.search(line):
                lines[inside(path).partition("/")[0]].append(f"{inside(path)}:{number}: {line.strip()}")
    too_many = {folder: found for folder, found in lines.items() if len(found) > FILLER_LEFT.get(folder, 0)}
    assert too_many == {}, "make the thing the subject of the sentence"


def test_modules_are_named_after_what_they_own() -> None:
    forbidden = NAMES_THAT_SAY_NOTHING | NAMES_OF_OLD
    assert [inside(path) for path in modules() if path.stem in forbidden] == []


def public_names(path: Path) -> Iterator[str]:
    """Of the classes, constants and types of a module; single letters are type variables."""
    for node in ast.parse(path.read_text()).body:
        match node:
            case ast.ClassDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                names = [name]
            case ast.Assign(targets=targets):
                names = [each.id for each in targets if isinstance(each, ast.Name)]
            case _:
                continue
        yield from (name for name in names if name[0].isupper() and len(name) > 1)


def test_a_name_has_one_meaning() -> None:
    places = defaultdict(set)
    for path in modules():
        for name in public_names(path):
            places[name].add(inside(path))
    shared = {name: sorted(found) for name, found in places.items() if len(found) >= 3}
    assert {name: found for name, found in shared.items() if name not in SHARED_NAMES} == {}
    assert sorted(SHARED_NAMES.keys() - shared.keys()) == [], "no longer shared: take it off the list"


def test_a_file_is_read_in_one_sitting() -> None:
    lengths = {inside(path): len(path.read_text().splitlines()) for path in modules()}
    assert {name: length for name, length in lengths.items() if length >= LINES} == {}


def test_a_folder_shows_its_parts() -> None:
    files: defaultdict[str, int] = defaultdict(int)
    for path in modules():
        files[inside(path.parent)] += path.name != "__init__.py"
    assert {name: count for name, count in files.items() if count > FILES} == {}


def subjects() -> list[str]:
    """Of the commits since the rule was made; none where there is no history, as in what was unpacked."""
    since = f"{SUBJECTS_SINCE}..HEAD"
    command = ["git", "-C", str(ROOT), "log", "--no-merges", "--format=%s", since]
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        return []
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return done.stdout.splitlines() if done.returncode == 0 else []


def test_the_subject_of_a_commit_is_one_short_line() -> None:
    assert [each for each in subjects() if len(each) > SUBJECT] == []
