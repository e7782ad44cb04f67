"""The lean end-to-end client, on a real broker, for a moment."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# The bench is a package at the repository's root and is not installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.measure import Size
from bench.server import Server
from bench.workloads import end_to_end

from bench import barnabas_server, endtoend, librdkafka, loadgen, wire

needs_compiler = pytest.mark.skipif(not endtoend.is_there(), reason="there is no C compiler")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    started = barnabas_server.start(tmp_path_factory.mktemp("bench"))
    yield started
    started.stop()


@needs_compiler
@pytest.mark.slow
def test_every_record_is_read_back_and_timed(server: Server) -> None:
    with librdkafka.topic(server, "end-to-end", 1) as topic:
        done = endtoend.run(server, topic, rate=500, record_bytes=100, seconds=0.4)
    assert done.said["records"] == 200
    assert 0 < done.said["p50_ns"] <= done.said["p99_ns"] <= done.said["max_ns"]
    assert done.payload_bytes == 200 * 100


@needs_compiler
@pytest.mark.slow
def test_a_broker_that_refuses_is_an_error_and_no_reading(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loadgen, "ACCEPTED_LIMIT_S", 0.2)
    damaged = wire.batch([b"x"], 0)[:-1] + b"?"
    monkeypatch.setattr(wire, "batch", lambda *_: damaged)
    with (
        librdkafka.topic(server, "end-to-end", 1) as topic,
        pytest.raises(loadgen.GeneratorFailedError, match="refuses the request"),
    ):
        endtoend.run(server, topic, rate=500, record_bytes=1, seconds=0.2)


def test_without_a_compiler_librdkafka_is_measured_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loadgen, "built", lambda _name: None)
    assert [case.name for case in end_to_end.cases(Size.QUICK)] == [end_to_end.LIBRDKAFKA]
