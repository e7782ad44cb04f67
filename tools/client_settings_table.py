"""Prints the tables of "All settings" in docs/CLIENT.md, made from the declarations in barnabas.client.declared."""

from inspect import signature

from barnabas import Admin, Consumer, Producer
from barnabas.client.declared import BOOTSTRAP_SERVERS
from barnabas.client.settings import Facts


def table(client: type) -> str:
    """The settings of a client: name, default, meaning."""
    rows = ["| setting | default | meaning |", "|---|---|---|"]
    for each in signature(client).parameters.values():
        if each.default is each.empty:
            continue
        facts = next(
            (fact for fact in getattr(each.annotation, "__metadata__", ()) if isinstance(fact, Facts)),
            Facts(BOOTSTRAP_SERVERS, 'one broker or several to start from: `"a:9092,b:9092"` or a list'),
        )
        rows.append(f"| `{each.name}` | `{facts.default!r}` | {facts.doc} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    for client in (Producer, Consumer, Admin):
        print(f"### {client.__name__}\n\n{table(client)}")  # noqa: T201
