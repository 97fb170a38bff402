"""Named settings of ``Fluctuation``: how steps swing as published ones did, and the stress tests of 10 to 30 %.

The measured ones are fitted by ``hippo bench noise``, so that a pipeline of 8 ranks and 32 micro-batches in 1F1B has
the step times of data/mlperf_step_fluctuation.csv: 120 runs inside one data centre, all of 8 pipeline stages. Steps
alone do not tell how much of it each operation has for itself and how much its rank has in common: half of the variance
of an ordinary step each is a choice, and the bench says what the other choices would be.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from hippo.dispatch.noise.fluctuation import Fluctuation

MEASURED = Fluctuation(0.012, rank_level=0.006, rank_memory=0.2, stall_share=0.005, stall_level=0.05)
"""The median run."""

RESTLESS = Fluctuation(0.03, rank_level=0.02, rank_memory=0.6, stall_share=0.01, stall_level=0.2)
"""The 90th percentile of the runs in each figure."""

PRESETS: Mapping[str, Fluctuation] = MappingProxyType(
    {
        "measured": MEASURED,
        "restless": RESTLESS,
        "10 %": Fluctuation(0.1),
        "20 %": Fluctuation(0.2),
        "30 %": Fluctuation(0.3),
    }
)
"""The last three are stress: operations and messages of that standard deviation, all on their own."""
