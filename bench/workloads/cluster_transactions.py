"""Transactions on three brokers beside three: the workload `transactions`, with every record on three disks."""

from __future__ import annotations

from collections.abc import Sequence

from bench.measure import Case, Size, Wanted
from bench.workloads import cluster, transactions

NAME = "cluster_transactions"
TITLE = "Transactions on three brokers"
FRESH = False
ABOUT = f"{transactions.ABOUT} Clusters as in the workload `cluster`: replication 3, min.insync.replicas=2."
METRICS = transactions.METRICS

sides = cluster.sides
cases = transactions.cases
run = transactions.run


def rounds(size: Size) -> int:
    return 2 if size is Size.QUICK else 5


def wanted(metric: str, case: Case, limits: Sequence[str]) -> Wanted | None:
    return Wanted(1.5, at_least=True) if metric == "commits_s" else transactions.wanted(metric, case, limits)
