"""Prints the table of options in docs/SPARK.md, made from the declarations in barnabas.spark.declared."""

from barnabas.spark.declared import CLIENT_SETTINGS, OPTIONS, Use

_USES = {Use.BATCH: "batch", Use.STREAM: "stream", Use.WRITE: "write"}


def table() -> str:
    rows = ["| option | for | default | meaning |", "|---|---|---|---|"]
    for option in OPTIONS:
        default = option.default or "none"
        rows.append(f"| `{option.name}` | {_uses(option.use)} | {default} | {option.doc} |")
    for name, use in sorted(CLIENT_SETTINGS.items(), key=lambda row: row[0]):
        rows.append(
            f"| `kafka.{name}` | {_uses(use)} | the client's | Goes to our client as `{name.replace('.', '_')}`. |"
        )
    return "\n".join(rows) + "\n"


def _uses(use: Use) -> str:
    return "all" if use is Use.ALL else ", ".join(word for each, word in _USES.items() if each & use)


if __name__ == "__main__":
    print(table(), end="")  # noqa: T201
