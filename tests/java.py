"""Owns how tests start Java with Kafka's jars: a process that lives for seconds, and a command of its own a call."""

from pathlib import Path

from tools import class_archives


def java_with(libs: Path, heap: str = "256m") -> list[str]:
    """The command up to the class that is to run."""
    archive = class_archives.options(class_archives.kafka_archive())
    return ["java", f"-Xmx{heap}", *class_archives.LEAN, *archive, "-cp", f"{libs}/*"]
