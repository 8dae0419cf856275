"""Is the machine free for a measurement? Asked before each run, and what it left behind after it.

A GPU that somebody else holds, or that is slowed down, makes a figure worthless: after a wait the run is refused. A busy CPU is what a
developer's machine and CI are made of: there the run waits a little, goes on, and its record says so. `--allow-busy` makes a warning of
every refusal, without a wait; `--require-quiet` refuses on a busy CPU too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rlmbench.collectors.devices import Device, DeviceError, open_drivers
from rlmbench.collectors.nvidia import HINDERING
from rlmbench.collectors.proc import busy_seconds, read
from rlmbench.collectors.visible import chosen
from rlmbench.errors import EXIT_BUSY, UserError
from rlmbench.metrics.host import BUSY_SHARE
from rlmbench.records.manifest import DeviceState, Preconditions

Policy = Literal["", "allow", "refuse"]
"""What to do on a busy machine: what suits the device, go on at once, or refuse in any case."""

LOOK_S = 1.0
"""So long is looked how busy the machine is: the load average takes minutes to decay."""
WAIT_S = 60.0
WAIT_CPU_S = 5.0
SETTLE_S = 5.0
"""How long a driver may take to give memory back after its processes have ended."""
BASELINE_BYTES, BASELINE_SHARE = 1 << 30, 0.02
"""Memory that a driver may hold without any process: the larger of the two."""
LEFT_BEHIND_BYTES = 256 << 20
_GIB = 1 << 30


class NotQuiet(UserError):
    """The machine is not free for a measurement."""

    exit_code = EXIT_BUSY


@dataclass(frozen=True)
class Look:
    """The machine at one moment; `problems` are the reasons why it is not free, `refusable` those of its GPUs."""

    host_busy_share: float | None
    devices: tuple[DeviceState, ...] = ()
    host_problems: tuple[str, ...] = ()
    device_problems: tuple[str, ...] = field(default=())

    @property
    def problems(self) -> tuple[str, ...]:
        return (*self.device_problems, *self.host_problems)


class Machine:
    """Looks at this machine. `count` GPUs are a run's: the first ones that it sees, by CUDA_VISIBLE_DEVICES as `visible`; 0 is a CPU run."""

    def __init__(self, count: int, visible: str | None = None) -> None:
        self._count = count
        self._visible = visible

    def look(self, seconds: float = LOOK_S) -> Look:
        """Watch the host for `seconds`, and look at the devices."""
        share = busy_share(seconds)
        busy = share is not None and share > BUSY_SHARE
        host = (f"{share:.0%} of the cores are at work for others (limit {BUSY_SHARE:.0%})",) if busy else ()
        if not self._count:
            return Look(share, host_problems=host)
        states, problems = self._look_at_devices()
        return Look(share, tuple(states), host, tuple(problems))

    def devices(self) -> list[DeviceState]:
        """The run's devices as they are now."""
        return self._look_at_devices()[0] if self._count else []

    def _look_at_devices(self) -> tuple[list[DeviceState], list[str]]:
        drivers, told = open_drivers(self._visible)
        try:
            everyone = [device for driver in drivers for device in driver.devices()]
            devices = chosen(everyone, self._visible, os.environ.get("CUDA_DEVICE_ORDER"))[: self._count]
            states, problems = [], []
            if len(devices) < self._count:
                because = next((f": {one.reason}" for one in told if not one.available and one.name in ("nvml", "device")), "")
                problems.append(f"{len(devices)} of the run's {self._count} GPUs can be looked at{because}")
            for device in devices:
                try:
                    state, why = _examine(device)
                except Exception as error:  # noqa: BLE001 -- an answer that nobody foresaw must cost neither the run nor its record
                    reason = str(error) if isinstance(error, DeviceError) else f"unexpected {type(error).__name__}: {error}"
                    state, why = DeviceState(uuid=device.uuid), [f"{device.name} {device.uuid} does not answer: {reason}"]
                states.append(state)
                problems += why
            return states, problems
        finally:
            for driver in drivers:
                driver.close()


def busy_share(seconds: float) -> float | None:
    """Share of the machine's cores that were at work in the next `seconds`; None where the kernel does not tell."""
    before, began = read("stat"), time.monotonic()
    time.sleep(seconds)
    after, passed_s = read("stat"), time.monotonic() - began
    if not before or not after:
        return None
    share = (busy_seconds(after) - busy_seconds(before)) / (passed_s * (os.cpu_count() or 1))
    return min(1.0, max(0.0, share))  # the kernel counts in ticks, and the clock is read a moment after it


def await_quiet(
    machine: Machine,
    policy: Policy,
    tell: Callable[[str], None] = lambda text: None,
    stop: Callable[[], bool] = lambda: False,
) -> Preconditions:
    """Wait until the machine is free, for a time that suits the run; what was not is in the result's `problems`.

    `tell` is told what is waited for; `stop` ends the waiting, as Ctrl-C does.

    Raises:
        NotQuiet: it did not become free, and `policy` does not let that pass.
    """
    began = time.monotonic()
    look = machine.look()
    while look.problems and policy != "allow" and not stop():
        # A GPU is worth a longer wait than a busy CPU, which mostly stays busy.
        bound_s = WAIT_S if look.device_problems or policy == "refuse" else WAIT_CPU_S
        waited_s = time.monotonic() - began
        if waited_s >= bound_s:
            if look.device_problems or policy == "refuse":
                raise NotQuiet(_refusal(look, waited_s))
            break
        tell(f"waiting for a quiet machine: {look.problems[0]}")
        look = machine.look()
    return Preconditions(
        waited_s=round(time.monotonic() - began, 1),
        host_busy_share=look.host_busy_share,
        problems=list(look.problems),
        devices=list(look.devices),
    )


def after_run(machine: Machine, before: Preconditions, stop: Callable[[], bool] = lambda: False) -> Preconditions:
    """The same with what the run left on its devices, once the driver has had time to clear up."""
    if not before.devices:
        return before
    deadline = time.monotonic() + SETTLE_S
    while True:
        states = machine.devices()
        left = _left_behind(before.devices, states)
        if not left or stop() or time.monotonic() >= deadline:
            return before.model_copy(update={"devices_after": states, "left_behind": left})
        time.sleep(0.5)


def warnings_of(found: Preconditions) -> list[str]:
    """What a reader of the run's figures must know, a line each."""
    busy = [f"the machine was not quiet when it began: {'; '.join(found.problems)}"] if found.problems else []
    return [*busy, *found.left_behind]


def _examine(device: Device) -> tuple[DeviceState, list[str]]:
    """What it is doing, and why it is not free. Raises whatever the device's library raises."""
    values = device.sample()
    total = device.limits().memory_bytes
    used = values.get("memory_used_bytes")
    reasons = str(values.get("throttle_reasons") or "")
    try:
        processes = list(device.processes())
    except DeviceError:
        processes = None
    problems = []
    name = f"{device.name} {device.uuid}"
    if processes:
        held = ", ".join(_process(one.pid, one.memory_used_bytes) for one in processes[:3])
        problems.append(f"{name} is held by {held}{f' and {len(processes) - 3} more' if len(processes) > 3 else ''}")
    elif isinstance(used, int) and used > max(BASELINE_BYTES, BASELINE_SHARE * (total or 0)):
        problems.append(f"{used / _GIB:.1f} GiB of {name} are in use, and by no process that can be seen (in a container: another's)")
    hindered = [reason for reason in reasons.split(",") if reason in HINDERING]
    if hindered:
        problems.append(f"{name} is slowed down ({', '.join(hindered)})")
    state = DeviceState(
        uuid=device.uuid,
        memory_used_bytes=used if isinstance(used, int) else None,
        processes=None if processes is None else [one.pid for one in processes],
        throttle_reasons=reasons,
    )
    return state, problems


def _process(pid: int, memory_bytes: int | None) -> str:
    """In words; in a container the number may be the machine's, and then it has no name here, or another's."""
    name = (read(f"{pid}/comm") or b"").decode(errors="replace").strip()
    held = "" if memory_bytes is None else f"{memory_bytes / _GIB:.1f} GiB"
    about = ", ".join(word for word in (name, held) if word)
    return f"process {pid}{f' ({about})' if about else ''}"


def _refusal(look: Look, waited_s: float) -> str:
    fixes = ["choose other GPUs with CUDA_VISIBLE_DEVICES"] if look.device_problems else []
    return (
        f"the machine is not quiet, also after {waited_s:.0f} s: {'; '.join(look.problems)}; "
        f"{', '.join(['end what runs there', *fixes])}, or measure all the same with --allow-busy"
    )


def _left_behind(before: Sequence[DeviceState], after: Sequence[DeviceState]) -> list[str]:
    known = {state.uuid: state for state in before}
    found = []
    for state in after:
        was = known.get(state.uuid)
        if was is None:
            continue
        new = sorted(set(state.processes or ()) - set(was.processes or ()))
        grown = (state.memory_used_bytes or 0) - (was.memory_used_bytes or 0)
        if new:
            found.append(f"after the run {state.uuid} was held by process{'es' * (len(new) > 1)} {', '.join(map(str, new))}")
        elif was.memory_used_bytes is not None and grown > LEFT_BEHIND_BYTES:
            found.append(f"after the run {grown / _GIB:.1f} GiB more of {state.uuid} were in use than before")
    return found
