"""Owns a real standalone Spark cluster: a master and workers, started with PySpark's own `spark-class`.

Each is a process of its own, and none is left behind.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.deadline import eventually

START_S = 180.0


class Standalone:
    """A master and its workers on this machine, on ports that the system chose."""

    def __init__(self, folder: Path, workers: int) -> None:
        import pyspark

        self._folder = folder
        self._workers = workers
        self._spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
        self._started: list[subprocess.Popen[bytes]] = []
        self.master = ""

    def __enter__(self) -> "Standalone":
        try:
            at = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
            log = self._start("master", "org.apache.spark.deploy.master.Master", *at)
            self.master = self._said(log, r"Starting Spark master at (spark://\S+)")
            for number in range(self._workers):
                sizes = ("--cores", "1", "--memory", "1g", "--work-dir", str(self._folder / f"work-{number}"))
                self._start(
                    f"worker-{number}", "org.apache.spark.deploy.worker.Worker", *at, *sizes, self.master
                )
            self._said(log, rf"((?:Registering worker[\s\S]*){{{self._workers}}})")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for process in reversed(self._started):
            process.kill()
        for process in self._started:
            process.wait()

    def _start(self, name: str, *command: str) -> Path:
        log = self._folder / f"{name}.log"
        environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
        with log.open("wb") as out:
            self._started.append(
                subprocess.Popen(
                    [str(self._spark_class), *command], stdout=out, stderr=subprocess.STDOUT, env=environment
                )
            )
        return log

    def _said(self, log: Path, pattern: str) -> str:
        found = eventually(
            lambda: re.search(pattern, log.read_text(errors="replace")), f"{pattern} in {log.name}", START_S
        )
        assert found is not None
        return found[1]
