"""Does an adapter keep the promises of `rlmbench.adapter`? Checks that its author, or anybody else, can run."""

from rlmbench.conformance.finding import Finding
from rlmbench.conformance.runs import run_checks
from rlmbench.conformance.static import static_checks

__all__ = ["Finding", "run_checks", "static_checks"]
