"""Patterns of the ``v`` placement: what makes a building block of ``v_shape``, and which to try first.

A pattern is a row of genes. ``FIRST`` holds those that the search tries before it changes the best of them: picked one
after the other from 1,400 random patterns (and the blocks of Qi et al. 2024, section 3), each the one that most
lowered the mean gap to the best of all 1,400 over 170 random problems (3 to 16 ranks, p to 4 p micro-batches, delays
from 0 to 5 F, the memory of V-min, V-half and ZB-V). Twelve of them leave .4 % on average, all of them .2 %.
"""

from __future__ import annotations

# Genes, (GENES,). Gaps are in mean operation times.
F_DOWN, F_UP, B_DOWN, B_UP = range(4)  # from the start of a pass on one rank to the next, on top of the link's delay
PERIOD = 4  # times the period that work and memory ask for
SHARE = 5  # chunks of memory that chunk 0 may use above its part when it runs out of turn
SPARE = 6  # the same for chunk 1, on top of what chunk 0 leaves
WINDOW = 7  # periods that a pass may run ahead of its turn
PATIENCE = 8  # waits for an input that comes within this part of a W instead of running the W
HELD = 9  # Ws that may wait while forwards are left
SLOPE = 10  # and more of them per rank
B_TIME, W_TIME = 11, 12  # durations to pretend while ordering, times the true ones; EVEN: those of F
DELAY = 13  # delays to pretend, times the true ones
TURNING = 14  # gap between the last F and the first B
GENES = 15

ALWAYS, EVEN = 1e9, -1.0

LEVELS: tuple[tuple[float, ...], ...] = (
    *((0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0),) * 4,
    (0.9, 0.95, 1.0, 1.05, 1.1),
    (-1.0, -0.5, 0.0, 0.5),
    (-1.0, 0.0, 1.0, 2.0),
    (0.0, 0.25, 0.5, 1.0, 2.0, ALWAYS),
    (0.0, 0.25, 0.5, 0.75),
    (0.0, 1.0, 2.0, 4.0, ALWAYS),
    (0.0, 0.25, 0.5, 1.0),
    (0.9, 1.0, 1.0, 1.0, 1.15, EVEN),
    (0.8, 1.0, 1.0, 1.0, 1.1, EVEN),
    (0.0, 1.0, 1.0, 1.0),
    (0.0, 0.0, 1.0, 2.0, 3.0),
)
"""Values that the search gives each gene; those that stand there twice are twice as likely."""

# Gap down and up (of F and B alike), then the genes from PERIOD on.
_FIRST: tuple[tuple[float, ...], ...] = (
    (2.5, 2.5, 1.0, 0.5, 2.0, 0.5, 0.5, 4.0, 1.0, 0.9, 1.0, 1.0, 0.0),
    (4.0, 4.0, 0.95, -0.5, 1.0, 1.0, 0.5, ALWAYS, 0.5, 1.0, 1.0, 1.0, 2.0),
    (4.0, 0.0, 1.05, -1.0, -1.0, ALWAYS, 0.5, 4.0, 1.0, 1.0, 1.0, 1.0, 3.0),
    (2.5, 1.0, 0.95, -0.5, 2.0, ALWAYS, 0.5, 4.0, 0.5, 1.0, 1.0, 1.0, 2.0),
    (1.5, 4.0, 1.05, 0.0, 2.0, 0.25, 0.75, 2.0, 0.25, 1.0, 1.0, 1.0, 3.0),
    (2.0, 4.0, 1.0, 0.0, 0.0, ALWAYS, 0.0, 0.0, 0.0, EVEN, EVEN, 0.0, 0.0),
    (0.5, 3.0, 1.1, 0.5, 0.0, 0.25, 0.5, ALWAYS, 0.5, 1.0, 1.0, 1.0, 2.0),
    (0.5, 2.5, 1.0, -1.0, 0.0, 0.5, 0.5, 4.0, 1.0, 1.0, 1.0, 1.0, 0.0),
    (1.5, 4.0, 0.95, -0.5, -1.0, 2.0, 0.25, ALWAYS, 0.25, 1.0, 1.0, 0.0, 0.0),
    (1.0, 1.0, 1.0, 0.0, 0.0, 0.5, 0.0, 4.0, 0.0, EVEN, EVEN, 0.0, 2.0),
    (4.0, 2.0, 0.95, 0.5, 2.0, 1.0, 0.75, ALWAYS, 0.0, 1.0, 1.0, 1.0, 0.0),
    (2.5, 2.0, 1.0, 0.5, 2.0, 0.5, 0.5, 1.0, 0.0, 1.0, 1.0, 1.0, 3.0),
    (3.0, 2.0, 0.9, 0.0, -1.0, ALWAYS, 0.75, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0),
    (3.0, 4.0, 1.0, -1.0, 0.0, 0.0, 0.75, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0),
    (1.0, 4.0, 1.05, -1.0, 2.0, 0.5, 0.75, ALWAYS, 0.0, 1.0, 1.0, 0.0, 0.0),
    (2.0, 4.0, 0.9, -1.0, -1.0, 0.5, 0.75, 2.0, 0.5, 1.0, 1.0, 1.0, 3.0),
    (2.0, 0.0, 0.9, -0.5, 2.0, 0.5, 0.0, 4.0, 0.5, 1.15, 0.8, 1.0, 3.0),
    (3.0, 2.0, 1.1, -0.5, 1.0, ALWAYS, 0.5, 4.0, 0.25, 1.0, 1.0, 0.0, 0.0),
    (0.0, 2.5, 0.95, 0.0, 2.0, 1.0, 0.0, 4.0, 0.0, 1.0, 1.0, 1.0, 3.0),
    (1.5, 1.0, 1.0, 0.5, 1.0, 0.5, 0.75, 2.0, 0.5, 1.0, 1.0, 1.0, 0.0),
    (4.0, 4.0, 0.9, -1.0, -1.0, 2.0, 0.75, ALWAYS, 0.0, 1.0, 1.0, 1.0, 0.0),
    (2.5, 0.5, 1.0, 0.0, 1.0, 0.5, 0.75, 0.0, 0.5, EVEN, 1.0, 1.0, 3.0),
    (4.0, 0.5, 0.9, 0.5, 1.0, 0.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 3.0),
    (0.0, 3.0, 1.05, 0.0, 0.0, 2.0, 0.75, ALWAYS, 0.0, EVEN, EVEN, 1.0, 3.0),
)

FIRST = tuple((down, up, down, up, *others) for down, up, *others in _FIRST)
"""Patterns to begin with, (24, GENES), the best first."""

NEVER_STUCK = 2
"""One of them whose window is always open: nothing ready waits for its turn."""
