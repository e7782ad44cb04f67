"""Reads server.properties as Java does: comments, continued lines, three ways to part a name from its value.

Used by `barnabas broker`; `processes` writes such files for the brokers that it starts.
A comment is never continued; a line that ends in a backslash is.
"""

import re
from collections.abc import Mapping

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_PARTS = re.compile(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)", re.DOTALL)


def read_properties(text: str) -> dict[str, str]:
    """Names and values; of a name that stands twice the last value counts."""
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        parts = _PARTS.fullmatch(line)
        if parts is not None:
            found[_unescaped(parts[1])] = _unescaped(parts[2]).strip()
    return found


def _logical_lines(text: str) -> list[str]:
    """The lines as they are meant: without comments, continued ones joined."""
    lines: list[str] = []
    continues = False
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip()
        if not continues and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        ends_open = backslashes % 2 == 1
        content = line[:-1] if ends_open else line
        if continues:
            lines[-1] += content
        else:
            lines.append(content)
        continues = ends_open
    return lines


def _unescaped(text: str) -> str:
    def meant(escape: re.Match[str]) -> str:
        sign = escape[1]
        return chr(int(sign[1:], 16)) if len(sign) == 5 else _ESCAPES.get(sign, sign)

    return _ESCAPED.sub(meant, text)


def properties_text(given: Mapping[str, str]) -> str:
    """The text that `read_properties` reads these names and values from."""
    return "".join(f"{name}={_escaped(value)}\n" for name, value in given.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
