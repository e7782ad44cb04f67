"""server.properties means to us what it means to Java."""

import pytest

from barnabas.properties import read_properties


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("a=1\nb = 2\n", {"a": "1", "b": "2"}),
        ("a:1\nb 2\nc\t=\t3", {"a": "1", "b": "2", "c": "3"}),
        ("listeners:PLAINTEXT://h:9092", {"listeners": "PLAINTEXT://h:9092"}),
        ("# a comment \\\na=1", {"a": "1"}),
        ("! another\n   # indented\n\na=1", {"a": "1"}),
        ("a=1,\\\n   2,\\\r\n  3\nb=4", {"a": "1,2,3", "b": "4"}),
        (r"a\=b=c\:d", {"a=b": "c:d"}),
        ("path=C:\\\\temp", {"path": "C:\\temp"}),
        ("a=x\\\\\nb=1", {"a": "x\\", "b": "1"}),
        ("a=\\u0041\\tb", {"a": "A\tb"}),
        ("empty=\nnothing", {"empty": "", "nothing": ""}),
        ("a=1\na=2", {"a": "2"}),
        ("a=b=c", {"a": "b=c"}),
        ("", {}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, meant: dict[str, str]) -> None:
    assert read_properties(text) == meant
