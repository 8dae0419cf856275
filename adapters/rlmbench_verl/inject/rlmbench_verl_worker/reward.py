"""GSM8K's verifier as verl's custom reward function, for natural workloads."""

import importlib.util

from rlmbench_plan import job

_verifier = None


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    """1.0 for the right final answer, else 0.0."""
    global _verifier
    if _verifier is None:
        spec = importlib.util.spec_from_file_location("rlmbench_verifier", job().verifier)
        _verifier = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(_verifier)
    return _verifier.score(solution_str, ground_truth)
