"""What a run would have been in another execution mode, on other devices: a simulator fed with the run's own measurements."""

from rlmbench.whatif.assumptions import Assumptions
from rlmbench.whatif.figures import document, whatif_schema, whatif_schema_text
from rlmbench.whatif.inputs import Decode, Inputs, inputs_from_run
from rlmbench.whatif.modes import MODES, Prediction, predict
from rlmbench.whatif.result import Question, WhatIf, what_if
from rlmbench.whatif.search import best_split

__all__ = [
    "MODES",
    "Assumptions",
    "Decode",
    "Inputs",
    "Prediction",
    "Question",
    "WhatIf",
    "best_split",
    "document",
    "inputs_from_run",
    "predict",
    "what_if",
    "whatif_schema",
    "whatif_schema_text",
]
