"""The JSON Schema of a suite file, for editors and for checks outside rlmbench."""

from __future__ import annotations

from typing import Any

from rlmbench.experiment.models import Experiment, Suite


def suite_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a suite file.

    A suite's `experiment` and those of its scales are parts that are laid over each other, so in them no key is
    required; unknown keys are refused all the same. Whether the parts make a whole is checked by rlmbench itself.
    """
    suite = Suite.model_json_schema()
    part = _optional(Experiment.model_json_schema())
    definitions = {**suite.pop("$defs"), **part.pop("$defs"), "Experiment": part}
    for holder in (suite, definitions["Scale"]):
        (pattern,) = holder["properties"]["sweep"]["patternProperties"]
        holder["properties"]["sweep"]["patternProperties"][pattern] = {"$ref": "#/$defs/Experiment"}
        holder["properties"]["sweep"]["additionalProperties"] = False
        described = holder["properties"]["experiment"]
        about = {key: described[key] for key in ("description", "default") if key in described}
        holder["properties"]["experiment"] = {"$ref": "#/$defs/Experiment", **about}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **suite, "$defs": dict(sorted(definitions.items()))}


def _optional(schema: Any) -> Any:
    """`schema` without required keys and defaults: a part may leave out anything, and what it leaves out is not reset.

    Alternatives become ``anyOf``: a part that gives no `kind` may fit several.
    """
    if isinstance(schema, list):
        return [_optional(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "properties" in schema:
        schema = {key: value for key, value in schema.items() if key != "required"}
        return {
            key: ({name: _optional(value[name]) for name in value} if key == "properties" else _optional(value))
            for key, value in schema.items()
        }
    renamed = {"oneOf": "anyOf"}
    return {renamed.get(key, key): _optional(value) for key, value in schema.items() if key not in ("default", "discriminator")}
