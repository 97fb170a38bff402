"""Named settings of ``Fluctuation``: how steps swing as published ones did, and the stress tests of 10 to 30 %.

The measured ones are fitted as ``hippo bench noise`` does: a pipeline of 8 ranks and 32 micro-batches in 1F1B has the
step times of data/mlperf_step_fluctuation.csv (120 runs inside one data centre, all of 8 pipeline stages). Steps alone
do not tell how much of it each operation has for itself and how much its rank has in common: half of the variance of an
ordinary step each is a choice, and the bench says what the other choices would be. What operations have for themselves
nearly cancels in a step of hundreds of them: that is why it is so much larger than what the step shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType

from hippo.dispatch.noise.fluctuation import Fluctuation
from hippo.errors import InputError

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


def fluctuation_of(text: str, *, source: str = "noise") -> Fluctuation:
    """The noise that a text names: a preset, or a level and what else moves, such as ``0.2,rank_level=0.1``.

    Raises ``InputError`` for what is neither, for an unknown field and a value out of range.
    """
    name, *others = text.split(",")
    if name in PRESETS and not others:
        return PRESETS[name]
    known = [each.name for each in fields(Fluctuation)]
    given: dict[str, float | str] = {}
    for key, _, value in [("level", "", name), *(each.partition("=") for each in others)]:
        if key not in known or key in given:
            remedy = f"name some of {', '.join(known)}, each once"
            raise InputError("is no figure of noise", source=source, value=key[:60], remedy=remedy)
        try:
            given[key] = value if key == "kind" else float(value)
        except ValueError:
            remedy = f"give a level such as 0.2, then others as in 0.2,rank_level=0.1; or one of {', '.join(PRESETS)}"
            raise InputError("is no noise", source=source, key=key, value=value[:60], remedy=remedy) from None
    try:
        return Fluctuation(**given)  # type: ignore[arg-type]  # checked when made
    except InputError as error:
        raise InputError(error.problem, source=source, key=error.key, value=error.value, remedy=error.remedy) from None
