"""Patch points: wrap a framework's functions after the framework has imported them, and never break them.

A wrapper calls the original with exactly its arguments and returns exactly its result; whatever goes wrong on our
side is recorded and dropped. Each hook reports whether it attached, and why not.
"""

import functools
import importlib.abc
import importlib.util
import sys

from rlmbench_probe.recorder import recorder


class Hook:
    """A span around one function.

    Args:
        target: ``module:Class.method`` or ``module:function``.
        stage: a stage name, or a function (args, kwargs) -> stage, (stage, substage) or None for no span.
        substage: substage when `stage` is a name.
        name: name of the span; the function's own by default.
        before: called with (args, kwargs) before the span opens; its time is the probe's.
        fields: (args, kwargs, result) -> dict written with the span.
        after: called with (args, kwargs, result) after the span closed; its time is the probe's.
        optional: a version without this function is no gap in what we promise.
    """

    def __init__(self, target, stage=None, substage=None, *, name=None, before=None, fields=None, after=None, optional=False):
        self.module, _, self.path = target.partition(":")
        self.target, self.stage, self.substage, self.name = target, stage, substage, name or self.path.rpartition(".")[2]
        self.before, self.fields, self.after, self.optional = before, fields, after, optional

    def wrap(self, function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            span = self._enter(args, kwargs)
            if span is None and self.after is None:
                return function(*args, **kwargs)
            try:
                result = function(*args, **kwargs)
            except BaseException as error:
                if span is not None:
                    guarded(self.target, recorder.finish, span, error)
                raise
            self._leave(span, args, kwargs, result)
            return result

        wrapper.__rlmbench_hook__ = self
        return wrapper

    def _enter(self, args, kwargs):
        if not recorder.enabled:
            return None
        if self.before is not None:
            charged(self.target, self.before, args, kwargs)
        stage, substage = self.stage, self.substage
        if callable(stage):
            chosen = guarded(self.target, stage, args, kwargs)
            stage, substage = chosen if isinstance(chosen, tuple) else (chosen, None)
        return guarded(self.target, recorder.start, stage, substage, self.name) if stage else None

    def _leave(self, span, args, kwargs, result):
        if span is not None:
            if self.fields is not None:
                charged(self.target, lambda: span.fields.update(self.fields(args, kwargs, result)))
            guarded(self.target, recorder.finish, span)
        if self.after is not None and recorder.enabled:
            charged(self.target, self.after, args, kwargs, result)


class AsyncHook(Hook):
    """An interval around each call of a coroutine function. Many run at once, so they have no parents and lie in lanes."""

    def wrap(self, function):
        @functools.wraps(function)
        async def wrapper(*args, **kwargs):
            if not recorder.enabled:
                return await function(*args, **kwargs)
            interval = guarded(self.target, recorder.start_interval, self.stage, self.name)
            try:
                return await function(*args, **kwargs)
            finally:
                if interval is not None:
                    guarded(self.target, recorder.finish_interval, interval)

        wrapper.__rlmbench_hook__ = self
        return wrapper


class Gap(Hook):
    """Names the framework's inline code before (or after) a function: from the last span's end to this call.

    For loops that do work between the functions they call; `where` is "before" or "after" the call.
    """

    def __init__(self, target, stage, substage=None, *, name, where="before", when=None):
        super().__init__(target, name=name)
        gap = lambda *_: recorder.gap(stage, substage, name) if when is None or when() else None  # noqa: E731
        if where == "before":
            self.before = gap
        else:
            self.after = gap


def guarded(where, function, *args):
    """`function(*args)`, or None if it raised: the framework must not notice."""
    try:
        return function(*args)
    except Exception as error:
        try:
            recorder.failed(where, error)
        except Exception:
            pass  # nothing is left that could be told to anybody
        return None


def charged(where, function, *args):
    """As `guarded`, with the time it takes on the probe's account."""
    with recorder.own_time():
        return guarded(where, function, *args)


def replace(owner, name, make):
    """Put ``make(original)`` in place of ``owner.name``, keeping static and class methods what they are."""
    raw = owner.__dict__.get(name) if isinstance(owner, type) else None
    original = getattr(owner, name)
    if isinstance(raw, staticmethod):
        setattr(owner, name, staticmethod(make(original)))
    elif isinstance(raw, classmethod):
        setattr(owner, name, classmethod(make(raw.__func__)))
    else:
        setattr(owner, name, make(original))


def attach(hook, module):
    """Wrap the hook's function in an imported module and report it."""
    owner = module
    *parents, name = hook.path.split(".")
    try:
        for part in parents:
            owner = getattr(owner, part)
        getattr(owner, name)
    except AttributeError as error:
        report(hook, False, f"this version has no such function ({error})")
        return
    replace(owner, name, hook.wrap)
    report(hook, True, "")


def report(hook, attached, reason):
    recorder.event("hook", name=hook.name, target=hook.target, attached=attached, reason=reason, optional=hook.optional)


_waiting = {}


def after_import(module, action):
    """Call ``action(module)`` once `module` has been imported; at once if it is already there."""
    if module in sys.modules and module not in _waiting:
        guarded(module, action, sys.modules[module])
        return
    _waiting.setdefault(module, []).append(action)
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def never_imported():
    """Modules that hooks still wait for."""
    return sorted(_waiting)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds a waited-for module the ordinary way and wraps its loader."""

    def find_spec(self, name, path=None, target=None):
        if name not in _waiting:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader)
                return spec
        return None


class _Loader(importlib.abc.Loader):
    """Runs the real loader, then what waits for the module; everything else is the real loader's."""

    def __init__(self, loader):
        self._loader = loader

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        self._loader.exec_module(module)
        for action in _waiting.pop(module.__name__, ()):
            guarded(module.__name__, action, module)

    def __getattr__(self, name):
        return getattr(self._loader, name)
