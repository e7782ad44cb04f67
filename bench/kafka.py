"""Starts Apache Kafka as one KRaft node with a 1 GiB heap, from the jars that tools/kafka_jars.py fetches.

Called by the bench for its one side. Formatting is done before the clock of the start begins.
"""

from __future__ import annotations

import base64
import shutil
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path

from tools.kafka_jars import jars

from bench.server import BrokerFailedError, Server, free_port, launch

FORMAT_LIMIT_S = 60
HEAP = ("-Xmx1G", "-Xms1G")


def start(directory: Path, name: str = "kafka", settings: Mapping[str, str] | None = None) -> Server:
    """Formats `directory` when it is new, and starts a node on it, with these settings beside the bench's own."""
    port = free_port()
    command = prepare(directory, port, free_port(), settings or {})
    return launch(name, command, port, directory / "server.log")


def new_cluster_id() -> str:
    """The first character is a letter: an id that begins with a dash would be taken for an option."""
    return base64.urlsafe_b64encode(b"\x00" + uuid.uuid4().bytes[1:]).decode().rstrip("=")


def prepare(
    directory: Path, port: int, controller_port: int, settings: Mapping[str, str], cluster: str = ""
) -> tuple[str, ...]:
    """Formats `directory` when it is new; the command that starts a node on it."""
    java = shutil.which("java")
    if java is None:
        raise BrokerFailedError(
            "Apache Kafka needs Java 17 or newer: install a JDK so that `java` is on the PATH"
        )
    classpath = f"{jars()}/*"
    directory.mkdir(parents=True, exist_ok=True)
    properties = directory / "server.properties"
    properties.write_text(_properties(directory / "data", port, controller_port, settings))
    logging = directory / "log4j2.properties"
    logging.write_text(
        "rootLogger.level=warn\nrootLogger.appenderRef.c.ref=c\nappender.c.type=Console\nappender.c.name=c\n"
    )
    scratch = directory / "tmp"
    scratch.mkdir(exist_ok=True)
    # Kafka unpacks its native codecs into the scratch folder; ours is removed with the rest.
    options = (f"-Dlog4j2.configurationFile={logging}", f"-Djava.io.tmpdir={scratch}")
    if not (directory / "data" / "meta.properties").exists():
        storage = (java, *options, "-cp", classpath, "kafka.tools.StorageTool")
        done = subprocess.run(
            (*storage, "format", "-t", cluster or new_cluster_id(), "-c", str(properties)),
            capture_output=True,
            text=True,
            timeout=FORMAT_LIMIT_S,
            check=False,
        )
        if done.returncode:
            raise BrokerFailedError(
                f"Kafka's StorageTool failed: {(done.stdout + done.stderr).strip()[-300:]}"
            )
    return (java, *HEAP, *options, "-cp", classpath, "kafka.Kafka", str(properties))


def java_version() -> str:
    java = shutil.which("java")
    if java is None:
        return "none"
    said = subprocess.run((java, "-version"), capture_output=True, text=True, timeout=30, check=False).stderr
    return said.splitlines()[0] if said else "unknown"


def _properties(data: Path, port: int, controller_port: int, more: Mapping[str, str]) -> str:
    """Kafka's defaults but for what one node on loopback needs."""
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(data),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        # 60 s by default: a topic's files would go in the middle of a later measurement.
        "log.segment.delete.delay.ms": "0",
    }
    return "".join(f"{key}={value}\n" for key, value in {**settings, **more}.items())
