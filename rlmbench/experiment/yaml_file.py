"""YAML that remembers the line of every key, so that an error can name file and line.

Only plain data passes: mappings with text keys, lists, text, numbers, true, false and null. A document is walked
node by node instead of being constructed, which is what makes duplicate keys, foreign tags and runaway aliases
visible. Numbers such as ``1e-6`` are floats, as in YAML 1.2; PyYAML alone would read them as text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path as FilePath
from typing import Any

import yaml

from rlmbench.errors import UserError

KeyPath = tuple[str | int, ...]

# Far above any real suite: they bound what an alias bomb or a wrong file can cost.
MAX_BYTES = 1_000_000
MAX_VALUES = 20_000
MAX_DEPTH = 32

_TAG = "tag:yaml.org,2002:"
_SCALARS = {_TAG + name for name in ("int", "float", "bool", "null")}
_TEXT = {_TAG + name for name in ("str", "timestamp", "value")}


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which stops at a depth instead of at Python's recursion limit."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            here = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(problem=f"nested deeper than {MAX_DEPTH} levels", problem_mark=here)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


_Loader.add_implicit_resolver(_TAG + "float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789"))


@dataclass(frozen=True)
class Document:
    """Plain data, and for the key path of every value the line (from 1) on which its key stands."""

    data: Any
    lines: Mapping[KeyPath, int]

    def line(self, path: KeyPath) -> int:
        """The line of `path`, or of the nearest part of it that the document has."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def dotted(path: KeyPath) -> str:
    """``a.b[2]`` for ``("a", "b", 2)``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def shown(path: FilePath) -> str:
    """`path` as a user would type it: relative when it lies below the working directory."""
    try:
        return str(path.resolve().relative_to(FilePath.cwd()))
    except ValueError:
        return str(path)


def read_yaml(path: FilePath) -> Document:
    """The document in a file.

    Raises:
        UserError: the file cannot be read, is not UTF-8, or is not plain YAML; the message names the line.
    """
    place = shown(path)
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UserError(f"{place}: cannot be read: {error.strerror}") from error
    if len(raw) > MAX_BYTES:
        raise UserError(f"{place}: larger than {MAX_BYTES} bytes, which no suite is")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise UserError(f"{place}:{line}: not UTF-8 text (byte 0x{raw[error.start]:02x}); save the file as UTF-8") from error
    return parse(text, place)


def parse(text: str, place: str) -> Document:
    """The document in `text`; `place` begins every message (``suites/x.yaml``).

    Raises:
        UserError: not YAML, or not plain data.
    """
    try:
        node = _composed(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UserError(f"{place}:{line}: not valid YAML: {_explain(error)}") from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise UserError(f"{place}:{line}: not valid YAML: character U+{ord(text[error.position]):04X} is not allowed") from error
    if node is None:
        raise UserError(f"{place}: is empty")
    walk = _Walk(place)
    return Document(walk.value(node, ()), walk.lines)


@lru_cache(maxsize=32)
def _composed(text: str) -> yaml.Node | None:
    """The nodes of `text`, which nobody changes; a suite is read several times on the way to its runs, and composing takes nearly all of that."""
    return yaml.compose(text, Loader=_Loader)


def _explain(error: yaml.MarkedYAMLError) -> str:
    problem = " ".join((error.problem or error.context or "it cannot be parsed").split())
    return "indent with spaces, not tabs" if r"'\t'" in problem else problem


class _Walk:
    """Turns nodes into data, counting as it goes: aliases are visited each time they are used."""

    def __init__(self, place: str) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._place = place
        self._values = 0

    def value(self, node: yaml.Node, path: KeyPath) -> Any:
        self._values += 1
        if self._values > MAX_VALUES:
            self._refuse(node, path, f"more than {MAX_VALUES} values: aliases (*name) repeat too much")
        if len(path) > MAX_DEPTH:
            self._refuse(node, path[:3], f"nested deeper than {MAX_DEPTH} levels")
        self.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
            return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode) and node.tag in _TEXT:
            return node.value
        if isinstance(node, yaml.ScalarNode) and node.tag in _SCALARS:
            return self._scalar(node, path)
        tag = node.tag.replace(_TAG, "!!")
        return self._refuse(node, path, f"tag {tag} is not allowed: only text, numbers, true, false, null, lists and mappings are")

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _TAG + "merge":
                self._refuse(key_node, path, "merge keys (<<) are not supported; a scale's settings are laid over `experiment` instead")
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag not in _TEXT:
                self._refuse(key_node, path, "a key must be text; put it in quotes")
            key = key_node.value
            if key in data:
                self._refuse(key_node, (*path, key), f"given twice (first on line {self.lines[(*path, key)]})")
            self.lines[(*path, key)] = key_node.start_mark.line + 1
            data[key] = self.value(value_node, (*path, key))
        return data

    def _scalar(self, node: yaml.ScalarNode, path: KeyPath) -> Any:
        try:
            value = yaml.constructor.SafeConstructor().construct_object(node)
        except (ValueError, KeyError, yaml.YAMLError):
            return self._refuse(node, path, f"{node.value[:40]!r} is not {node.tag.replace(_TAG, 'a valid ')}")
        if isinstance(value, float) and not math.isfinite(value):
            self._refuse(node, path, f"{node.value} is not a finite number")
        return value

    def _refuse(self, node: yaml.Node, path: KeyPath, why: str) -> Any:
        name = f"{dotted(path)}: " if path else ""
        raise UserError(f"{self._place}:{node.start_mark.line + 1}: {name}{why}")
