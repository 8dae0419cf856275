"""One colour, label and place for every stage, in every chart and table.

The colours are those of Okabe and Ito ("Color Universal Design", https://jfly.uni-koeln.de/color/), which people with
the common kinds of colour blindness can tell apart, and darker or lighter shades of them for related stages. Colour
never stands alone: bars are labelled, and every chart has a table. A kind of work keeps one family: generation blue,
assessment light blue and purple, training vermilion and orange, weights moving about green, everything else grey.
"""

from __future__ import annotations

from dataclasses import dataclass

HATCH = "url(#hatch)"
"""Fill of unattributed time: a pattern defined in the page, so that a gap is never mistaken for a stage."""


@dataclass(frozen=True)
class StageStyle:
    """How a stage is shown. `colour` is a CSS colour or a paint reference."""

    name: str
    label: str
    colour: str
    about: str


STAGES: tuple[StageStyle, ...] = (
    StageStyle("generation", "generation", "#0072B2", "the policy writes its responses"),
    StageStyle("reward", "reward", "#E69F00", "responses are scored"),
    StageStyle("reference_logprob", "reference log-probs", "#56B4E9", "forward of the reference model"),
    StageStyle("old_logprob", "old log-probs", "#CC79A7", "forward of the policy before the update"),
    StageStyle("values", "values", "#8C4A73", "forward of the critic"),
    StageStyle("advantage", "advantage", "#F0E442", "rewards become advantages"),
    StageStyle("actor_update", "actor update", "#D55E00", "forward, backward and optimizer of the policy"),
    StageStyle("critic_update", "critic update", "#8A3C00", "forward, backward and optimizer of the critic"),
    StageStyle("weight_sync", "weight sync", "#009E73", "new weights go to the rollout engine"),
    StageStyle("offload", "offload", "#00634A", "weights or states leave the device"),
    StageStyle("onload", "onload", "#6CCBB0", "weights or states come back to the device"),
    StageStyle("data", "data", "#747474", "prompts are loaded and batched"),
    StageStyle("checkpoint", "checkpoint", "#4F4F4F", "the state is saved"),
    StageStyle("validation", "validation", "#946A00", "the policy is evaluated"),
    StageStyle("wait", "wait", "#ABABAB", "a process waits for another"),
    StageStyle("bookkeeping", "bookkeeping", "#5E6B78", "logging, garbage collection and the like"),
    StageStyle("startup", "start-up", "#C9C9C9", "before the first step"),
    StageStyle("unattributed", "unattributed", HATCH, "no span covers it"),
)

CONFIGURATION_COLOURS = ("#0072B2", "#D55E00", "#008A64", "#C25C94", "#7A7A7A", "#9A7000")
"""Colours of configurations in charts, the fastest first: each at least 3:1 on the page in light and in dark, with a dash of its own."""
CONFIGURATION_DASHES: tuple[list[int], ...] = ([1, 0], [7, 3], [2, 2], [9, 3, 2, 3], [4, 4], [12, 4])

_BY_NAME = {style.name: style for style in STAGES}
_ORDER = {style.name: place for place, style in enumerate(STAGES)}
_UNKNOWN_COLOUR = "#8F8F8F"
DARK_INK = "#111111"
LIGHT_INK = "#FFFFFF"
SUBSTAGE_TINTS = {"prefill": 0.4, "forward": 0.4, "optimizer": -0.35}
"""How far a substage's colour is from its stage's; the others take the stage's own."""


def style_of(stage: str) -> StageStyle:
    """The style of `stage`; a stage this version does not know is grey and keeps its own name."""
    return _BY_NAME.get(stage) or StageStyle(stage, stage.replace("_", " "), _UNKNOWN_COLOUR, "a stage this version does not know")


def in_order(stages: list[str] | set[str]) -> list[str]:
    """`stages` in the order of a step; unknown ones after the known, unattributed last."""
    last = len(STAGES) + 1
    return sorted(stages, key=lambda name: (last if name == "unattributed" else _ORDER.get(name, len(STAGES)), name))


def tint(colour: str, amount: float) -> str:
    """`colour` (#rrggbb) mixed with white (`amount` up to 1) or black (down to -1)."""
    towards = 255 if amount > 0 else 0
    mixed = (round(part + (towards - part) * abs(amount)) for part in _parts(colour))
    return "#" + "".join(f"{part:02X}" for part in mixed)


def ink_on(colour: str) -> str:
    """Black or white, whichever reads better on `colour`."""
    return max((DARK_INK, LIGHT_INK), key=lambda ink: contrast(ink, colour))


def contrast(one: str, other: str) -> float:
    """WCAG 2 contrast ratio of two colours (#rrggbb), from 1 to 21."""
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _parts(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def _luminance(colour: str) -> float:
    red, green, blue = (part / 255 / 12.92 if part / 255 <= 0.04045 else ((part / 255 + 0.055) / 1.055) ** 2.4 for part in _parts(colour))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
