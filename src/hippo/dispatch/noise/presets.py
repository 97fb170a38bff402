"""Named settings of ``Fluctuation``: how steps swing as published ones did, and the stress tests of 10 to 30 %.

The measured ones are fitted as ``hippo bench noise`` does: a pipeline of 8 ranks and 32 micro-batches in 1F1B has the
step times of data/mlperf_step_fluctuation.csv (120 runs inside one data centre, all of 8 pipeline stages). Steps alone
do not tell how much of it each operation has for itself and how much its rank has in common: half of the variance of an
ordinary step each is a choice, and the bench says what the other choices would be. What operations have for themselves
nearly cancels in a step of hundreds of them: that is why it is so much larger than what the step shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from hippo.dispatch.noise.fluctuation import Fluctuation

MEASURED = Fluctuation(0.037, rank_level=0.0053, rank_memory=0.5, stall_share=0.002, stall_level=0.079)
"""The median of all runs in each figure: steps vary by 1.1 %, their 99th percentile is 1.022 of the median."""

RESTLESS = Fluctuation(0.125, rank_level=0.0175, rank_memory=0.1, stall_share=0.0021, stall_level=0.37)
"""The run whose variation is at the 90th percentile: 5.0 %, its 99th percentile is 1.109 of the median."""

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
