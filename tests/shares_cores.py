"""Owns which tests may run a second time: those marked `shares_cores(reason)`, and no others. A plugin of pytest.

Loaded by conftest. `make test-ci`, which CI runs, runs all tests; if some fail, `make test-again` runs those alone,
with `--only-sharing-cores`: one that has no mark ends that run before it begins. A mark without a reason is a failure.
"""

import pytest

MARK = "shares_cores"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--only-sharing-cores",
        action="store_true",
        help=f"run nothing, and fail, if a selected test is not marked {MARK}(reason)",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARK}(reason): depends on when several processes get a core, and may fail once in a run of CI",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    # Here, not when it is collected: a worker that refuses to collect ends without a word.
    for mark in item.iter_markers(MARK):
        reason = mark.kwargs.get("reason", mark.args[0] if mark.args else None)
        if not isinstance(reason, str) or not reason.strip():
            pytest.fail(f"{MARK} wants a reason: @pytest.mark.{MARK}('...')", pytrace=False)


def pytest_collection_finish(session: pytest.Session) -> None:
    # Not while items are modified: what --last-failed leaves out is still among them then.
    if not session.config.getoption("--only-sharing-cores"):
        return
    others = [item.nodeid for item in session.items if item.get_closest_marker(MARK) is None]
    if others:
        raise pytest.UsageError(
            f"These failed, and are not marked {MARK}: they have to pass the first time.\n  "
            + "\n  ".join(others)
        )
