"""Prints docs/SETTINGS.md, made from the declarations in barnabas.config."""

from collections.abc import Iterable

from barnabas.config import broker_settings, topic_settings
from barnabas.setting import LONG_MAX, Setting, render

HEAD = """# Settings

Every setting with its type, default and meaning. Written by `tools/settings_table.py` from `src/barnabas/config/`;
`barnabas config describe --docs` tells the same of a running broker.
"""


def table() -> str:
    topic = _rows(topic_settings().values())
    broker = _rows(broker_settings().values())
    return "\n".join([HEAD, "## Topics\n", *topic, "\n## Brokers\n", *broker]) + "\n"


def _rows(settings: Iterable[Setting]) -> list[str]:
    rows = ["| name | type | default | meaning |", "|---|---|---|---|"]
    for setting in sorted(settings, key=lambda each: each.name):
        limits = f" One of {', '.join(setting.among)}." if setting.among else ""
        rows.append(
            f"| `{setting.name}` | {setting.kind.name.lower()} | {_default(setting)} | {setting.doc}{limits} |"
        )
    return rows


def _default(setting: Setting) -> str:
    if setting.default is None:
        return "none"
    if setting.default == LONG_MAX:
        return "no limit"
    return f"`{render(setting.default)}`" if render(setting.default) else "empty"


if __name__ == "__main__":
    print(table(), end="")  # noqa: T201
