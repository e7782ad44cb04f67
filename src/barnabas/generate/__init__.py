"""Made-up records that look like the real ones: access lines, what visitors do, readings of services.

Called by `barnabas generate`, by the demo, and by tests of the pipelines. Always holds: row N of a stream is a function
of the seed, the clock and N alone, so the same command gives the same bytes, in chunks of any size, from any row on.
Everything is made as Arrow columns; a row costs one to two microseconds.

    from barnabas.generate import Clock, streams

    table = streams()["logs"].rows(seed=7, clock=Clock(start_ms=0, rate=1000.0), first=0, count=10_000)
"""

from barnabas.generate.stream import Clock, Stream

__all__ = ["Clock", "Stream", "streams"]


def streams() -> dict[str, Stream]:
    """Every stream there is, by the name it has on the command line."""
    from barnabas.generate import access_log, activity, readings

    found = (access_log.STREAM, activity.STREAM, readings.STREAM)
    return {stream.name: stream for stream in found}
