"""What a change of plan costs a run beside the bytes that it moves, by how its runtime makes it: the price list of
moves that simulators read.

Measured prices are of hippo's executor, over emulated links (``hippo bench levers`` and ``hippo bench moves``, tables
in ``results/runs.md``; of a lever its dearest row). Simulators play epochs of a minute and more: there a ms at a
border and a hundredth of one step are nothing, so a lever that is live is free (``network.rules.move``); ``every`` and
``all-reduce`` are levers of no simulator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True)
class LeverPrice:
    """Of a lever that is pulled while the run trains, once."""

    border_s: float  # for which training stands still
    lost: float  # by which the first step after it and the one beside which it is made ready take longer; of a step


@dataclass(frozen=True)
class ChangePrices:
    """Of a way to change plans."""

    told: str  # where the figures are from
    stop_s: float  # for which training stands still at least in every change that is not live
    levers: Mapping[str, LeverPrice] = field(default_factory=lambda: MappingProxyType({}))  # that are live, by name


NOTHING = LeverPrice(0.0, 0.0)
RELAUNCHED = ChangePrices("processes start anew and build their groups: a judgement", 30.0)
FREE = ChangePrices(
    "no runtime does this",
    30.0,
    MappingProxyType(dict.fromkeys(("relay", "order", "fp8", "micro-batch", "shares"), NOTHING)),
)
LIVE = ChangePrices(
    "hippo's executor, measured",
    0.4,  # by which stop and copy took longer than its bytes at the link's rate, the worst of nine scenarios
    MappingProxyType(
        {
            "relay": LeverPrice(0.0006, 0.010),
            "order": LeverPrice(0.0008, 0.003),
            "micro-batch": LeverPrice(0.0007, 0.006),
            "fp8": LeverPrice(0.0008, 0.005),
            "shares": LeverPrice(0.0007, 0.005),
            "every": LeverPrice(0.0012, 0.008),
            "all-reduce": LeverPrice(0.0001, 0.055),
        }
    ),
)
