"""A campaign: the runs that one command planned, on disk, so that what was interrupted can be completed."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rlmbench.errors import UserError, did_you_mean
from rlmbench.records.files import write_atomically
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
    request: dict[str, Any] = Field(description="The command as given.")

    def asked(self) -> Request:
        """The request it was planned from."""
        lists = {key: tuple(self.request[key]) for key in ("frameworks", "overrides")}
        return Request(**{**self.request, **lists})


def new_campaign(suite: str, request: Request) -> Campaign:
    """A campaign that is not on disk yet."""
    now = time.time()
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    return Campaign(campaign_id=f"{stamp}-{int(now * 1000) % 1000:03}", suite=suite, created_unix_s=now, request=asdict(request))


def save(campaign: Campaign, results_dir: Path) -> None:
    """Write the campaign below `results_dir`."""
    path = results_dir / campaign.suite / FOLDER / f"{campaign.campaign_id}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (campaign.model_dump_json(indent=1) + "\n").encode())


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
        return Campaign.model_validate(json.loads(path.read_bytes()))
    except (ValueError, ValidationError) as error:
        raise UserError(f"{path}: damaged campaign ({str(error).splitlines()[0]}); start a new one without --resume") from None


def finished_run(results_dir: Path, campaign: Campaign, cell: Cell, content_hash: str) -> Run | None:
    """The campaign's run of `cell` that ended well, of exactly this content; failed and interrupted ones are tried again."""
    for run in reversed(list_runs(results_dir)):
        manifest = run.manifest
        same = (manifest.campaign_id, manifest.framework, manifest.repeat, manifest.content_hash)
        if manifest.status == "ok" and same == (campaign.campaign_id, cell.framework, cell.repeat, content_hash):
            return run
    return None
