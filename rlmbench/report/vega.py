"""The chart runtime as text: Vega, Vega-Lite and Vega-Embed bundled by the vl-convert wheel, without any CDN.

Bundling takes seconds and its result depends on the installed wheel alone, so it is kept in the user's cache folder.
"""

from __future__ import annotations

import os
import tempfile
from functools import lru_cache
from pathlib import Path


def _cached_at() -> Path:
    from importlib.metadata import version

    from platformdirs import user_cache_path

    return user_cache_path("rlmbench") / "vega" / f"vega-{version('vl-convert-python')}-bundle.js"


@lru_cache(maxsize=1)
def runtime() -> str:
    """JavaScript that sets `window.vegaEmbed`; safe to stand inside a script element.

    Vega and Vega-Lite by themselves cannot be named: vl-convert 1.9 bundles null for them.
    """
    cached = _cached_at()
    try:
        return cached.read_text(encoding="utf-8")
    except OSError:
        pass
    import vl_convert

    bundle = vl_convert.javascript_bundle("window.vegaEmbed=vegaEmbed;")
    if "</script" in bundle.lower() or "<!--" in bundle:
        raise ValueError("the chart runtime holds a sequence that would end its script element")
    _keep(cached, bundle)
    return bundle


def _keep(path: Path, text: str) -> None:
    """Write `text` to `path` in one piece; a cache folder that cannot be written only costs time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except OSError:
        pass


def versions() -> str:
    """The chart libraries and their versions, for the page's foot."""
    import altair
    import vl_convert

    return f"Altair {altair.__version__}, Vega-Lite {vl_convert.get_vegalite_versions()[-1]}, Vega {vl_convert.get_vega_version()}"
