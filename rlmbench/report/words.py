"""Sentences about a run that the terminal and the page share."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlmbench.records.vocabulary import FRAMEWORK_NAMES
from rlmbench.report import numbers
from rlmbench.report.palette import in_order, style_of
from rlmbench.report.parts import State

if TYPE_CHECKING:
    from rlmbench.metrics import RunSummary
    from rlmbench.metrics.figures import WorkerFigures
    from rlmbench.records import Manifest

SLOWED = "torch.profiler watched this run and slowed it: its times are not to be compared with anything."
_STATES: dict[str, State] = {"ok": "ok", "failed": "bad", "interrupted": "warn"}


def framework_name(manifest: Manifest) -> str:
    """The framework as its authors write it, with the version that ran where it is known."""
    name = FRAMEWORK_NAMES.get(manifest.framework, manifest.framework)
    version = manifest.environment.packages.get(manifest.framework) if manifest.environment else None
    named = f"{name} {version}" if version else name
    marks = [manifest.variant, *(mark for mark in (manifest.division, manifest.pass_) if mark not in ("matched", "measure"))]
    return ", ".join([named, *filter(None, marks)])


def summary_name(summary: RunSummary) -> str:
    """The framework in a narrow column, with its division when that is not the matched one."""
    name = FRAMEWORK_NAMES.get(summary.framework, summary.framework)
    marks = [mark for mark in (summary.variant, summary.division, summary.run_pass) if mark not in ("", "matched", "measure")]
    return f"{name} ({', '.join(marks)})" if marks else name


def run_memory(peak_pss_bytes: int) -> str:
    """Host memory of a whole run."""
    return (
        f"{numbers.size(peak_pss_bytes)} over all processes at once, start-up included (shared pages counted once): the most of a look every "
        "5 s or more rarely, so that a short peak can be missed"
    )


def overlaps(seconds: float | None) -> bool:
    """Whether stages run at once for long enough that a table shows it: half a millisecond of a step."""
    return seconds is not None and seconds >= 0.0005


def workers_in_order(summary: RunSummary) -> list[WorkerFigures]:
    """The busy seconds of processes, in the order of a step's stages."""
    stages = in_order({worker.stage for worker in summary.workers})
    return sorted(summary.workers, key=lambda worker: (stages.index(worker.stage), worker.role))


def status_state(summary: RunSummary) -> State:
    """How good the run's status is."""
    return _STATES.get(summary.status, "none")


def status_word(summary: RunSummary) -> str:
    """The status, with the class of failure."""
    kind = summary.failure_class
    return f"{summary.status}: {plain_class(kind)}" if kind and kind != summary.status else str(summary.status)


def how_it_ended(status: str, message: str, between: str = ": ") -> str:
    """``failed: exit code 1``; and ``interrupted by SIGINT in step 3``, where the message says the word itself."""
    return message if message.startswith(status) else f"{status}{between}{message}"


def unfinished(summary: RunSummary) -> bool:
    """Whether the run ended before its work was done, for a reason of its own: an audit can only find that out again."""
    return summary.failure_class not in (None, "audit")


def plain_class(failure_class: str) -> str:
    """A failure class as words."""
    memory = {"out_of_memory_host": "out of memory (host)", "out_of_memory_device": "out of memory (device)"}
    return memory.get(failure_class, failure_class.replace("_", " "))


def lead(summary: RunSummary) -> str:
    """The run in one or two sentences."""
    sentences = []
    if summary.status != "ok":
        what = summary.failure.message if summary.failure else f"the run is {summary.status}"
        sentences.append(what[:1].upper() + what[1:].rstrip(".") + ".")
    if summary.step_s.median is None or not summary.measured_steps:
        sentences.append("No step was measured, so there are no figures.")
        return " ".join(sentences)
    steps = "1 measured step" if summary.measured_steps == 1 else f"{summary.measured_steps:,} measured steps"
    sentences.append(f"A step takes {numbers.seconds(summary.step_s.median)} (median of {steps}).")
    largest = sorted(summary.stages_share.items(), key=lambda item: -item[1])[:3]
    if largest:
        parts = listed([f"{style_of(stage).label} ({numbers.share(part)})" for stage, part in largest])
        sentences.append(f"Most of it goes to {parts}.")
    else:
        sentences.append("Where it goes is not known: no spans were recorded.")
    return " ".join(sentences)


def listed(items: Sequence[str]) -> str:
    """`items` as a reader lists them: a, b and c."""
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)


def devices_held(count: int, manifest: Manifest) -> str:
    """How many devices a rate is over; on a CPU they are the ranks."""
    kind = "rank" if manifest.on_cpu else "device"
    return f"{count:,} {kind}{'s' if count != 1 else ''}"


def again_command(manifest: Manifest) -> str:
    """The command that runs this cell again."""
    if manifest.failure and manifest.failure.rerun_command:
        return manifest.failure.rerun_command
    if manifest.campaign_id and manifest.status == "interrupted":  # killed before it could say how it was asked for
        return shlex.join(["rlmbench", "run", manifest.suite, "--resume", "--campaign", manifest.campaign_id])
    words = ["rlmbench", "run", manifest.suite, "--framework", manifest.framework, "--scale", manifest.scale]
    if manifest.variant:
        words += ["--variant", manifest.variant]
    for override in manifest.overrides:
        words += ["--set", override]
    if manifest.profile is not None:
        words += ["--profile", "--profile-steps", ",".join(map(str, manifest.profile.steps))]
        words += [word for extra in manifest.profile.extras for word in ("--profile-with", extra)]
    return shlex.join(words)


def unbroken(text: str) -> str:
    """`text` with spaces at which no line ends, for a number and its unit or a short name."""
    return text.replace(" ", "\u00a0")


def value_text(value: Any) -> str:
    """A configuration value as its user would write it; empty for none."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def native_text(entry: Mapping[str, Any]) -> str:
    """`key = value` of a ledger entry in the framework's terms; empty where there is no key."""
    key = entry.get("native_key")
    return f"{key} = {value_text(entry.get('native_value'))}" if key else ""
