"""What a pipeline is: named sources, a function from their DataFrames to named DataFrames, a sink for each.

Made by the decorator `pipeline`; run by `running`. Always holds: the function's signature is the only declaration of
the parameters. Arguments without a default are sources, in their order; those with one are parameters of its type.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

from barnabas.errors import BarnabasError
from barnabas.pipelines.places import Place, Surroundings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0", "")


@dataclass(frozen=True, slots=True)
class Parameter:
    """Something about a pipeline that a run may change."""

    name: str
    default: Any
    about: str = ""

    def read(self, text: str) -> Any:
        """The value that a person wrote, in the type of the default."""
        kind = type(self.default)
        if kind is bool:
            if text.lower() in _TRUE + _FALSE:
                return text.lower() in _TRUE
        elif kind is str:
            return text
        else:
            try:
                return kind(text)
            except (TypeError, ValueError):
                pass
        raise BarnabasError(f"Parameter {self.name!r} takes a value like {self.default!r}, not {text!r}.")


@dataclass(frozen=True)
class Pipeline:
    """A pipeline as it was declared. Calling it calls its function, which is how to test it on plain DataFrames."""

    name: str
    about: str
    transform: Callable[..., Any]
    sources: Mapping[str, Place]
    sinks: Mapping[str, Place]
    parameters: Mapping[str, Parameter]

    def __call__(self, *sources: "DataFrame", **parameters: Any) -> Any:
        return self.transform(*sources, **parameters)

    @property
    def summary(self) -> str:
        return self.about.strip().partition("\n")[0]

    def settings(self, given: Mapping[str, str]) -> dict[str, Any]:
        """The parameters of a run: the defaults, and what a person wrote instead."""
        found = {name: parameter.default for name, parameter in self.parameters.items()}
        for name, text in given.items():
            if name not in self.parameters:
                near = get_close_matches(name, self.parameters, n=1)
                hint = (
                    f" (is {near[0]} meant?)" if near else f"; it has: {', '.join(self.parameters) or 'none'}"
                )
                raise BarnabasError(f"Pipeline {self.name} has no parameter {name!r}{hint}.")
            found[name] = self.parameters[name].read(text)
        return found

    def places(self, settings: Mapping[str, Any]) -> tuple[dict[str, Place], dict[str, Place]]:
        """Its sources and sinks with these parameters in their names."""
        sources = {name: place.filled(settings) for name, place in self.sources.items()}
        return sources, {name: place.filled(settings) for name, place in self.sinks.items()}

    def outputs(
        self, spark: "SparkSession", around: Surroundings, settings: Mapping[str, Any]
    ) -> dict[str, "DataFrame"]:
        """Its DataFrames by the names of their sinks."""
        sources, sinks = self.places(settings)
        read = [place.read(spark, around) for place in sources.values()]
        made = self.transform(*read, **settings)
        outputs = made if isinstance(made, dict) else {next(iter(sinks)): made}
        if set(outputs) != set(sinks):
            raise BarnabasError(
                f"Pipeline {self.name} gives {', '.join(outputs)}, but its sinks are {', '.join(sinks)}."
            )
        return outputs


def pipeline(
    *,
    source: Place | Mapping[str, Place],
    sink: Place | None = None,
    sinks: Mapping[str, Place] | None = None,
    name: str | None = None,
) -> Callable[[Callable[..., Any]], Pipeline]:
    """Declare a pipeline around its function. Several sinks: the function gives a dict of DataFrames by their names."""

    def declare(transform: Callable[..., Any]) -> Pipeline:
        shown = name or transform.__name__.replace("_", "-")
        signature = inspect.signature(transform).parameters.values()
        wanted = [each.name for each in signature if each.default is inspect.Parameter.empty]
        sources = dict(source) if isinstance(source, Mapping) else {"".join(wanted[:1]): source}
        if list(sources) != wanted:
            raise BarnabasError(
                f"Pipeline {shown} has the sources {', '.join(sources)}, but its function takes "
                f"{', '.join(wanted) or 'none'}: arguments without a default are sources."
            )
        if (sink is None) == (not sinks):
            raise BarnabasError(f"Pipeline {shown} needs a sink, or several as a dict.")
        return Pipeline(
            name=shown,
            about=inspect.getdoc(transform) or "",
            transform=transform,
            sources=sources,
            sinks={"out": sink} if sink is not None else dict(sinks or {}),
            parameters=_parameters(transform),
        )

    return declare


def _parameters(transform: Callable[..., Any]) -> dict[str, Parameter]:
    try:
        hints = get_type_hints(transform, include_extras=True)
    except NameError:  # types that are imported for type checkers only
        hints = {}
    found = {}
    for each in inspect.signature(transform).parameters.values():
        if each.default is inspect.Parameter.empty:
            continue
        hint = hints.get(each.name)
        about = str(get_args(hint)[1]) if get_origin(hint) is Annotated else ""
        found[each.name] = Parameter(each.name, each.default, about)
    return found
