"""How a record looks on a line, out of `consume` and into `produce`. What one writes as JSON the other reads.

In JSON a key, value or header value is a string, null, or {"base64": "..."} where it is not UTF-8.
"""

import json
import os
import re
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from barnabas.cli.exits import WrongUsage
from barnabas.client.consumer.consumer import ConsumerRecord
from barnabas.errors import BarnabasError

Write: TypeAlias = Callable[[ConsumerRecord], bytes]


class Parsed(NamedTuple):
    """A record read from a line."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp: int | None = None


Read: TypeAlias = Callable[[bytes], Parsed]

_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


def writer(name: str) -> Write:
    """The writer of a named format, or of a template with kcat's letters: %k %v %t %p %o %T %h %s %%."""
    if name == "value":
        return lambda record: (record.value or b"") + b"\n"
    if name == "key-value":
        return lambda record: (record.key or b"") + b"\t" + (record.value or b"") + b"\n"
    if name == "json":
        return _json_line
    if "%" in name:
        return _template(name)
    raise WrongUsage(
        f"There is no format {name!r}: use value, key-value, json or a template such as '%k: %v\\n'."
    )


def _json_line(record: ConsumerRecord) -> bytes:
    shown = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": to_json(record.key),
        "value": to_json(record.value),
    }
    if record.headers:
        shown["headers"] = [[name, to_json(value)] for name, value in record.headers]
    return json.dumps(shown, ensure_ascii=False).encode() + b"\n"


def to_json(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        from base64 import b64encode

        return {"base64": b64encode(data).decode()}


_LETTERS: dict[str, Write] = {
    "k": lambda record: record.key or b"",
    "v": lambda record: record.value or b"",
    "s": lambda record: record.value or b"",
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp,
    "K": lambda record: b"%d" % (-1 if record.key is None else len(record.key)),
    "S": lambda record: b"%d" % (-1 if record.value is None else len(record.value)),
    "h": lambda record: b",".join(name.encode() + b"=" + (value or b"") for name, value in record.headers),
}


def _template(text: str) -> Write:
    parts: list[bytes | Write] = []
    at = 0
    while at < len(text):
        sign, letter = text[at], text[at + 1 : at + 2]
        if sign == "\\" and letter in _ESCAPES:
            parts.append(_ESCAPES[letter])
        elif sign == "%" and letter == "%":
            parts.append(b"%")
        elif sign == "%" and letter in _LETTERS:
            parts.append(_LETTERS[letter])
        elif sign == "%":
            raise WrongUsage(
                f"A format has no %{letter}: use {' '.join('%' + each for each in _LETTERS)} or %%."
            )
        else:
            parts.append(os.fsencode(sign))
            at -= 1
        at += 2
    return lambda record: b"".join(part if isinstance(part, bytes) else part(record) for part in parts)


def reader(name: str, key_separator: str | None, null_marker: str | None) -> Read:
    """The reader of a format. A marker stands for null, as a key and as a value."""
    if name == "json":
        return _from_json_line
    if name != "value":
        raise WrongUsage(f"There is no format {name!r}: use value or json.")
    null = None if null_marker is None else os.fsencode(null_marker)
    if key_separator is None:
        return lambda line: Parsed(None if line == null else line)
    separator = _unescaped(key_separator)
    if not separator:
        raise WrongUsage("--key-separator is empty.")

    def keyed(line: bytes) -> Parsed:
        key, found, value = line.partition(separator)
        if not found:
            raise BarnabasError(f"There is no {key_separator!r} in it to part the key from the value")
        return Parsed(None if value == null else value, None if key == null else key)

    return keyed


_ESCAPE = re.compile(rb"\\(?:u.{4}|U.{8}|x..|[0-7]{1,3}|.|$)", re.DOTALL)


def _unescaped(text: str) -> bytes:
    """A separator as bytes: Python's escapes are understood, of which \\x names a byte and \\u a character."""

    def meant(escape: re.Match[bytes]) -> bytes:
        return escape[0].decode("unicode_escape").encode("utf-8" if escape[0][1:2] in b"uU" else "latin-1")

    try:
        return _ESCAPE.sub(meant, os.fsencode(text))
    except UnicodeError:
        raise WrongUsage(
            f"--key-separator '{text}' has a backslash that begins no escape: say \\\\ for the sign itself."
        ) from None


def _from_json_line(line: bytes) -> Parsed:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise BarnabasError(f"It is not JSON ({error})") from None
    except RecursionError:
        raise BarnabasError("Its JSON is nested too deeply") from None
    if not isinstance(found, dict) or "value" not in found:
        raise BarnabasError('It is not a JSON object with a "value"')
    headers = found.get("headers") or []
    pairs = headers.items() if isinstance(headers, dict) else headers
    try:
        return Parsed(
            _from_json(found["value"]),
            _from_json(found.get("key")),
            tuple((_utf8(str(name)).decode(), _from_json(value)) for name, value in pairs),
            _number(found.get("partition")),
            _number(found.get("timestamp")),
        )
    except (TypeError, ValueError):
        raise BarnabasError("Its headers are neither an object nor a list of [name, value]") from None


def _from_json(shown: Any) -> bytes | None:
    if shown is None:
        return None
    if isinstance(shown, str):
        return _utf8(shown)
    if isinstance(shown, dict) and isinstance(shown.get("base64"), str):
        from base64 import b64decode

        try:
            return b64decode(shown["base64"], validate=True)
        except ValueError:
            raise BarnabasError("Its base64 is not valid") from None
    raise BarnabasError('A key or value is a string, null or {"base64": "..."}')


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise BarnabasError(f"It has {half!r}, half of a character, which UTF-8 cannot write") from None


def _number(shown: Any) -> int | None:
    if shown is None or (isinstance(shown, int) and not isinstance(shown, bool) and shown >= 0):
        return shown
    raise BarnabasError("Its partition or timestamp is not a number")
