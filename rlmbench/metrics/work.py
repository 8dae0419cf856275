"""How much work a step did, counted where the loss received it, never from the configuration.

Source: `samples`, `microbatches` and `updates`; for the computed tokens of other stages, `spans`.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlmbench.records.frames import by_step, plain_rows

if TYPE_CHECKING:
    import pandas as pd

SAMPLE_KEY = ["step", "row", "sample"]


@dataclass(frozen=True)
class StepWork:
    """One step's work. A sample that is trained for two epochs counts once in `samples` and tokens, twice in `visits`.

    `micro_batches` counts those of all processes, `optimizer_steps` those of the process (and role) that made most.
    `digest` is equal for two steps that trained the same samples, token counts for token counts (`work_digest`).
    """

    step: int
    prompts: int
    samples: int
    visits: int
    prompt_tokens: int
    response_tokens: int
    micro_batches: int
    optimizer_steps: int
    digest: str

    @property
    def total_tokens(self) -> int:
        """Prompt and response tokens; a prompt counts once per sample, as each is a sequence of its own."""
        return self.prompt_tokens + self.response_tokens


@dataclass(frozen=True)
class LengthStats:
    """Response lengths in tokens over samples; percentiles interpolate linearly between order statistics."""

    samples: int
    minimum: int
    mean: float
    p50: float
    p90: float
    p99: float
    maximum: int
    share_at_cap: float


@dataclass(frozen=True)
class Padding:
    """Tokens a stage's forwards processed (`computed_tokens`, padding included) beside those that mattered, over all processes."""

    valid_tokens: int
    computed_tokens: int

    @property
    def share(self) -> float | None:
        """1 - valid / computed: the part of the processed tokens that is padding. None when nothing was processed."""
        return 1 - self.valid_tokens / self.computed_tokens if self.computed_tokens else None


def unique_samples(samples: pd.DataFrame, epochs: int) -> pd.DataFrame:
    """Each sample once, however many epochs it was trained for.

    Identified samples are told apart by (step, row, sample); the others by prompt and lengths within a step, where
    `epochs` equal ones are taken to be the visits of one sample.
    """
    import pandas as pd

    identified = samples["row"].notna() & samples["sample"].notna()
    known = samples[identified].drop_duplicates(SAMPLE_KEY)
    unknown = samples[~identified]
    visit = unknown.groupby(["step", "prompt_hash", "prompt_tokens", "response_tokens"], dropna=False).cumcount()
    return pd.concat([known, unknown[visit % epochs == 0]]).sort_index()


def optimizer_steps(updates: pd.DataFrame) -> dict[int, int]:
    """Step -> optimizer steps in it. Every rank records its own, so the process and role with most of them counts."""
    if updates.empty:
        return {}
    return by_step(updates.groupby(["step", "process", "role"]).size().groupby("step").max())


def work_digest(visits: Iterable[tuple[str | None, int, int]]) -> str:
    """8 hex digits over what the loss received in a step, in any order: prompt (by its token ids), prompt and response tokens."""
    lines = sorted(f"{prompt},{prompt_tokens},{response_tokens}" for prompt, prompt_tokens, response_tokens in visits)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:8]


def step_work(samples: pd.DataFrame, microbatches: pd.DataFrame, updates: pd.DataFrame, epochs: int) -> dict[int, StepWork]:
    """Step -> its work, for every step in which the loss received a sample or an optimizer stepped."""
    unique = unique_samples(samples, epochs)
    # A prompt that comes twice in a step is two rows of the plan; without a row its hash must do.
    prompt = unique["row"].astype("string").fillna(unique["prompt_hash"])
    unique_by_step = unique.assign(prompt=prompt).groupby("step")
    prompts, counts = by_step(unique_by_step["prompt"].nunique()), by_step(unique_by_step.size())
    prompt_tokens, response_tokens = by_step(unique_by_step["prompt_tokens"].sum()), by_step(unique_by_step["response_tokens"].sum())
    visits, micro_batches = by_step(samples.groupby("step").size()), by_step(microbatches.groupby("step").size())
    steps_made = optimizer_steps(updates)
    received: dict[int, list[tuple[str | None, int, int]]] = defaultdict(list)
    for step, *sample in plain_rows(samples, "step", "prompt_hash", "prompt_tokens", "response_tokens"):
        received[step].append(tuple(sample))
    return {
        step: StepWork(
            step=step,
            prompts=prompts.get(step, 0),
            samples=counts.get(step, 0),
            visits=visits.get(step, 0),
            prompt_tokens=prompt_tokens.get(step, 0),
            response_tokens=response_tokens.get(step, 0),
            micro_batches=micro_batches.get(step, 0),
            optimizer_steps=steps_made.get(step, 0),
            digest=work_digest(received[step]),
        )
        for step in sorted({*counts, *steps_made})
    }


def length_stats(response_tokens: Sequence[int], cap_tokens: int) -> LengthStats | None:
    """Statistics of response lengths; `share_at_cap` is the share with at least `cap_tokens`. None without samples."""
    import numpy as np

    if len(response_tokens) == 0:
        return None
    lengths = np.asarray(response_tokens, dtype=np.int64)
    p50, p90, p99 = (float(value) for value in np.percentile(lengths, [50, 90, 99]))
    return LengthStats(
        samples=len(lengths),
        minimum=int(lengths.min()),
        mean=float(lengths.mean()),
        p50=p50,
        p90=p90,
        p99=p99,
        maximum=int(lengths.max()),
        share_at_cap=float((lengths >= cap_tokens).mean()),
    )


def padding_by_stage(spans: pd.DataFrame, microbatches: pd.DataFrame, steps: Collection[int]) -> dict[str, Padding]:
    """Stage -> valid and computed tokens, summed over `steps` and processes.

    From spans that carry both (valid tokens, or else prompt plus response tokens); where a span and one around it of
    the same stage both do, the outer one counts. For actor_update the loss's own account is taken when there is one.
    """
    counted: dict[str, list[int]] = {}
    for stage, valid, computed in _outermost_token_counts(spans[spans["step"].isin(steps)]):
        total = counted.setdefault(stage, [0, 0])
        total[0] += valid
        total[1] += computed
    stages = {stage: Padding(*total) for stage, total in counted.items()}
    losses = microbatches[microbatches["step"].isin(steps)].dropna(subset=["computed_tokens"])
    if len(losses):
        stages["actor_update"] = Padding(int(losses["valid_tokens"].sum()), int(losses["computed_tokens"].sum()))
    return stages


def _outermost_token_counts(spans: pd.DataFrame) -> list[tuple[str, int, int]]:
    """(stage, valid, computed) of each span that carries tokens and lies within no other such span of its stage."""
    valid = spans["valid_tokens"].fillna(spans["prompt_tokens"] + spans["response_tokens"])
    counting = spans.assign(valid=valid).dropna(subset=["valid", "computed_tokens"])
    nested = plain_rows(spans.dropna(subset=["parent"]), "process", "id", "parent")
    parent_of = {(process, span): (process, parent) for process, span, parent in nested}
    rows = list(plain_rows(counting, "process", "id", "stage", "valid", "computed_tokens"))
    stage_of = {(process, span): stage for process, span, stage, _, _ in rows}
    outermost = []
    for process, span, stage, tokens, computed in rows:
        around = parent_of.get((process, span))
        while around is not None and stage_of.get(around) != stage:
            around = parent_of.get(around)
        if around is None:
            outermost.append((stage, tokens, computed))
    return outermost
