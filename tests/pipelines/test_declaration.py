"""Promises of declaring a pipeline: the signature is the declaration, and a mistake is one sentence."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest

from barnabas.errors import BarnabasError
from barnabas.pipelines import parquet, pipeline, topic
from barnabas.pipelines.finding import READY, find
from tests.conftest import ROOT


@pipeline(source=topic("{source}"), sink=parquet("{output}/{source}", partition_by=("{by}",)))
def example(
    records: Any,
    source: Annotated[str, "the topic"] = "orders",
    output: str = "tables",
    by: str = "",
    limit: int = 3,
    ratio: float = 0.5,
    strict: bool = False,
) -> Any:
    """One line.

    And more.
    """
    return records, limit


def test_arguments_with_defaults_are_the_parameters() -> None:
    assert example.name == "example"
    assert example.summary == "One line."
    assert list(example.sources) == ["records"]
    assert {name: each.default for name, each in example.parameters.items()} == {
        "source": "orders",
        "output": "tables",
        "by": "",
        "limit": 3,
        "ratio": 0.5,
        "strict": False,
    }
    assert example.parameters["source"].about == "the topic"


def test_what_a_person_writes_takes_the_type_of_the_default() -> None:
    settings = example.settings({"limit": "7", "ratio": "2", "strict": "yes", "output": "/data"})
    assert settings == {
        "source": "orders",
        "output": "/data",
        "by": "",
        "limit": 7,
        "ratio": 2.0,
        "strict": True,
    }


def test_places_are_filled_with_the_parameters() -> None:
    sources, sinks = example.places(example.settings({"source": "clicks", "output": "/data"}))
    assert sources["records"].describe() == "topic clicks"
    assert sinks["out"].describe() == "parquet /data/clicks"
    _, sinks = example.places(example.settings({"by": "day"}))
    assert sinks["out"].describe() == "parquet tables/orders by day"


def test_a_pipeline_is_its_function() -> None:
    assert example("rows", limit=9) == ("rows", 9)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"sorce": "x"}, "Pipeline example has no parameter 'sorce' (is source meant?)."),
        ({"limit": "many"}, "Parameter 'limit' takes a value like 3, not 'many'."),
        ({"strict": "perhaps"}, "Parameter 'strict' takes a value like False, not 'perhaps'."),
    ],
)
def test_a_wrong_parameter_is_one_sentence(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(BarnabasError) as raised:
        example.settings(given)
    assert str(raised.value) == sentence


def _no_source() -> None:
    @pipeline(source=topic("a"), sink=topic("b"))
    def wrong(limit: int = 1) -> None:
        pass


def _no_sink() -> None:
    @pipeline(source=topic("a"))
    def wrong(rows: Any) -> None:
        pass


def _unknown_name() -> None:
    @pipeline(source=topic("{nothing}"), sink=topic("b"))
    def wrong(rows: Any, here: str = "") -> None:
        pass

    wrong.places(wrong.settings({}))


@pytest.mark.parametrize(
    ("mistake", "part"),
    [
        (_no_source, "but its function takes none: arguments without a default are sources."),
        (_no_sink, "Pipeline wrong needs a sink, or several as a dict."),
        (_unknown_name, "'{nothing}' names a parameter that the pipeline does not have (it has: here)."),
    ],
)
def test_a_wrong_declaration_is_one_sentence(mistake: Callable[[], None], part: str) -> None:
    with pytest.raises(BarnabasError) as raised:
        mistake()
    assert part in str(raised.value)


def test_those_that_come_with_barnabas_are_found_by_name() -> None:
    for name in READY:
        found = find(name.replace("_", "-"))
        assert found.name == name.replace("_", "-")
        assert found.summary.endswith(".")
        assert all(each.about for each in found.parameters.values()), "every parameter says what it is"


ONE = """
from barnabas.pipelines import pipeline, topic
@pipeline(source=topic("a"), sink=topic("b"))
def one(rows): return rows
"""
TWO = ONE + ONE.replace("one", "two")


@pytest.mark.parametrize(
    ("text", "which", "sentence"),
    [
        (None, "", "There is no file {path}."),
        ("x = 1\n", "", "{path} has no pipeline: put @pipeline(...) around a function."),
        ("x = 1 / 0\n", "", "{path} cannot be loaded: ZeroDivisionError in line 1: division by zero."),
        ("def (:\n", "", "{path} cannot be loaded: SyntaxError in line 1: "),
        ("import nothing_like_it\n", "", "needs the module 'nothing_like_it', which is not installed."),
        (TWO, "", "{path} has several pipelines: say {path}:NAME with one of one, two."),
        (TWO, ":three", "{path} has no pipeline 'three'; it has: one, two."),
    ],
)
def test_a_file_without_the_pipeline_is_one_sentence(
    tmp_path: Path, text: str | None, which: str, sentence: str
) -> None:
    path = tmp_path / "mine.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(BarnabasError) as raised:
        find(f"{path}{which}")
    assert sentence.format(path=path) in str(raised.value)


def test_one_of_several_in_a_file_is_chosen_by_name(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(TWO)
    assert find(f"{tmp_path / 'mine.py'}:two").name == "two"


def test_the_example_of_the_manual_is_a_pipeline_and_its_commands_name_what_is_there(tmp_path: Path) -> None:
    manual = (ROOT / "docs" / "PIPELINES.md").read_text().replace("\\\n", "")
    example = re.search(r"```python\n(.*?)```", manual, re.DOTALL)
    assert example is not None
    (tmp_path / "paid.py").write_text(example[1])
    found = find(str(tmp_path / "paid.py"))
    sources, sinks = found.places(found.settings({}))
    assert (sources["records"].describe(), sinks["out"].describe()) == ("topic orders", "parquet tables/paid")
    commands = [
        shlex.split(line, comments=True) for line in re.findall(r"^barnabas pipeline run .*$", manual, re.M)
    ]
    assert len(commands) > 5
    for command in commands:
        given = [command[place + 1] for place, word in enumerate(command) if word == "--set"]
        if not command[3].endswith(".py"):
            find(command[3]).settings(dict(each.split("=", 1) for each in given))
