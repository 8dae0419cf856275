"""What collectors saw, on the page and in the terminal, from SYNTHETIC samples (synthetic_samples.py)."""

from __future__ import annotations

import io

import pytest
import synthetic_run
import synthetic_samples
from rich.console import Console

from rlmbench.metrics import summarize
from rlmbench.metrics.figures import Amount
from rlmbench.report import numbers, resources, trust
from rlmbench.report.parts import Folded, Group, Table
from rlmbench.report.terminal import print_run_detail


@pytest.fixture(scope="module")
def sampled(tmp_path_factory):
    run = synthetic_run.write_run(tmp_path_factory.mktemp("sampled"), accelerator=True)
    synthetic_samples.write_samples(run.path, devices=2, throttle_reasons="sw_power_cap")
    return run, summarize(run)


def tables(section):
    parts = [part.table if isinstance(part, Folded) else part for part in section.parts]
    return [part for part in parts if isinstance(part, Table)]


def cells(table, first):
    return [cell.text for cell in next(row.cells for row in table.lines if row.cells[0].text == first)]


def test_the_summary_has_them_all_and_only_a_profile_is_missing(sampled):
    _, summary = sampled
    assert not {"host", "devices", "energy", "processes", "collectors", "idle.low_sm", "idle.cpu_idle"} & set(summary.absent)
    assert (summary.absent["idle.no_kernel"], summary.absent["idle.exposed_communication"]) == ("needs --profile", "needs --profile")
    assert summary.violations == []
    assert [one.rank for one in summary.processes] == [0, 1]


def test_stages_energies_and_the_rest_are_the_steps_energy(sampled):
    energy = sampled[1].energy
    total = sum(amount.value for amount in energy.stages_j.values()) + energy.no_stage_j.value - energy.overlap_j
    assert total == pytest.approx(energy.j_per_step.value)
    assert energy.j_per_step.value == pytest.approx(450 * sampled[1].step_s.mean)


def test_idle_time_stands_in_one_place_under_its_five_names(sampled):
    rows = {name: share for name, share, _ in resources.idle_rows(sampled[1])}
    assert list(rows) == ["no_kernel", "exposed_communication", "low_sm", "role_waiting", "cpu_idle"]
    assert (rows["low_sm"], rows["cpu_idle"], rows["no_kernel"]) == ("50.0%", "25.0%", "n/a (needs --profile)")
    assert rows["role_waiting"].startswith("trainer ")


def test_cores_that_others_used_are_not_told_as_idle_alone(sampled):
    host = sampled[1].host[0].model_copy(update={"cores": 4, "others_cpu_cores": 1.0})
    summary = sampled[1].model_copy(update={"host": [host]})
    (told,) = [text for name, _, text in resources.idle_rows(summary) if name == "cpu_idle"]
    assert told == "of the hosts' core time, not used by the run's processes; 25.0% of it all was used by others"


def test_the_page_has_a_table_of_each_host_and_device(sampled):
    host, processes, *devices = tables(resources.resources_section(sampled[1]))
    assert cells(host, "whole step")[5] == "25.0%"
    assert cells(host, "reward")[4].startswith("~")  # 18 ms, read every 100 ms
    assert [row.cells[3].text for row in processes.lines] == ["GPU-0", "GPU-1"]
    assert [cells(device, "generation")[5] for device in devices[:2]] == ["250 W", "200 W"]
    assert cells(devices[1], "whole step")[2] == "8.00 GiB"


def test_readings_are_drawn_from_the_first_step_to_the_last(sampled):
    run, summary = sampled
    drawn = next(part for part in resources.resources_section(summary, run).parts if isinstance(part, Group)).charts
    assert [chart.id for chart in drawn] == [
        "chart-cpu",
        "chart-host-memory",
        "chart-device-power",
        "chart-device-memory",
        "chart-device-sm",
    ]
    power = drawn[2].spec["layer"][1]["data"]["values"]
    assert {row["key"]: row["value"] for row in power} == {f"device GPU-{n} on synthetic-host": 250 - 50 * n for n in (0, 1)}
    last = summary.steps[-1]
    assert min(row["t"] for row in power) >= 0
    assert max(row["t"] for row in power) <= last.start_s + last.step_s
    assert [cell.text for cell in drawn[0].table.lines[0].cells] == ["host synthetic-host", "1.5", "1.5", "1.5"]


def test_many_devices_have_one_table_and_theirs_on_demand(sampled):
    _, summary = sampled
    many = summary.model_copy(update={"devices": summary.devices * 2})
    section = resources.resources_section(many)
    assert any(table.caption == "Devices in a measured step" and len(table.lines) == 4 for table in tables(section))
    assert sum(isinstance(part, Folded) for part in section.parts) == 1 + 4  # processes, and each device


def test_the_terminal_shows_them_within_eighty_columns(sampled):
    stream = io.StringIO()
    print_run_detail(*sampled, Console(file=stream, width=80))
    lines = [text.rstrip() for text in stream.getvalue().splitlines()]
    shown = [text for text in lines if not text.startswith(("folder:", "again:", "log:"))]
    assert max(map(len, shown)) <= 80
    text = stream.getvalue()
    assert "cpu_idle              25.0%" in text
    assert "others: 0.100 cores of synthetic-host" in text
    assert "energy: " + numbers.joules(sampled[1].energy.j_per_step.value) in text
    assert "collector: synthetic-host: 0.5% of one core; 121 readings, 3 late, one every 100 ms" in " ".join(text.split())


def test_checks_say_whether_the_machine_was_the_runs_alone(sampled):
    run, summary = sampled
    found = {check.name: check for check in trust.checks(summary, run.manifest)}
    assert (found["Others at work"].state, found["Throttling"].state, found["Probe overhead"].state) == ("ok", "ok", "ok")
    assert "by the probe's own account (limit 0.5%); the collector" in found["Probe overhead"].text
    assert "the collector beside it took 0.5% of one core (limit 1.0%)" in found["Probe overhead"].text
    host = summary.host[0].model_copy(update={"others_cpu_cores": 0.6})
    slow = summary.devices[1].model_copy(update={"throttled_share": 0.2})
    dear = summary.collectors[0].model_copy(update={"cpu_share": 0.011})
    worse = summary.model_copy(update={"host": [host], "devices": [summary.devices[0], slow], "collectors": [dear]})
    found = {check.name: check for check in trust.checks(worse, run.manifest)}
    assert (found["Others at work"].state, found["Throttling"].state, found["Probe overhead"].state) == ("warn", "warn", "warn")
    assert found["Throttling"].text == "device GPU-1 was slowed down 20.0% of the measured time"


def test_a_host_alone_says_why_there_is_no_device(tmp_path):
    run = synthetic_run.write_run(tmp_path, steps=3)
    synthetic_samples.write_samples(run.path)
    summary = summarize(run)
    notes = [part.text for part in resources.resources_section(summary).parts if hasattr(part, "text")]
    assert notes == ["Devices: n/a (no NVIDIA driver on this machine)."]
    assert summary.absent["energy"] == "no NVIDIA driver on this machine"


def test_a_record_without_samples_says_so_once(finished):
    _, summary = finished
    notes = [part.text for part in resources.resources_section(summary).parts]
    assert len(notes) == 1
    assert notes[0].startswith("Host: n/a (no collector ran beside the run")


def test_what_is_interpolated_alone_is_marked():
    sure, guessed = Amount(value=5, low=4, high=6, resolved=True), Amount(value=5, low=0, high=9, resolved=False)
    assert [resources.amount_text(one, numbers.joules) for one in (sure, guessed, None)] == ["5.00 J", "~5.00 J", "–"]
    assert resources.bounds_text(guessed, numbers.joules) == "0 J to 9.00 J"
    assert (numbers.joules(123_456), numbers.clock(1.98e9), numbers.clock(None)) == ("123 kJ", "1,980 MHz", "n/a (not recorded)")
