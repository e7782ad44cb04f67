"""One short file a workload. ALL is the order in which they run: fresh brokers (starts, memory) first."""

from __future__ import annotations

from typing import cast

from bench.measure import Workload
from bench.workloads import (
    client,
    cluster,
    cluster_transactions,
    durable,
    end_to_end,
    groups,
    memory,
    one_mib,
    one_record,
    partitions,
    retained,
    spark,
    start,
    throughput,
    transactions,
)

ALL: tuple[Workload, ...] = tuple(
    cast(Workload, module)
    for module in (
        start,
        memory,
        throughput,
        one_record,
        durable,
        end_to_end,
        one_mib,
        groups,
        partitions,
        transactions,
        retained,
        cluster,
        cluster_transactions,
        client,
        spark,
    )
)
