"""What a comparison needs to know of one run, read from its folder once. All that follows is computed from this."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from rlmbench.errors import UserError
from rlmbench.metrics import RunSummary
from rlmbench.records.manifest import Manifest
from rlmbench.records.store import PLAN, Run, read_plan
from rlmbench.records.tables import read_columns


@dataclass(frozen=True)
class Evidence:
    """One run: manifest, figures, experiment, the facts its processes stated, and its plan by content.

    `experiment` has the defaults of fields that were added since. `facts` holds each value that some process stated, once.
    `plan_hash` is None for a run that ended before it had a plan. `longest_response` is that of each step, in tokens, where lengths were
    left to the model. `path` is its folder, where the rest can be read. `replaced` are interrupted attempts that it stands for.
    """

    path: Path
    manifest: Manifest
    summary: RunSummary
    experiment: Mapping[str, Any]
    facts: Mapping[str, tuple[Any, ...]]
    plan_hash: str | None
    longest_response: Mapping[int, int] = field(default_factory=dict)
    replaced: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return self.summary.id

    @property
    def ok(self) -> bool:
        """Whether it ended well and its figures count."""
        return self.summary.status == "ok" and self.summary.throughput is not None

    @property
    def step_tokens(self) -> dict[int, int]:
        """Step -> prompt and response tokens that reached the loss, for every finished step, warm-up included."""
        return {
            step.step: step.prompt_tokens + step.response_tokens
            for step in self.summary.steps
            if step.prompt_tokens is not None and step.response_tokens is not None
        }


def evidence_of(run: Run, summary: RunSummary, replaced: tuple[str, ...] = ()) -> Evidence:
    """Read what is needed beside the figures. `replaced`: ids of interrupted attempts that this run stands for.

    Raises:
        UserError: a profile run.
    """
    if not run.measures:
        raise UserError(f"{run.id}: a profile run, which torch.profiler slowed: it is compared with nothing; leave it out")
    facts: dict[str, list[Any]] = {}
    for name, text in read_columns(run.path, "facts", "name", "value"):
        value = json.loads(text)
        if value not in facts.setdefault(name, []):
            facts[name].append(value)
    stated = {name: tuple(sorted(values, key=str)) for name, values in facts.items()}
    longest = _longest_response(run.path) if is_natural(summary) else {}
    experiment = run.experiment.model_dump(mode="json")
    return Evidence(run.path, run.manifest, summary, experiment, stated, _plan_hash(run.path), longest, replaced)


def is_natural(summary: RunSummary) -> bool:
    """Whether no response length was planned: they were left to the model."""
    return summary.audit is not None and summary.audit.planned.response_tokens is None


def _longest_response(run_dir: Path) -> dict[int, int]:
    longest: dict[int, int] = {}
    for step, tokens in read_columns(run_dir, "samples", "step", "response_tokens"):
        longest[step] = max(longest.get(step, 0), tokens)
    return longest


def _plan_hash(run_dir: Path) -> str | None:
    try:
        return _hash_of_text((run_dir / PLAN).read_bytes())
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        read_plan(run_dir)  # says what is wrong with it
        raise


@lru_cache(maxsize=16)
def _hash_of_text(text: bytes) -> str:
    """Repetitions have the same plan byte for byte: of a thousand runs few are parsed, and none is kept."""
    return plan_hash(json.loads(text))


def plan_hash(plan: Mapping[str, Any]) -> str:
    """Content of a workload plan: which prompts in which step, and under replay each sample's length and reward."""
    rows = [[row[key] for key in ("step", "prompt_hash", "response_tokens", "rewards")] for row in plan["rows"]]
    text = json.dumps([plan["mode"], plan["group_size"], rows], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
