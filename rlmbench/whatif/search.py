"""Which division of the devices makes a mode fastest."""

from __future__ import annotations

from dataclasses import replace

from rlmbench.whatif.modes import MODES, Drawn, Layout, Prediction, predict

CANDIDATES = 64
AS_FAST = 1e-3
"""Splits whose steps differ by a smaller share are equally fast: which steps the simulation begins and ends with makes that much."""


def best_split(drawn: Drawn, mode: str, layout: Layout) -> Prediction:
    """The fastest split of `layout.devices`, of equally fast ones that with the fewest rollout devices; the layout itself where the mode is
    not split. More replicas than can hold a response are not tried, unless they train, too.

    Up to `CANDIDATES` replicas all are tried. Beyond, a coarse grid, then ever finer ones around its best: a step's time falls with
    rollout devices as long as generation is what it waits for, and rises from then on. Samples are dealt whole, so it also jumps a
    little, and what is found may be some percent above the very best.
    """
    if not MODES[mode].is_split:
        return predict(drawn, mode, layout)
    tensor = layout.tensor
    low, high = 1, (layout.devices - 1) // tensor
    if mode != "partially_colocated":
        high = min(high, drawn.filled(high, layout.staleness))
    tried: dict[int, Prediction] = {}
    while True:
        stride = max(-(-(high - low) // CANDIDATES), 1)
        for replicas in sorted({*range(low, high + 1, stride), high}):
            if replicas not in tried:
                split = replace(layout, rollout=replicas * tensor, training=layout.devices - replicas * tensor)
                tried[replicas] = predict(drawn, mode, split)
        best = min(tried, key=lambda replicas: (tried[replicas].step_s, replicas))
        if stride == 1:
            return tried[min(replicas for replicas, one in tried.items() if one.step_s <= (1 + AS_FAST) * tried[best].step_s)]
        low, high = max(low, best - stride), min(high, best + stride)
