"""A run's folder as it may be published: small, without raw logs and prompts' texts, and the same figures number for number."""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rlmbench
from rlmbench.errors import UserError
from rlmbench.files import write_atomically
from rlmbench.metrics import RunSummary, document
from rlmbench.publish.scrub import LEGEND, Scrubber, absolute_paths
from rlmbench.records.integrity import TABLES, fingerprint
from rlmbench.records.manifest import MANIFEST, Manifest
from rlmbench.records.store import PLAN, SUMMARY, Run

PUBLICATION = "publication.json"
SCHEMA_VERSION = 1
LEFT_OUT = (
    "logs, raw events, traces, job and input files, the framework's own output, the page; "
    "the texts and token ids of prompts (plan.json keeps their hashes)"
)
_TEXT_OF_PROMPTS = ("question", "answer", "prompt_ids")


@dataclass(frozen=True)
class Published:
    """One published run: its folder and its size there."""

    run_id: str
    path: Path
    size_bytes: int


def publish(run: Run, summary: RunSummary, scrubber: Scrubber, output: Path) -> Published:
    """Write `run` below `output`/<suite>/; a published folder of the same run is replaced. `scrubber` must know the run (`know_run`).

    Raises:
        UserError: `output` is where the run lies, or holds an unpublished one of its name, it is not finished, or something in it could not be made anonymous.
    """
    manifest = run.manifest
    if manifest.status in ("planned", "running"):
        raise UserError(f"{run.id}: is still running; publish it when it has ended")
    folder = output.resolve() / manifest.suite / run.id
    if folder == run.path or folder in run.path.parents or run.path in folder.parents:
        raise UserError(f"{output}: the run {run.id} lies there itself; give another folder with --output")
    if folder.exists() and not (folder / PUBLICATION).is_file():
        raise UserError(f"{folder}: a run that was never published lies there; give another folder with --output")
    tables = _tables(run, scrubber)
    files = {**tables, **_documents(run, summary, scrubber, tables)}
    _check(files, run)
    building = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    try:
        for name, data in files.items():
            write_atomically(building / name, data)
        shutil.rmtree(folder, ignore_errors=True)
        building.rename(folder)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return Published(run.id, folder, sum(map(len, files.values())))


def know_run(scrubber: Scrubber, run: Run, summary: RunSummary) -> None:
    """Teach `scrubber` what names the machine of this run."""
    scrubber.know(run.manifest, (run.path, Path(summary.path)))
    from rlmbench.records.tables import TABLE_NAMES

    for name in TABLE_NAMES:
        table = getattr(run.tables, name)
        for column, learn in (("host", scrubber.host), ("boot_id", scrubber.boot), ("device", scrubber.device)):
            if column in table:
                for value in table[column].dropna().unique():
                    learn(str(value))
        if "node" in table and "host" in table:
            for node, host in zip(table["node"], table["host"], strict=True):
                scrubber.node(node, host if isinstance(host, str) else None)


def publish_campaign(campaign: Path, scrubber: Scrubber, output: Path, suite: str) -> Path:
    """The campaign's file beside the runs: how often what was asked for. Paths in it are scrubbed.

    Raises:
        UserError: it is damaged.
    """
    try:
        content = scrubber.value(json.loads(campaign.read_bytes()))
    except ValueError:
        raise UserError(f"{campaign}: damaged campaign; its runs were published without it") from None
    path = output / suite / "campaigns" / campaign.name
    write_atomically(path, _json(content))
    return path


def _documents(run: Run, summary: RunSummary, scrubber: Scrubber, tables: Mapping[str, bytes]) -> dict[str, bytes]:
    found = {MANIFEST: _json(_manifest(run.manifest, scrubber), indent=None), PUBLICATION: _json(_publication(run.manifest, scrubber))}
    if run.plan is not None:
        found[PLAN] = _json(_plan(run.plan), indent=None)
    here = summary.model_copy(update={"path": f"{run.manifest.suite}/{run.id}"})
    figures = {**scrubber.value(document([here])), TABLES: {Path(name).stem: fingerprint(data) for name, data in tables.items()}}
    return {**found, SUMMARY: _json(figures, indent=None)}


def _manifest(manifest: Manifest, scrubber: Scrubber) -> dict[str, Any]:
    content = manifest.model_dump(mode="json")
    kept_as_it_is = {"versions": content["versions"], "supervisor": None}
    launch = [{**process, "env": scrubber.environment(process["env"])} for process in content["launch"]]
    scrubbed = {**scrubber.value({**content, "launch": launch}), **kept_as_it_is}
    if content["environment"]:  # versions such as 2.13.0.1 are no addresses
        scrubbed["environment"]["packages"] = content["environment"]["packages"]
    return scrubbed


def _publication(manifest: Manifest, scrubber: Scrubber) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "published_by": f"rlmbench {rlmbench.__version__}",
        "command": scrubber.text(command_of(manifest)),
        "left_out": LEFT_OUT,
        "placeholders": dict(LEGEND),
    }


def command_of(manifest: Manifest) -> str:
    """The command that makes a run like this one."""
    given = ["rlmbench", "run", manifest.suite, "--framework", manifest.framework, "--scale", manifest.scale]
    if manifest.variant:
        given += ["--variant", manifest.variant]
    for override in manifest.overrides:
        given += ["--set", override]
    return shlex.join(given) + (" --native FILE  # the settings that the ledger lists as changed" if manifest.division == "tuned" else "")


def _plan(plan: Mapping[str, Any]) -> dict[str, Any]:
    rows = [{key: value for key, value in row.items() if key not in _TEXT_OF_PROMPTS} for row in plan["rows"]]
    return {**plan, "rows": rows}


def _tables(run: Run, scrubber: Scrubber) -> dict[str, bytes]:
    """Every table that has rows, as Parquet."""
    import pyarrow as pa

    from rlmbench.records.tables import EVENT_TABLES, TABLE_NAMES, arrow_table

    files = {}
    for name in TABLE_NAMES if len(run.tables.collectors) else EVENT_TABLES:
        table = arrow_table(getattr(run.tables, name))
        if not table.num_rows:
            continue  # a reader takes a table that is not there for empty
        for place, field in enumerate(table.schema):
            if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
                column = table.column(place).to_pylist()
                clean = {text: _cell(text, scrubber) for text in set(column) if text is not None}
                table = table.set_column(place, field, pa.array([clean.get(text) for text in column], field.type))
        files[f"{name}.parquet"] = _parquet(table)
    return files


def _parquet(table: Any) -> bytes:
    """A table as small as it goes, since these files are many and short: integers as differences from the row before where that is smaller
    (times and ids), all else as it is, which zstd packs best; of the metadata, which would be larger than most tables, the schema's version."""
    import pyarrow as pa

    whole = [field.name for field in table.schema if pa.types.is_integer(field.type)]
    as_they_are, as_differences = (_column_sizes(_written(table, names)) for names in ([], whole))
    return _written(table, [name for name in whole if as_differences[name] < as_they_are[name]])


def _written(table: Any, as_differences: Sequence[str]) -> bytes:
    import pyarrow.parquet as pq

    encodings = {name: "DELTA_BINARY_PACKED" if name in as_differences else "PLAIN" for name in table.column_names}
    buffer = io.BytesIO()
    with pq.ParquetWriter(
        buffer, table.schema, compression="zstd", compression_level=19, write_statistics=False, store_schema=False,
        use_dictionary=False, column_encoding=encodings,
    ) as writer:  # fmt: skip
        writer.write_table(table)
        writer.add_key_value_metadata({key.decode(): value.decode() for key, value in table.schema.metadata.items() if key != b"pandas"})
    return buffer.getvalue()


def _column_sizes(parquet: bytes) -> dict[str, int]:
    import pyarrow.parquet as pq

    metadata = pq.ParquetFile(io.BytesIO(parquet)).metadata
    groups = [metadata.row_group(place) for place in range(metadata.num_row_groups)]
    return {
        metadata.schema.column(place).path: sum(group.column(place).total_compressed_size for group in groups)
        for place in range(metadata.num_columns)
    }


def _cell(text: str, scrubber: Scrubber) -> str:
    """A text of a table; one that is JSON (arguments, facts) is scrubbed as such, so that its form is kept."""
    if text[:1] in '[{"':
        try:
            return json.dumps(scrubber.value(json.loads(text)), ensure_ascii=False)
        except ValueError:
            pass
    return scrubber.text(text)


def _check(files: Mapping[str, bytes], run: Run) -> None:
    """Look again at what is about to be written: nothing that looks like a path of this machine may be in it."""
    for name, data in files.items():
        left = absolute_paths("\n".join(texts_of(name, data)))
        if left:
            raise UserError(f"{run.id}: {name} would still name {left[0]!r}: nothing was published; please report this")


def texts_of(name: str, data: bytes) -> Iterable[str]:
    """Every text in a published file, as it is read."""
    if not name.endswith(".parquet"):
        return _strings(json.loads(data))
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False)
    return (text for column in table.columns for text in column.unique().to_pylist() if isinstance(text, str))


def _strings(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield str(key)
            yield from _strings(item)
    elif isinstance(value, Sequence):
        for item in value:
            yield from _strings(item)


def _json(value: Any, indent: int | None = 1) -> bytes:
    separators = (",", ":") if indent is None else None
    return (json.dumps(value, indent=indent, separators=separators, ensure_ascii=False) + "\n").encode()
