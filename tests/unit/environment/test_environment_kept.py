import pytest

from rlmbench.environment import ceilings, kept
from rlmbench.errors import UserError


def test_a_measurement_is_this_machines_own(tmp_path, monkeypatch):
    monkeypatch.setenv("RLMBENCH_CACHE", str(tmp_path))
    assert kept.recall("overhead", "trl-cpu") is None
    kept.keep("overhead", "trl-cpu", "1")
    kept.keep("overhead", "trl-cpu", "2")
    assert (kept.recall("overhead", "trl-cpu"), kept.recall("overhead", "verl-cpu"), kept.recall("ceilings", "trl-cpu")) == (
        "2",
        None,
        None,
    )
    other = {**kept.host_facts(), "cores": 4096}
    monkeypatch.setattr(kept, "host_facts", lambda: other)
    assert kept.recall("overhead", "trl-cpu") is None


@pytest.mark.parametrize("damage", [b"\xff\xfe", b"{", b"[1]", b""])
def test_a_damaged_file_is_as_none(tmp_path, monkeypatch, damage):
    """It lies in the cache of every later run, and must end none of them."""
    monkeypatch.setenv("RLMBENCH_CACHE", str(tmp_path))
    kept.keep(ceilings.KIND, "cpu", "[]").write_bytes(damage)
    assert ceilings.kept("cpu") == []


def test_a_cache_that_cannot_be_written_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "measured").write_text("a file")
    monkeypatch.setenv("RLMBENCH_CACHE", str(tmp_path))
    with pytest.raises(UserError, match="what was measured could not be kept: ") as caught:
        kept.keep("overhead", "trl-cpu", "1")
    assert "\n" not in str(caught.value)
