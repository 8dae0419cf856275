"""The page of several runs in a real browser, offline: it draws, it loads nothing, it is quick, and it runs nothing that a record says."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
import synthetic_run
from altered_records import OF_VERL, Records, repeated
from opened import COLLIDING_LABELS, CUT_LABELS, HIDDEN_SENTENCES, OVERFLOWING, UNDRAWN, assert_it_prints_well

from rlmbench.comparison import Evidence, compare_groups, ordered
from rlmbench.comparison.figures import Comparison

HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror='window.hacked=1'>"
WIDTHS = (1280, 380)
MOST_MS = 100
OPENRLHF = {"framework": "openrlhf", "environment": {"name": "openrlhf", "device": "cpu", "python": "p", "packages": {"openrlhf": "0.9"}}}


def _write(runs: list[Evidence], path: Path) -> Comparison:
    from rlmbench.report.html import write_comparison_page

    groups = ordered(runs)
    compared = compare_groups(groups)
    write_comparison_page(compared, groups, path)
    return compared


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Comparison]]:
    """The pages: 3 frameworks x 5 repeats x 50 steps with 20,000 spans a run; hostile texts; nothing that ended well."""
    folder = tmp_path_factory.mktemp("pages")
    large = Records(_new(folder / "large"), synthetic_run.write_run(folder, "large-run", steps=50, micro_batches=95).path)
    small = Records(_new(folder / "small"), synthetic_run.write_run(folder, "small-run", steps=4, prompts_per_step=4, group_size=2).path)
    failure = synthetic_run.FAILURE.model_dump(mode="json")
    evil: dict[str, Any] = {
        "suite": HOSTILE,
        "framework": HOSTILE,
        "traits": {HOSTILE: HOSTILE},
        "overrides": [HOSTILE],
        "native": {HOSTILE: HOSTILE},
    }
    lost = {"status": "failed", "failure": {**failure, "message": HOSTILE, "first_cause": HOSTILE, "tail": [HOSTILE]}}
    runs = {
        "large": [
            *repeated(large.altered(traits={"padding": "a", "process_model": "one"}), 5, speed=1.6),
            *repeated(large.altered(traits={"padding": "c", "process_model": "two"}, **OF_VERL), 5, speed=1.2),
            *repeated(large.altered(**OPENRLHF), 5),
        ],
        "hostile": [*repeated(small.altered(**evil), 2), *repeated(small.plain("verl"), 2), small.altered(**evil, **lost)],
        "lost": [small.altered(status="failed", failure=failure), small.altered(**OF_VERL, status="failed", failure=failure)],
    }
    return {name: (folder / f"{name}.html", _write(of, folder / f"{name}.html")) for name, of in runs.items()}


def _new(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [("large", 1280, "light"), ("large", 380, "dark"), ("large", 900, "light"), ("hostile", 380, "light"), ("lost", 1280, "dark")],
)
def test_a_page_draws_offline_and_asks_for_nothing(open_page, made, name: str, width: int, scheme: str) -> None:
    opened = open_page(made[name][0], width, scheme)
    assert opened.complaints == [] and opened.fetched == []
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    assert opened.page.evaluate(UNDRAWN) == [] and opened.page.evaluate(CUT_LABELS) == [] and opened.page.evaluate(COLLIDING_LABELS) == []
    assert opened.page.evaluate(OVERFLOWING) == []
    assert opened.page.locator(".drawing svg").count() == opened.page.locator(".drawing").count()
    assert (opened.page.locator(".drawing").count() == 0) == (name == "lost")


def test_three_frameworks_of_five_repeats_and_fifty_steps_stay_small_and_quick(open_page, made) -> None:
    path, compared = made["large"]
    assert [len(one.runs) for one in compared.configurations] == [5, 5, 5]
    assert {one.measured_steps for of in compared.configurations for one in of.runs} == {49}
    assert path.stat().st_size <= 6_000_000
    page = open_page(path).page
    chosen = """id => new Promise(done => {
      const select = document.getElementById(id), drawing = document.querySelector('[data-spec=' + id.replace('-choice', '') + ']');
      const start = performance.now();
      new MutationObserver((_, watch) => { watch.disconnect(); requestAnimationFrame(() => done(performance.now() - start)); })
        .observe(drawing, {subtree: true, childList: true, attributes: true});
      select.selectedIndex = select.selectedIndex ? 0 : 1;
      select.dispatchEvent(new Event('change'));
    })"""
    for key in "ABC":
        assert min(page.evaluate(chosen, f"chart-timeline-{key}-choice") for _ in range(4)) < MOST_MS
    pressed = """() => { const button = document.querySelectorAll('#differences .filters button')[1], start = performance.now();
      button.click(); document.body.offsetHeight; return performance.now() - start; }"""
    assert min(page.evaluate(pressed) for _ in range(3)) < MOST_MS


def test_the_answers_stand_in_the_first_screen(open_page, made) -> None:
    page = open_page(made["large"][0]).page
    for text in ("Who is faster", "Can I trust it?", "Where does a step's time go?"):
        place = page.locator(f'h2:has-text("{text}")') if text != "Who is faster" else page.locator("table.ranks")
        assert place.bounding_box()["y"] < 900
    bars = page.locator(".step .stack")
    assert bars.last.bounding_box()["y"] + bars.last.bounding_box()["height"] < 900


def test_interval_bars_are_to_scale(open_page, made) -> None:
    """Lengths on the screen relate as the numbers do."""
    path, compared = made["large"]
    page = open_page(path).page
    widths = page.evaluate("[...document.querySelectorAll('.ranks .mean')].map(bar => bar.getBoundingClientRect().width)")
    rates = [one.tokens_per_s.value for one in compared.configurations]
    assert [width / widths[0] for width in widths] == pytest.approx([rate / rates[0] for rate in rates], abs=0.01)
    steps = page.evaluate("[...document.querySelectorAll('.step .stack')].map(bar => bar.getBoundingClientRect().width)")
    seconds = [one.step_s.value for one in compared.configurations]
    assert [width / steps[-1] for width in steps] == pytest.approx([step / seconds[-1] for step in seconds], abs=0.01)


def test_the_data_can_be_downloaded(open_page, made, tmp_path: Path) -> None:
    path, compared = made["large"]
    page = open_page(path).page
    found = {}
    for button in page.locator("button[data-source]").all():
        with page.expect_download() as download:
            button.click()
        download.value.save_as(tmp_path / download.value.suggested_filename)
        found[download.value.suggested_filename] = (tmp_path / download.value.suggested_filename).read_text(encoding="utf-8")
    assert json.loads(found["gsm8k_grpo-comparison.json"]) == compared.model_dump(mode="json")
    rows = list(csv.DictReader(io.StringIO(found["gsm8k_grpo-runs.csv"])))
    rates = [run.tokens_per_s for one in compared.configurations for run in one.runs]
    assert [float(row["tokens_per_s"]) for row in rows] == rates
    assert {"gsm8k_grpo-stages.csv", "gsm8k_grpo-pairs.csv"} <= set(found)


def test_hostile_texts_stay_text(open_page, made) -> None:
    opened = open_page(made["hostile"][0])
    page = opened.page
    assert page.locator("img").count() == 0
    assert HOSTILE in page.locator("h1").inner_text()
    assert HOSTILE in page.locator("table.ranks").inner_text()
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert page.locator("body").inner_text().count(HOSTILE) > 8
    page.locator("[data-spec=chart-memory] .mark-rect path").first.hover()
    assert page.evaluate("window.hacked") is None
    assert opened.complaints == []


def test_it_can_be_used_by_keyboard(open_page, made) -> None:
    page = open_page(made["large"][0]).page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the figures"
    page.locator("#differences .filters button").nth(1).focus()
    page.keyboard.press("Enter")
    assert page.locator("#differences .filters button").nth(1).get_attribute("aria-pressed") == "true"
    tags = set(
        page.locator("#differences table")
        .first.locator("tbody tr")
        .filter(visible=True)
        .evaluate_all("rows => rows.map(row => row.dataset.tag)")
    )
    assert len(tags) == 1


def test_text_reads_well_in_both_schemes(open_page, made) -> None:
    """WCAG AA for what the page of one run does not have: 4.5 for text, 3 for the interval's line on its bar."""
    from rlmbench.report.palette import CONFIGURATION_COLOURS, contrast

    names = ["ink", "muted", "surface", "ok", "warn", "bad", "ok-back", "warn-back", "bad-back"]
    colours = "names => names.map(name => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim())"
    for scheme in ("light", "dark"):
        found = dict(zip(names, open_page(made["lost"][0], scheme=scheme).page.evaluate(colours, names), strict=True))
        assert contrast(found["ink"], found["surface"]) >= 7 and contrast(found["muted"], found["surface"]) >= 4.5
        assert all(contrast(found[state], found[f"{state}-back"]) >= 4.5 for state in ("ok", "warn", "bad"))
        assert all(contrast(colour, found["surface"]) >= 3 for colour in CONFIGURATION_COLOURS)


def test_it_prints_black_on_white_with_its_bars(open_page, made) -> None:
    page = open_page(made["large"][0], scheme="dark").page
    page.set_viewport_size({"width": 718, "height": 1000})  # A4 without its margins
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") <= 718
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.querySelector('.extent')).printColorAdjust") == "exact"
    assert not page.locator("nav").is_visible() and not page.locator("#download").is_visible()


def test_charts_are_drawn_as_wide_as_paper_and_nothing_dead_is_printed(open_page, made) -> None:
    assert_it_prints_well(open_page(made["large"][0]).page)


def test_no_sentence_of_a_table_is_out_of_sight_on_a_phone(open_page, made) -> None:
    page = open_page(made["large"][0], 380).page
    assert page.evaluate(HIDDEN_SENTENCES) == []


def test_timelines_begin_below_each_other(open_page, made) -> None:
    """One time axis for all is read by eye only where their zeros stand in one line."""
    page = open_page(made["large"][0]).page
    zeros = page.evaluate(
        "[...document.querySelectorAll('[data-spec^=chart-timeline] svg')].map(svg => "
        "[...svg.querySelectorAll('text')].find(text => text.textContent === '0').getBoundingClientRect().left)"
    )
    assert len(zeros) == 3 and max(zeros) - min(zeros) <= 2
