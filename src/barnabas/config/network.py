"""What a broker can be told about its clients: where it listens, what a connection may cost. Read by the server."""

from dataclasses import dataclass

from barnabas.config.declaring import declare, declare_int
from barnabas.setting import INT_MAX


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """Addresses, connections and requests."""

    listeners: str = declare(
        "PLAINTEXT://127.0.0.1:9092", "Where the broker listens, as PLAINTEXT://HOST:PORT."
    )
    advertised_listeners: str = declare(
        "", "The address given to clients; where empty, the one the broker listens on."
    )
    controller_listener_names: tuple[str, ...] = declare(
        (), "Which of the listeners are for controllers: nothing listens there."
    )
    socket_request_max_bytes: int = declare_int(
        100 * 1024 * 1024,
        "The largest request that is read; a larger one costs its sender the connection.",
        least=1,
    )
    # The most that Linux grants unless it is set up otherwise. A gigabyte consumed costs a tenth less CPU than with
    # Kafka's 102,400 (0.20 to 0.28 s instead of 0.23 to 0.31 in four shapes), and a tenth less than with much more.
    socket_send_buffer_bytes: int = declare_int(
        212_992, "The size of a connection's send buffer in the kernel; -1 leaves it to the system.", least=-1
    )
    # Kafka's is 102,400, which the kernel never lets grow: a request of 1 MiB then comes in nine pieces, and is stored
    # at 1,300 MB/s instead of 2,300.
    socket_receive_buffer_bytes: int = declare_int(
        -1,
        "The size of a connection's receive buffer in the kernel; -1 leaves it to the system.",
        least=-1,
    )
    socket_listen_backlog_size: int = declare_int(
        128, "How many connections may wait to be accepted.", least=1
    )
    max_connections: int = declare_int(
        INT_MAX, "How many connections the broker keeps at once.", least=0, dynamic=True
    )
    max_connections_per_ip: int = declare_int(
        INT_MAX, "How many of them may come from one address.", least=0, dynamic=True
    )
    connections_max_idle_ms: int = declare(600_000, "After how long a silent connection is closed.", least=-1)
    fetch_max_bytes: int = declare_int(
        55 * 1024 * 1024, "The most one fetch answer carries, whatever was asked for.", least=1024
    )
    request_timeout_ms: int = declare_int(
        30_000, "How long the broker waits for others before it gives up.", least=1
    )
    metrics_listen: str = declare(
        "", "Where metrics are served for Prometheus, as HOST:PORT; nowhere where empty."
    )
