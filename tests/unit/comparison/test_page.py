"""The page of several runs: its numbers are those of `compare --json`, nothing of a record becomes markup, and many runs stay readable."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest
import synthetic_run
from altered_records import HOST, OF_VERL, TRL, VERL, append_events, repeated, waiting

from rlmbench.cli.main import main
from rlmbench.comparison import compare_groups, ordered
from rlmbench.report import vega
from rlmbench.report.comparison import measured
from rlmbench.report.html import write_comparison_page

HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=alert(1)>"


class Page(HTMLParser):
    """The page's text, its elements, and what its script elements hold."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.size = len(text)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: dict[str | None, str] = {}
        self.words: list[str] = []
        self._inside: str | None = None
        self.feed(text)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._inside = tag if tag in ("script", "style") else None
        if tag == "script":
            self._id = dict(attrs).get("id")
            self.scripts[self._id] = ""

    def handle_endtag(self, tag):
        self._inside = None

    def handle_data(self, data):
        if self._inside == "script":
            self.scripts[self._id] += data
        elif self._inside is None:
            self.words.append(data)

    def data(self, name):
        return json.loads(self.scripts[name])


@pytest.fixture(scope="module", autouse=True)
def _short_runtime():
    """The real runtime takes seconds to bundle; tests/browser tries it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vega, "runtime", lambda: "window.vegaEmbed=null;")
        yield


def page_of(runs, folder):
    groups = ordered(runs)
    compared = compare_groups(groups)
    path = folder / "page.html"
    write_comparison_page(compared, groups, path)
    return compared, Page(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def three(records, tmp_path_factory):
    """TRL; verl, a third slower, tuned; an older TRL of which one run failed."""
    older = {**TRL, "packages": {**TRL["packages"], "trl": "1.15.0"}}
    failure = {**synthetic_run.FAILURE.model_dump(mode="json"), "first_cause": "the kernel wanted it back"}
    own = {"field": "native.flag", "value": None, "fidelity": "changed", "native_key": "flag", "native_value": 7, "reason": "from own.yaml"}
    return page_of(
        [
            *repeated(records.altered(), 5, speed=1.5),
            *repeated(records.altered(division="tuned", ledger=[own], traits={"padding": "c"}, **OF_VERL), 5),
            *repeated(records.altered(environment=older), 2, speed=0.5),
            records.altered(environment=older, status="failed", failure=failure),
        ],
        tmp_path_factory.mktemp("three"),
    )


@pytest.fixture(scope="module")
def two(records, tmp_path_factory):
    return page_of(
        [*repeated(records.plain(), 4, speed=1.5), *repeated(records.plain("verl"), 4)],
        tmp_path_factory.mktemp("two"),
    )


def three_digits(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def test_what_speaks_for_the_figures_stands_before_what_speaks_against_them(records, tmp_path) -> None:
    """Two runs each are too few: the lead and the reasons say so, once."""
    unproven = records.plain()
    unproven = dataclasses.replace(unproven, summary=unproven.summary.model_copy(update={"audit": None}))
    few = [*repeated(records.plain(), 2, speed=1.5), *repeated(records.plain("verl"), 2)]
    older = records.altered(environment={**TRL, "packages": {**TRL["packages"], "trl": "1.15.0"}})
    _, page = page_of([*few, *repeated(older, 2)], tmp_path)
    trust = page.text.split("Can I trust it?")[1].split("Where does a step's time go?")[0]
    assert trust.lstrip(" ✓").startswith("audits: in all 6 runs what reached the loss is what was planned")
    assert "few runs" in trust and "so far" not in trust
    _, page = page_of([*few, *repeated(unproven, 1)], tmp_path)
    assert "audits: passed in 4 of 5 runs that ended well" in page.text
    _, page = page_of([records.plain()], tmp_path)
    assert "audits: in the one run what reached the loss is what was planned" in page.text


def test_the_page_shows_the_numbers_of_the_comparison(three) -> None:
    """Written by hand here from the figures object, not by the words module."""
    compared, page = three
    for one in compared.configurations:
        assert three_digits(one.tokens_per_s.value) in page.text
        assert f"{three_digits(one.tokens_per_s.low)} to {three_digits(one.tokens_per_s.high)}" in page.text
        assert three_digits(one.step_s.value) in page.text
        assert f"{one.run_spread:.1%}" in page.text and f"{one.peak_bytes / 2**30:.2f} GiB" in page.text
        for stage in one.stages.values():
            if stage.seconds >= 0.0005:
                assert f"{stage.seconds:.3f} ({stage.share:.1%})" in page.text
            if stage.computed_tokens:
                assert f"{stage.computed_tokens:,.0f} / {stage.valid_tokens:,.0f} (" in page.text
    for pair in compared.pairs:
        speed = pair.speed
        said = f"{speed.ratio:.2f}x the tokens/s of {pair.b} (95% interval {speed.low:.2f}x to {speed.high:.2f}x, p {speed.p:.2g}"
        assert said in page.text
        assert all(reason.sentence in page.text for reason in pair.reasons)
        assert all(difference.subject in page.text and difference.why in page.text for difference in pair.differences)


def test_efficiency_stands_beside_the_rates_and_techniques_beside_the_differences(two) -> None:
    compared, page = two
    first = compared.configurations[0]
    update = first.stages["actor_update"]
    assert update.model_flops is not None and update.achieved_flops_per_s is not None
    assert f"{three_digits(first.step_model_flops / 1e12)} TFLOP" in page.text
    assert (first.step_mfu, first.mfu_basis) == (None, None)  # this CPU is in no data sheet, and nothing was measured in these records
    assert "step: MFU n/a (unknown device)" in page.text
    assert "hybrid layouts: TP to generate, DP or ZeRO to train" in page.text


@pytest.mark.parametrize(
    ("flops", "against", "reason"),
    [
        (None, None, "simulated: no model computed anything"),
        (1e12, (), "unknown device"),
        (1e12, ("data sheet",), "no rate of the device in this dtype is known"),
    ],
)
def test_a_share_of_the_peak_that_is_absent_says_why(flops, against, reason) -> None:
    known = None if against is None else SimpleNamespace(against=against)
    summary = SimpleNamespace(efficiency=known, absent={"efficiency": "simulated: no model computed anything"})
    figures = SimpleNamespace(step_model_flops=flops, step_mfu=None, mfu_basis=None)
    assert measured._mfu(SimpleNamespace(figures=figures, typical=SimpleNamespace(summary=summary))) == f"n/a ({reason})"


def test_the_first_screen_answers_first(three) -> None:
    compared, page = three
    speed = compared.pairs[0].speed
    head = page.text[: page.text.index("May they be compared, and who is faster?")]
    assert f"A (TRL 1.16.0) is faster than B (1.50x, 95% interval {speed.low:.2f}x to {speed.high:.2f}x); has too few runs beside C" in head
    assert "CPU: orchestration, not GPU throughput" in head
    assert "3 of 3 pairs" not in head and "comparable with reservations" in head
    assert "A is matched, B tuned" in head
    assert "Where does a step's time go?" in head and "actor update" in head


def test_one_pair_is_named_in_the_lead(two) -> None:
    compared, page = two
    (pair,) = compared.pairs
    assert pair.speed.verdict == "faster"
    assert f"A (TRL 1.16.0) is faster: {pair.speed.ratio:.2f}x the tokens/s of B (verl 0.9.1) (95% interval" in page.text


def test_the_data_are_those_of_the_comparison(three) -> None:
    compared, page = three
    assert page.data("data") == compared.model_dump(mode="json")
    runs = list(csv.DictReader(io.StringIO(page.data("data-runs"))))
    figures = [run for one in compared.configurations for run in one.runs]
    assert [(run["run"], run["tokens_per_s"]) for run in runs] == [
        (run.id, "" if run.tokens_per_s is None else repr(run.tokens_per_s)) for run in figures
    ]
    stages = list(csv.DictReader(io.StringIO(page.data("data-stages"))))
    assert float(stages[0]["seconds"]) == compared.configurations[0].stages[stages[0]["stage"]].seconds
    pairs = list(csv.DictReader(io.StringIO(page.data("data-pairs"))))
    assert [float(pair["ratio"]) for pair in pairs] == [pair.speed.ratio for pair in compared.pairs]


def test_a_failed_run_is_a_row_with_its_cause(three) -> None:
    _, page = three
    assert "failed: out of memory (host)" in page.text
    assert "the kernel wanted it back" in page.text and "SYNTHETIC log line 30" in page.text


def test_settings_of_the_users_own_are_listed(three) -> None:
    _, page = three
    assert "Settings of the user's own: B (verl 0.9.1, tuned)" in page.text
    assert "flag = 7" in page.text and "from own.yaml" in page.text


def test_equal_lengths_are_shown_once_and_other_lengths_apart(two, records, tmp_path) -> None:
    _, page = two
    assert "Response lengths are equal in A and B, as replay makes them: they are shown once." in page.text
    assert [attributes["data-spec"] for _, attributes in page.tags if "chart-lengths" in str(attributes.get("data-spec"))] == [
        "chart-lengths-A"
    ]
    other = records.plain("verl")
    longer = dataclasses.replace(other.summary.lengths, mean=other.summary.lengths.mean + 1)
    apart = dataclasses.replace(other, summary=other.summary.model_copy(update={"lengths": longer}))
    _, page = page_of([*repeated(records.plain(), 2), *repeated(apart, 2)], tmp_path)
    assert "they are shown once" not in page.text
    assert sum("chart-lengths" in str(attributes.get("data-spec")) for _, attributes in page.tags) == 2


def test_a_broken_weight_sync_is_named(records, tmp_path) -> None:
    rows = [{"ev": "logprobs", "step": step, "t_ns": 1, "tokens": 100, "difference_sum": 50.0, "difference_max": 1.0} for step in (2, 3, 4)]
    stale = records.altered(append_events(*rows), **OF_VERL)
    assert stale.summary.learning.logprob_difference.mean == 0.5
    compared, page = page_of([*repeated(records.plain(), 2), *repeated(stale, 2)], tmp_path)
    assert compared.pairs[0].verdict == "not comparable"
    assert "No speed is claimed: they are not comparable." in page.text
    assert "new weights did not reach the rollout engine of" in page.text and "log-probs differ by 0.5, rounding in" in page.text


def test_roles_that_wait_are_listed(two, records) -> None:
    _, page = two
    for role in records.plain().summary.idle.roles:
        assert f"{role.role} {role.processes} {role.busy_s:.3f} {role.role_waiting:.1%}" in page.text


def test_a_step_of_the_warm_up_is_cut_where_it_is_longer(two) -> None:
    """The synthetic first step is 1.4 times as long in generation: longer than any measured step and 5%."""
    compared, page = two
    slowest = compared.configurations[1]
    domain = page.data(f"chart-steps-{slowest.key}")["encoding"]["y"]["scale"]["domain"]
    totals: dict[int, float] = {}
    for row in page.data(f"chart-steps-{slowest.key}")["data"]["values"]:
        totals[row["step"]] = totals.get(row["step"], 0.0) + row["seconds"]
    assert domain == [0, pytest.approx(1.05 * max(seconds for step, seconds in totals.items() if step > 1))]
    assert totals[1] > domain[1] and "Cut off: step 1 of " in page.text


def test_how_busy_the_machine_was_is_as_measured_and_in_older_records_its_load(records, tmp_path) -> None:
    measured = records.altered(preconditions={"host_busy_share": 0.125}, host={**HOST, "load": [1.5, 1.0, 1.0]}, **OF_VERL)
    _, page = page_of([*repeated(records.plain(), 2), *repeated(measured, 2)], tmp_path)
    rows = page.text.split("All runs")[1]
    assert "passed 12.5% " in rows and "passed load 0.50 on 2 cores" in rows and "1.50" not in rows


def test_what_measuring_cost_is_cited_from_the_newest_measurement(records, tmp_path) -> None:
    of = {"framework": "trl", "suite": "gsm8k_ppo", "scale": "small", "device": "cpu", "steps": 6, "rlmbench": "0.1.0"}
    older = {**of, "ratios": [1.2] * 6, "ratio": 1.2, "low": 1.1, "high": 1.3, "measured_unix_s": 1.0}
    newer = {**of, "ratios": [0.99, 1.01, 1.02, 1.03, 1.04, 1.05, 1.06], "ratio": 1.03, "low": 0.99, "high": 1.06, "measured_unix_s": 2.0}
    mine = [records.altered(harness_overhead=newer), records.altered(harness_overhead=older)]
    _, page = page_of([*mine, *repeated(records.plain("verl"), 2)], tmp_path)
    told = page.text.split("What measuring cost: step time over that without probe and collector")[1]
    assert "1.030 0.990 to 1.060 7 pairs of runs of gsm8k_ppo at small" in told
    assert "not measured there: rlmbench overhead" in told and "1.200" not in told


def test_a_step_is_not_longer_for_what_runs_beside_it(records, tmp_path) -> None:
    """Where stages overlap, their sum is more than the step: the table of steps shows the step."""
    other = records.plain("verl")
    steps = [
        step.model_copy(update={"stages_s": {**step.stages_s, "critic_update": 0.2}, "overlap_s": 0.2}) for step in other.summary.steps
    ]
    shares = {**other.summary.stages_share, "critic_update": 0.1}
    beside = dataclasses.replace(other, summary=other.summary.model_copy(update={"steps": steps, "stages_share": shares}))
    _, page = page_of([*repeated(records.plain(), 2, speed=2), *repeated(beside, 2, spread=0)], tmp_path)
    assert f"2 {steps[1].step_s:.3f} " in page.text.split("Seconds per step and stage, B")[1]
    assert "Bars are higher than the step by what stages count twice, 200 ms in the mean." in page.text
    assert "both count the time (B 200 ms of a step)" in page.text and "counted twice" in page.text


def test_every_chart_has_a_table_and_nothing_is_loaded(three) -> None:
    _, page = three
    drawings = [attributes["data-spec"] for _, attributes in page.tags if "data-spec" in attributes]
    assert {"chart-steps-A", "chart-timeline-A", "chart-timeline-B", "chart-memory", "chart-reward", "chart-lengths-A"} <= set(drawings)
    assert (
        len(set(drawings)) == len(drawings) == sum(attributes.get("class") == "table" for tag, attributes in page.tags if tag == "details")
    )
    for name in drawings:
        assert page.data(name)["$schema"].startswith("https://vega.github.io/schema/vega-lite/")
    assert not [attributes for _, attributes in page.tags if "src" in attributes]
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    ids = {attributes.get("id") for _, attributes in page.tags}
    for section in (
        "verdicts",
        "time",
        "timeline",
        "waits",
        "throughput",
        "work",
        "memory",
        "learning",
        "differences",
        "runs",
        "reproduce",
    ):
        assert section in ids and f"#{section}" in {attributes.get("href") for _, attributes in page.tags}


def test_timelines_share_one_axis(three) -> None:
    _, page = three
    domains = [page.data(f"chart-timeline-{key}")["layer"][0]["encoding"]["x"]["scale"]["domain"] for key in "ABC"]
    assert domains[0] == domains[1] == domains[2]
    drawn_ms = max(row["end"] for rows in page.data("chart-timeline-A-rows") for row in rows)
    assert domains[0][1] > 1.5 * drawn_ms, "the steps of C, as its figures say, are twice as long"


def test_hostile_texts_stay_text(records, tmp_path) -> None:
    environment = {**TRL, "packages": {HOSTILE: "1", "torch": HOSTILE}}
    changes = {"suite": HOSTILE, "framework": HOSTILE, "environment": environment, "traits": {HOSTILE: HOSTILE}, "overrides": [HOSTILE]}
    failure = {**synthetic_run.FAILURE.model_dump(mode="json"), "message": HOSTILE, "first_cause": HOSTILE, "tail": [HOSTILE]}
    _, page = page_of(
        [
            *repeated(records.altered(**changes), 2),
            *repeated(records.plain("verl"), 2),
            records.altered(**changes, status="failed", failure=failure),
        ],
        tmp_path,
    )
    assert page.text.count(HOSTILE) > 8
    assert "img" not in {tag for tag, _ in page.tags}
    assert "window.hacked" not in "".join(page.scripts[name] for name in page.scripts if name is None)


def test_a_spreadsheet_takes_no_text_for_a_formula(records, tmp_path) -> None:
    evil = {**VERL, "packages": {"verl": "0.9.1", "torch": "2.13.0"}}
    _, page = page_of([*repeated(records.altered(framework="=1+1", environment=evil), 2), *repeated(records.plain(), 2)], tmp_path)
    rows = list(csv.DictReader(io.StringIO(page.data("data-runs"))))
    assert {row["framework"] for row in rows} == {"'=1+1", "trl"}


def test_configurations_without_a_good_run(records, tmp_path) -> None:
    lost = [records.altered(status="failed", failure=synthetic_run.FAILURE.model_dump(mode="json"), **of) for of in ({}, OF_VERL)]
    _, page = page_of(lost, tmp_path)
    assert "no run ended well" in page.text and "No run ended well, so there are no figures." in page.text
    assert not [attributes for _, attributes in page.tags if "data-spec" in attributes]


def test_runs_of_one_configuration_have_nothing_beside_them(records, tmp_path) -> None:
    _, page = page_of(repeated(records.plain(), 3), tmp_path)
    assert "all 3 runs are of one configuration" in page.text.replace("All", "all") and "nothing to compare" in page.text


def test_many_configurations_stay_readable(records, tmp_path) -> None:
    """Charts and tables show the fastest six; lists of everything are folded; the embedded data hold all."""
    plain, many = records.plain(), []
    for place in range(12):
        measurement = {**plain.experiment["measurement"], "seed": place}
        one = dataclasses.replace(plain, experiment={**plain.experiment, "measurement": measurement})
        many += repeated(one, 2, speed=1 + place / 10)
    compared, page = page_of(many, tmp_path)
    assert len(compared.configurations) == 12 and len(compared.pairs) == 66
    assert "Shown are the fastest 6 of 12 configurations with figures" in page.text
    assert sum("chart-timeline" in str(attributes.get("data-spec")) for _, attributes in page.tags) == 6
    assert "The fastest 8 of 12 configurations" in page.text and "Every pair (66)" in page.text
    assert len(page.data("data")["pairs"]) == 66


def test_of_very_many_configurations_the_page_carries_the_fastest(records, tmp_path, monkeypatch) -> None:
    """Here more than 3 are very many; runs are all there, and the page says what is not."""
    from rlmbench.report.comparison import page as module

    monkeypatch.setattr(module, "MOST_EMBEDDED", 3)
    plain, many = records.plain(), []
    for place in range(5):
        measurement = {**plain.experiment["measurement"], "seed": place}
        one = dataclasses.replace(plain, experiment={**plain.experiment, "measurement": measurement})
        many += repeated(one, 2, speed=1 + place / 10)
    compared, page = page_of(many, tmp_path)
    data = page.data("data")
    assert [one["key"] for one in data["configurations"]] == ["A", "B", "C"]
    assert [(pair["a"], pair["b"]) for pair in data["pairs"]] == [("A", "B"), ("A", "C"), ("B", "C")]
    assert data["pairs_left_out"] == len(compared.pairs) - 3 == 7
    assert page.data("data-runs").count("\n") == 1 + 10
    assert "of the fastest 3 of 5 configurations, runs are all; rlmbench compare --json prints everything" in page.text


def test_an_interval_beyond_the_axis_is_an_arrow(two, records, tmp_path) -> None:
    """Two runs that are far apart have an interval that would leave nothing to see of the bars."""
    wide = repeated(records.plain(), 2, spread=0.4)
    _, page = page_of([*wide, *repeated(records.plain("verl"), 4)], tmp_path)
    assert "(an arrow: it ends further on)" in page.text
    _, narrow = two
    assert "an arrow" not in narrow.text


def test_the_first_screen_names_each_kind_of_reason_once(records, tmp_path) -> None:
    busy = {**HOST, "load": [6.0, 6.0, 6.0]}
    environments = [("trl", TRL), ("verl", VERL), ("openrlhf", {**TRL, "name": "openrlhf"})]
    runs = [
        run
        for name, environment in environments
        for run in repeated(records.altered(framework=name, environment=environment, host=busy), 2)
    ]
    _, page = page_of(runs, tmp_path)
    head = page.text.split("May they be compared, and who is faster?")[0]
    assert head.count("few runs:") == head.count("the machine was busy") == 1
    told = head.replace("\xa0", " ")
    assert "A v B: few runs: 2 of A and 2 of B ended well" in told and "(and 2 more such: A v C, B v C)" in told
    assert "all pairs: " not in told, "each pair has its own"


def test_the_first_screen_says_what_a_ratio_is_without_a_wait(records, tmp_path) -> None:
    """TRL is 1.5 times as fast as verl would be without its wait of half of a step, and so 3 times as fast as it is."""
    compared, page = page_of([*repeated(records.plain(), 4, speed=1.5), *repeated(waiting(records.plain("verl"), 0.5), 4)], tmp_path)
    head = page.text.split("May they be compared, and who is faster?")[0]
    lead, trust = head.split("Can I trust it?")
    own = f"about 1.5x without B's wait of {compared.configuration('B').stages['wait'].share:.1%} of a step"
    assert own in lead and "without the wait A would have about 1.5x the tokens/s of B, not 3.00x" in trust
    assert page.data("data-pairs").splitlines()[0].split(",")[-2] == "ratio_without_waits"
    ratio = float(next(csv.DictReader(io.StringIO(page.data("data-pairs"))))["ratio_without_waits"])
    assert ratio == compared.pairs[0].speed.without_waits.ratio == pytest.approx(1.5, rel=0.01)


def test_a_lone_configurations_page_says_what_its_runs_say_against_it(records, tmp_path) -> None:
    _, page = page_of(repeated(records.altered(host={**HOST, "load": [1.8, 1.8, 1.8]}), 2), tmp_path)
    trust = page.text.split("Can I trust it?")[1].split("Where does a step's time go?")[0]
    assert "A: the machine was busy when 2 of 2 runs of A began: load per core up to 0.90" in trust


def test_all_pairs_is_said_of_what_holds_of_all_of_them(records, tmp_path) -> None:
    """One engine differs from the two others, which are alike: evidence of two pairs. Hosts are of each pair."""
    engines = [("trl", TRL, "hf"), ("verl", VERL, "vllm"), ("openrlhf", {**TRL, "name": "openrlhf"}, "vllm")]
    runs = []
    for name, environment, engine in engines:
        one = {"framework": name, "environment": environment, "traits": {"rollout_engine": engine}}
        runs += [*repeated(records.altered(**one), 2), *repeated(records.altered(host={**HOST, "hostname": "other"}, **one), 2)]
    _, page = page_of(runs, tmp_path)
    told = page.text.split("May they be compared, and who is faster?")[0].replace("\xa0", " ")
    assert "all pairs: the runs were made on 2 hosts" in told
    assert told.count("(hf v vllm)") + told.count("(vllm v hf)") == 1 and "all pairs: the same samples" not in told


@pytest.fixture
def command(written_results, monkeypatch, capsys):
    def call(*arguments):
        monkeypatch.chdir(written_results.parent)
        code = main(list(arguments))
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


@pytest.fixture(scope="module")
def written_results(tmp_path_factory, records):
    """A run of either framework, in a results folder."""
    folder = tmp_path_factory.mktemp("report") / "results"
    for framework, environment in (("trl", TRL), ("verl", VERL)):
        records.kept_at(folder / "gsm8k_grpo" / f"2026-{framework}", framework=framework, environment=environment)
    return folder


def test_the_command_writes_what_compare_prints(command, written_results) -> None:
    assert command("report", "gsm8k_grpo")[1] == "reports/gsm8k_grpo-comparison.html\n"
    page = Page((written_results.parent / "reports" / "gsm8k_grpo-comparison.html").read_text(encoding="utf-8"))
    code, out, _ = command("compare", "gsm8k_grpo", "--json")
    assert code == 0
    assert page.data("data") == json.loads(out.splitlines()[-1])


def test_one_run_still_has_its_own_page(command, written_results) -> None:
    assert command("report", "2026-verl")[1] == "reports/2026-verl.html\n"
    assert "rlmbench · one run" in (written_results.parent / "reports" / "2026-verl.html").read_text(encoding="utf-8")
    assert command("report", "2026-trl", "2026-verl", "-o", "both.html")[1] == "both.html\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gsm8k_grp",), "did you mean 'gsm8k_grpo'"),
        (("gsm8k_grpo", "--minimum-effect", "3"), "such as 0.03 for 3%"),
        (("gsm8k_grpo", "-o", "/proc/none/x.html"), "choose another place with --output"),
        (("2026-verl", "--baseline", "trl"), "2026-verl is the only run"),
    ],
)
def test_wrong_usage_is_one_line(command, arguments, message) -> None:
    code, _, err = command("report", *arguments)
    assert code == 2 and message in err and err.count("\n") == 1


def test_a_damaged_plan_is_one_line(command, written_results) -> None:
    plan = next(written_results.glob("*/2026-verl/plan.json"))
    kept = plan.read_bytes()
    plan.write_bytes(kept[:100])
    code, _, err = command("report", "gsm8k_grpo")
    plan.write_bytes(kept)
    assert code == 2 and "plan.json: damaged (line 1, column 101); take another copy" in err and err.count("\n") == 1


def test_equal_plans_have_one_hash_whatever_their_layout(records) -> None:
    def laid_out_otherwise(folder) -> None:
        plan = json.loads((folder / "plan.json").read_text())
        (folder / "plan.json").write_text(json.dumps(plan, indent=4))

    assert records.altered(laid_out_otherwise).plan_hash == records.plain().plan_hash


def test_settings_of_another_suite_are_no_part_of_a_name(records) -> None:
    """A suite's name tells it from the others; its own settings would fill a page."""
    other = synthetic_run.experiment(4, 4, 2, 1)
    other["measurement"]["seed"] = 5
    groups = ordered([records.plain(), records.altered(suite="gsm8k_ppo", experiment=other)])
    assert [one.name for one in compare_groups(groups).configurations] == [
        "TRL 1.16.0, gsm8k_grpo at tiny",
        "TRL 1.16.0, gsm8k_ppo at tiny",
    ]
