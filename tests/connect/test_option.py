"""What is declared of a connector is what is asked of a file."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from barnabas.connect.connector import sinks, sources
from barnabas.connect.option import ConnectError, build, option, options_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    path: str = option("Where.", example="in")
    size: int = option("How many.", 10, least=1)
    share: float = option("How much.", 0.5)
    loud: bool = option("Whether.", False)
    names: tuple[str, ...] = option("Who.", ())
    headers: Mapping[str, str] = option("What else.", {})
    color: str = option("Which.", "red", among=("red", "green"))


def test_values_are_read_by_their_types() -> None:
    given = {
        "path": "a",
        "size": 3,
        "share": 1,
        "loud": True,
        "names": ["x"],
        "headers": {"a": "b"},
        "color": "green",
    }
    made = build(Example, given, "f")
    assert made == Example(
        path="a", size=3, share=1.0, loud=True, names=("x",), headers={"a": "b"}, color="green"
    )
    assert build(Example, {"path": "a", "names": "x"}, "f").names == ("x",)
    assert build(Example, {"path": "a"}, "f") == Example(path="a")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "f: path is missing: Where."),
        ({"path": ""}, "f: path is empty."),
        ({"path": "a", "sise": 1}, "f: there is no option sise; did you mean size?"),
        ({"path": "a", "zzz": 1}, "f: there is no option zzz; there is path, size, share, "),
        ({"path": 1}, "f: path is a string in quotes, not 1."),
        ({"path": "a", "size": "3"}, "f: size is a whole number, not '3'."),
        ({"path": "a", "size": True}, "f: size is a whole number, not true."),
        ({"path": "a", "size": 0}, "f: size is at least 1, not 0."),
        ({"path": "a", "loud": 1}, "f: loud is true or false, not 1."),
        ({"path": "a", "names": [1]}, "f: names is a list of strings"),
        ({"path": "a", "headers": {"a": 1}}, "f: headers is a table of strings"),
        ({"path": "a", "color": "gren"}, "f: color is one of red, green, not 'gren' (did you mean green?)."),
        ({"path": "${NO_SUCH_VARIABLE}"}, "f: path wants the environment variable NO_SUCH_VARIABLE"),
    ],
)
def test_a_wrong_value_is_told_where_and_what_would_be_right(given: Mapping[str, Any], sentence: str) -> None:
    with pytest.raises(ConnectError) as told:
        build(Example, given, "f")
    assert str(told.value).startswith(sentence)


def test_secrets_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_PATH", "deep")
    assert build(Example, {"path": "/very/${SECRET_PATH}/in"}, "f").path == "/very/deep/in"


@pytest.mark.parametrize(
    "connector", [*sources().values(), *sinks().values()], ids=lambda each: each.__name__
)
def test_every_connector_tells_what_it_is_and_takes(connector: type) -> None:
    assert connector.__doc__
    assert connector.__doc__.rstrip().endswith(".")
    for each in options_of(connector).values():
        assert each.doc.endswith("."), each
        assert each.kind
        assert not each.required or each.example is not None, each
