"""A campaign: the runs that one command planned, on disk, so that what was interrupted can be completed."""

from __future__ import annotations

import time
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rlmbench.errors import UserError, did_you_mean
from rlmbench.files import write_atomically
from rlmbench.records.store import Run, list_runs
from rlmbench.runner.cells import Cell, Request

FOLDER = "campaigns"


class Campaign(BaseModel):
    """`results/<suite>/campaigns/<id>.json`. Runs point to it by their manifests' campaign id."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    schema_version: int = 1
    campaign_id: str
    suite: str = Field(description="The suite's name; `request.suite` is what was typed.")
    created_unix_s: float
    request: Request = Field(description="The command as given.")


def new_campaign(suite: str, request: Request) -> Campaign:
    """A campaign that is not on disk yet."""
    now = time.time()
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    return Campaign(campaign_id=f"{stamp}-{int(now * 1000) % 1000:03}", suite=suite, created_unix_s=now, request=request)


def save(campaign: Campaign, results_dir: Path) -> None:
    """Write the campaign below `results_dir`.

    Raises:
        UserError: it cannot be written there.
    """
    path = results_dir / campaign.suite / FOLDER / f"{campaign.campaign_id}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, (campaign.model_dump_json(indent=1) + "\n").encode())
    except OSError as error:
        raise UserError(f"cannot write results to {results_dir}: {error.strerror}; choose another place with --results") from None


def find_campaign(results_dir: Path, suite: str, campaign_id: str | None) -> Campaign:
    """The suite's campaign called `campaign_id`, or its latest.

    Raises:
        UserError: there is none.
    """
    folder = results_dir / suite / FOLDER
    known = sorted(path.stem for path in folder.glob("*.json"))
    if not known:
        raise UserError(f"nothing to resume: no campaign of {suite} in {results_dir}; start one without --resume")
    name = campaign_id or known[-1]
    if name not in known:
        raise UserError(f"unknown campaign {name!r} of {suite}{did_you_mean(name, known)}; known: {', '.join(known[-5:])}")
    path = folder / f"{name}.json"
    try:
        return Campaign.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the file"
        raise UserError(f"{path}: damaged campaign ({place}: {first['msg']}); start a new one without --resume") from None


def finished_run(results_dir: Path, campaign: Campaign, cell: Cell, content_hash: str) -> Run | None:
    """The campaign's run of `cell` that ended well, of exactly this content; failed and interrupted ones are tried again."""
    same = (cell.framework, cell.variant, cell.repeat, content_hash)
    for run in reversed(_runs_of(results_dir, campaign)):
        manifest = run.manifest
        if manifest.status == "ok" and (manifest.framework, manifest.variant, manifest.repeat, manifest.content_hash) == same:
            return run
    return None


def running_run(results_dir: Path, campaign: Campaign) -> Run | None:
    """A run of the campaign whose rlmbench is still at work."""
    return next((run for run in _runs_of(results_dir, campaign) if run.manifest.status in ("planned", "running")), None)


def _runs_of(results_dir: Path, campaign: Campaign) -> list[Run]:
    """The campaign's runs, oldest first. A damaged record belongs to none."""
    found = []
    for run in list_runs(results_dir):
        try:
            if run.manifest.campaign_id == campaign.campaign_id:
                found.append(run)
        except UserError:
            continue
    return found
