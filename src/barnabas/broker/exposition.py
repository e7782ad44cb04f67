"""Serves the broker's counters to Prometheus, when `--metrics HOST:PORT` asks for it.

Reads numbers that the event loop's thread writes, from a thread of its own: each is one Python int or float,
so a scrape sees values a moment old, never torn ones. Names follow what Kafka's exporters call them.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from barnabas.broker.metrics import LATENCY_BUCKETS
from barnabas.broker.network.listener import parse_listener
from barnabas.errors import BarnabasError

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker


def serve(broker: "Broker", address: str) -> Callable[[], None]:
    """Start serving; the result stops it."""
    where = parse_listener(address, "metrics.listen")
    registry = CollectorRegistry()
    registry.register(BrokerCollector(broker))
    try:
        server, thread = start_http_server(where.port, where.host or "0.0.0.0", registry)
    except OSError as error:
        raise BarnabasError(f"Cannot serve metrics on {where}: {error.strerror or error}.") from None

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop


class BrokerCollector(Collector):
    """The families of one broker."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    def collect(self) -> Iterable[Metric]:
        yield from self._requests()
        yield from self._traffic()
        yield from self._logs()
        yield from self._replication()
        yield from self._groups()
        yield from self._transactions()

    def _requests(self) -> Iterable[Metric]:
        latency = HistogramMetricFamily(
            "kafka_network_request_seconds",
            "Time from a request's arrival to its answer.",
            labels=["request"],
        )
        errors = CounterMetricFamily(
            "kafka_network_request_errors", "Error codes that were answered.", labels=["request", "error"]
        )
        for name, api in list(self._broker.metrics.apis.items()):
            total = 0
            buckets = []
            for bound, count in zip([*map(str, LATENCY_BUCKETS), "+Inf"], list(api.buckets), strict=True):
                total += count
                buckets.append((bound, float(total)))
            latency.add_metric([name], buckets, api.seconds)
            for code, count in list(api.errors.items()):
                errors.add_metric([name, code.name], count)
        yield latency
        yield errors

    def _traffic(self) -> Iterable[Metric]:
        server = self._broker.server
        yield CounterMetricFamily("kafka_network_bytes_in", "Bytes read from clients.", server.bytes_in)
        yield CounterMetricFamily("kafka_network_bytes_out", "Bytes sent to clients.", server.bytes_out)
        yield GaugeMetricFamily("kafka_network_connections", "Connections now open.", len(server.connections))
        yield CounterMetricFamily(
            "kafka_network_connections_accepted", "Connections accepted.", server.accepted
        )

    def _logs(self) -> Iterable[Metric]:
        labels = ["topic", "partition"]
        size = GaugeMetricFamily("kafka_log_size_bytes", "Bytes of a partition on disk.", labels=labels)
        start = GaugeMetricFamily("kafka_log_start_offset", "The first offset of a partition.", labels=labels)
        end = GaugeMetricFamily("kafka_log_end_offset", "The offset after a partition's last.", labels=labels)
        for partition in list(self._broker.replicas):
            names = [partition.tp.topic, str(partition.tp.partition)]
            size.add_metric(names, partition.log.size)
            start.add_metric(names, partition.log.start)
            end.add_metric(names, partition.log.end)
        yield from (size, start, end)
        yield GaugeMetricFamily(
            "kafka_server_partition_count", "Partitions on this broker.", len(self._broker.replicas)
        )
        offline = GaugeMetricFamily("kafka_log_offline_directories", "Data directories that failed.")
        offline.add_metric([], self._broker.directories.offline_count)
        yield offline

    def _replication(self) -> Iterable[Metric]:
        broker = self._broker
        leaders = list(broker.replicas.leaders())
        led = [each.leadership for each in leaders if each.leadership is not None]
        gauges = (
            ("replicamanager_leadercount", "Partitions that this broker leads.", len(leaders)),
            (
                "replicamanager_underreplicatedpartitions",
                "Partitions led here of which a replica is not in sync.",
                sum(len(each.isr) < len(each.replicas) for each in led),
            ),
            (
                "replicamanager_underminisrpartitioncount",
                "Partitions led here with fewer replicas in sync than min.insync.replicas.",
                sum(each.is_short for each in led),
            ),
            (
                "replicamanager_atminisrpartitioncount",
                "Partitions led here with just min.insync.replicas in sync.",
                sum(each.is_at_minimum for each in led),
            ),
            (
                "replicafetchermanager_maxlag",
                "Committed records that the follower here that is furthest behind does not have.",
                broker.replication.max_lag,
            ),
            ("fetchsessioncache_numincrementalfetchsessions", "Fetch sessions.", len(broker.fetch_sessions)),
        )
        for name, doc, value in gauges:
            yield GaugeMetricFamily(f"kafka_server_{name}", doc, value)
        now = broker.steady_clock.now()
        for side, doc, throttle in (
            (
                "leader",
                "Bytes a second of throttled partitions sent to followers.",
                broker.replication.leading,
            ),
            ("follower", "Bytes a second of throttled partitions fetched.", broker.replication.following),
        ):
            yield GaugeMetricFamily(f"kafka_server_{side}replication_byte_rate", doc, throttle.rate(now))
        isr = broker.replication.isr
        for name, doc, count in (
            ("isrshrinks", "Replicas that left the in-sync replicas of a partition led here.", isr.shrinks),
            ("isrexpands", "Replicas that joined the in-sync replicas of a partition led here.", isr.expands),
            (
                "failedisrupdates",
                "Changes of in-sync replicas that the controller did not grant.",
                isr.failed,
            ),
        ):
            yield CounterMetricFamily(f"kafka_server_replicamanager_{name}", doc, count)

    def _groups(self) -> Iterable[Metric]:
        states = GaugeMetricFamily(
            "kafka_coordinator_group_groups", "Groups by kind and state.", labels=["type", "state"]
        )
        labels = ["consumergroup", "topic", "partition"]
        committed = GaugeMetricFamily(
            "kafka_consumergroup_current_offset", "What a group has committed.", labels=labels
        )
        lag = GaugeMetricFamily(
            "kafka_consumergroup_lag", "Records that a group has not committed yet.", labels=labels
        )
        groups = self._broker.groups
        for (kind, state), count in sorted(Counter(groups.states()).items()):
            states.add_metric([kind, state.lower()], count)
        for group, topic, index, offset in groups.committed():
            names = [group, topic, str(index)]
            committed.add_metric(names, offset)
            partition = self._broker.replicas.find(topic, index)
            if partition is not None:
                lag.add_metric(names, max(partition.high_watermark - offset, 0))
        yield from (states, committed, lag)

    def _transactions(self) -> Iterable[Metric]:
        states = GaugeMetricFamily(
            "kafka_coordinator_transaction_transactions",
            "Transactional ids that this broker coordinates, by state.",
            labels=["state"],
        )
        for state, count in sorted(Counter(self._broker.transactions.states()).items()):
            states.add_metric([state.lower()], count)
        yield states
