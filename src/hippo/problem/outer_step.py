"""How local SGD agrees, where the user allows it: how often, in how many fragments, how late, in how many bits.

DiLoCo (arXiv 2311.08105) averages the whole model every H steps. Streaming DiLoCo (arXiv 2501.18512) averages one of P
fragments every H / P steps, uses the mean tau steps after it was begun, and sends fewer bits.
"""

from __future__ import annotations

from dataclasses import dataclass

from hippo.errors import InputError

BITS = (0, 4, 8, 16, 32)
"""Of a parameter on its way; 0: as gradients are sent."""

MOST = 1_000_000
FORM = "write H[,FRAGMENTS[,DELAY[,BITS]]], for instance 100,8,1,4"


@dataclass(frozen=True)
class OuterStep:
    """Checked when made; ``InputError`` names the option."""

    every: int = 500  # inner steps between two averages of a parameter: DiLoCo's default (section 3, H = 500)
    fragments: int = 1  # that the model is averaged in, one after the other, evenly over ``every`` steps
    delay: int = 0  # steps between the beginning of an average and its use
    bits: int = 0  # of a parameter; 0: as gradients

    def __post_init__(self) -> None:
        told = f"{self.every},{self.fragments},{self.delay},{self.bits}"
        for flaw, remedy in flaws(self.every, self.fragments, self.delay, self.bits):
            raise InputError(flaw, source="--outer-step", value=told, remedy=remedy)


def flaws(every: int, fragments: int, delay: int, bits: int) -> list[tuple[str, str]]:
    """What is wrong with these numbers, each with its remedy; the rules are those of torchft."""
    found = []
    if not 1 <= every <= MOST or not 1 <= fragments <= every:
        found.append(("needs at least one step and one fragment, and no more fragments than steps", FORM))
    elif every % fragments:
        found.append((f"{fragments} fragments do not divide {every} steps", f"take a multiple of {fragments} steps"))
    elif not 0 <= delay < every // fragments:
        most = every // fragments - 1
        told = f"an average that is {delay} steps late would meet the next, which begins after {every // fragments}"
        found.append((told, f"give a delay from 0 to {most}"))
    if bits not in BITS:
        found.append((f"{bits} bits are none of {', '.join(map(str, BITS))}", FORM))
    return found


def outer_step_from_text(text: str) -> OuterStep:
    """``H[,FRAGMENTS[,DELAY[,BITS]]]``."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not 1 <= len(numbers) <= 4:
        raise InputError("is no outer step", source="--outer-step", value=text, remedy=FORM)
    return OuterStep(*numbers)
