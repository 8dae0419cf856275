from __future__ import annotations

from rlmbench.report import charts


def test_a_histogram_counts_every_sample_once() -> None:
    rows = charts.histogram([1, 1, 2, 79, 80], top=80, most_bins=40)
    # 81 possible values in at most 40 bins of whole width: three tokens each.
    assert {row["high"] - row["low"] for row in rows} == {3}
    assert sum(row["samples"] for row in rows) == 5
    assert (rows[0]["low"], rows[0]["samples"]) == (0, 3)
    assert (rows[-1]["low"], rows[-1]["samples"]) == (78, 2)


def test_a_histogram_of_equal_lengths_has_one_full_bin() -> None:
    assert [row["samples"] for row in charts.histogram([8, 8, 8]) if row["samples"]] == [3]


def test_steps_that_are_left_out_are_marked_in_the_tooltip() -> None:
    spec = charts.stage_seconds([{"step": 1, "stage": "generation", "seconds": 0.5, "measured": False}])
    assert spec["data"]["values"][0]["tip"] == "step 1 · generation: 500 ms (left out)"


def test_a_constant_series_is_labelled_with_its_value() -> None:
    axis = charts.line([{"step": 1, "value": 0.001}, {"step": 2, "value": 0.001}])["layer"][0]["encoding"]["y"]
    assert axis["axis"]["values"] == [0.001]
    assert axis["scale"]["domain"][0] < 0.001 < axis["scale"]["domain"][1]


def test_timeline_rows_shade_substages_and_name_them() -> None:
    span = {"lane": 1, "depth": 1, "stage": "actor_update", "name": "f 0", "start_ms": 1.0, "end_ms": 3.5}
    forward, backward = charts.timeline_rows([{**span, "substage": "forward"}, {**span, "substage": "backward"}])
    assert forward["label"] == "forward"
    assert forward["colour"] != backward["colour"] == "#D55E00"
    assert forward["tip"] == "actor update · forward · f 0: 2.50 ms, from 1.00 ms"


def test_the_cap_stands_at_the_cap_even_where_it_shares_a_name() -> None:
    spec = charts.lengths([10, 250, 256], 45, 250.9, 256)
    marks = spec["layer"][1]["data"]["values"]
    assert marks == [{"at": 45, "name": "p50"}, {"at": 250.9, "name": "p99, cap"}, {"at": 256, "name": ""}]


def test_the_memory_axis_has_the_unit_that_its_texts_have() -> None:
    small = charts.memory([{"stage": "generation", "kind": "RSS", "bytes": 600 * 2**20}])
    assert small["encoding"]["x"]["title"] == "MiB" and small["data"]["values"][0]["size"] == 600
    large = charts.memory([{"stage": "generation", "kind": "RSS", "bytes": 3 * 2**30}, {"stage": "data", "kind": "RSS", "bytes": 2**29}])
    assert large["encoding"]["x"]["title"] == "GiB" and large["data"]["values"][1] == {
        "stage": "data",
        "kind": "RSS",
        "size": 0.5,
        "tip": "data · RSS: 512 MiB",
    }


def test_marks_that_lie_together_share_one_name() -> None:
    def names(*marks: float) -> list[tuple[float, str]]:
        return [(row["at"], row["name"]) for row in charts.lengths([1], *marks)["layer"][1]["data"]["values"]]  # type: ignore[arg-type]

    assert names(20, 50, 64) == [(20, "p50"), (50, "p99"), (64, "cap")]
    assert names(20, 62, 64) == [(20, "p50"), (62, "p99, cap"), (64, "")]
    assert names(64, 64, 64) == [(64, "p50, p99, cap")]


def test_lines_that_end_together_share_one_name() -> None:
    rows = [
        {"step": step, "value": value, "key": key, "colour": "#000000", "dash": [1, 0]}
        for key, values in (("A", (0.0, 1.0)), ("B", (1.0, 1.001)), ("C", (0.5, 0.2)))
        for step, value in enumerate(values, 1)
    ]
    drawn = charts.lines(rows)["data"]["values"]
    assert [(row["key"], row["name"]) for row in drawn if row["name"]] == [("A", "A, B"), ("C", "C")]


def test_longer_bars_than_the_common_axis_are_cut() -> None:
    row = {"step": 1, "stage": "generation", "seconds": 9.0, "measured": False}
    assert charts.stage_seconds([row], longest_s=2.0)["encoding"]["y"]["scale"] == {"domain": [0, 2.0]}
    assert charts.stage_seconds([row], longest_s=2.0)["mark"]["clip"] is True
