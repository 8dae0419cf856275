"""Runs beside each other: may they be compared, which is faster, and in what do they differ (docs/comparison.md)."""

from rlmbench.comparison.compare import compare, compare_against, compare_groups, ordered
from rlmbench.comparison.configurations import Group
from rlmbench.comparison.evidence import Evidence, evidence_of
from rlmbench.comparison.figures import Comparison, comparison_schema, comparison_schema_text
from rlmbench.comparison.find import check_apart, find_runs, only
from rlmbench.comparison.gate import gated, parse_fail_on
from rlmbench.comparison.replaced import without_replaced

__all__ = [
    "Comparison",
    "Evidence",
    "Group",
    "check_apart",
    "compare",
    "compare_against",
    "compare_groups",
    "comparison_schema",
    "comparison_schema_text",
    "evidence_of",
    "find_runs",
    "gated",
    "only",
    "ordered",
    "parse_fail_on",
    "without_replaced",
]
