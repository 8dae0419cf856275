"""What every figure on a page means: the definitions of docs/metrics.md in a reader's words."""

from __future__ import annotations

from typing import NamedTuple


class Term(NamedTuple):
    """One figure: its unit (empty where it has none) and its definition."""

    name: str
    unit: str
    text: str


GLOSSARY: tuple[Term, ...] = (
    Term(
        "Step",
        "s",
        "One policy iteration: from the request for its prompts until the updated policy is available to the next step's "
        "generation. Step k ends where step k+1 begins, so steps tile the run. Clock: CLOCK_MONOTONIC of the process that "
        "drives the loop.",
    ),
    Term(
        "Measured steps",
        "",
        "The steps all figures are taken from. Warm-up steps, and steps that saved a checkpoint or validated, are recorded, "
        "shown faintly and left out.",
    ),
    Term(
        "Stage seconds",
        "s",
        "Union of the stage's spans on the driving process, each stretch of time given to its innermost span, so nested spans "
        "are never counted twice. Stages that run at the same time are both counted; their overlap is a figure of its own.",
    ),
    Term(
        "Unattributed",
        "s",
        "Time of the step that no span covers. It is never spread over the other stages. Stages + unattributed - overlap = step"
        " is checked on every step.",
    ),
    Term(
        "Coverage",
        "%",
        "1 - unattributed / step. Below 95% the breakdown is incomplete.",
    ),
    Term(
        "Share",
        "%",
        "The stage's seconds summed over the measured steps, divided by these steps' seconds.",
    ),
    Term(
        "Worker busy and skew",
        "s, %",
        "Union of a stage's spans per process; then minimum, mean and maximum over the processes that run it. Skew is (maximum "
        "- mean) / maximum.",
    ),
    Term(
        "Probe overhead",
        "%",
        "The probe's own time in a step by its own account, divided by the step's seconds; median over measured steps.",
    ),
    Term(
        "Prompts, samples, tokens",
        "",
        "Counted where the loss received them, not from the configuration. A sample is one response to one prompt; its tokens "
        "are its prompt's and its response's.",
    ),
    Term(
        "Computed tokens and padding",
        "tokens, %",
        "Tokens the forwards really processed, padding included. Padding share is 1 - valid / computed tokens.",
    ),
    Term(
        "Throughput",
        "per s",
        "Work of the measured steps divided by their seconds: a ratio of sums, so that throughput times time is the work "
        "exactly. Step tokens are prompt and response tokens of trained samples. Stage throughput divides by the stage's own "
        "seconds: response tokens for generation, prompt and response tokens for assessment (rewards, log-probs, values, "
        "advantages) and training. Per device divides by every device the run holds.",
    ),
    Term(
        "Model FLOPs",
        "FLOP",
        "Products that the algorithm needs for the valid tokens, from the model's shape: 2 per weight and token, the output head once and never "
        "the embedding look-up; attention causal, so half of the square; training is three forwards. A dot product of length n is 2n.",
    ),
    Term(
        "MFU, HFU",
        "%",
        "Model FLOPs over seconds x devices x the device's dense peak in the run's dtype. HFU also counts what gradient checkpointing computes "
        "again. An unknown device is unknown, not 0. Measured: against the fastest product rlmbench timed on the machine.",
    ),
    Term(
        "MBU, FLOP/byte, roofline, limit",
        "%",
        "MBU: least memory traffic (weights per pass or decode step, KV cache, optimizer state) over seconds x devices x bandwidth. FLOP/byte: what is "
        "computed, recomputation included, over that traffic. Limit: whether products or memory would bound the stage at best; roofline: that least "
        "time over the seconds it took.",
    ),
    Term(
        "Least step, work-depth ratio",
        "s, x",
        "No step of this placement can be shorter: each stage at its roof, with nothing lost to communication, launches, padding or skew. The ratio "
        "is the measured step over it.",
    ),
    Term(
        "Native figure",
        "",
        "A figure as the framework itself logged it, beside ours, with the ratio and the reason why they differ.",
    ),
    Term(
        "Memory",
        "MiB, GiB",
        "Highest of any process and measured step, per stage. RSS: resident set of the process in host memory, shared pages "
        "included. torch allocated and torch reserved: peaks of torch's device allocator, reset where a stage begins.",
    ),
    Term(
        "Memory growth",
        "per step",
        "Least-squares slope of the driver's resident set over the measured steps, with a 95% interval.",
    ),
    Term(
        "Idle time: no_kernel, exposed_communication, low_sm, role_waiting, cpu_idle",
        "%",
        "Five figures, never one. no_kernel: 1 - union of kernels and copies over a device's window. exposed_communication: communication "
        "kernels that no compute kernel covers, over the window; both from traces (--profile). low_sm: 1 - mean SM active, by the device's "
        "own counters. role_waiting: share of the measured steps in which no process of a role, or on a device, runs a stage, by spans. "
        "cpu_idle: 1 - CPU seconds of the run's processes / (cores x seconds).",
    ),
    Term(
        "Waiting and bubbles",
        "%",
        "Of a role, or of a device: the share of the measured steps in which none of its processes runs a stage. Bubbles are stretches of that "
        "of at least 1 ms. It does not say whether a device was busy.",
    ),
    Term(
        "End of generation (tail)",
        "s, %",
        "From the moment when fewer than a tenth of a step's samples are unfinished to the end of the last one; its share is of the time from "
        "the first sample's begin.",
    ),
    Term(
        "Compute, communication, copy, operator seconds",
        "s",
        "Of a profile pass: time with a compute kernel, with one of a collective library, with a copy; they may overlap. Without a device in the "
        "trace: time in CPU operators over all threads, nested ones once.",
    ),
    Term(
        "nvml_kernel_present",
        "%",
        "NVML's utilization.gpu: share of time in which at least one kernel ran, however small. It says that something was there, not that "
        "the device was busy.",
    ),
    Term(
        "SM, tensor and memory active",
        "%",
        "Means over time of the device's own counters (GPM, from Hopper on): multiprocessors with a warp, tensor cores at work, memory "
        "bandwidth in use.",
    ),
    Term(
        "At least, at most; ~",
        "",
        "A counter (CPU seconds, joules) is interpolated linearly between its readings. Its bounds hold whatever happened between two of "
        "them: what was gained between readings that both lie in the stage, and between all that touch it. ~: no whole stretch between two "
        "readings lies in the stage, so the figure is interpolation alone.",
    ),
    Term(
        "Energy",
        "J",
        "What the devices' total energy counters gained, or the integral of power where there is no counter; which one stands beside it. Of "
        "the devices that the run's processes were seen on. None on MIG.",
    ),
    Term(
        "Host and device memory",
        "MiB, GiB",
        "Highest reading while a stage ran, and in brackets the mean over time. RSS adds up resident sets of all processes of a node; PSS "
        "counts shared pages once and is read rarely. Device memory is all that is in use on the device, whoever uses it.",
    ),
    Term(
        "Growth",
        "per step",
        "Least-squares slope of the last reading in each measured step, with a 95% interval: above 0 with its whole interval, it grows.",
    ),
    Term(
        "Throttled",
        "%",
        "Share of time in which a device gave heat or its hardware as reasons for a lower clock. Being at its own power limit is no fault, and "
        "is shown as a reason only.",
    ),
    Term(
        "Used by others",
        "cores",
        "Busy time of the node less CPU seconds of the run's processes, over the steps' time. rlmbench's own processes are among the others.",
    ),
    Term(
        "Collector",
        "",
        "A process of its own beside the run, which reads host and devices. Its own CPU seconds over the time it ran: share of one core.",
    ),
    Term(
        "Interval",
        "",
        "95%. Of a mean over steps: block bootstrap over the steps of this one run. It says how steady this run was, not how "
        "another run would differ.",
    ),
    Term(
        "Fidelity",
        "",
        "What became of each field of the experiment. Exact: the framework does just that. Approximated: nearly, and the reason"
        " says what differs. Unsupported: it cannot, and such a run is refused before it starts.",
    ),
    Term(
        "Audit",
        "",
        "Per step, the prompts, samples, tokens, rewards and optimizer steps that reached the loss against those planned. A "
        "mismatch, or no step at all, fails the run.",
    ),
    Term(
        "Replay workload",
        "",
        "Response lengths and rewards are drawn once by rlmbench and every framework is made to produce exactly these.",
    ),
    Term(
        "Learning sanity",
        "",
        "Reward, KL to the reference, gradient norm, entropy and the like: figures that show whether a fast run also learned as it should.",
    ),
)

_OVER_RUNS: tuple[Term, ...] = (
    Term(
        "Configuration",
        "",
        "Runs that were made alike: same suite, scale, framework, versions, division, hardware, experiment and native configuration. "
        "They are called A, B, C, the fastest first; their runs are repetitions.",
    ),
    Term(
        "Verdict",
        "",
        "Comparable, comparable with reservations, or not comparable: the worst of all reasons decides. Where they are not comparable "
        "no ratio is named, a lack of runs aside.",
    ),
    Term(
        "Tokens per second",
        "tok/s",
        "Prompt and response tokens of trained samples over the seconds of the measured steps: one figure a run. Of a configuration: "
        "the mean over its runs that ended well.",
    ),
    Term("Ratio", "x", "Mean tokens per second of A over that of B."),
    Term(
        "At equal tokens",
        "",
        "Where lengths were left to the model: each run's rate is moved to the tokens and the longest response of a step that both configurations have "
        "on average, by how the seconds of steps grow with them within runs. The interval holds how uncertain that is.",
    ),
    Term(
        "95% interval",
        "",
        "Of a mean over runs, or of a ratio of such means: a bootstrap over runs gives its shape, Student's t its width. With a single run it "
        "is over blocks of its steps and says so: how steady this run was, not where the next would land.",
    ),
    Term(
        "p, smallest p",
        "",
        "p: how often runs dealt into two groups at random would differ as much (exact permutation test, two-sided). Smallest p: what so "
        "many runs can give at best; above 5% the verdict is too few runs.",
    ),
    Term("Minimum effect", "%", "A smaller difference counts as none, however sure it is."),
    Term("Spread", "%", "Standard deviation of tokens per second over runs, as a share of their mean: the noise floor."),
    Term(
        "Changes: work, numbers, neither",
        "",
        "What a difference changes. Work: what is computed, so that time differs between frameworks that are equally good. Numbers: what the "
        "optimizer sees. Neither: how the same work is done, which is what one compares. Unknown: rlmbench does not know.",
    ),
)

COMPARISON_GLOSSARY: tuple[Term, ...] = (*_OVER_RUNS, *(term for term in GLOSSARY if term.name != "Interval"))
"""What the page of several runs explains: first what it alone has."""
