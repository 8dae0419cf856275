"""Reading trace events of any JSON layout (pretty-printed, compact, another order of keys), in bounded memory.

Slower than `rlmbench.traces.scan`, which hands over what it is not sure of. Strings and nesting are followed through a buffer in numpy, so
that it is cut between two events wherever their braces stand; msgspec then parses the whole events.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation

import msgspec
import numpy as np

from rlmbench.traces.columns import Columns, Events, Wanted
from rlmbench.traces.names import DEVICE_KINDS, KINDS, RUNTIME_KINDS, Kind

LIMIT = 1 << 62
"""Of what a column of integers holds, with room for a sum of two."""

KIND_OF = {category.decode(): kind for category, kind in KINDS.items()}

NOT_JSON = re.compile(rb"([:\[,]\s*)(?:N/A|-?nan|-?inf|-?Infinity|NaN)\b", re.IGNORECASE)
"""What kineto wrote at times in the place of a number (``"memory bandwidth (GB/s)": inf``)."""

UNREADABLE = (msgspec.DecodeError, RecursionError)
"""What msgspec raises for what is no JSON, and for what is nested thousands of brackets deep."""

PLAIN_NUMBER = re.compile(rb'"?(\d+)(?:\.(\d{1,3}))?"?')


class Malformed(Exception):
    """The text is not what JSON allows there."""


class _Event(msgspec.Struct, gc=False):
    ph: str = ""
    cat: str | None = None
    name: str | None = None
    pid: msgspec.Raw = msgspec.Raw(b"")
    tid: msgspec.Raw = msgspec.Raw(b"")
    ts: msgspec.Raw = msgspec.Raw(b"")
    dur: msgspec.Raw = msgspec.Raw(b"")
    args: msgspec.Raw = msgspec.Raw(b"")


class _Arguments(msgspec.Struct, gc=False):
    device: msgspec.Raw = msgspec.Raw(b"")
    stream: msgspec.Raw = msgspec.Raw(b"")
    correlation: msgspec.Raw = msgspec.Raw(b"")
    external: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="External id")


_EVENTS = msgspec.json.Decoder(list[_Event])
_ARGUMENTS = msgspec.json.Decoder(_Arguments)


def split(buffer: bytes) -> tuple[int, int | None]:
    """Where whole events end in a buffer that begins between two events of an array.

    Returns:
        How many bytes hold whole events, and the position of the bracket that ends the array (None: it is not in the buffer).
    """
    clean = buffer.replace(b"\\\\", b"__").replace(b'\\"', b"__") if b"\\" in buffer else buffer
    characters = np.frombuffer(clean, np.uint8)
    quotes = np.flatnonzero(characters == 34)
    folded = characters | 0x20  # [ and { are alike then, and so are ] and }
    braces = np.flatnonzero((folded == 0x7B) | (folded == 0x7D))
    braces = braces[(np.searchsorted(quotes, braces) & 1) == 0]
    depth = np.cumsum(np.where(folded[braces] == 0x7B, 1, -1))
    ended = np.flatnonzero(depth < 0)
    stop = int(ended[0]) if len(ended) else None
    whole = np.flatnonzero(depth[:stop] == 0)
    return int(braces[whole[-1]]) + 1 if len(whole) else 0, None if stop is None else int(braces[stop])


def parse(text: bytes, wanted: Wanted, columns: Columns) -> None:
    """Put the wanted events of ``{...}, {...}`` into `columns`.

    Raises:
        Malformed: the text is not a sequence of JSON objects.
    """
    listed = b"[" + text.strip().strip(b",") + b"]"
    try:
        events = _EVENTS.decode(listed)
    except UNREADABLE:
        try:
            events = _EVENTS.decode(NOT_JSON.sub(rb"\1null", listed))
        except UNREADABLE as error:
            raise Malformed(str(error)) from error
    groups: dict[Callable[..., None], list[tuple[_Event, Kind, _Arguments]]] = {}
    for event in events:
        if event.ph != "X" or event.cat is None:
            continue
        kind = KIND_OF.get(event.cat, Kind.SKIP)
        if kind is Kind.SKIP or not wanted.by_kind[kind]:
            continue
        if kind in DEVICE_KINDS:
            add: Callable[..., None] = columns.add_device
        elif kind in RUNTIME_KINDS:
            add = columns.add_runtime
        else:
            add = columns.add_operators if kind is Kind.OPERATOR else columns.add_annotations
        groups.setdefault(add, []).append((event, kind, _arguments(event.args)))
    for add, members in groups.items():
        _add(add, members, wanted, columns)


def _add(add: Callable[..., None], members: list[tuple[_Event, Kind, _Arguments]], wanted: Wanted, columns: Columns) -> None:
    number = columns.numbers([(event.name or "").encode() for event, _, _ in members])
    if add == columns.add_runtime and not wanted.all_runtime:
        keep = np.flatnonzero(columns.is_launch(number))
        members, number = [members[i] for i in keep], number[keep]
        if not members:
            return
    start = np.array([nanoseconds(bytes(event.ts)) for event, _, _ in members], np.int64)
    duration = np.array([nanoseconds(bytes(event.dur)) for event, _, _ in members], np.int64)
    events = Events(
        np.array([kind for _, kind, _ in members], np.int64),
        number,
        np.array([whole(bytes(event.pid)) for event, _, _ in members], np.int64),
        np.array([whole(bytes(event.tid)) for event, _, _ in members], np.int64),
        start,
        start + duration,
    )
    external = np.array([whole(bytes(arguments.external)) for _, _, arguments in members], np.int64)
    correlation = np.array([whole(bytes(arguments.correlation)) for _, _, arguments in members], np.int64)
    if add == columns.add_device:
        device = np.array([whole(bytes(arguments.device)) for _, _, arguments in members], np.int64)
        stream = np.array([whole(bytes(arguments.stream)) for _, _, arguments in members], np.int64)
        add(events, device, stream, correlation, external if wanted.external_ids else None)
    elif add == columns.add_runtime:
        add(events, correlation)
    elif add == columns.add_operators:
        add(events, external if wanted.external_ids else None)
    else:
        add(events, external)


def _arguments(raw: msgspec.Raw) -> _Arguments:
    try:
        return _ARGUMENTS.decode(raw) if bytes(raw) else _Arguments()
    except UNREADABLE:  # not an object, or a value of a kind that no version writes
        return _Arguments()


def whole(text: bytes) -> int:
    """An id, as it stands in the file; -1 for none, for a text such as ``"Spans"``, and for what no id can be."""
    try:
        number = int(text.strip(b'"'))
    except ValueError:
        try:
            number = int(float(text))
        except (ValueError, OverflowError):
            return -1
    return number if abs(number) < LIMIT else -1


def nanoseconds(text: bytes) -> int:
    """A number of microseconds, as it stands in the file, to the nearest ns; 0 where there is none. Never through a float.

    Raises:
        Malformed: a time beyond 292 years.
    """
    plain = PLAIN_NUMBER.fullmatch(text)
    if plain:
        whole, decimals = plain.groups(b"")
        found = int(whole[:20]) * 1000 + int(decimals.ljust(3, b"0"))
    else:
        try:
            found = _nearest(Decimal(text.strip(b'"').decode()))
        except (InvalidOperation, ValueError, OverflowError):
            return 0
    if abs(found) >= LIMIT:
        raise Malformed(f"a time of {text[:40].decode()} us")
    return found


def _nearest(microseconds: Decimal) -> int:
    """In ns; at once the limit for what no multiplication could hold."""
    return round(microseconds * 1000) if microseconds.copy_abs() < LIMIT else LIMIT
