"""Names and keys: another lock is another environment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rlmbench.adapter import EnvironmentSpec
from rlmbench.environment import cache_root, folder_of
from rlmbench.environment.cache import key_of, load, size_of

MakeSpec = Callable[..., EnvironmentSpec]


def test_key_follows_the_content_of_the_lock(make_spec: MakeSpec, tmp_path: Path) -> None:
    spec = make_spec()
    before = key_of(spec)
    assert folder_of(spec, tmp_path) == tmp_path / "environments" / f"toy-cpu-{before[:12]}"
    assert key_of(make_spec()) == before
    with (spec.lock_dir / "unhashed.txt").open("a") as file:
        file.write("torch==2.13.0\n")
    assert key_of(spec) != before


def test_cache_root_is_the_variable_else_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RLMBENCH_CACHE", str(tmp_path))
    assert cache_root() == tmp_path
    monkeypatch.delenv("RLMBENCH_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_root() == tmp_path / "xdg" / "rlmbench"


@pytest.mark.parametrize("marker", ["", '{"schema_ver', '{"schema_version": 999}'])
def test_a_marker_cut_short_or_of_another_version_does_not_count(tmp_path: Path, marker: str) -> None:
    (tmp_path / "rlmbench-environment.json").write_text(marker)
    assert load(tmp_path) is None


def test_size_is_what_files_take_on_disk(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "data").write_bytes(b"x" * 100_000)
    (tmp_path / "link").symlink_to(tmp_path / "below" / "data")
    # 100,000 bytes fill at least 25 blocks of 4 KiB less one; the link must not count them twice.
    assert 98_304 <= size_of(tmp_path) < 200_000
