"""Finds a pipeline: one of those that come with Barnabas by name, or the one in a file.

Called by `barnabas pipeline`. A file with several says which with FILE:NAME.
"""

import importlib
import importlib.util
import sys
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType

from barnabas.errors import BarnabasError
from barnabas.pipelines.declaration import Pipeline

READY = (
    "log_collection",
    "activity_tracking",
    "operational_metrics",
    "offline_load",
    "table_to_topic",
)


def ready_pipelines() -> dict[str, Pipeline]:
    """Those that come with Barnabas."""
    modules = (importlib.import_module(f"barnabas.pipelines.ready.{name}") for name in READY)
    return {pipeline.name: pipeline for module in modules for pipeline in pipelines_in(module)}


def find(text: str) -> Pipeline:
    """The pipeline that NAME, FILE or FILE:NAME stands for."""
    try:
        if text.replace("-", "_") in READY:
            return ready_pipelines()[text.replace("_", "-")]
        path, _, name = text.partition(":")
        if not path.endswith(".py"):
            names = [each.replace("_", "-") for each in READY]
            near = get_close_matches(text, names, n=1)
            hint = f" (is {near[0]} meant?)" if near else f": there are {', '.join(names)}, or say FILE.py"
            raise BarnabasError(f"There is no pipeline {text!r}{hint}.")
        return _chosen(pipelines_in(_load(Path(path))), path, name)
    except ModuleNotFoundError as error:
        if error.name == "pyspark":
            raise BarnabasError("Pipelines need PySpark: pip install 'barnabas[spark]'.") from None
        raise BarnabasError(f"{text} needs the module {error.name!r}, which is not installed.") from None


def pipelines_in(module: ModuleType) -> list[Pipeline]:
    """The pipelines that a module declares."""
    found = [each for each in vars(module).values() if isinstance(each, Pipeline)]
    return list({id(each): each for each in found}.values())


def _load(path: Path) -> ModuleType:
    name = f"barnabas_pipeline_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.exists():
        raise BarnabasError(f"There is no file {path}.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except (BarnabasError, ModuleNotFoundError):
        raise
    except Exception as error:
        where = f" in line {line}" if (line := _line_of(error, path)) else ""
        raise BarnabasError(f"{path} cannot be loaded: {type(error).__name__}{where}: {error}.") from error
    finally:
        sys.path.pop(0)
    from pyspark import cloudpickle

    # Executors do not have the file: functions of it travel with the tasks.
    cloudpickle.register_pickle_by_value(module)
    return module


def _line_of(error: Exception, path: Path) -> int | None:
    if isinstance(error, SyntaxError):
        return error.lineno
    at = error.__traceback__
    line = None
    while at is not None:
        if at.tb_frame.f_code.co_filename == str(path):
            line = at.tb_lineno
        at = at.tb_next
    return line


def _chosen(found: list[Pipeline], path: str, name: str) -> Pipeline:
    by_name = {each.name: each for each in found}
    if name:
        if name not in by_name:
            raise BarnabasError(f"{path} has no pipeline {name!r}; it has: {', '.join(by_name) or 'none'}.")
        return by_name[name]
    if not found:
        raise BarnabasError(f"{path} has no pipeline: put @pipeline(...) around a function.")
    if len(found) > 1:
        raise BarnabasError(
            f"{path} has several pipelines: say {path}:NAME with one of {', '.join(by_name)}."
        )
    return found[0]
