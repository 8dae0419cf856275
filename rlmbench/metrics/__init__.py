"""From records to figures: pure functions, one definition each (docs/metrics.md)."""

from rlmbench.metrics.audit import Audit, audit
from rlmbench.metrics.figures import RunSummary, StepFigures, SummaryDocument, document, json_schema, schema_text, write_summary
from rlmbench.metrics.invariants import check_invariants
from rlmbench.metrics.summary import summarize

__all__ = [
    "Audit",
    "RunSummary",
    "StepFigures",
    "SummaryDocument",
    "audit",
    "check_invariants",
    "document",
    "json_schema",
    "schema_text",
    "summarize",
    "write_summary",
]
