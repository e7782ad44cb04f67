"""Promises of `import barnabas`: light, typed, every name there; and of a class for every error code of Kafka."""

import ast
import pickle
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import barnabas
from barnabas import errors
from barnabas.errors import BarnabasError, Code, KafkaError, Refused, Retriable

HEAVY = {"numpy", "pyarrow", "pyspark", "pandas", "polars", "asyncio", "typer", "rich", "uvloop"}
LIMIT_US = 150_000


def loaded(statement: str) -> tuple[set[str], int]:
    """The modules a new Python has after a statement, and the microseconds that its imports took."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", f"{statement}\nimport sys\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    each = re.findall(r"^import time: +(\d+) \|", done.stderr, re.MULTILINE)
    return set(done.stdout.split()), sum(map(int, each))


@pytest.mark.shares_cores("an import takes the time that its process waits for a core, too")
def test_import_barnabas_is_light() -> None:
    modules, _ = loaded("import barnabas")
    assert {name for name in modules if name.startswith("barnabas")} == {"barnabas"}
    assert modules & HEAVY == set()
    # The quickest of some: each is as slow as the machine was busy.
    assert 0 < min(loaded("import barnabas")[1] for _ in range(5)) < LIMIT_US


@pytest.mark.parametrize("name", ["Producer", "Consumer", "Admin"])
def test_a_client_loads_no_columns_until_they_are_used(name: str) -> None:
    modules, _ = loaded(f"from barnabas import {name}")
    assert "barnabas.client" in modules
    assert modules & HEAVY == set()


def test_every_name_is_there_and_its_own() -> None:
    for name in barnabas.__all__:
        assert getattr(barnabas, name) is not None
    assert set(barnabas.__all__) <= set(dir(barnabas))
    with pytest.raises(AttributeError, match="no attribute 'Broker'"):
        barnabas.Broker  # noqa: B018


def test_types_are_there_for_others() -> None:
    assert barnabas.__file__ is not None
    assert (Path(barnabas.__file__).parent / "py.typed").exists()


@pytest.mark.parametrize("code", [code for code in Code if code is not Code.NONE], ids=lambda code: code.name)
def test_every_code_has_a_class_of_its_name(code: Code) -> None:
    kind = getattr(errors, "".join(word.capitalize() for word in code.name.split("_")))
    refused = Refused(code)
    assert type(refused) is kind is code.kind
    assert issubclass(kind, KafkaError)
    assert (refused.code, str(refused), refused.message) == (code, code.advice, code.advice)
    assert str(Refused(code, "Topic 'a': no.")) == str(kind("Topic 'a': no.")) == "Topic 'a': no."


def test_an_error_is_caught_by_its_class_its_family_and_all_together() -> None:
    for family in (errors.MessageTooLarge, KafkaError, Refused, BarnabasError, barnabas.BarnabasError):
        with pytest.raises(family):
            raise Refused(Code.MESSAGE_TOO_LARGE)
    with pytest.raises(Retriable):
        raise Refused(Code.NOT_LEADER_OR_FOLLOWER)
    assert Refused(Code.NOT_LEADER_OR_FOLLOWER).retriable
    assert not Refused(Code.MESSAGE_TOO_LARGE).retriable


def test_an_error_goes_to_another_process_and_back() -> None:
    there = pickle.loads(pickle.dumps(Refused(Code.MESSAGE_TOO_LARGE, "A record of 2 MB.")))
    assert isinstance(there, errors.MessageTooLarge)
    assert (there.code, there.message) == (Code.MESSAGE_TOO_LARGE, "A record of 2 MB.")


def test_every_module_that_calls_itself_pure_is_held_to_it() -> None:
    root = Path(__file__).parents[1]
    contracts = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (pure,) = (contract for contract in contracts if contract["name"].startswith("Pure means pure"))
    held = set(pure["source_modules"])
    missing = []
    for path in (root / "src").rglob("*.py"):
        docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
        module = ".".join(path.relative_to(root / "src").with_suffix("").parts)
        parents = {module.rsplit(".", depth)[0] for depth in range(module.count(".") + 1)}
        if re.search(r"\bPURE\b", docstring) and not held & (parents | {module}):
            missing.append(module)
    assert missing == []
