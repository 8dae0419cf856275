"""The conformance kit finds each promise that an adapter breaks. The sound one is TRL's; each broken one differs in one thing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlmbench.adapter import Adapter, EnvironmentSpec, Fidelity, Launch, NativeMetric, Process, RunInputs, Translation, find_adapter
from rlmbench.conformance import static, static_checks
from rlmbench.conformance.static import shipped_cases, variations
from rlmbench.experiment import Experiment

TINY = next(case for case in shipped_cases() if case.name == "gsm8k_grpo at tiny")


class Wrapped:
    """TRL's adapter, with whatever a test replaces."""

    uses_ray = False

    def __init__(self, **replaced: Callable[..., Any]) -> None:
        self.name = "wrapped"
        self._inner = find_adapter("trl")
        self._replaced = replaced

    def environments(self) -> Iterable[EnvironmentSpec]:
        return self._do("environments")

    def translate(self, experiment: Experiment, device: str) -> Translation:
        return self._do("translate", experiment, device)

    def launch(self, translation: Translation, experiment: Experiment, inputs: RunInputs) -> Launch:
        return self._do("launch", translation, experiment, inputs)

    def reserved_keys(self) -> Iterable[str]:
        return self._do("reserved_keys")

    def probe_path(self) -> Path:
        return self._do("probe_path")

    def probe_module(self) -> str:
        return self._do("probe_module")

    def native_metrics(self) -> Mapping[str, NativeMetric]:
        return self._do("native_metrics")

    def _do(self, name: str, *arguments: Any) -> Any:
        if name in self._replaced:
            return self._replaced[name](*arguments)
        return getattr(self._inner, name)(*arguments)


def broken(adapter: Adapter) -> dict[str, str]:
    """Check -> evidence, of the checks that fail."""
    return {found.check: found.evidence for found in static_checks(adapter) if not found.ok}


def changed(change: Callable[[Translation], Translation]) -> dict[str, Callable[..., Any]]:
    trl = find_adapter("trl")
    return {"translate": lambda experiment, device: change(trl.translate(experiment, device))}


def without_first(translation: Translation) -> Translation:
    return replace(translation, ledger=translation.ledger[1:])


def without_reasons(translation: Translation) -> Translation:
    approximated = [replace(entry, fidelity=Fidelity.APPROXIMATED, reason="") for entry in translation.ledger]
    return replace(translation, ledger=tuple(approximated))


def with_a_tuple(translation: Translation) -> Translation:
    return replace(translation, native={**translation.native, "betas": (0.9, 0.95)})


def raises(experiment: Experiment, device: str) -> Translation:
    raise ValueError("no such thing")


def relative(translation: Translation, experiment: Experiment, inputs: RunInputs) -> Launch:
    return Launch((Process("trainer", ("python", "train.py")),))


def elsewhere(translation: Translation, experiment: Experiment, inputs: RunInputs) -> Launch:
    (inputs.run_dir.parent / "left").write_text("")
    return Launch((Process("trainer", (str(inputs.python),)),))


def test_a_sound_adapter_passes():
    assert broken(Wrapped()) == {}


@pytest.mark.parametrize(
    ("replaced", "check", "evidence"),
    [
        ({"translate": raises}, "translate never raises", "ValueError: no such thing"),
        (changed(without_first), "the ledger accounts for every field", "optimization.algorithm not in the ledger"),
        (changed(without_reasons), "what is not exact has a reason", "is approximated without a reason"),
        (changed(with_a_tuple), "the native configuration is plain data", "JSON gives something else back"),
        (changed(lambda one: replace(one, environment="none")), "each translation names an environment that exists", "environment 'none' for cpu"),
        (changed(lambda one: replace(one, expected_facts={})), "the run is asked to prove what it is", "world_size is not among"),
        ({"launch": relative}, "launch says what to start", "trainer does not begin with an absolute path"),
        ({"launch": elsewhere}, "launch says what to start", "launch wrote outside the run's folder: left"),
        ({"environments": list}, "environments have lock files", "no environment"),
        ({"probe_module": lambda: "no_such_module"}, "hooks can be listed before the framework is imported", "No module named 'no_such_module'"),
        ({"native_metrics": lambda: {"loss": NativeMetric(" ")}}, "native figures are explained", "loss: no text"),
        ({"native_metrics": lambda: {"kl": NativeMetric("KL", sanity="divergence")}}, "native figures are explained", "kl: sanity 'divergence'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_each_broken_promise_is_found(replaced, check, evidence, monkeypatch):
    monkeypatch.setattr(static, "_cases", lambda: (TINY,))
    found = broken(Wrapped(**replaced))
    assert check in found
    assert evidence in found[check]


def test_the_cases_are_what_they_say():
    names = [case.name for case in shipped_cases()]
    assert "gsm8k_grpo at tiny" in names
    varied = {case.name: case for case in variations()}
    assert varied["gsm8k_grpo with placement.mode=async"].experiment.placement.mode == "async"
    assert varied["gsm8k_ppo with parallelism.data=2"].experiment.parallelism.data == 2
    assert "gsm8k_grpo with optimization.algorithm=ppo" not in varied  # no experiment may be so without a critic
