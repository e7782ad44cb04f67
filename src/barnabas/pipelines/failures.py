"""Turns what Spark throws into one sentence. Spark's own words come with a Java and a Python traceback around them.

Called by `running`. The whole trace stays in the exception's cause, which BARNABAS_DEBUG=1 shows.
"""

import re

from barnabas.errors import BarnabasError

_OURS = re.compile(r"\bbarnabas(?:\.\w+)+: (.+)")
_JAVA = re.compile(r"An error occurred while calling \S+\n: ([\w.$]+): (.+)")
_PYTHON = re.compile(r"^(\w[\w.]*(?:Error|Exception)): (.+)$", re.MULTILINE)
_CONDITION = re.compile(r"\[([A-Z][A-Z_.0-9]+)\] ?(.*)")
_WRAPPERS = ("STREAM_FAILED", "PYTHON_", "FAILED_EXECUTE_UDF")
_NOT_INSTALLED = re.compile(r"No module named '(barnabas|pyarrow)'")


def sentence_of(error: BaseException) -> str:
    """What went wrong, as a person would say it."""
    text = str(error)
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1]).strip()
    missing = _NOT_INSTALLED.search(text)
    if missing:
        return f"The Python of Spark's workers has no {missing[1]}: set PYSPARK_PYTHON to one that has barnabas[spark]."
    for condition, words in _CONDITION.findall(text):
        if not condition.startswith(_WRAPPERS) and words.strip():
            return _ended(f"{words.strip().rstrip('.;')} ({condition})")
    found = _JAVA.findall(text) or _PYTHON.findall(text)
    if found:
        kind, words = found[-1]
        return _ended(f"{kind.rpartition('.')[2]}: {words.strip()}")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return _ended(lines[0] if lines else type(error).__name__)


def as_our_error(error: BaseException, about: str) -> BarnabasError:
    """The same failure as one sentence that begins with what it happened to."""
    return BarnabasError(f"{about} failed: {sentence_of(error)}")


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith(".") else f"{sentence}."
