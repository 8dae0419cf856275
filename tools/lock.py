"""Write the lock files of an environment again from its ``requirements.in``.

    python tools/lock.py adapters/rlmbench_trl/environments/trl-cpu [more folders]

It needs `uv` on the PATH, and reads package metadata only: no wheel is downloaded. A lock folder holds

* ``requirements.in``: what we want and why; its first comment block is repeated on top of the lock;
* ``overrides.txt``, ``excludes.txt`` (optional): what the resolver is to put in the place of, or leave out from, the
  requirements of other packages;
* ``requirements.txt`` (written): every package at one version, with the hashes of all files of the release, for Linux;
* ``unhashed.txt`` (written): torch and its companions by version alone. Which file that is depends on the user's index
  (a CPU build, or one of several CUDA builds), so no hash can be promised. What only they need and what has to match
  their build (the nvidia packages) is left to them, and in neither file.

Pins already in ``requirements.txt`` are kept where they still fit; ``--upgrade`` takes the newest.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from packaging.markers import Marker

OLDEST_PYTHON = "3.11"
PYTHONS = ("3.11", "3.12", "3.13")
MACHINES = ("x86_64", "aarch64")
BUILD_DEPENDENT = frozenset({"torch", "torchaudio", "torchcodec", "torchvision"})
ACCELERATOR = re.compile(r"^(nvidia|cuda|triton)(-|$)")
REQUIREMENT = re.compile(r"^(?P<name>[a-z0-9][a-z0-9._-]*)==(?P<version>[^ ;\\]+)\s*(?:;\s*(?P<marker>[^\\]+?))?\s*\\?$")


@dataclass(frozen=True)
class Pin:
    """One resolved package: `needed_by` are the packages that asked for it, empty when requirements.in alone did."""

    name: str
    version: str
    marker: str | None
    hashes: tuple[str, ...]
    needed_by: frozenset[str]


def parse(resolved: str) -> list[Pin]:
    """The pins in uv's output (split annotation style, with hashes)."""
    pins = []
    for block in re.split(r"\n(?=[a-z0-9])", "\n" + resolved)[1:]:
        first, *rest = block.splitlines()
        found = REQUIREMENT.match(first)
        if not found:
            raise SystemExit(f"cannot read the resolver's line: {first}")
        comments = [line.strip().removeprefix("#").strip().removeprefix("via").strip() for line in rest if line.strip().startswith("#")]
        needed_by = frozenset(name.split("[")[0] for name in comments if name and not name.startswith("-r "))
        hashes = tuple(sorted(re.findall(r"--hash=(\S+)", block)))
        pins.append(Pin(found["name"], found["version"], found["marker"], hashes, needed_by))
    return pins


def on_linux(pin: Pin) -> bool:
    """Whether CPython on Linux ever wants this package."""
    if pin.marker is None:
        return True
    return any(
        Marker(pin.marker).evaluate(
            {
                "implementation_name": "cpython",
                "os_name": "posix",
                "platform_machine": machine,
                "platform_python_implementation": "CPython",
                "platform_system": "Linux",
                "python_full_version": f"{python}.0",
                "python_version": python,
                "sys_platform": "linux",
            }
        )
        for python in PYTHONS
        for machine in MACHINES
    )


def split(pins: list[Pin]) -> tuple[list[Pin], list[Pin]]:
    """(hashed, unhashed): accelerator packages that only build-dependent ones need are in neither."""
    left_to_build = set(BUILD_DEPENDENT)
    grown = True
    while grown:
        more = {p.name for p in pins if ACCELERATOR.match(p.name) and p.needed_by and p.needed_by <= left_to_build} - left_to_build
        left_to_build |= more
        grown = bool(more)
    return [p for p in pins if p.name not in left_to_build], [p for p in pins if p.name in BUILD_DEPENDENT]


def resolve(folder: Path, upgrade: bool) -> str:
    """uv's resolution of the folder's requirements, read from metadata."""
    lock = folder / "requirements.txt"
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch) / "resolved.txt"
        if lock.exists() and not upgrade:
            output.write_text(lock.read_text())
        command = ["uv", "pip", "compile", "--quiet", "--universal", "--fork-strategy", "fewest", "--python-version", OLDEST_PYTHON]
        command += ["--generate-hashes", "--no-header", "--annotation-style", "split", "--output-file", str(output)]
        for option in ("overrides", "excludes"):
            if (folder / f"{option}.txt").exists():
                command += [f"--{option}", str(folder / f"{option}.txt")]
        subprocess.run([*command, str(folder / "requirements.in")], check=True)
        return output.read_text()


def write(folder: Path, hashed: list[Pin], unhashed: list[Pin]) -> None:
    """The two lock files."""
    lines = (folder / "requirements.in").read_text().splitlines()
    about = lines[: next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))]
    note = "# Written by tools/lock.py from requirements.in: change that, then run it again."

    def requirement(pin: Pin) -> str:
        return f"{pin.name}=={pin.version}" + (f" ; {pin.marker}" if pin.marker else "")

    body = [" \\\n    ".join([requirement(pin), *(f"--hash={digest}" for digest in pin.hashes)]) for pin in hashed]
    (folder / "requirements.txt").write_text("\n".join([note, *about, *body]) + "\n")
    (folder / "unhashed.txt").write_text("\n".join([note, *(requirement(pin) for pin in unhashed)]) + "\n")


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="lock folders: each holds a requirements.in")
    parser.add_argument("--upgrade", action="store_true", help="forget the present pins and take the newest releases that fit")
    options = parser.parse_args(arguments)
    for folder in options.folders:
        hashed, unhashed = split([pin for pin in parse(resolve(folder, options.upgrade)) if on_linux(pin)])
        missing = [pin.name for pin in hashed if not pin.hashes]
        if missing:
            raise SystemExit(f"{folder}: the index gives no hash for {', '.join(missing)}")
        write(folder, hashed, unhashed)
        print(f"{folder.name}: {len(hashed)} packages with hashes, {', '.join(f'{p.name}=={p.version}' for p in unhashed)} without")


if __name__ == "__main__":
    main(sys.argv[1:])
