"""Writes the functions that turn messages into bytes. Called by the codec, once for each class and version.

Everything but `Records` goes into one growing bytearray, so that a message without records is one chunk.
"""

import struct
from collections.abc import Callable
from typing import Any, NoReturn

from barnabas.wire.apis import NO_VERSION
from barnabas.wire.schema import Chunk, Field, Malformed, Records, String, Uuid, fields_of
from barnabas.wire.source import Source, element_of

Encoder = Callable[[Any, bytearray], list[Chunk]]


class EncoderSource(Source):
    """Writes the function that appends one message to `out`."""

    def compiled(self) -> Encoder:
        self.names |= {"put_varint": put_varint, "pack": struct.pack, "unset": _unset}
        has_records = _has_records(self.cls)
        if has_records:
            self.line("chunks = []")
        self.struct(self.cls, "message")
        self.flush()
        if has_records:
            self.line("if out: chunks.append(out)")
            self.line("return chunks")
        else:
            self.line("return [out]")
        return self.function("encode(message, out)")  # type: ignore[no-any-return]

    def struct(self, cls: type[Any], source: str) -> None:
        present = self.fields(cls)
        for f in present:
            if f.tag is None:
                self.value(f, f"{source}.{f.name}")
        if self.is_flexible:
            self.tagged([f for f in present if f.tag is not None], source)

    def value(self, f: Field, source: str) -> None:
        if f.kind and f.kind.code and not f.is_array:
            self.run.append((f.kind.code, f"{source}.bytes" if f.kind is Uuid else source))
            return
        if f.struct and not f.is_array:
            self.one_struct(f, f.struct, source)
            return
        value, size = self.fresh(f.name), self.fresh("n")
        null, shift = (0, " + 1") if self.is_flexible else (-1, "")
        self.line(f"{value} = {source}")
        if self.is_nullable(f):
            self.line(f"if {value} is None: {size} = {null}")
            self.line("else:")
            self.depth += 1
        elif f.nullable_since < NO_VERSION:
            self.line(f"if {value} is None: unset({f.name!r}, {self.version})")
        if f.kind is String and not f.is_array:
            self.line(f"{value} = {value}.encode()")
        self.line(f"{size} = len({value}){shift}")
        if self.is_nullable(f):
            self.depth -= 1
        self.flush_with_length(self.length_code(f), size)
        self.body(f, value, size)

    def one_struct(self, f: Field, cls: type[Any], source: str) -> None:
        if not self.is_nullable(f):
            self.struct(cls, source)
            return
        # A struct that may be null has a byte in front: 1, or for null -1; but 0 where the struct is tagged.
        self.flush()
        self.line(f"if {source} is None: out.append({255 if f.tag is None else 0})")
        self.line("else:")
        self.depth += 1
        self.line("out.append(1)")
        self.struct(cls, source)
        self.flush()
        self.depth -= 1

    def body(self, f: Field, value: str, size: str) -> None:
        """Writes what follows a length."""
        some = f"{size} > {int(self.is_flexible)}"
        if not f.is_array and f.kind is not Records:
            self.line(f"if {some}: out += {value}" if self.is_nullable(f) else f"out += {value}")
            return
        self.line(f"if {some}:")
        self.depth += 1
        if f.kind is Records:
            self.line("chunks.append(out)")
            self.line(f"chunks.append({value})")
            self.line("out = bytearray()")
        elif f.kind and f.kind.code and f.kind is not Uuid:
            self.line(f"out += pack(f'>{{len({value})}}{f.kind.code}', *{value})")
        else:
            element = self.fresh("each")
            self.line(f"for {element} in {value}:")
            self.depth += 1
            if f.struct:
                self.struct(f.struct, element)
            else:
                self.value(element_of(f), element)
            self.flush()
            self.depth -= 1
        self.depth -= 1

    def tagged(self, known: list[Field], source: str) -> None:
        """Writes the tagged fields that differ from their defaults; their number is nearly always zero."""
        if not known:
            self.run.append(("B", "0"))
            return
        self.flush()
        # Looked at before anything is built: `not x` and `is None` are all that the usual answer costs.
        quiet = " and ".join(f"{source}.{f.name} {self.is_default(f)}" for f in known)
        self.line(f"if {quiet}: out.append(0)")
        self.line("else:")
        self.depth += 1
        outer, fields = self.fresh("outer"), self.fresh("tagged")
        self.line(f"{outer}, {fields} = out, []")
        for f in sorted(known, key=lambda f: f.tag or 0):
            blank = f.struct() if f.struct and not f.is_array else f.default
            differs = (
                f"{source}.{f.name}"
                if f.default is list
                else f"{source}.{f.name} != {self.bound('blank', blank)}"
            )
            if f.struct and not f.is_array and not self.is_nullable(f):
                differs += f" and {source}.{f.name} is not None"
            self.line(f"if {differs}:")
            self.depth += 1
            self.line("out = bytearray()")
            self.value(f, f"{source}.{f.name}")
            self.flush()
            self.line(f"{fields}.append(({f.tag}, out))")
            self.depth -= 1
        self.line(f"out = {outer}")
        self.line(f"put_varint(out, len({fields}))")
        self.line(f"for tag, part in {fields}:")
        self.line("    put_varint(out, tag); put_varint(out, len(part)); out += part")
        self.depth -= 1

    def is_default(self, f: Field) -> str:
        if f.default is list:
            return "== []"
        if isinstance(f.default, int):
            return f"== {f.default!r}"
        if f.struct and not f.is_array and self.is_nullable(f):
            return f"== {self.bound('blank', f.struct())}"
        return "is None" if f.default is None else f"== {self.bound('blank', f.default)}"

    def flush(self) -> None:
        """Writes the struct call that appends the pending run."""
        run, self.run = self.run, []
        if run:
            self.line(self.put(run))

    def flush_with_length(self, code: str, size: str) -> None:
        """As flush; a length goes along with the run. A compact one does while it fits into one byte."""
        run, self.run = self.run, []
        if self.is_flexible:
            self.line(f"if {size} < 128: {self.put([*run, ('B', size)])}")
            self.line("else:")
            self.depth += 1
            if run:
                self.line(self.put(run))
            self.line(f"put_varint(out, {size})")
            self.depth -= 1
        else:
            self.line(self.put([*run, (code, size)]))

    def put(self, run: list[tuple[str, str]]) -> str:
        if len(run) == 1 and run[0][0] == "B":
            return f"out.append({run[0][1]})"
        layout = struct.Struct(">" + "".join(code for code, _ in run))
        return f"out += {self.bound('write', layout.pack)}({', '.join(value for _, value in run)})"


def _has_records(cls: type[Any]) -> bool:
    return any(f.kind is Records or (f.struct is not None and _has_records(f.struct)) for f in fields_of(cls))


def put_varint(out: bytearray, value: int) -> None:
    """Append an unsigned varint."""
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def _unset(name: str, version: int) -> NoReturn:
    raise Malformed(f"{name} may not be null in version {version}")
