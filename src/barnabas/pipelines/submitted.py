"""`main()` at the end of a pipeline's file: what runs when the file is given to spark-submit, or to Python.

    spark-submit --master yarn visits.py --bootstrap broker:9092 --checkpoint hdfs:///checkpoints/visits --set gap=10

It takes the options of `barnabas pipeline run` that are not spark-submit's own.
"""

import argparse
import os
import sys

from barnabas.errors import BarnabasError
from barnabas.pipelines.finding import pipelines_in
from barnabas.pipelines.running import Run, run


def main(arguments: list[str] | None = None) -> None:
    """Run the pipeline of the file that was started."""
    parser = argparse.ArgumentParser(description="Run this pipeline on Spark.")
    parser.add_argument("--pipeline", help="which, where the file has several")
    parser.add_argument("--bootstrap", default=os.environ.get("BARNABAS_BOOTSTRAP", "localhost:9092"))
    parser.add_argument("--checkpoint", default="", help="the folder that keeps how far it has come")
    parser.add_argument("--reset", action="store_true", help="begin anew: forget how far it has come")
    parser.add_argument("--once", action="store_true", help="read what is there, then end")
    parser.add_argument("--every", default="", help="how often a batch begins: '10 seconds'")
    parser.add_argument(
        "--from", dest="starting", default="earliest", help="earliest or latest, the first time"
    )
    parser.add_argument("--master", help="where spark-submit has not said it")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a parameter")
    given = parser.parse_args(arguments)
    try:
        found = {each.name: each for each in pipelines_in(sys.modules["__main__"])}
        if given.pipeline not in found and (given.pipeline or len(found) != 1):
            raise BarnabasError(f"Say --pipeline with one of: {', '.join(found) or 'none is declared here'}.")
        how = Run(
            bootstrap=given.bootstrap,
            parameters=dict(_pair(each) for each in given.set),
            checkpoint=given.checkpoint,
            once=given.once,
            starting=given.starting,
            every=given.every,
            master=given.master,
            reset=given.reset,
        )
        run(found[given.pipeline] if given.pipeline else next(iter(found.values())), how)
    except BarnabasError as error:
        if os.environ.get("BARNABAS_DEBUG"):
            raise
        sys.stderr.write(f"barnabas: {error}\n")
        sys.exit(1)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise BarnabasError(f"--set takes NAME=VALUE, not {text!r}.")
    return name, value
