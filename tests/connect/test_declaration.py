"""A file is checked whole, before anything runs; what is wrong is told with its place."""

from pathlib import Path

import pytest

from barnabas.connect.declaration import read_declaration
from barnabas.connect.files import JsonLinesSink, TextSource
from barnabas.connect.option import ConnectError
from barnabas.connect.sketch import sketch
from barnabas.connect.topics import TopicSink

WHOLE = """
bootstrap = "broker:9092"

[source.lines]
connector = "text"
path = "in"

[sink.files]
connector = "jsonlines"
path = "out"

[sink.letters]
connector = "topic"
topic = "dead"

[flow.main]
source = "lines"
sinks = ["files"]
where = "length(value) > 3"
dead_letters = "letters"
"""


def _declared(folder: Path, text: str) -> Path:
    file = folder / "flows.toml"
    file.write_text(text)
    return file


def test_a_file_becomes_sources_sinks_and_flows(tmp_path: Path) -> None:
    made = read_declaration(_declared(tmp_path, WHOLE))
    assert made.sources == {"lines": TextSource(path="in")}
    flow = made.flows["main"]
    assert flow.source is made.sources["lines"]
    assert flow.sinks == {"files": JsonLinesSink(path="out")}
    assert flow.dead_letters == TopicSink(topic="dead", bootstrap="broker:9092")


def test_one_source_and_one_sink_belong_together(tmp_path: Path) -> None:
    text = '[source.a]\nconnector="text"\npath="in"\n[sink.b]\nconnector="csv"\npath="out"\n'
    flows = read_declaration(_declared(tmp_path, text)).flows
    assert list(flows) == ["a"]
    assert list(flows["a"].sinks) == ["b"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a = ", "flows.toml is no TOML: "),
        (WHOLE.replace("[source.lines]", "[sauce.lines]"), "there is no table sauce; did you mean source?"),
        (WHOLE.replace('"text"', '"tekst"'), "source lines: there is no source tekst; did you mean text?"),
        (WHOLE.replace('connector = "text"', ""), "source lines: connector is missing"),
        (
            WHOLE.replace('path = "in"', 'pth = "in"'),
            "source lines: there is no option pth; did you mean path?",
        ),
        (WHOLE.replace('path = "in"', ""), "source lines: path is missing: The folder"),
        (
            WHOLE.replace('source = "lines"', 'source = "line"'),
            "flow main: there is no source line; did you mean",
        ),
        (WHOLE.replace('["files"]', '["file"]'), "flow main: there is no sink file; did you mean files?"),
        (
            WHOLE.replace('["files"]', '["files", "letters"]'),
            "letters cannot take both the good rows and the bad",
        ),
        (WHOLE.replace("where =", 'every = "often"\nwhere ='), "every is a pace such as '5 seconds'"),
        (WHOLE.replace("bootstrap =", "bootstap ="), "there is no option bootstap; did you mean bootstrap?"),
        (WHOLE[: WHOLE.index("[flow")], "there are 1 sources and 2 sinks; say what goes where"),
        ('[source]\nconnector = "text"', "a source is declared as [source.NAME]"),
        ('[source."a b"]\nconnector = "text"', "names are letters"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, text: str, sentence: str) -> None:
    file = _declared(tmp_path, text)
    with pytest.raises(ConnectError) as told:
        read_declaration(file)
    assert str(told.value).startswith(str(file))
    assert sentence in str(told.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConnectError, match=r"There is no file .*; `barnabas connect new"):
        read_declaration(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("source", "sink"), [("csv", "topic"), ("jdbc", "jdbc"), ("http", "http"), ("topic", "delta")]
)
def test_what_new_writes_is_a_declaration(tmp_path: Path, source: str, sink: str) -> None:
    file = _declared(tmp_path, sketch(source, sink))
    made = read_declaration(file)
    assert [each.name for each in made.sources.values()] == [source]
    assert [each.name for each in made.sinks.values()] == [sink]
    bare = "\n".join(
        line.removeprefix("# ") if " = " in line else line for line in file.read_text().splitlines()
    )
    file.write_text(bare)
    read_declaration(file)  # every default that it shows is a value that it takes


def test_the_file_in_the_page_is_a_declaration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "CONNECT.md").read_text()
    text = page.split("```toml\n")[1].split("```")[0]
    monkeypatch.setenv("SHOP_PASSWORD", "secret")
    assert list(read_declaration(_declared(tmp_path, text)).flows) == ["load", "keep"]
