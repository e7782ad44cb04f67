"""What Spark throws, as one sentence: its own words come with tracebacks, plans and codes around them.

Used wherever Spark is asked for something. The whole trace stays in the exception's cause, which BARNABAS_DEBUG=1
shows. Always holds: an error of ours that went through Spark comes out as it was.
"""

import re

_OURS = re.compile(r"\bbarnabas(?:\.\w+)+: (.+)")
_NOT_INSTALLED = re.compile(r"No module named '(barnabas|pyarrow)'")
_TRACEBACK = re.compile(r"\bTraceback\b.*$", re.MULTILINE)
_RAISED = re.compile(r"^\w.*$", re.MULTILINE)
"""The first line behind a traceback that is not part of it."""
_CONDITION = re.compile(r"\[([A-Z][A-Z_.0-9]+)\] ?([^\n]*)")
_WRAPPERS = ("STREAM_FAILED", "PYTHON_", "FAILED_EXECUTE_UDF")
_IN_JAVA = re.compile(r"An error occurred while calling \S+\n: [\w.$]*?(\w+): (.+)")
_CODES = re.compile(r"\s*(?:SQLSTATE: \w+;?|Received status: ).*$")


def sentence_of(error: BaseException) -> str:
    """What went wrong, as a person would say it; without the full stop."""
    said = _said_by(error)
    sentence = _CODES.sub("", said).strip().rstrip(". ;")
    return sentence or type(error).__name__


def _said_by(error: BaseException) -> str:
    text = str(error)  # of Java's exceptions, all that led to one another
    if ours := _OURS.findall(text):
        return str(ours[-1])
    if missing := _NOT_INSTALLED.search(text):
        return f"The Python of Spark's workers has no {missing[1]}: set PYSPARK_PYTHON to one that has barnabas[spark]"
    text = _in_java(error) or text
    behind_traceback = max((each.end() for each in _TRACEBACK.finditer(text)), default=len(text))
    if raised := _RAISED.search(text, behind_traceback):
        return raised[0]
    for condition, words in _CONDITION.findall(text):
        if not condition.startswith(_WRAPPERS) and words.strip():
            return str(words)
    if found := _IN_JAVA.search(text):
        return _of_java(*found.groups())
    text = text.split("terminated with exception: ", 1)[-1]
    return next((line for line in text.splitlines() if line.strip()), "")


def _in_java(error: BaseException) -> str:
    """What the exception behind all others says, where there are any."""
    cause = getattr(error, "java_exception", None)
    if cause is None:
        return ""
    while cause.getCause() is not None:
        cause = cause.getCause()
    return _of_java(str(cause.getClass().getSimpleName()), str(cause.getMessage() or ""))


def _of_java(kind: str, message: str) -> str:
    """A message of one word, such as the name of a host that is not known, says nothing without its kind."""
    return message if " " in message.strip() else f"{kind}: {message}".rstrip(": ")
