"""One pass over a trace file, plain or gzipped, in blocks: from text to columns, with whatever the header states."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec
from isal import igzip, igzip_threaded, isal_zlib

from rlmbench.errors import UserError
from rlmbench.traces import generic, scan
from rlmbench.traces.columns import Columns, Wanted

CHUNK_BYTES = 1 << 20
HEADER_LIMIT_BYTES = 16 << 20
EVENT_LIMIT_BYTES = 32 << 20
"""Longer than any event or header of torch's; a file that exceeds it is refused, since memory is to stay bounded."""
CUT = b"\n  },\n  {"
KINETO = re.compile(rb"\s*(?:\n  \{\n|\])")
TRACE_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
RECORD = "record it again with torch.profiler (export_chrome_trace or tensorboard_trace_handler)"

_open_zipped: Callable[..., BinaryIO] = cast("Any", igzip_threaded).open
_DAMAGED = (EOFError, igzip.BadGzipFile, zlib.error, cast("type[Exception]", isal_zlib.error))


@dataclass(frozen=True)
class Reading:
    """What was read from one file."""

    columns: Columns
    metadata: dict[str, Any]
    """The trace's own keys beside its events: deviceProperties, distributedInfo, baseTimeNanoseconds, ..."""
    layout: str
    """As `Trace.layout`."""


def read_columns(path: Path, wanted: Wanted) -> Reading:
    """Read the wanted events of a trace.

    Raises:
        UserError: the file cannot be read, is cut off or damaged, or is no trace.
    """
    return _Reader(path, wanted).read()


class _Reader:
    def __init__(self, path: Path, wanted: Wanted) -> None:
        self.path = path
        self.wanted = wanted
        self.columns = Columns()
        self.layout = "kineto"

    def read(self) -> Reading:
        with closing(_chunks(self.path)) as chunks:
            buffer, metadata = self._header(chunks)
            buffer, exhausted = self._records(buffer, chunks)
            rest = self._events(buffer, chunks, exhausted)
            metadata |= self._footer(rest, chunks, metadata)
        return Reading(self.columns, metadata, self.layout)

    def _header(self, chunks: Iterator[bytes]) -> tuple[bytes, dict[str, Any]]:
        """What stands before the events, and the text from the first event on."""
        buffer, looked_at = b"", 0
        for chunk in chunks:
            buffer = (buffer + chunk).removeprefix(b"\xef\xbb\xbf") if not looked_at else buffer + chunk
            text = buffer.lstrip()
            if text[:1] == b"[":  # Chrome's other form: the events alone
                return text[1:], {"": "array"}
            if text[:1] not in (b"{", b""):
                break
            for found in TRACE_EVENTS.finditer(buffer, max(0, looked_at - 64)):
                metadata = _object(buffer[: found.start()].rstrip().rstrip(b",") + b"}")
                if metadata is not None:
                    return buffer[found.end() :], metadata
            looked_at = len(buffer)
            if looked_at > HEADER_LIMIT_BYTES:
                raise UserError(f"{self.path}: no traceEvents in its first {looked_at >> 20} MiB; give a trace of torch.profiler")
        if not buffer.strip():
            raise UserError(f"{self.path} is empty: {RECORD}")
        if buffer.lstrip()[:1] == b"{" and _object(buffer) is None:
            raise UserError(f"{self.path} is cut off before its events, or is not JSON: {RECORD}")
        raise UserError(f"{self.path} is not a trace: it has no traceEvents; give the .pt.trace.json(.gz) that torch.profiler wrote")

    def _records(self, buffer: bytes, chunks: Iterator[bytes]) -> tuple[bytes, bool]:
        """The fast way, as far as it goes. Returns the text that is left to the general way, and whether the file is exhausted."""
        for chunk in chunks:
            cut = chunk.rfind(CUT)
            if cut < 0:
                buffer += chunk
                if len(buffer) > 4 * CHUNK_BYTES:
                    return buffer, False
                continue
            cut += len(b"\n  }")
            block = b"".join((buffer, memoryview(chunk)[:cut], scan.PAD))
            try:
                self._block(block)
            except generic.Malformed:
                return block.removesuffix(scan.PAD) + chunk[cut:], False
            buffer = chunk[cut + 1 :]
        return buffer, True

    def _block(self, block: bytes) -> None:
        """Read whole records, which end in a pad.

        Raises:
            generic.Malformed: the block is not cut between events, or is damaged; nothing was read.
        """
        odd = scan.scan(block, self.wanted, self.columns)
        if odd is None:
            self.layout = "json"
            generic.parse(block, self.wanted, self.columns)
        elif odd:
            text = b",".join(odd)
            if 2 * len(text) > len(block):
                self.layout = "json"
            try:
                generic.parse(text, self.wanted, self.columns)
            except generic.Malformed as error:
                raise self._damaged(error) from error

    def _events(self, buffer: bytes, chunks: Iterator[bytes], exhausted: bool) -> bytes:
        """The general way, to the end of the events. Returns what follows them."""
        if not exhausted or not KINETO.match(buffer):
            self.layout = "json"
        while True:
            whole, end = generic.split(buffer)
            if whole:
                self._parse(buffer[:whole])
            if end is not None:
                if buffer[whole:end].strip().strip(b","):
                    raise self._damaged("something stands between the last event and the end of the list")
                return buffer[end:]
            buffer = buffer[whole:]
            if len(buffer) > EVENT_LIMIT_BYTES:
                raise UserError(
                    f"{self.path}: an event of more than {EVENT_LIMIT_BYTES >> 20} MiB; the file is damaged, or no trace: {RECORD}"
                )
            chunk = next(chunks, b"")
            if not chunk:
                raise UserError(f"{self.path} is cut off within its events (its process was ended, or the disk was full): {RECORD}")
            buffer += chunk

    def _parse(self, text: bytes) -> None:
        try:
            generic.parse(text, self.wanted, self.columns)
        except generic.Malformed as error:
            raise self._damaged(error) from error

    def _footer(self, buffer: bytes, chunks: Iterator[bytes], metadata: dict[str, Any]) -> dict[str, Any]:
        """What follows the events, which must end what the header began."""
        for chunk in chunks:
            buffer += chunk
            if len(buffer) > HEADER_LIMIT_BYTES:
                raise UserError(
                    f"{self.path}: more than {HEADER_LIMIT_BYTES >> 20} MiB behind its events; it is damaged, or no trace: {RECORD}"
                )
        if metadata.pop("", "") == "array":
            rest: dict[str, Any] | None = {} if not buffer[1:].strip() else None
        else:
            rest = _object(b'{"":[' + buffer)
        if rest is None:
            raise UserError(f"{self.path} is cut off behind its events: {RECORD}")
        rest.pop("", None)
        return rest

    def _damaged(self, error: object) -> UserError:
        return UserError(f"{self.path}: its events are not JSON ({error}): {RECORD}")


def _object(text: bytes) -> dict[str, Any] | None:
    """A JSON object, or None."""
    for attempt in (text, generic.NOT_JSON.sub(rb"\1null", text)):
        try:
            found = msgspec.json.decode(attempt)
        except generic.UNREADABLE:
            continue
        return found if isinstance(found, dict) else None
    return None


def _chunks(path: Path) -> Generator[bytes, None, None]:
    """The file's text; a gzipped file is told by its first bytes, not by its name."""
    try:
        with path.open("rb") as begin:
            zipped = begin.read(2) == b"\x1f\x8b"
        with _open_zipped(path, "rb", threads=1, block_size=CHUNK_BYTES // 4) if zipped else path.open("rb", buffering=0) as stream:
            while chunk := stream.read(CHUNK_BYTES):
                yield chunk
    except _DAMAGED as error:
        raise UserError(f"{path} is cut off or damaged (gzip: {error}): {RECORD}") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}; give a .pt.trace.json or .pt.trace.json.gz file") from error
