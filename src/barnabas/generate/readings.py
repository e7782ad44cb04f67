"""`generate metrics`: readings of many services as JSON, with incidents; the key is the service.

    {"time": "2026-01-31T12:00:00.123Z", "service": "cart", "host": "cart-2", "metric": "latency_ms", "value": 41.7}

20 services on 4 hosts each are read for 4 metrics, one reading after the other. Now and then a service has an
incident of two to seven minutes: latency is tenfold, errors are many, the CPU is busy.
"""

from typing import Any

import numpy as np

from barnabas.generate.columns import iso_moments, joined, table
from barnabas.generate.dice import Dice, words_of
from barnabas.generate.stream import Clock, Stream

SERVICES = [
    "auth",
    "cart",
    "catalog",
    "checkout",
    "email",
    "fraud",
    "gateway",
    "images",
    "inventory",
    "ledger",
]
SERVICES += [
    "login",
    "media",
    "orders",
    "payments",
    "pricing",
    "profile",
    "ratings",
    "search",
    "shipping",
    "tax",
]
METRICS = ["latency_ms", "error_rate", "cpu_percent", "requests_per_s"]

_HOSTS = 4
_SERIES = len(SERVICES) * _HOSTS * len(METRICS)
_WINDOW_MS = 600_000
_INCIDENT_SHARE = 0.05
_NORMAL = np.array([40.0, 0.5, 35.0, 250.0])
_IN_TROUBLE = np.array([10.0, 25.0, 2.4, 0.6])
_SPREAD = np.array([0.35, 0.6, 0.2, 0.25])
_MOST = np.array([60_000.0, 100.0, 100.0, 1e6])


def _rows(seed: int, clock: Clock, first: int, count: int) -> Any:
    dice = Dice(seed, "metrics")
    row = np.arange(first, first + count, dtype=np.int64)
    millis = np.asarray(clock.at(row), dtype=np.int64)
    series = row % _SERIES
    metric = series % len(METRICS)
    host = series // len(METRICS) % _HOSTS
    service = series // (len(METRICS) * _HOSTS)
    trouble = np.where(_in_incident(dice, service, millis), _IN_TROUBLE[metric], 1.0)
    value = _NORMAL[metric] * trouble * np.exp(_SPREAD[metric] * dice.normal("value", row))
    value = np.round(np.minimum(value, _MOST[metric]), 3)
    name = words_of(SERVICES, service)
    text = joined(
        *('{"time": "', iso_moments(millis), '", "service": "', name, '", "host": "', name, "-", host + 1),
        *('", "metric": "', words_of(METRICS, metric), '", "value": ', value, "}"),
    )
    return table(name, text, millis)


def _in_incident(dice: Dice, service: Any, millis: Any) -> Any:
    """In some stretches of ten minutes a service has an incident somewhere within."""
    stretch, within = service * 10_000_019 + millis // _WINDOW_MS, millis % _WINDOW_MS
    begins = dice.below(180_000, "incident begins", stretch)
    lasts = 120_000 + dice.below(300_000, "incident lasts", stretch)
    happens = dice.chance("incident", stretch) < _INCIDENT_SHARE
    return happens & (within >= begins) & (within < begins + lasts)


STREAM = Stream("metrics", "metrics", "readings of 20 services, with incidents", 500.0, _rows)
