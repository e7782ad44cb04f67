"""Finds brokers where they have registered: in ZooKeeper, below /brokers/ids. Used by commands with --zookeeper.

Always holds: an answer or a sentence within some seconds, and nothing is changed.
"""

import json
import logging
import socket

from barnabas.cli.exits import WrongUsage
from barnabas.errors import BarnabasError, reason_of

CONNECT_S = 5.0
ANSWER_S = 10.0
IDS = "/brokers/ids"


def registered_brokers(connect: str) -> str:
    """The addresses of all brokers that are in this ZooKeeper now, for --bootstrap."""
    from kazoo.client import KazooClient
    from kazoo.exceptions import KazooException, NoNodeError
    from kazoo.handlers.threading import KazooTimeoutError

    # Its lines on stderr would stand beside our sentence.
    logging.getLogger("kazoo").addHandler(logging.NullHandler())
    hosts, slash, path = connect.partition("/")
    chroot = (slash + path).rstrip("/")
    _check_reachable(hosts)
    client = KazooClient(hosts, timeout=ANSWER_S, read_only=True)
    try:
        client.start(timeout=ANSWER_S)
        if chroot and not client.exists(chroot):
            raise BarnabasError(f"There is no path {chroot} in the ZooKeeper at {hosts}.")
        numbers = sorted(client.get_children(chroot + IDS), key=int)
        found = [_address(client.get(f"{chroot}{IDS}/{number}")[0]) for number in numbers]
    except NoNodeError:
        found = []
    except (KazooTimeoutError, KazooException):
        raise BarnabasError(f"The ZooKeeper at {hosts} does not answer within {ANSWER_S:g} s.") from None
    finally:
        client.stop()
        client.close()
    if not found:
        raise BarnabasError(
            f"No broker is registered in the ZooKeeper at {connect}: is the path after / right?"
        )
    return ",".join(found)


def _check_reachable(hosts: str) -> None:
    """kazoo would try for as long as it may where nothing listens."""
    reason = ""
    for each in hosts.split(","):
        host, colon, port = each.strip().rpartition(":")
        if not colon or not host or not port.isdigit():
            raise WrongUsage(f"--zookeeper takes HOST:PORT,.../CHROOT, not {each!r}.")
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
        except OSError as error:
            reason = reason_of(error)
        except OverflowError:
            reason = "there is no such port"
        else:
            return
    raise BarnabasError(f"No ZooKeeper answers at {hosts} ({reason}).")


def _address(node: bytes) -> str:
    broker = json.loads(node)
    return str(broker["endpoints"][0]).partition("://")[2]
