from rlmbench.environment import kept


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
