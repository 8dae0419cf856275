"""What `rlmbench run --dry-run` prints."""

from __future__ import annotations

import io

from rich.console import Console

from rlmbench.report.ledger import plan_document, print_plan
from rlmbench.report.sections import ledger_section
from rlmbench.runner.cells import Request, make_plan


def test_what_was_never_run_stands_below_the_ledger() -> None:
    plan = make_plan(Request("gsm8k_grpo", ("trl", "verl"), "base"), force_scale=True)
    output = io.StringIO()
    print_plan(plan, Console(file=output, width=120))
    notes = [line for line in output.getvalue().splitlines() if line.startswith("note: ")]
    of_trl = [f"{part}: translated, not run" for part in ("TRL on a GPU", "FSDP (zero3)", "a rollout engine over several devices")]
    of_verl = ["verl on a GPU: translated, not run"]
    assert notes == [f"note: {line}" for line in (*of_trl, *of_verl)]
    frameworks = plan_document(plan)["frameworks"]
    assert (frameworks["trl"]["untested"], frameworks["verl"]["untested"]) == (of_trl, of_verl)


def test_it_stands_above_the_ledger_of_a_runs_page(finished) -> None:
    manifest = finished[0].manifest
    assert "authors" not in ledger_section(manifest).intro
    told = ledger_section(manifest.model_copy(update={"untested": ["Megatron: translated, not run"]})).intro
    assert told.endswith("By the adapter's authors: Megatron: translated, not run.")
