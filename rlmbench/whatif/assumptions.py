"""Everything that a prediction takes for granted, by name: each has a default, can be set, and is printed with every result.

The defaults are the ideal ones, so that without a measurement of scaling a prediction is a lower bound of the step time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from rlmbench.errors import UserError, did_you_mean


def _not_a_truth(value: object) -> object:
    if isinstance(value, bool):  # would be taken for 0 or 1
        raise ValueError("should be a number, not true or false")
    return value


NUMBER = BeforeValidator(_not_a_truth)
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False), NUMBER]
Efficiency = Annotated[float, Field(ge=0.01, le=1, allow_inf_nan=False), NUMBER]
"""At 0.5 more devices are no faster; 0.01 is below anything real, and keeps every figure finite on as many devices as may be asked for."""
Seconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False), NUMBER]


class Assumptions(BaseModel):
    """How stages scale, and what a mode costs. Frozen; `with_settings` makes another."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    latency_share: Share | None = Field(
        None,
        description="Share of the measured generation that more replicas do not shorten: the longest response, token by token. "
        "null: fitted from the run where it recorded each sample's end, else 0.5",
    )
    training_efficiency: Efficiency = Field(
        1.0, description="Parallel efficiency of training and log-probs per doubling of the devices: n times as many take 1/(n e^log2 n)"
    )
    token_exponent: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False), NUMBER] = Field(
        1.0, description="Training and log-prob seconds grow with a step's tokens to this power: 1 without attention's quadratic term"
    )
    sync_s: Seconds | None = Field(
        None, description="Seconds to bring new weights to the rollout replicas. null: as measured in the run (0 where it recorded none)"
    )
    sync_replica_exponent: Share = Field(
        0.0,
        description="Sync seconds grow with the number of replicas to this power: 0 a broadcast in parallel, 1 one replica after another",
    )
    sync_pauses_rollout: bool | None = Field(
        None, description="A sync that falls into a generation lengthens it by its own seconds. null: as in an asynchronous run, else true"
    )
    roles_apart: bool = Field(
        False,
        description="Reference, reward and critic have devices of their own, as many as were measured with, so that they run beside each other: "
        "the longest counts. false: they share the training devices and run in turn",
    )
    assessment_beside_rollout: bool = Field(
        False,
        description="Under bounded asynchrony rollouts are assessed before they are handed over (Table 9). false: by the trainer, as verl, OpenRLHF "
        "and the reference framework do",
    )
    waiting_s: Seconds | None = Field(
        None,
        description="Seconds of a step in which the driver waits and nothing runs, such as until its next poll for finished rollouts. "
        "null: as measured",
    )
    stream_parts: Annotated[float, Field(ge=1), NUMBER] | None = Field(
        None,
        description="In how many parts fused stages hand samples on: the second ends one part after the first. "
        "null: one per training micro-batch of the run",
    )
    rollout_refill: bool | None = Field(
        None,
        description="Under bounded asynchrony a replica takes a new prompt when a response ends, so that it waits for the mean response, "
        "not for the longest of a batch; never with a static engine. null: as in an asynchronous run, else true",
    )
    pipeline_bubble: Share = Field(0.0, description="Share of training in which pipeline stages wait, which fused updates fill")
    tensor_efficiency: Efficiency = Field(1.0, description="Speed of tensor-parallel decoding over its degree")
    reshard_s: Seconds | None = Field(
        None, description="Hybrid layouts: seconds per step to change the layout both ways. null: offload, onload and sync as measured"
    )
    rollout_engine: Literal["continuous", "static"] | None = Field(
        None,
        description="continuous: a response that ended computes no more; static: a batch computes until its longest has. "
        "null: by the engine of the run",
    )
    variation: bool = Field(True, description="Steps vary as the measured ones did around what their tokens explain; false: not at all")

    def with_settings(self, settings: Sequence[str]) -> Assumptions:
        """A copy with ``name=value`` settings.

        Raises:
            UserError: an unknown name, or a value that does not fit.
        """
        import yaml

        values: dict[str, Any] = self.model_dump()
        for text in settings:
            name, equals, value = text.partition("=")
            name = name.strip()
            if name not in values:
                raise UserError(
                    f"--assume {text}: unknown assumption{did_you_mean(name, values)}; write NAME=VALUE; names are {', '.join(values)}"
                )
            if not equals or not value.strip():
                raise UserError(f"--assume {text}: no value; write {name}=VALUE")
            try:
                values[name] = yaml.safe_load(value)
                Assumptions.model_validate({name: values[name]})
            except (ValueError, yaml.YAMLError) as error:  # ValueError: the 13th month, or a number of 5,000 digits
                said = error.errors()[0]["msg"].removeprefix("Value error, ") if isinstance(error, ValidationError) else "not a value"
                raise UserError(f"--assume {text}: {said}") from None
        return Assumptions.model_validate(values)

    def stated(self) -> list[tuple[str, Any, str]]:
        """Every assumption as (name, value, meaning)."""
        return [(name, getattr(self, name), str(field.description)) for name, field in Assumptions.model_fields.items()]
