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
