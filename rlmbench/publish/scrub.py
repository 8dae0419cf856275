"""Replacing what names a machine, its user or a secret by placeholders that are the same in every file.

What is known of a run (its folder, its environment, hosts, secrets in its environment) is replaced by name; whatever else looks
like an absolute path keeps only its last part, so that a path that nobody thought of does not get out.
"""

from __future__ import annotations

import getpass
import ipaddress
import os
import re
import socket
import tempfile
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from rlmbench.records.vocabulary import FRAMEWORK_NAMES, STAGES, SUBSTAGES

RUN, RESULTS, ENVIRONMENT, CACHE, SOURCE, TMP, HOME = "<run>", "<results>", "<environment>", "<cache>", "<rlmbench>", "<tmp>", "<home>"
PATH, SECRET, ADDRESS, DEVICE = "<path>", "<secret>", "<address>", "<device>"

LEGEND: Mapping[str, str] = {
    RUN: "the run's folder",
    RESULTS: "the folder that held it",
    ENVIRONMENT: "the framework's virtual environment",
    CACHE: "rlmbench's cache",
    SOURCE: "where rlmbench and its adapters were installed",
    TMP: "the folder for temporary files",
    HOME: "a user's home",
    "<user>": "a user's name",
    "<host>, <host 2>, ...": "hosts; in order of their first run",
    "<boot 1>, ...": "boots of hosts: times of one boot share a clock",
    "<device 1>, ...": "devices, by their UUIDs; <device> is one that only a text names",
    PATH: "any other folder, of which the last part is kept",
    ADDRESS: "an IP address",
    SECRET: "the value of a variable, option or key that is named like a secret",
}

_END = r"""(?=$|[/\s"'<>|:;,=(){}\[\]\\])"""
_PART = r"""[^\s/"'<>|:;,=(){}\[\]\\]+"""
_BEFORE = r"""(?:(?<![\w.<>/~$-])|(?<=file://)|(?<=^-[A-Za-z])|(?<=[\s"'=,]-[A-Za-z]))"""
"""Where a path may begin; also after an option of one letter, as in ``-I/opt/x``."""
_ABSOLUTE = re.compile(rf"{_BEFORE}/(?!/)(?:(?:{_PART}/)+(?:{_PART})?|[A-Za-z_][\w.+-]+{_END})")
_KEPT_ROOTS = ("/dev/", "/proc/", "/sys/")
"""Kernel interfaces, the same on every machine."""
_HOMES = re.compile(rf"(?<![\w.<>~$-])(?:/home/{_PART}|/Users/{_PART}|/root){_END}")
_SOURCE = re.compile(r"/((?:adapters/)?rlmbench(?:_[a-z0-9]+|(?!/environments|/inputs))/.*)")
_ADDRESS = re.compile(r"(?<![\w.])(?!127\.|0\.0\.0\.0)(?:\d{1,3}\.){3}\d{1,3}(?![\w.])")
_ADDRESS_6 = re.compile(r"(?<![\w:.])(?=[0-9A-Fa-f:]*:[0-9A-Fa-f]*:)[0-9A-Fa-f:]+[0-9A-Fa-f](?!\w)")
_DEVICE = re.compile(r"(?<![\w-])(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![\w-])")
_PLAIN = (
    "root user admin ubuntu app main node head master driver worker launcher trainer train rollout engine server actor critic ray cpu cuda"
)
_WORDS = frozenset((*STAGES, *SUBSTAGES, *FRAMEWORK_NAMES, *_PLAIN.split()))
"""Names of users and hosts that tell nothing, and that are words of a record: replaced, they would change what it says."""

_NAMED_SECRET = re.compile(
    r"(?:^|[_.\-])(?:api[_-]?key|(?:access|private|secret|encryption)[_-]?key|secret|passwd|password|credentials?|bearer"
    r"|(?:auth|access|api|hub|hf|ray_auth|github|wandb)[_-]?token)$",
    re.IGNORECASE,
)
_ENVIRONMENT_SECRET = re.compile(r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|KEY|CREDENTIALS?|AUTH)(?:$|_)", re.IGNORECASE)
_OPTION = re.compile(
    r"(--?[\w.-]*(?:password|passwd|secret|credential|api[-_]?key|(?:auth|access|hub|hf)[-_]?token)[\w-]*=)[^\s\"']+", re.IGNORECASE
)
_QUOTED = re.compile(r"""(["'](?:\w*_)?(?:TOKEN|SECRET|PASSWORD|PASSWD|KEY|CREDENTIALS?)\\*["']\s*[:=]\s*\\*["'])[^"'\\]+""")
"""A variable and its value within a text, as in a JSON text that is an argument."""
_SHAPED = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|gh[pousr]_[A-Za-z0-9]{20,}|AKIA[0-9A-Z]{16})\b|(?<=://)[^\s/@\"']+:[^\s/@\"']+(?=@)"
)
_LONG_ENOUGH = 6
"""A secret shorter than this, or that is a plain word, would be found in innocent text: it is hidden only where its name stands."""


class Scrubber:
    """What to replace in the records of one publication. Hosts, boots and devices are numbered in the order in which runs are given to `know`."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._counted: dict[str, list[str]] = {"host": [], "boot": [], "device": []}
        for name, value in os.environ.items():
            self._secret(name, value)
        user = _user()
        if user and len(user) > 2 and user not in _WORDS:
            self._names[user] = "<user>"
        self._own_host = socket.gethostname()
        self._roots: dict[str, str] = {
            str(Path(__file__).parents[2]): SOURCE,
            tempfile.gettempdir(): TMP,
            "/tmp": TMP,
            "/var/tmp": TMP,
            str(Path.home()): HOME,
        }
        self._roots.pop("/", None)

    def know(self, manifest: Any, folders: Iterable[Path]) -> None:
        """Learn what names the machine of one run: `folders` are those in which it lay or lies."""
        for folder in folders:
            if folder.is_absolute() and len(folder.parts) > 3:
                self._roots[str(folder)] = RUN
                self._roots.setdefault(str(folder.parent.parent), RESULTS)
        environment = manifest.environment
        if environment is not None and Path(environment.python).is_absolute():
            prefix = Path(environment.python).parent.parent
            if prefix.parent.name == "environments":
                self._roots[str(prefix.parent.parent)] = CACHE
            elif len(prefix.parts) > 2:
                self._roots.setdefault(str(prefix), ENVIRONMENT)
        for launch in manifest.launch:
            for name, value in launch.env.items():
                self._secret(name, value)
        self._host(manifest.host.get("hostname"))
        self.boot(manifest.host.get("boot_id"))
        for device in manifest.devices:
            self._count("device", device.get("uuid"))
        for state in manifest.preconditions.devices if manifest.preconditions else ():
            self._count("device", state.uuid)
        self.__dict__.pop("_known", None)

    def host(self, name: str | None) -> None:
        """A further host, as a process of the run stated it."""
        self._host(name)
        self.__dict__.pop("_known", None)

    def node(self, name: str | None, host: str | None) -> None:
        """What a collector calls its node, which is made from its host's name."""
        self._host(host or name)
        known = self._names.get(host or name or "")
        if name and known and name not in _WORDS:
            self._names.setdefault(name, known)
        self.__dict__.pop("_known", None)

    def device(self, uuid: str | None) -> None:
        """A further device, as a collector saw it: a MIG slice, say."""
        self._count("device", uuid)
        self.__dict__.pop("_known", None)

    def boot(self, boot_id: str | None) -> None:
        """A further boot: its id is replaced, but two stay two."""
        self._count("boot", boot_id)
        self.__dict__.pop("_known", None)

    def text(self, text: str) -> str:
        """`text` without what names a machine, a user or a secret."""
        if not text or not _worth_a_look(text, self._known[0]):
            return text
        for pattern, replacement in self._known[1]:
            text = pattern.sub(lambda _, by=replacement: by, text)  # type: ignore[misc]
        text = _QUOTED.sub(rf"\1{SECRET}", _OPTION.sub(rf"\1{SECRET}", _SHAPED.sub(SECRET, text)))
        text = _ADDRESS_6.sub(_address_6, _DEVICE.sub(DEVICE, text))
        return _ADDRESS.sub(ADDRESS, _ABSOLUTE.sub(_last_part, _HOMES.sub(HOME, text)))

    def value(self, value: Any) -> Any:
        """A JSON value with every text in it scrubbed, keys included; values of keys named like a secret are hidden."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self._of_key(str(key), item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return self._arguments([self.value(item) for item in value])
        return value

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Environment variables: those named like a secret keep their name alone."""
        return {name: SECRET if _is_secret_variable(name, value) else self.text(value) for name, value in variables.items()}

    def _of_key(self, key: str, item: Any) -> Any:
        return SECRET if isinstance(item, str) and item and _NAMED_SECRET.search(key) else self.value(item)

    @staticmethod
    def _arguments(values: list[Any]) -> list[Any]:
        """The argument after an option that is named like a secret is hidden."""
        for place in range(len(values) - 1):
            option, following = values[place], values[place + 1]
            if isinstance(option, str) and option.startswith("--") and isinstance(following, str) and _NAMED_SECRET.search(option):
                values[place + 1] = SECRET
        return values

    def _secret(self, name: str, value: str) -> None:
        if _is_secret_variable(name, value) and len(value) >= _LONG_ENOUGH and not re.fullmatch(r"[A-Za-z]+|[a-z-]+", value):
            self._names[value] = SECRET

    def _host(self, name: str | None) -> None:
        if name and name != "localhost" and name not in _WORDS:
            self._count("host", name)

    def _count(self, kind: str, name: str | None) -> None:
        known = self._counted[kind]
        if name and not name.startswith("<") and name not in known:  # a published record has placeholders already
            known.append(name)
            self._names[name] = "<host>" if kind == "host" and len(known) == 1 else f"<{kind} {len(known)}>"

    @cached_property
    def _known(self) -> tuple[tuple[str, ...], list[tuple[re.Pattern[str], str]]]:
        """Texts whose presence asks for a closer look, and patterns, the longest first."""
        roots = [(root, re.compile(rf"(?<![\w.<>~$-]){re.escape(root)}{_END}"), by) for root, by in self._roots.items()]
        own = {} if self._own_host in ("", "localhost", *_WORDS) else {self._own_host: "<host>"}
        names = [(name, re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w-])"), by) for name, by in {**own, **self._names}.items()]
        ordered = sorted([*roots, *names], key=lambda one: -len(one[0]))
        return tuple(one[0] for one in ordered), [(pattern, by) for _, pattern, by in ordered]


def _worth_a_look(text: str, known: tuple[str, ...]) -> bool:
    return "/" in text or "." in text or "=" in text or "::" in text or len(text) >= 20 or any(name in text for name in known)


def _is_secret_variable(name: str, value: str) -> bool:
    """Named like one, and not a switch or number (``HF_TOKEN_CHECK=0``)."""
    return (
        bool(_ENVIRONMENT_SECRET.search(name)) and bool(value) and not re.fullmatch(r"[\d.]+|true|false|on|off|<.*>", value, re.IGNORECASE)
    )


def _last_part(found: re.Match[str]) -> str:
    path = found.group()
    if _is_kept(path):
        return path
    if "/site-packages/" in path:
        return f"{PATH}/site-packages/{path.split('/site-packages/', 1)[1]}"
    if inside := _SOURCE.search(path):
        return f"{SOURCE}/{inside.group(1)}"
    last = path.rstrip("/").rsplit("/", 1)[-1]
    return f"{PATH}/{last}"


def _is_kept(path: str) -> bool:
    return f"{path}/".startswith(_KEPT_ROOTS)


def _address_6(found: re.Match[str]) -> str:
    """An IPv6 address, if it is one (``12:30:01`` is none), and other than the machine's address of itself."""
    text = found.group()
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return text
    return text if address.is_loopback or not any(letter.isdigit() for letter in text) else ADDRESS


def absolute_paths(text: str) -> list[str]:
    """Whatever in `text` still looks like an absolute path of a machine."""
    return [path for path in _ABSOLUTE.findall(text) if not _is_kept(path)] + _HOMES.findall(text)


def _user() -> str | None:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in a container
        return None
