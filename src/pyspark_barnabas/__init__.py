"""Where Spark looks by itself: it imports every top-level `pyspark_*` package and takes its DefaultSource."""

from barnabas.spark.source import BarnabasDataSource as DefaultSource

__all__ = ["DefaultSource"]
