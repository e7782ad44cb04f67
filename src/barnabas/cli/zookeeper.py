"""`barnabas zookeeper`: a real ZooKeeper on this machine, until Ctrl-C."""

import signal
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from barnabas.cli.exits import ends_well


@ends_well
def zookeeper(
    data: Annotated[
        str, typer.Option("--data", metavar="DIR", help="The folder that keeps everything.")
    ] = "zookeeper-data",
    port: Annotated[
        int,
        typer.Option(
            "--port", metavar="N", min=0, max=65535, help="Where brokers connect; 0 takes a free one."
        ),
    ] = 2181,
    host: Annotated[
        str, typer.Option("--host", metavar="HOST", help="The address to listen at.")
    ] = "127.0.0.1",
) -> None:
    """Start ZooKeeper for a cluster of brokers; prints `ready` and its address, and stops cleanly on Ctrl-C.

    It runs in Java, from the jars of ZOOKEEPER_HOME, of PySpark or of Debian's package.

    \b
    barnabas zookeeper --data /var/lib/zookeeper
    barnabas broker --config server.properties --set zookeeper.connect=127.0.0.1:2181
    """
    from barnabas.processes.zookeeper import ZooKeeperProcess

    signal.signal(signal.SIGTERM, _interrupt)
    process = ZooKeeperProcess(Path(data), port, host)
    try:
        process.start().wait_ready()
        typer.echo(f"ready on {process.address}")
        process.wait()
    except KeyboardInterrupt:
        process.stop()


def _interrupt(*_: Any) -> NoReturn:
    raise KeyboardInterrupt
