"""Reading whole kineto records out of a block of text, a column at a time.

kineto writes one event as a JSON object whose braces stand alone on lines of two spaces. A newline cannot occur within a JSON string, so
such a line is where a record begins, whatever is in the strings. Of each record only the wanted fields are read: where they stand is learned from
the block's first event and *checked for each record*, in numpy, over all records of one category at once. A record that fails
the check is handed back to be parsed as JSON; a block in which anything looks like an event that no such line begins is handed back as a whole.
So a different layout costs time, never a wrong figure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rlmbench.traces.columns import Columns, Events, Wanted
from rlmbench.traces.generic import LIMIT, whole
from rlmbench.traces.intervals import Ints, distinct
from rlmbench.traces.names import DEVICE_KINDS, KINDS, RUNTIME_KINDS, Kind

Words = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

BEGIN = b"\n  {\n"
PAD = b" " * 128
"""Behind a block, so that a look ahead from its last bytes stays inside."""

FIRST_EVENT = re.compile(
    rb'\{(\s+"ph": "X",\s+"cat": ")[^"\\]+(",\s+"name": ")[^"\\]*(",\s+"pid": )-?\d+(,\s+"tid": )-?\d+(,\s+"ts": )\d+\.\d{3}(,\s+"dur": )\d+\.\d{3}'
)

VALUE = rb'\s*:\s*("[^"]*"|[^,}\]\s]*)'

_ZEROS = np.uint64(0x3030303030303030)
_LOW7 = np.uint64(0x7F7F7F7F7F7F7F7F)
_ABOVE9 = np.uint64(0x7676767676767676)
_HIGH = np.uint64(0x8080808080808080)
_STOPS = np.array([0x80 << (8 * i) for i in range(8)], np.uint64)
_TEN = np.array([10**i for i in range(9)], np.int64)
_SHIFT = np.array([0, 56, 48, 40, 32, 24, 16, 8, 0], np.uint64)
"""Bits by which the first k of 8 characters move to the top, which leaves zeros before them."""

_BRACE_COMMA = np.uint64(int.from_bytes(b"},", "little"))
_IS_RUNTIME, _IS_DEVICE = (np.array([kind in kinds for kind in Kind]) for kinds in (RUNTIME_KINDS, DEVICE_KINDS))
_ENDS_NUMBER = np.array([character in b",}] \n" for character in range(256)])
EXTERNAL = b'"External id": '


@dataclass(frozen=True)
class Layout:
    """The fixed text between an event's fields."""

    head: bytes
    """From the opening brace (left out) to the category."""
    name: bytes
    pid: bytes
    tid: bytes
    ts: bytes
    dur: bytes


class Block:
    """Whole records: begins with ``\\n  {\\n``, ends with the last record's ``}``, followed by `PAD`."""

    def __init__(self, padded: bytes) -> None:
        self.text = padded
        self.end = len(padded) - len(PAD)
        self.bytes = np.frombuffer(padded, np.uint8)
        self.words: Words = np.ndarray((len(padded) - 8,), "<u8", buffer=padded, strides=(1,))

    def matches(self, at: Ints, literal: bytes) -> Mask:
        """Whether `literal` stands at each position."""
        if len(literal) < 8:
            mask = np.uint64((1 << (8 * len(literal))) - 1)
            return (self.words[at] & mask) == np.uint64(int.from_bytes(literal, "little"))
        found: Mask = np.ones(len(at), np.bool_)
        for offset in [*range(0, len(literal) - 8, 8), len(literal) - 8]:
            found &= self.words[at + offset] == np.uint64(int.from_bytes(literal[offset : offset + 8], "little"))
        return found

    def digits(self, at: Ints) -> tuple[Ints, Ints]:
        """Value and length of up to 8 digits that begin at each position."""
        text = self.words[at] ^ _ZEROS
        stop = (((text & _LOW7) + _ABOVE9) | text) & _HIGH
        length = np.searchsorted(_STOPS, stop & (~stop + np.uint64(1)))
        length[stop == 0] = 8
        value = text << _SHIFT[length]
        value = (value * np.uint64(10) + (value >> np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
        value = (value * np.uint64(100) + (value >> np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
        value = (value * np.uint64(10000) + (value >> np.uint64(32))) & np.uint64(0xFFFFFFFF)
        value[length == 0] = 0
        return value.astype(np.int64), length

    def integers(self, at: Ints) -> tuple[Ints, Ints]:
        """Value and length of up to 16 digits that begin at each position (length 0: none does)."""
        value, length = self.digits(at)
        more = np.flatnonzero(length == 8)
        if len(more):
            low, low_length = self.digits(at[more] + 8)
            value[more] = value[more] * _TEN[low_length] + low
            length[more] += low_length
        return value, length

    def signed(self, at: Ints) -> tuple[Ints, Ints]:
        """As `integers`, with an optional minus sign."""
        minus = self.bytes[at] == 45
        if not minus.any():
            return self.integers(at)
        value, length = self.integers(at + minus)
        return np.where(minus, -value, value), np.where(length > 0, length + minus, 0)

    def times(self, at: Ints) -> tuple[Ints, Ints, Mask]:
        """Microseconds with exactly three decimals, as whole ns; where the text goes on; and where there are such."""
        whole, length = self.integers(at)
        point = at + length
        thousandths, decimals = self.digits(point + 1)
        fine = (length > 0) & (whole < LIMIT // 1000) & (self.bytes[point] == 46) & (decimals == 3)
        return whole * 1000 + thousandths, point + 4, fine

    def arguments(self, starts: list[int], ends: list[int], key: bytes) -> Ints:
        """An integer of each record's ``args``; -1 where it has none."""
        find = self.text.find
        at = np.array([find(key, start, end) for start, end in zip(starts, ends, strict=True)], np.int64)
        value, length = self.signed(np.maximum(at, 0) + len(key))
        odd = np.flatnonzero((at < 0) | (length == 0) | ~_ENDS_NUMBER[self.bytes[np.maximum(at, 0) + len(key) + length]])
        for i in odd.tolist():  # absent, spaced otherwise, or no whole number
            found = re.compile(re.escape(key.rstrip(b": ")) + VALUE).search(self.text, starts[i], ends[i])
            value[i] = whole(found[1]) if found else -1
        return value

    def slices(self, records: Ints, ends: Ints, index: Ints) -> list[bytes]:
        return [
            self.text[start:end].rstrip().rstrip(b",") for start, end in zip(records[index].tolist(), ends[index].tolist(), strict=True)
        ]


def learn(text: bytes) -> Layout | None:
    """The layout of the block's first event, if its fields stand in kineto's order."""
    found = FIRST_EVENT.search(text)
    if found is None:
        return None
    head, name, pid, tid, ts, dur = found.groups()
    return Layout(head, name, pid, tid, ts, dur)


def scan(padded: bytes, wanted: Wanted, columns: Columns) -> list[bytes] | None:
    """Put the wanted events of a block (and `PAD`) into `columns`.

    Returns:
        The records that must be parsed as JSON, because they are not laid out like the block's first event, each an object's text. None: nothing was
        taken, and the whole block must be parsed.
    """
    block = Block(padded)
    braces = np.flatnonzero(block.bytes == 123)
    if not len(braces) or braces[0] < 3:
        return None
    begins = block.matches(braces - 3, BEGIN)
    if _hides_events(block, braces[~begins]):
        return None
    records = braces[begins]
    if (block.words[records[1:] - 5] & np.uint64(0xFFFF) != _BRACE_COMMA).any():  # another list begins here
        return None
    ends = np.append(records[1:], block.end)
    layout = learn(padded)
    if layout is None:  # metadata and flow arrows alone, or events in another order
        return block.slices(records, ends, np.arange(len(records)))
    is_event = block.matches(records + 1, layout.head)
    odd = [_unclear(block, layout, records, np.flatnonzero(~is_event))]
    events = np.flatnonzero(is_event)
    kind, name_at, known = _kinds(block, layout, records[events] + 1 + len(layout.head))
    odd.append(events[~known])
    taken = np.flatnonzero(wanted.by_kind[kind])
    failed = _take(block, layout, wanted, columns, kind[taken], name_at[taken], ends[events[taken]])
    odd.append(events[taken[failed]])
    return block.slices(records, ends, np.concatenate(odd))


def _hides_events(block: Block, braces: Ints) -> bool:
    """Whether one of these braces may open an event: it is followed by a key and is not the value of one."""
    if not len(braces):
        return False
    after = block.bytes[braces + 1]
    suspicious = (after == 34) | (after == 32) | (after == 10) | (after == 13) | (after == 9)
    suspicious &= (block.bytes[braces - 1] != 32) | (block.bytes[braces - 2] != 58)
    return bool(suspicious.any())


def _unclear(block: Block, layout: Layout, records: Ints, index: Ints) -> Ints:
    """Of these records, those that do not say at once that they are no ``"ph": "X"`` (flow arrows, counters and instants do)."""
    phase = layout.head[: layout.head.index(b'"ph": "') + len(b'"ph": "')]
    at = records[index] + 1
    return index[~(block.matches(at, phase) & (block.bytes[at + len(phase)] != 88))]


def _kinds(block: Block, layout: Layout, category_at: Ints) -> tuple[Ints, Ints, Mask]:
    """Of each event: its kind, where its name begins, and whether its category is one we know."""
    kind, name_at, known = np.zeros(len(category_at), np.int64), np.zeros(len(category_at), np.int64), np.zeros(len(category_at), np.bool_)
    keys = block.words[category_at]
    for key in distinct(keys):
        first = key.to_bytes(8, "little")
        for category, its_kind in KINDS.items():
            behind = category + layout.name
            if behind.startswith(first):
                index = np.flatnonzero(keys == np.uint64(key))
                index = index[block.matches(category_at[index], behind)]
                kind[index] = its_kind
                name_at[index] = category_at[index] + len(behind)
                known[index] = True
    return kind, name_at, known


def _take(block: Block, layout: Layout, wanted: Wanted, columns: Columns, kind: Ints, name_at: Ints, ends: Ints) -> Ints:
    """Read events into `columns`; returns the positions of those that failed the check."""
    text, find = block.text, block.text.find
    starts = name_at.tolist()
    stops = [find(b'"', at) for at in starts]
    names = [text[start:stop] for start, stop in zip(starts, stops, strict=True)]
    number = columns.numbers(names)
    at = np.array(stops, np.int64)
    good = (at >= 0) & (block.bytes[np.maximum(at - 1, 0)] != 92)
    keep = good if wanted.all_runtime else good & (~_IS_RUNTIME[kind] | columns.is_launch(number))
    failed = ~good
    chosen = np.flatnonzero(keep)
    kind, number, at, ends = kind[chosen], number[chosen], at[chosen], ends[chosen]
    good = block.matches(at, layout.pid)
    pid, length = block.signed(at := at + len(layout.pid))
    good &= (length > 0) & block.matches(at := at + length, layout.tid)
    tid, length = block.signed(at := at + len(layout.tid))
    good &= (length > 0) & block.matches(at := at + length, layout.ts)
    ts_ns, at, fine = block.times(at + len(layout.ts))
    good &= fine & block.matches(at, layout.dur)
    dur_ns, at, fine = block.times(at + len(layout.dur))
    good &= fine
    failed[chosen[~good]] = True
    for group, add in (
        (_IS_DEVICE[kind], _add_device),
        (_IS_RUNTIME[kind], _add_runtime),
        (kind == Kind.OPERATOR, _add_operators),
        ((kind == Kind.ANNOTATION) | (kind == Kind.DEVICE_ANNOTATION), _add_annotations),
    ):
        index = np.flatnonzero(group & good)
        if len(index):
            event = Events(kind[index], number[index], pid[index], tid[index], ts_ns[index], ts_ns[index] + dur_ns[index])
            add(block, wanted, columns, event, at[index].tolist(), ends[index].tolist())
    return np.flatnonzero(failed)


def _add_device(block: Block, wanted: Wanted, columns: Columns, events: Events, starts: list[int], ends: list[int]) -> None:
    device, stream, correlation = (block.arguments(starts, ends, key) for key in (b'"device": ', b'"stream": ', b'"correlation": '))
    columns.add_device(events, device, stream, correlation, block.arguments(starts, ends, EXTERNAL) if wanted.external_ids else None)


def _add_runtime(block: Block, wanted: Wanted, columns: Columns, events: Events, starts: list[int], ends: list[int]) -> None:
    columns.add_runtime(events, block.arguments(starts, ends, b'"correlation": '))


def _add_operators(block: Block, wanted: Wanted, columns: Columns, events: Events, starts: list[int], ends: list[int]) -> None:
    needs_ids = wanted.external_ids and columns.is_special(events.name).any()
    columns.add_operators(events, block.arguments(starts, ends, EXTERNAL) if needs_ids else None)


def _add_annotations(block: Block, wanted: Wanted, columns: Columns, events: Events, starts: list[int], ends: list[int]) -> None:
    columns.add_annotations(events, block.arguments(starts, ends, EXTERNAL))
