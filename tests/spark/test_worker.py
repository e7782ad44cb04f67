"""What Spark's Python processes have imported is not looked through for garbage, whenever it came."""

import os
import subprocess
import sys

TELLS = """
import gc
from barnabas.spark.worker import settle_in
def left():
    settle_in()
    return gc.get_freeze_count(), len(gc.get_objects())
first = left()
kept = [[] for _ in range(1000)]
same = left()
import xml.dom.minidom
more = left()
print(*first, *same, *more)
"""


def run(**environment: str) -> list[int]:
    done = subprocess.run(
        [sys.executable, "-c", TELLS],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return [int(number) for number in done.stdout.split()]


def test_what_a_worker_imports_later_is_settled_with_its_next_task() -> None:
    frozen, left, still_frozen, with_kept, frozen_then, left_then = run(PYTHON_WORKER_FACTORY_PORT="1")
    assert frozen > 1000
    assert left < 100
    assert still_frozen <= frozen, "only what was imported is settled, not what a task has made"
    assert with_kept >= 1000
    assert frozen_then > frozen
    assert left_then < 100


def test_the_driver_is_left_alone() -> None:
    assert run()[0] == 0
