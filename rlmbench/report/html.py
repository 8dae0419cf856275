"""One run, or several beside each other, as one self-contained HTML page.

Nothing is fetched, and nothing a record holds can become markup or script: the template escapes every text, data stands
in `application/json` elements without any `<`, and the page's content security policy allows no request and runs only
the scripts whose hashes it names.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

    from rlmbench.comparison import Comparison, Group
    from rlmbench.metrics import RunSummary
    from rlmbench.records import Run
    from rlmbench.report.comparison.parts import ComparisonPage
    from rlmbench.report.parts import Page

_MARKS = {"ok": "✓", "warn": "!", "bad": "✕", "none": "–"}


def write_run_page(run: Run, summary: RunSummary, path: Path) -> None:
    """Write the page of `run` to `path`, in one piece. Works for failed and interrupted runs with whatever they left."""
    from rlmbench.files import write_atomically
    from rlmbench.report.page import run_page

    write_atomically(path, render(run_page(run, summary)).encode())


def write_comparison_page(comparison: Comparison, groups: Sequence[Group], path: Path) -> None:
    """Write the page of a comparison to `path`, in one piece. `groups` are the runs that it was made from, in its order."""
    from rlmbench.files import write_atomically
    from rlmbench.report.comparison.page import comparison_page

    write_atomically(path, render(comparison_page(comparison, groups), "comparison.html.j2").encode())


def render(page: Page | ComparisonPage, template: str = "run.html.j2") -> str:
    """`page` as HTML."""
    from markupsafe import Markup

    from rlmbench.report import vega

    runtime, script = vega.runtime(), _text("page.js")
    return (
        _environment()
        .get_template(template)
        .render(
            page=page,
            style=Markup(_text("style.css")),
            runtime=Markup(runtime),
            script=Markup(script),
            policy=_policy(runtime, script),
            licences=_text("vega_licences.txt"),
            foot=f"Made by rlmbench. Charts: {vega.versions()}.",
        )
    )


def embedded(value: Any) -> str:
    """`value` as JSON that may stand in a script element: no `<`, `>` or `&`, and null for numbers that JSON lacks.

    Raises:
        TypeError: `value` holds something JSON has no form for.
    """
    text = json.dumps(_finite(value), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _policy(*scripts: str) -> str:
    """A content security policy for these scripts alone. Vega compiles its expressions, hence 'unsafe-eval'."""
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" for script in scripts)
    rest = "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    return f"default-src 'none'; script-src {hashes} 'unsafe-eval'; {rest}"


_PARTS_OF_A_NAME = re.compile(r"(?<=[.:/,])(?=[^.:/,\s\d])")
"""Where a dotted name or a path may go on in the next line; elsewhere a line would end within a word."""
_ONE_LINE = 36
"""Characters of a name that a column has room for."""


@lru_cache(maxsize=1)
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("rlmbench.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals["marks"] = _MARKS
    environment.filters["embedded"] = lambda value: Markup(embedded(value))
    environment.filters["breakable"] = lambda text: Markup("<wbr>").join(_PARTS_OF_A_NAME.split(text)) if len(text) > _ONE_LINE else text
    environment.filters["kind"] = lambda part: type(part).__name__
    return environment


@lru_cache(maxsize=4)
def _text(name: str) -> str:
    return (files("rlmbench.report") / "templates" / name).read_text(encoding="utf-8")
