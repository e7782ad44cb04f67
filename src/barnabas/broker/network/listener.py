"""Addresses as Kafka writes them in listeners and advertised.listeners."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from barnabas.setting import ConfigError

_FORM = re.compile(r"(?:([A-Za-z0-9_.-]+)://)?(\[[0-9a-fA-F:.]+\]|[^:/\s]*):(\d+)")


class Listener(NamedTuple):
    """One address, and the protocol spoken there."""

    protocol: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def clients_listener(text: str, setting: str, of_controllers: Iterable[str]) -> Listener:
    """The one of several, separated by commas, that is for clients: Kafka's own server.properties has another."""
    names = {name.upper() for name in of_controllers}
    ours = [each for each in text.split(",") if each.partition("://")[0].strip().upper() not in names]
    return parse_listener(",".join(ours), setting)


def parse_listener(text: str, setting: str = "listeners") -> Listener:
    """`PLAINTEXT://HOST:PORT`, `HOST:PORT` or `:PORT` (all addresses)."""
    form = _FORM.fullmatch(text.strip())
    if form is None:
        example = "127.0.0.1:9100" if setting == "metrics.listen" else "PLAINTEXT://127.0.0.1:9092"
        raise ConfigError(f"{setting} cannot be {text!r}: it must be like {example}.")
    protocol = (form[1] or "PLAINTEXT").upper()
    port = int(form[3])
    if protocol != "PLAINTEXT":
        raise ConfigError(f"{setting} cannot use {protocol}: only PLAINTEXT is spoken here.")
    if port > 65535:
        raise ConfigError(f"{setting} cannot use port {port}: ports end at 65535.")
    return Listener(protocol, form[2].strip("[]"), port)
