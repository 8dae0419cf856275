"""Reading torch.profiler (kineto) traces with bounded memory: `read_trace` for rlmbench's own figures (docs/traces.md)."""

from rlmbench.traces.analysis import read_trace
from rlmbench.traces.hta import HtaBreakdown, HtaStream, hta_breakdown
from rlmbench.traces.model import STAGE_PREFIX, CpuOnly, CpuStage, CpuUsage, DeviceUsage, StageUsage, Step, Trace, Usage
from rlmbench.traces.tensorboard import TensorboardStep, tensorboard_overall

__all__ = [
    "STAGE_PREFIX",
    "CpuOnly",
    "CpuStage",
    "CpuUsage",
    "DeviceUsage",
    "HtaBreakdown",
    "HtaStream",
    "StageUsage",
    "Step",
    "TensorboardStep",
    "Trace",
    "Usage",
    "hta_breakdown",
    "read_trace",
    "tensorboard_overall",
]
