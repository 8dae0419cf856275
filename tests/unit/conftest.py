"""For all unit tests."""

from __future__ import annotations

import gc

# By default the collector looks through all that two thousand tests and pandas keep alive so often that it takes a tenth of the time.
gc.set_threshold(20_000, 20, 20)
