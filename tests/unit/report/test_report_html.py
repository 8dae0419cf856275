from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
import synthetic_run

from rlmbench.metrics import summarize
from rlmbench.report import vega
from rlmbench.report.html import embedded, write_run_page

HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=alert(1)>"


class _Page(HTMLParser):
    """Elements with their attributes, and what stands in each script element."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.text = ""
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        elif self._inside != "style":
            self.text += data


def _written(run, summary, folder: Path) -> _Page:
    path = folder / "page.html"
    write_run_page(run, summary, path)
    return _Page(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module", autouse=True)
def _short_runtime() -> Iterator[None]:
    """The real runtime takes seconds to bundle; tests/browser tries it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vega, "runtime", lambda: "window.vegaEmbed=null;")
        yield


@pytest.fixture(scope="module")
def page(finished, tmp_path_factory: pytest.TempPathFactory) -> _Page:
    """The page of the run that ended well."""
    return _written(*finished, tmp_path_factory.mktemp("page"))


def test_a_page_answers_the_first_questions(finished, page: _Page) -> None:
    summary = finished[1]
    text = " ".join(page.text.split())
    assert "gsm8k_grpo · TRL 1.16.0" in text
    assert "CPU: orchestration, not GPU throughput" in text
    assert (
        f"{summary.audit.samples} samples and {summary.audit.response_tokens:,} response tokens reached the loss, exactly as planned"
        in text
    )
    assert "5 of 6 finished steps; left out: step 1 (warm-up)" in text
    assert "divides by the standard deviation plus 1e-4, where verl adds 1e-6" in text
    assert "vLLM is not used by this run" in text
    assert "rlmbench run gsm8k_grpo --framework trl --scale tiny" in text


def test_every_section_and_every_chart_has_its_table(page: _Page) -> None:
    ids = {attributes.get("id") for _, attributes in page.tags}
    assert {
        "time",
        "timeline",
        "work",
        "throughput",
        "memory",
        "learning",
        "ledger",
        "audit",
        "hooks",
        "reproduce",
        "glossary",
        "data",
    } <= ids
    drawings = [attributes["data-spec"] for _, attributes in page.tags if "data-spec" in attributes]
    specs = {attributes.get("id"): json.loads(text) for attributes, text in page.scripts if attributes.get("type") == "application/json"}
    assert len(drawings) >= 8
    for drawing in drawings:
        assert specs[drawing]["$schema"].startswith("https://vega.github.io/schema/vega-lite/")
    figures = [tag for tag, _ in page.tags].count("figure")
    assert sum(attributes.get("class") == "table" for tag, attributes in page.tags if tag == "details") == figures == len(drawings)


def test_the_data_travel_with_the_page_and_equal_the_summary(finished, page: _Page) -> None:
    run, summary = finished
    data = next(json.loads(text) for attributes, text in page.scripts if attributes.get("id") == "data")
    assert data["summary"] == summary.model_dump(mode="json")
    assert data["manifest"]["run_id"] == run.id


def test_nothing_is_loaded_and_only_our_scripts_run(page: _Page) -> None:
    assert not [attributes for tag, attributes in page.tags if "src" in attributes]
    assert [attributes["href"] for tag, attributes in page.tags if tag == "link"] == ["data:,"]
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    policy = next(attributes["content"] for _, attributes in page.tags if attributes.get("http-equiv") == "Content-Security-Policy")
    allowed = set(re.findall(r"'sha256-([^']+)'", policy or ""))
    code = [text for attributes, text in page.scripts if attributes.get("type") != "application/json"]
    assert {base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in code} == allowed
    assert "default-src 'none'" in (policy or "")


def test_hostile_texts_stay_text(tmp_path: Path) -> None:
    failure = synthetic_run.FAILURE.model_copy(update={"message": HOSTILE, "first_cause": HOSTILE, "tail": [HOSTILE]})
    changes = {
        "scale_reason": HOSTILE,
        "overrides": [HOSTILE],
        "host": {HOSTILE: HOSTILE},
        "native": {HOSTILE: HOSTILE},
        "failure": failure,
    }
    run = synthetic_run.write_run(tmp_path, changes={**changes, "status": "failed", "framework": HOSTILE, "suite": HOSTILE})
    page = _written(run, summarize(run), tmp_path)
    assert [tag for tag, _ in page.tags].count("img") == 0
    assert not any("window.hacked" in text for attributes, text in page.scripts if attributes.get("type") != "application/json")
    assert page.text.count(HOSTILE) >= 8


def test_a_failed_run_says_why_and_how_to_try_again(failed, tmp_path: Path) -> None:
    run, summary = failed
    text = " ".join(_written(run, summary, tmp_path).text.split())
    assert "How it ended: out of memory (host)" in text
    assert "DefaultCPUAllocator: can't allocate memory" in text
    assert "SYNTHETIC log line 30" in text
    assert "SIGKILL" in text
    assert "1 of 2 finished steps, 6 planned" in text


def test_a_run_without_a_step_has_a_page_without_figures(stepless, tmp_path: Path) -> None:
    run, summary = stepless
    page = _written(run, summary, tmp_path)
    assert "No step was measured, so there are no figures." in page.text
    assert "n/a (no step was measured)" in page.text
    assert not [attributes for _, attributes in page.tags if "data-spec" in attributes]


def test_embedded_json_cannot_leave_its_element() -> None:
    value = {"a": "</script><!--&\u2028", "b": [float("nan"), float("inf"), 1.5]}
    text = embedded(value)
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"a": "</script><!--&\u2028", "b": [None, None, 1.5]}


def test_a_long_warm_up_is_cut_in_the_timeline_and_says_so(page: _Page) -> None:
    """The synthetic first step takes 1.4 times as long in generation; the axis ends with the slowest measured step."""
    spec = next(json.loads(text) for attributes, text in page.scripts if attributes.get("id") == "chart-timeline")
    ends = spec["layer"][0]["encoding"]["x"]["scale"]["domain"][1]
    shown = next(json.loads(text) for attributes, text in page.scripts if attributes.get("id") == "chart-timeline-rows")
    lengths_ms = [max(row["end"] for row in rows) for rows in shown]
    assert lengths_ms[2] > 1.1 * ends and max(lengths_ms[:2]) <= ends
    assert re.search(r"step 1 \(first, warm-up; [\d.]+ (ms|s), cut at [\d.]+ (ms|s)\)", page.text)
