"""What the documents say is what the code says."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from barnabas import Admin, Consumer, Producer

ROOT = Path(__file__).resolve().parent.parent


def _tool(name: str) -> ModuleType:
    source = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert source is not None
    assert source.loader is not None
    module = importlib.util.module_from_spec(source)
    source.loader.exec_module(module)
    return module


def test_the_table_of_settings_is_what_is_declared() -> None:
    again = "run: .venv/bin/python tools/settings_table.py > docs/SETTINGS.md"
    assert (ROOT / "docs" / "SETTINGS.md").read_text() == _tool("settings_table").table(), again


def test_the_tables_of_connectors_are_what_is_declared() -> None:
    module = _tool("connector_tables")
    text = (ROOT / "docs" / "CONNECT.md").read_text()
    assert text == module.page(text), "run: .venv/bin/python tools/connector_tables.py"


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "DECISIONS.md"])
def test_every_file_that_a_page_names_is_there(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    named = set(re.findall(r"`([a-z_]+\.py)`", text))
    there = {path.name for path in (ROOT / "src").rglob("*.py")}
    assert named - there == set()


def test_every_test_that_the_guarantees_name_is_there() -> None:
    text = (ROOT / "docs" / "GUARANTEES.md").read_text()
    named = re.findall(r"`(tests/[a-z_/]+\.py)`", text)
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_module_has_its_place_in_the_file_map() -> None:
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    folders = (
        "log",
        "cluster",
        "coordinator",
        "broker",
        "client",
        "wire",
        "generate",
        "spark",
        "pipelines",
        "streams",
        "connect",
        "processes",
    )
    home = ROOT / "src" / "barnabas"
    modules = {
        path
        for folder in folders
        for path in (home / folder).rglob("*.py")
        if path.parent.name not in ("handlers", "messages", "ready")  # named after their families
    }
    missing = sorted(
        path.name for path in modules if path.name != "__init__.py" and f"`{path.name}`" not in text
    )
    assert missing == []


@pytest.mark.parametrize("client", [Producer, Consumer, Admin])
def test_the_manual_has_every_setting_of_a_client_as_it_is_declared(client: type) -> None:
    page = (ROOT / "docs" / "CLIENT.md").read_text()
    section = page.partition(f"### {client.__name__}\n\n")[2].partition("\n#")[0]
    assert section == _tool("client_settings_table").table(client), "see tools/client_settings_table.py"
