"""Puts the columns of a stream together: text from parts, moments as text, the table that all streams give."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.generate.dice import Ints


def joined(*parts: Any) -> Any:
    """One text a row from columns and constants, in their order."""
    return pc.binary_join_element_wise(*(_text(part) for part in parts), "")


def _text(part: Any) -> Any:
    if isinstance(part, str):
        return pa.scalar(part)
    column = part if isinstance(part, pa.Array | pa.ChunkedArray) else pa.array(part)
    return column if pa.types.is_string(column.type) else column.cast(pa.string())


def iso_moments(millis: Ints) -> Any:
    """`2026-01-31T12:00:00.123Z`."""
    return joined(pc.strftime(pa.array(millis, pa.timestamp("ms")), format="%Y-%m-%dT%H:%M:%S"), "Z")


def nginx_moments(millis: Ints) -> Any:
    """`31/Jan/2026:12:00:00 +0000`; many rows share a second, so each second is written once."""
    seconds = pa.array(millis // 1000, pa.timestamp("s")).dictionary_encode()
    texts = pc.strftime(seconds.dictionary, format="%d/%b/%Y:%H:%M:%S +0000")
    return texts.take(seconds.indices)


def table(key: Any, value: Any, millis: Ints) -> Any:
    """The columns `Producer.send_table` takes."""
    return pa.table(
        {
            "key": key.cast(pa.binary()),
            "value": value.cast(pa.binary()),
            "timestamp": pa.array(millis, pa.timestamp("ms", "UTC")),
        }
    )
