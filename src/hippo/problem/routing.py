"""How unevenly tokens go to experts, and how much more than the mean the fullest rank of experts gets of them.

even           every expert alike
1.5            the fullest rank gets 1.5 times the mean, over however many ranks experts are spread
power:0.6      the i-th most favoured expert gets a share that falls as i ** -0.6; which one that is, chance says
[812, 77, ..]  tokens that each expert got, in the order of the model's experts
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from hippo.errors import InputError
from hippo.problem.model import Experts, Model

DEALS = 256
"""Orders of the experts, drawn by chance, whose mean a power law takes."""

STEEPEST = 10.0
MOST_TOKENS = 1e18


@dataclass(frozen=True)
class Routing:
    """A number, a power law where ``exponent`` is not 0, or what was counted. Checked by ``routing_from_value``."""

    fullest: float = 1.0  # tokens of the fullest rank over the mean, where that many ranks share experts
    exponent: float = 0.0
    counts: tuple[float, ...] = ()  # (experts,)

    def skew(self, ep: int, experts: Experts) -> float:
        """Tokens of the fullest of ``ep`` ranks over their mean, from 1 to ``ep``.

        Ranks hold experts in a row: rank r those from r * count / ep on, as in Megatron-LM and torchtitan. Of a power
        law it is the mean over ``DEALS`` orders of the experts, which are the same in every process.
        """
        if self.counts or self.exponent:
            return _skew(self, ep, experts.count, experts.per_token)
        return min(self.fullest, float(ep))

    def document(self) -> str | float | list[float]:
        """As a problem file holds it."""
        if self.counts:
            return list(self.counts)
        return f"power:{self.exponent!r}" if self.exponent else "even" if self.fullest == 1.0 else self.fullest


def routing_from_value(value: object, model: Model, *, source: str, key: str | None = None) -> Routing:
    """``even``, a number, ``power:A`` or a list, as above; ``InputError`` says what does not fit the model."""

    def refused(flaw: str, remedy: str, shown: object = None) -> InputError:
        if shown is None:
            shown = f"{len(value)} numbers" if isinstance(value, list) else value
        return InputError(flaw, source=source, key=key, value=shown, remedy=remedy)

    number = None
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MOST_TOKENS:
        number = float(value)
    if value == "even" or number == 1.0:
        return Routing()
    networks = [layer.feed_forward for layer in model.layers if layer.feed_forward is not None]
    sizes = sorted({(each.experts.count, each.experts.per_token) for each in networks if each.experts is not None})
    if not sizes:
        raise refused(f"{model.name} has no experts", "leave it out, or name a mixture of experts")
    (least, per_token), (most, _) = sizes[0], sizes[-1]
    if isinstance(value, list):
        if len(value) != least or least != most:
            told = f"{least}" if least == most else f"{least} to {most}"
            raise refused(f"{model.name} has {told} experts a block", "give a number for each expert of the model")
        for at, each in enumerate(value):
            if type(each) not in (int, float) or not 0 <= each <= MOST_TOKENS:
                raise refused(f"expert {at} has no number of tokens", f"give one from 0 to {MOST_TOKENS:g}", each)
        if not any(value):
            raise refused("no expert got a token", "give how many tokens each expert got")
        if max(value) * per_token > sum(value) * (1 + 1e-9):
            told = f"expert {value.index(max(value))} got more than 1 of the {per_token} copies of each token"
            raise refused(told, "give how many of the same tokens each expert got", max(value))
        return Routing(counts=tuple(map(float, value)))
    if isinstance(value, str) and value.startswith("power:"):
        try:
            exponent = float(value.removeprefix("power:"))
        except ValueError:
            exponent = -1.0
        if not 0.0 <= exponent <= STEEPEST:
            raise refused("is no falling power law", f"write power:A with A from 0 to {STEEPEST:g}")
        return Routing(exponent=exponent)
    if number is None or not 1.0 <= number <= most:
        remedy = f"write even, a number from 1 to {most}, power:A or (--routing: the file of) a list of tokens"
        raise refused("is no routing of tokens to experts", remedy)
    return Routing(number)


@cache
def _skew(routing: Routing, ep: int, count: int, per_token: int) -> float:
    if routing.counts:
        got = np.array([routing.counts])
    else:
        got = np.tile(_falling(routing.exponent, count, per_token), (DEALS, 1))
        got = np.random.default_rng(0).permuted(got, axis=1)
    sums = np.pad(np.cumsum(got, axis=1), ((0, 0), (1, 0)))
    ranks = np.diff(sums[:, np.arange(ep + 1) * count // ep])
    return float((ranks.max(axis=1) / sums[:, -1]).mean() * ep)


def _falling(exponent: float, count: int, per_token: int) -> NDArray[np.float64]:
    """Shares (count,) of all copies that fall with a power; no expert gets more than one copy of each token, so what
    the first would get beyond that goes to the others."""
    weights = np.arange(1.0, count + 1.0) ** -exponent
    for full in range(per_token):
        others = weights[full:] / weights[full:].sum() * (1.0 - full / per_token)
        if others[0] * per_token <= 1.0 + 1e-12:
            break
    return np.concatenate([np.full(full, 1.0 / per_token), others])
