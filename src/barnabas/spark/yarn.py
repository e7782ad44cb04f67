"""What is known of YARN before Spark starts: whether it is configured, and whether a ResourceManager answers.

Called by `session`. Always holds: only what yarn-site.xml says plainly is judged; else Spark finds out itself.
"""

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

from barnabas.errors import BarnabasError

_FOLDERS = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_OF_HADOOP = "spark.hadoop."
_MANAGER = "yarn.resourcemanager."
_PORT = 8032
_CONNECT_TIMEOUT_S = 5.0


def check_yarn(settings: Mapping[str, str]) -> None:
    """Raise where YARN cannot be reached: Spark itself would go on trying for a quarter of an hour."""
    folders = [Path(value) for each in _FOLDERS if (value := os.environ.get(each))]
    if not folders:
        raise BarnabasError(
            "Spark finds YARN by its settings: set HADOOP_CONF_DIR to the folder of yarn-site.xml."
        )
    hadoop = {name.removeprefix(_OF_HADOOP): value for name, value in settings.items()}
    problems = []
    for host, port in _managers(_site(folders) | hadoop):
        try:
            socket.create_connection((host, port), _CONNECT_TIMEOUT_S).close()
        except OSError as error:
            problems.append(f"{host}:{port} ({error.strerror or error})")
        else:
            return
    if problems:
        raise BarnabasError(f"No ResourceManager of YARN answers at {' or '.join(problems)}: is it running?")


def _site(folders: list[Path]) -> dict[str, str]:
    """The properties of the first yarn-site.xml, as Java's class path would find it."""
    for folder in folders:
        try:
            root = ElementTree.parse(folder / "yarn-site.xml").getroot()
        except (OSError, ElementTree.ParseError):
            continue
        return {each.findtext("name", "").strip(): each.findtext("value", "").strip() for each in root}
    return {}


def _managers(site: Mapping[str, str]) -> list[tuple[str, int]]:
    """Where the ResourceManagers are, several where one stands in for another; none unless all are plain."""
    found = []
    for name in site.get(f"{_MANAGER}ha.rm-ids", "").split(","):
        of = f".{name.strip()}" if name.strip() else ""
        address = site.get(f"{_MANAGER}address{of}") or site.get(f"{_MANAGER}hostname{of}", "")
        host, _, port = address.partition(":")
        if not host or "$" in address or (port and not port.isdecimal()):
            return []
        found.append((host, int(port or _PORT)))
    return found
