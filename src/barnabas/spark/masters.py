"""What is known of a Spark master before Spark starts: whether it is one, is configured, and answers.

Called by `session`. Always holds: it takes seconds; what settings do not say plainly is not judged, Spark finds out
itself.
"""

import os
import re
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree

from barnabas.errors import BarnabasError

_LOCAL = re.compile(r"local(\[(\*|\d+)(,\s*\d+)?\])?|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]")
_STANDALONE = re.compile(r"spark://([^:/,]+:\d+(,[^:/,]+:\d+)*)")
_KUBERNETES = "k8s://"
_YARN = "yarn"
_CONNECT_TIMEOUT_S = 5.0

_FOLDERS = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_OF_HADOOP = "spark.hadoop."
_MANAGER = "yarn.resourcemanager."
_MANAGER_PORT = 8032

_IMAGE = "spark.kubernetes.container.image"
_NAME_AN_IMAGE = (
    _IMAGE,
    "spark.kubernetes.executor.container.image",
    "spark.kubernetes.executor.podTemplateFile",
)


def check_master(master: str, settings: Mapping[str, str]) -> None:
    """Raise where no session can come of it: Spark itself would go on trying, for ever in the worst case."""
    if _LOCAL.fullmatch(master):
        return
    if master == _YARN:
        _check_yarn(settings)
    elif master.startswith(_KUBERNETES):
        _check_kubernetes(master, settings)
    elif standalone := _STANDALONE.fullmatch(master):
        addresses = [each.rpartition(":") for each in standalone[1].split(",")]
        _check_answers("Spark master", [(host, int(port)) for host, _, port in addresses])
    else:
        raise BarnabasError(
            f"{master!r} is no Spark master: use local[2], local-cluster[2,1,1024], spark://HOST:PORT, yarn or "
            "k8s://HOST:PORT."
        )


def _check_answers(kind: str, addresses: Iterable[tuple[str, int]]) -> None:
    """One that answers is enough, and so is none to ask."""
    problems = []
    for host, port in addresses:
        try:
            socket.create_connection((host, port), _CONNECT_TIMEOUT_S).close()
        except OSError as error:
            problems.append(f"{host}:{port} ({error.strerror or error})")
        else:
            return
    if problems:
        raise BarnabasError(f"No {kind} answers at {' or '.join(problems)}: is it running?")


def _check_kubernetes(master: str, settings: Mapping[str, str]) -> None:
    named = master.removeprefix(_KUBERNETES)
    url = urlsplit(named if "://" in named else f"https://{named}")
    try:
        port = url.port or (80 if url.scheme == "http" else 443)
    except ValueError:
        port = 0
    if not url.hostname or not port:
        raise BarnabasError(f"{master!r} names no API server of Kubernetes: use k8s://HOST:PORT.")
    _check_answers("API server of Kubernetes", [(url.hostname, port)])
    defaults = _spark_defaults()
    if not any(name in settings or name in defaults for name in _NAME_AN_IMAGE):
        raise BarnabasError(
            f"Kubernetes needs an image to run executors from: --conf {_IMAGE}=NAME, with Python, barnabas[spark] and "
            "Java in it."
        )


def _spark_defaults() -> str:
    """What spark-defaults.conf says, where there is one."""
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else None)
    try:
        return Path(folder, "spark-defaults.conf").read_text(errors="replace") if folder else ""
    except OSError:
        return ""


def _check_yarn(settings: Mapping[str, str]) -> None:
    folders = [Path(value) for each in _FOLDERS if (value := os.environ.get(each))]
    if not folders:
        raise BarnabasError(
            "Spark finds YARN by its settings: set HADOOP_CONF_DIR to the folder of yarn-site.xml."
        )
    hadoop = {name.removeprefix(_OF_HADOOP): value for name, value in settings.items()}
    _check_answers("ResourceManager of YARN", _managers(_site(folders) | hadoop))


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
        found.append((host, int(port or _MANAGER_PORT)))
    return found
