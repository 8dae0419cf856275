"""`rlmbench plan` and `rlmbench frameworks` as a user starts them: one JSON object, and mistakes as one line."""

from __future__ import annotations

import json

import pytest

from rlmbench.cli.main import main


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(list(arguments))
    out = capsys.readouterr()
    return code, out.out, out.err


def planned(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict]:
    code, out, err = run(capsys, "plan", *arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out.splitlines()[-1])["cells"]


def test_a_price_makes_a_cost(capsys: pytest.CaptureFixture[str]) -> None:
    (cell,) = planned(capsys, "gsm8k_grpo", "-f", "verl", "--scale", "base", "--device-type", "H100-SXM", "--price-per-gpu-hour", "3")
    found = cell["prediction"]
    assert (found["devices"], found["device"], found["verdict"]) == (8, "H100-SXM", "fits")
    assert cell["least_device_hours"] == pytest.approx(found["least_step_s"] * 10 * 8 / 3600)
    assert cell["least_cost"] == pytest.approx(3 * cell["least_device_hours"])


def test_a_least_time_can_be_divided_again_from_what_is_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executed PFLOP over 8 x 989 TFLOP/s, or TiB over 8 x 3,350 GB/s, to the three digits that are printed."""
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = run(capsys, "plan", "gsm8k_grpo", "-f", "verl", "--scale", "base", "--device-type", "H100-SXM")
    rows = {line[:21].strip(): line[21:].split() for line in out.splitlines() if line.strip().endswith(("products", "traffic"))}
    assert code == 0 and len(rows) == 5 and max(map(len, out.splitlines())) <= 80
    for *_, executed, unit, size, binary, on, least_s, limit in rows.values():
        flops_s = float(executed) * {"PFLOP": 1e15, "FLOP": 1}[unit] / (int(on) * 989e12)
        bytes_s = float(size) * {"TiB": 2**40, "GiB": 2**30}[binary] / (int(on) * 3350e9)
        assert float(least_s) == pytest.approx(max(flops_s, bytes_s), rel=0.005, abs=0.0005)
        assert limit == ("products" if flops_s > bytes_s else "traffic")
    words = " ".join(out.split())
    # 6.53 billion parameters besides the embeddings: twice as many FLOPs for each of 59 tokens of 4 prompts in 5 are spared, 3.16 PFLOP. Again: 19.1 PFLOP
    # of all 5120 x 285 tokens less 5.55 of the down projections (28 x 3584 x 18944), and a little attention.
    assert "Generation: 3.16 PFLOP fewer, as a group's prompt is computed once" in words
    assert "Actor update: 13.6 PFLOP more, as gradient checkpointing computes forwards again." in words


def test_decode_steps_stand_with_what_they_read(capsys: pytest.CaptureFixture[str]) -> None:
    """Two samples on each of 4 replicas: the one with the longest sample reads the 7B model's weights (TP 2: half a device) once a token of it."""
    few = ("--set", "workload.prompts_per_step=4", "--set", "optimization.group_size=2", "--set", "optimization.mini_batch_samples=8")
    asked = (
        "gsm8k_grpo",
        "-f",
        "verl",
        "--scale",
        "base",
        "--device-type",
        "H100-SXM",
        *few,
        "--set",
        "optimization.micro_batch_samples=1",
    )
    (cell,) = planned(capsys, *asked)
    one = cell["prediction"]["stages"]["generation"]
    assert one["limit"] == "decode steps"
    assert one["least_s"] == pytest.approx(one["latency_bytes"] / 3350e9)
    steps = one["latency_bytes"] / 7.07e9  # 2 bytes of 7.07 billion parameters (all but the embedding table), over 2 devices
    assert cell["prediction"]["response_tokens"] < steps <= 1024
    words = " ".join(run(capsys, "plan", *asked)[1].split())
    assert f"one step after the other: {one['latency_bytes'] / 2**40:.3g} TiB a device / 3,350 GB/s." in words


def test_an_asynchronous_step_says_why_it_has_no_old_log_probs(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("placement_sweep", "-f", "verl", "--scale", "base", "--device-type", "H100-SXM")
    words = " ".join(run(capsys, "plan", *asked)[1].split())
    assert words.count("No old log-probs: the rollout engine's own.") == 1
    told = {cell["variant"]: cell["prediction"]["not_run"] for cell in planned(capsys, *asked)}
    assert told == {"colocated": {}, "disaggregated": {}, "one_step_off": {"old_logprob": "the rollout engine's own"}}
    assert "Side by side" in words and "verl one step off 8 " in words


def test_a_range_as_a_published_run_had_it(capsys: pytest.CaptureFixture[str]) -> None:
    """3.1 to 5.3 times the least: verl's run of a 7B model co-located on 8 GPUs. For nothing else is there a range."""
    verl = ("gsm8k_grpo", "-f", "verl", "--scale", "base", "--device-type", "H100-SXM", "--price-per-gpu-hour", "2.5")
    (cell,) = planned(capsys, *verl)
    least_s, likely = cell["prediction"]["least_step_s"], cell["if_like_published"]
    assert likely["times_least"] == [3.1, 5.3] and likely["step_s"] == pytest.approx([3.1 * least_s, 5.3 * least_s])
    hours = [seconds * 10 * 8 / 3600 for seconds in likely["step_s"]]
    assert likely["device_hours"] == pytest.approx(hours) and likely["cost"] == pytest.approx([2.5 * one for one in hours])
    words = " ".join(run(capsys, "plan", *verl)[1].split())
    shown = f"{3.1 * least_s:.0f} to {5.3 * least_s:.0f} s a step, {hours[0]:.1f} to {hours[1]:.1f} device hours, "
    assert f"if like: a published run of verl (Qwen2-7B, co-located on 8 GPUs; docs/plan.md), 3.1 to 5.3 times the least: {shown}" in words
    others = (
        ("gsm8k_grpo", "-f", "verl", "--scale", "base", "--device-type", "H100-SXM", "--devices", "16"),
        ("gsm8k_grpo", "-f", "trl", "--scale", "small", "--device-type", "H100-SXM"),
        ("placement_sweep", "-f", "verl", "--scale", "base", "--device-type", "H100-SXM", "--variant", "one_step_off"),
        ("gsm8k_grpo", "-f", "verl", "--scale", "tiny"),
    )
    for asked in others:
        assert planned(capsys, *asked)[0]["if_like_published"] is None, asked
        assert "times the least" not in run(capsys, "plan", *asked)[1], asked


def test_what_does_not_fit_costs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """30B on 8 devices: no hours and no cost, in words and data, and exit code 0."""
    asked = ("gsm8k_grpo", "-f", "verl", "--scale", "large", "--devices", "8", "--device-type", "H100-SXM", "--price-per-gpu-hour", "2.5")
    (cell,) = planned(capsys, *asked)
    assert cell["prediction"]["verdict"] == "does not fit"
    assert (cell["least_device_hours"], cell["least_cost"], cell["if_like_published"]) == (None, None, None)
    assert cell["no_hours_because"] == "it does not fit its devices' memory"
    code, out, _ = run(capsys, "plan", *asked)
    words = " ".join(out.split())
    assert code == 0 and "if there were memory for it; no hours and no cost, as it does not fit its devices' memory" in words
    assert "device hours" not in words and "an hour" not in words


def test_several_frameworks_each_have_their_plan(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("gsm8k_grpo", "--scale", "base", "--device-type", "H100-SXM")
    each = {}
    for name in ("trl", "verl", "openrlhf"):
        code, out, _ = run(capsys, "plan", *asked, "-f", name, "--json")
        each[name] = json.loads(out.splitlines()[-1])
        assert (code, each[name]["framework"]) == (0, name)
    code, out, err = run(capsys, "plan", *asked, "-f", "verl", "-f", "trl", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out.splitlines()[-1]) == {
        "suite": "gsm8k_grpo", "scale": "base", "frameworks": {name: each[name] for name in ("verl", "trl")}
    }  # fmt: skip
    _, out, _ = run(capsys, "plan", *asked, "-f", "all", "--json")
    assert json.loads(out.splitlines()[-1])["frameworks"] == each
    text = run(capsys, "plan", *asked, "-f", "all")[1]
    assert all(f"gsm8k_grpo at base, {name}: " in text for name in each) and "Side by side" in text


def test_a_framework_that_cannot_run_it_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    """Of several; where none can, each reason is a line and nothing is planned."""
    asked = ("gsm8k_grpo", "--scale", "base", "--device-type", "H100-SXM", "--set", "parallelism.tensor=2")
    code, out, err = run(capsys, "plan", *asked, "-f", "trl", "-f", "verl", "--json")
    assert code == 0 and list(json.loads(out.splitlines()[-1])["frameworks"]) == ["verl"]
    assert err.startswith("left out: trl cannot run gsm8k_grpo at base: parallelism.tensor = 2") and err.count("\n") == 1
    code, out, err = run(capsys, "plan", *asked, "-f", "trl", "-f", "verl", "--devices", "7")
    assert (code, out) == (2, "") and "--devices 7: " in err


def test_smaller_devices_do_not_fit_and_the_term_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    (cell,) = planned(capsys, "gsm8k_grpo", "-f", "verl", "--scale", "base", "--device-type", "L4")
    found = cell["prediction"]["memory"]
    assert cell["prediction"]["verdict"] == found["generation"]["verdict"] == "does not fit"
    # Of 24 GB: optimizer 8 bytes of each of 7.6 billion parameters over 8 devices, and the rollout's weights as much, 2 bytes over 2 devices. Logits: 10
    # bytes of each of 152,064 for 8 samples of up to 1,083 tokens.
    assert found["generation"]["breaks"] in ("optimizer", "rollout weights")
    assert found["generation"]["terms"][found["generation"]["breaks"]] == pytest.approx(7.6e9, rel=0.01)
    assert found["training"]["breaks"] == "logits" and found["training"]["terms"]["logits"] == pytest.approx(
        8 * 1083 * 152_064 * 10, rel=0.05
    )


def test_more_devices_share_the_work(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("gsm8k_grpo", "-f", "verl", "--scale", "base", "--device-type", "H100-SXM", "--devices")
    eight, sixteen = (planned(capsys, *asked, count)[0]["prediction"] for count in ("8", "16"))
    update = "actor_update"
    assert eight["stages"][update]["least_s"] == pytest.approx(2 * sixteen["stages"][update]["least_s"])
    assert eight["stages"][update]["model_flops"] == sixteen["stages"][update]["model_flops"]


def test_every_variant_of_a_sweep_is_planned(capsys: pytest.CaptureFixture[str]) -> None:
    cells = planned(capsys, "group_size_sweep", "-f", "trl", "--scale", "tiny")
    assert len(cells) > 1 and len({cell["variant"] for cell in cells}) == len(cells)
    (one,) = planned(capsys, "group_size_sweep", "-f", "trl", "--scale", "tiny", "--variant", cells[0]["variant"])
    assert one == cells[0]


def test_a_variant_that_the_framework_cannot_run_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    """As `rlmbench run` leaves it out; alone it is refused."""
    sweep = ("placement_sweep", "-f", "trl", "--scale", "tiny")
    code, out, err = run(capsys, "plan", *sweep, "--json")
    variants = {cell["variant"] for cell in json.loads(out.splitlines()[-1])["cells"]}
    assert (code, variants & {"one_step_off"}, len(variants) >= 1) == (0, set(), True)
    assert "left out: trl cannot run placement_sweep one_step_off: placement.mode = 'async'" in err
    code, out, err = run(capsys, "plan", *sweep, "--variant", "one_step_off")
    assert (code, out, len(err.splitlines())) == (2, "", 1)


def test_a_rate_that_is_not_known_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """V100s have no bfloat16: memory and work are planned, time and cost are not."""
    asked = ("gsm8k_grpo", "-f", "trl", "--scale", "base", "--device-type", "V100-SXM2", "--price-per-gpu-hour", "1")
    code, out, _ = run(capsys, "plan", *asked)
    words = " ".join(out.split())
    assert code == 0 and "8 x V100-SXM2: no rate known in bfloat16, 900 GB/s" in words
    assert "step: unknown, as no rate of V100-SXM2 in bfloat16 is known, and so are hours and cost" in words
    (cell,) = planned(capsys, *asked)
    assert (cell["prediction"]["least_step_s"], cell["least_device_hours"], cell["least_cost"]) == (None, None, None)
    assert cell["prediction"]["memory"]["training"]["verdict"] == "does not fit"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("gsm8k_grpo", "-f", "verl", "--device-type", "H100"), "--device-type: unknown device 'H100'"),
        (("gsm8k_grpo", "-f", "trl", "--scale", "base", "--set", "parallelism.tensor=2", "--device-type", "L4"), "trl cannot run gsm8k_grpo at base: parallelism.tensor = 2"),
        (("gsm8k_grpo", "-f", "trl", "--scale", "tiny", "--set", "model.shape=null", "--set", "model.hub=a/b"), "not one of rlmbench's published shapes"),
        (("gsm8k_grpo", "-f", "verl", "--scale", "base", "--devices", "7"), "--devices 7: "),
        (("gsm8k_grpo", "-f", "verl", "--scale", "base", "--devices", "0"), "--devices 0: training needs at least 1"),
        (("gsm8k_grpo", "-f", "reference"), "reference: simulated: "),
        (("gsm8k_grpo", "-f", "verl", "--price-per-gpu-hour", "-1"), "greater than or equal to 0"),
        (("gsm8k_grpo", "-f", "verl", "--price-per-gpu-hour", "inf"), "less than or equal to 1000000"),
        (("gsm8k_grpo", "-f", "verl", "--scale", "base", "--prompt-tokens", "600"), "--prompt-tokens 600: a prompt has at most 512 here"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str) -> None:
    code, out, err = run(capsys, "plan", *arguments)
    assert (code, out) == (2, "")
    assert said in err and len(err.splitlines()) == 1


def test_frameworks_as_data(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "frameworks", "--json")
    found = json.loads(out.splitlines()[-1])["frameworks"]
    assert code == 0
    assert found["verl"]["hybrid_layouts"]["support"] == "run here"
    assert found["trl"]["pipeline"]["support"] == "not expressible"
    assert "reference" not in found  # it simulates one
