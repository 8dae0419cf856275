"""A page as opened in Chromium, with what it complained of and what it asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

PATIENCE_MS = 120_000
"""When to give up waiting for what must come about."""
UNDRAWN = (
    "[...document.querySelectorAll('.drawing')].filter(d => !d.querySelector('svg path, svg rect, svg line')).map(d => d.dataset.spec)"
)
CUT_LABELS = """[...document.querySelectorAll('.drawing')].flatMap(drawing => {
  const frame = drawing.getBoundingClientRect();
  return [...drawing.querySelectorAll('svg text')].filter(text => text.textContent && getComputedStyle(text).opacity !== '0')
    .map(text => [text.textContent, text.getBoundingClientRect()])
    .filter(([, box]) => box.width && (box.left < frame.left - 1 || box.right > frame.right + 1))
    .map(([name]) => drawing.dataset.spec + ': ' + name);
})"""


COLLIDING_LABELS = """[...document.querySelectorAll('.drawing')].flatMap(drawing => {
  const seen = [...drawing.querySelectorAll('svg text')].filter(text => text.textContent && getComputedStyle(text).opacity !== '0')
    .map(text => [text.textContent, text.getBoundingClientRect()]).filter(([, box]) => box.width);
  const apart = (a, b) => a.right <= b.left + 1 || b.right <= a.left + 1 || a.bottom <= b.top + 3 || b.bottom <= a.top + 3;
  return seen.flatMap(([name, box], place) => seen.slice(place + 1).filter(([, other]) => !apart(box, other))
    .map(([other]) => drawing.dataset.spec + ': ' + name + ' / ' + other));
})"""
"""Texts of a chart that lie upon each other; a line's leading may touch the next."""
OVERFLOWING = """[...document.querySelectorAll('main > section')].flatMap(section => {
  const edge = section.getBoundingClientRect().right + 1;
  return [...section.querySelectorAll('*:not(svg *)')].filter(one => !one.parentElement.closest('.scroll') && one.getBoundingClientRect().right > edge)
    .map(one => section.id + ': ' + one.tagName + ' ' + one.textContent.slice(0, 40));
})"""
"""What reaches beyond its chapter, and would be cut off there; tables scroll."""

HIDDEN_SENTENCES = """[...document.querySelectorAll('.scroll')].flatMap(box => {
  const edge = box.getBoundingClientRect().right;
  return [...box.querySelectorAll('td.long')].filter(cell => cell.offsetParent && cell.getBoundingClientRect().left >= edge)
    .map(cell => box.ariaLabel + ': ' + cell.textContent.slice(0, 40));
})"""
"""Sentences of tables beyond the edge: they make lines high, and all that is seen of that is blank."""
WIDEST_CHART = "Math.max(...[...document.querySelectorAll('.drawing svg')].map(svg => svg.viewBox.baseVal.width))"
SHRUNK = """[...document.querySelectorAll('.drawing svg')].flatMap(svg => {
  const shown = svg.getBoundingClientRect(), drawn = svg.viewBox.baseVal, place = svg.closest('.drawing');
  const small = shown.width < 0.95 * drawn.width || shown.width < 0.95 * place.clientWidth;
  const blank = place.clientHeight > 1.05 * shown.width * drawn.height / drawn.width;
  return small || blank ? [place.dataset.spec + ': ' + drawn.width + ' drawn, ' + shown.width + ' shown, of ' + place.clientWidth] : [];
})"""
"""Charts that are shown smaller than they were drawn, letters too, or with blank paper around them."""


@dataclass
class Opened:
    """A page, its complaints and its requests."""

    page: Page
    context: BrowserContext
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    @property
    def fetched(self) -> list[str]:
        """What it asked for beside itself."""
        return [url for url in self.requests if not url.startswith(("file:", "data:"))]


def opened(chromium: Browser, path: Path, width: int = 1280, scheme: str = "light") -> Opened:
    """`path` opened offline, with every chart drawn."""
    context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True, accept_downloads=True)  # type: ignore[arg-type]
    one = Opened(context.new_page(), context)
    one.page.on("console", lambda message: one.complaints.append(f"{message.type}: {message.text}"))
    one.page.on("pageerror", lambda error: one.complaints.append(str(error)))
    one.page.on("request", lambda request: one.requests.append(request.url))
    one.page.goto(path.as_uri())
    one.page.wait_for_selector("html[data-ready]", state="attached", timeout=PATIENCE_MS)
    return one


def assert_it_prints_well(page: Page) -> None:
    """Charts are drawn as wide as paper, where one of a wide window would be made smaller with its letters, and nothing dead is printed. A4 without
    margins is 718 pixels wide."""
    assert page.evaluate(WIDEST_CHART) > 718
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.wait_for_function(f"{WIDEST_CHART} <= 718 && ({SHRUNK}).length === 0", timeout=PATIENCE_MS)
    assert page.evaluate(CUT_LABELS) == [] and page.evaluate(COLLIDING_LABELS) == []
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.wait_for_function(f"{WIDEST_CHART} > 718 && ({SHRUNK}).length === 0", timeout=PATIENCE_MS)
    page.emulate_media(media="print")
    assert page.locator("details:not([open])").filter(visible=True).count() == 0
    assert not page.locator("#data-section").is_visible()
