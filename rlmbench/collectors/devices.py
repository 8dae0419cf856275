"""What a vendor's driver must offer. One module per vendor implements it (nvidia.py); the rest knows no vendor.

A driver turns its library's errors into the exceptions below in one place, finds devices by UUID and never by index (a
process may see others, in another order), and says for each thing whether it can be measured, and why not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from rlmbench.collectors.capability import Capability

Value = int | float | str | None


class DeviceError(Exception):
    """A device's library could not do what was asked; the message says why, in its own words."""


class DriverMissing(DeviceError):
    """There is no driver, or no library that talks to it."""


class DriverMismatch(DeviceError):
    """Library and driver are of different versions: the driver was renewed and the machine not restarted."""


class NotSupported(DeviceError):
    """This device, driver or partition does not tell it."""


class NoPermission(DeviceError):
    """The device would tell it to others."""


class DeviceNotFound(DeviceError):
    """No device of this name."""


class DeviceLost(DeviceError):
    """The device does not answer any more: it fell off the bus, or needs a reset."""


class NotReady(DeviceError):
    """It cannot be told just now; asking again may help."""


class DeviceProcess(NamedTuple):
    """A process on a device. `memory_used_bytes` is None where the driver does not tell it."""

    pid: int
    memory_used_bytes: int | None


class Limits(NamedTuple):
    """What a device holds and may draw; None is not told."""

    memory_bytes: int | None
    power_w: float | None = None


class Device(Protocol):
    """One device, or one partition of a device that is used like one."""

    @property
    def uuid(self) -> str: ...

    @property
    def name(self) -> str: ...

    def capabilities(self) -> Sequence[Capability]:
        """What it can tell, asked once at the start."""

    def sample(self) -> Mapping[str, Value]:
        """Columns of device_samples as they are now; what is not known is left out. Quick: it is called ten times a second.

        Raises:
            DeviceLost: it will not answer any more.
        """

    def slow_sample(self) -> Mapping[str, Value]:
        """Columns that take tens of milliseconds to get, for a call every second.

        Raises:
            DeviceLost: it will not answer any more.
        """

    def processes(self) -> Sequence[DeviceProcess]:
        """Who holds memory of it. Slow: milliseconds.

        Raises:
            DeviceError: it is not told.
        """

    def limits(self) -> Limits:
        """Its memory and power limit."""


class Driver(Protocol):
    """A vendor's library, opened."""

    @property
    def version(self) -> str | None:
        """The driver's version; None is not told."""

    @property
    def reason(self) -> str | None:
        """Why it has no device; None where it has one."""

    def capabilities(self) -> Sequence[Capability]:
        """What the library as a whole can do here."""

    def devices(self) -> Sequence[Device]:
        """Every device that may be used, partitions in place of the device that was divided."""

    def close(self) -> None: ...


class Listed(NamedTuple):
    """A device as an inventory knows it. `memory_bytes` None: not told, as where it is shared with the host."""

    uuid: str
    name: str
    memory_bytes: int | None
    driver: str | None


class Inventory(NamedTuple):
    """The devices of this machine, whatever CUDA_VISIBLE_DEVICES hides; `reason` says why there is none."""

    devices: tuple[Listed, ...] = ()
    driver: str | None = None
    reason: str | None = None


def inventory() -> Inventory:
    """Which devices there are, without asking what they can tell. Raises nothing."""
    from rlmbench.collectors import nvidia

    try:
        driver = nvidia.open_driver(probe=False)
        try:
            version = driver.version
            found = tuple(Listed(one.uuid, one.name, one.limits().memory_bytes, version) for one in driver.devices())
            return Inventory(found, version, driver.reason)
        finally:
            driver.close()
    except DeviceError as error:
        return Inventory(reason=str(error))
    except Exception as error:  # noqa: BLE001 -- as above: what nobody foresaw must not cost a run without devices
        return Inventory(reason=f"unexpected {type(error).__name__}: {error}")


def open_drivers(visible: str | None = None) -> tuple[list[Driver], list[Capability]]:
    """The drivers that work here, and all that they and their devices can measure, or why not.

    `visible` is CUDA_VISIBLE_DEVICES as the run will see it.
    """
    from rlmbench.collectors import nvidia

    drivers: list[Driver] = []
    found: list[Capability] = []
    for name, opener in (("nvml", nvidia.open_driver),):
        try:
            driver = opener(visible)
            found += driver.capabilities()
            for device in driver.devices():
                found += device.capabilities()
        except DeviceError as error:
            found.append(Capability(name, False, str(error)))
        except Exception as error:  # noqa: BLE001 -- a driver that answers what nobody foresaw must not cost the host's samples
            found.append(Capability(name, False, f"unexpected {type(error).__name__}: {error}"))
        else:
            drivers.append(driver)
    return drivers, found
