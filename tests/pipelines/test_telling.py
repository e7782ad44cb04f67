"""What a running pipeline says of how far it is."""

import io
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.pipelines.progress import Progress, lag_of
from barnabas.spark.live_line import LiveLine


def source(end: str | None, latest: str | None) -> Any:
    return SimpleNamespace(endOffset=end, latestOffset=latest)


@pytest.mark.parametrize(
    ("end", "latest", "lag"),
    [
        ('{"a": {"0": 5, "1": 7}}', '{"a": {"0": 5, "1": 10}}', 3),
        ('{"a": {"0": 5}}', '{"a": {"0": 5, "1": 2}, "b": {"0": 4}}', 6),
        ('{"a": {"0": 5}}', '{"a": {"0": 3}}', 0),
        ('{"a": {"0": 5}}', None, None),
        ("17", "18", None),
        ("null", "{}", None),
    ],
)
def test_lag_is_what_lies_between_the_batch_and_the_end(
    end: str, latest: str | None, lag: int | None
) -> None:
    assert lag_of(source(end, latest)) == lag


def test_progress_adds_up_and_tells_when_all_queries_ended() -> None:
    ended: list[str] = []
    progress = Progress(["good", "bad"], lambda: ended.append("ended"), io.StringIO())
    progress.expect("good", "1")
    progress.expect("bad", "2")
    batch = SimpleNamespace(
        runId="1",
        numInputRows=1500,
        processedRowsPerSecond=750.0,
        batchDuration=2000,
        sources=[source("{}", "{}")],
    )
    for _ in range(2):
        progress.onQueryProgress(SimpleNamespace(progress=batch))
    stranger = SimpleNamespace(progress=SimpleNamespace(runId="3"))
    progress.onQueryProgress(stranger)
    assert progress.line() == ("good 3,000 rows, 750/s, lag 0, batch 2.0 s | bad 0 rows, 0/s, batch 0.0 s")
    progress.onQueryTerminated(SimpleNamespace(runId="1"))
    assert not progress.all_ended.is_set()
    progress.onQueryTerminated(SimpleNamespace(runId="2"))
    assert progress.all_ended.is_set()
    assert ended == ["ended", "ended"]


def test_what_comes_before_its_query_is_known_counts_and_a_second_try_is_waited_for() -> None:
    progress = Progress(["good"], lambda: None, io.StringIO())
    batch = SimpleNamespace(
        runId="1", numInputRows=7, processedRowsPerSecond=1.0, batchDuration=1, sources=[source("{}", "{}")]
    )
    progress.onQueryProgress(SimpleNamespace(progress=batch))
    progress.onQueryTerminated(SimpleNamespace(runId="1"))
    assert not progress.all_ended.is_set()
    progress.expect("good", "1")
    assert progress.states["good"].rows == 7
    assert progress.all_ended.is_set()
    progress.expect("good", "2")
    progress.onQueryTerminated(SimpleNamespace(runId="1"))
    assert not progress.all_ended.is_set()
    progress.onQueryTerminated(SimpleNamespace(runId="2"))
    assert progress.all_ended.is_set()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_line_is_written_over_on_a_terminal() -> None:
    out = Terminal()
    line = LiveLine(out)
    line.show("one")
    line.show("two")
    line.end("three")
    assert out.getvalue() == "\r\x1b[Kone\r\x1b[Ktwo\r\x1b[Kthree\n"


def test_the_line_is_repeated_every_ten_seconds_elsewhere() -> None:
    out, now = io.StringIO(), [0.0]
    line = LiveLine(out, lambda: now[0])
    for moment in range(25):
        now[0] = float(moment)
        line.show(f"at {moment}")
    line.end("the end")
    assert out.getvalue() == "at 10\nat 20\nthe end\n"
