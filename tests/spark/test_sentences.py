"""What Spark throws is told in one sentence."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.spark.sentences import sentence_of
from barnabas.spark.session import _reason

SPARKS_OWN = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception:
[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform latestOffset:
Traceback (most recent call last):
  File "reader.py", line 60, in latestOffset
    raise failure
barnabas.client.network.failures.NoBroker: No broker answers at localhost:9092 (connection refused).
 SQLSTATE: 38000"""


FOREACH_BATCH = """[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function. Reason:
Traceback (most recent call last):
  File "clientserver.py", line 617, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
OSError: the disk is on fire

	at py4j.Protocol.getReturnValue(Protocol.java:476) SQLSTATE: 39000"""

TWICE = """Traceback (most recent call last):
  File "a.py", line 1, in <module>
KeyError: 'first'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "b.py", line 1, in <module>
ValueError: what counts
"""

NO_PYTHON = (
    "The Python of Spark's workers has no barnabas: set PYSPARK_PYTHON to one that has barnabas[spark]"
)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (SPARKS_OWN, "No broker answers at localhost:9092 (connection refused)"),
        (
            "Failed to initialize the writer: barnabas.spark.options.OptionError: There is no option 'x'.",
            "There is no option 'x'",
        ),
        (
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column `x` cannot be resolved. SQLSTATE: 42703;\n'Project",
            "A column `x` cannot be resolved",
        ),
        (
            "py4j.protocol.Py4JJavaError: An error occurred while calling o5.sql.\n: java.lang.Error: no luck\n\tat",
            "no luck",
        ),
        (
            "An error occurred while calling o5.sql.\n: java.net.UnknownHostException: nosuch\n\tat",
            "UnknownHostException: nosuch",
        ),
        (
            "[STREAM_FAILED] Query [id = 1] terminated with exception: Traceback:\n  File\nValueError: no such luck\n",
            "ValueError: no such luck",
        ),
        ("[STREAM_FAILED] Traceback:\n  File\nModuleNotFoundError: No module named 'barnabas'\n", NO_PYTHON),
        ("Query one [id = 1] terminated with exception: the file is gone\n more", "the file is gone"),
        (FOREACH_BATCH, "OSError: the disk is on fire"),
        (TWICE, "ValueError: what counts"),
        (
            "Failure executing: GET at: https://k8s/pods. Message: Unauthorized. Received status: Status(version=v1)",
            "Failure executing: GET at: https://k8s/pods. Message: Unauthorized",
        ),
        ("Job aborted", "Job aborted"),
        ("", "Exception"),
    ],
)
def test_a_failure_is_told_in_one_sentence(text: str, sentence: str) -> None:
    assert sentence_of(Exception(text)) == sentence


def thrown(kind: str, message: str | None, cause: Any = None) -> Any:
    """An exception of Java's, as far as anybody looks at it."""
    named = SimpleNamespace(getSimpleName=lambda: kind)
    return SimpleNamespace(getClass=lambda: named, getMessage=lambda: message, getCause=lambda: cause)


@pytest.mark.parametrize(
    ("cause", "sentence"),
    [
        (thrown("SQLException", "no such table: orders"), "no such table: orders"),
        (thrown("UnknownHostException", "nosuch"), "UnknownHostException: nosuch"),
        (thrown("NullPointerException", None), "NullPointerException"),
    ],
)
def test_of_javas_exceptions_the_innermost_counts(cause: Any, sentence: str) -> None:
    error = Exception("An error occurred while calling o1.load")
    error.java_exception = thrown("SparkException", "Job aborted.", cause)  # type: ignore[attr-defined]
    assert sentence_of(error) == sentence


def test_an_error_of_ours_counts_wherever_java_mentions_it() -> None:
    error = Exception(
        "An error occurred\n: Job aborted.\nCaused by: barnabas.errors.Refused: No such topic.\n\tat"
    )
    error.java_exception = thrown("SparkException", "Job aborted.", thrown("Inner", "something else"))  # type: ignore[attr-defined]
    assert sentence_of(error) == "No such topic"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            'a warning\nException in thread "main" java.lang.Error: no.\nCaused by: java.io.IOException: no room.\n',
            "java.io.IOException: no room",
        ),
        ('Exception in thread "main" java.lang.Error: no.\n\tat x\n', "java.lang.Error: no"),
        ("nothing of note\n", "Java gateway process exited"),
    ],
)
def test_a_spark_that_ended_at_once_is_told_of_by_what_it_said(
    tmp_path: Path, said: str, reason: str
) -> None:
    log = tmp_path / "log"
    log.write_text(said)
    assert _reason(Exception("[JAVA_GATEWAY_EXITED] Java gateway process exited."), log) == reason
