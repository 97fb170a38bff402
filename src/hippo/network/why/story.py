"""A run over a moving network as it is told: what the network did, what was decided and why, what came of it.

Data alone, for the terminal, the page and ``--json``. T epochs, E links, K domains, C configurations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hippo.cost.calibration import uncalibrated
from hippo.decide.reasons import Reason
from hippo.network.plans.plan_cache import PlanCache
from hippo.network.rules.view import Action, How, View, levers_alone
from hippo.plan.codec import plan_to_document
from hippo.problem.problem import Problem, told_runtime
from hippo.score.interval import PrintedStep, printed_step

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
BEGUN, LEVER, STOPPED, BACKGROUND, CANCELLED, KEPT = "begun", "lever", "stop", "background", "cancel", "kept"
CHANGES = (BEGUN, LEVER, STOPPED, BACKGROUND, CANCELLED)
"""Kinds of decisions that change something; the rest is ``kept``."""
_KINDS = {
    How.SWITCH: LEVER,
    How.STOP: STOPPED,
    How.BACKGROUND: BACKGROUND,
    How.CANCEL: CANCELLED,
    How.KEEP: KEPT,
}


@dataclass(frozen=True)
class StoryEntry:
    """One decision. ``before`` and ``after`` are configurations of the cache (-1: nothing ran)."""

    epoch: int
    time_s: float
    kind: str
    before: int
    after: int
    reasons: tuple[Reason, ...]
    decision_s: float

    @property
    def changes(self) -> bool:
        """Whether anything is changed."""
        return self.kind in CHANGES

    def sentences(self) -> tuple[str, ...]:
        """The reasons, said."""
        return tuple(reason.sentence() for reason in self.reasons)

    def document(self) -> dict[str, object]:
        """Keys of a decision in ``watch --json``."""
        return {
            "epoch": self.epoch,
            "time_s": self.time_s,
            "kind": self.kind,
            "before": self.before if self.before >= 0 else None,
            "plan": self.after,
            "decision_ms": 1e3 * self.decision_s,
            "reasons": [reason.document() for reason in self.reasons],
        }


def kind_of(view: View, action: Action) -> str:
    """The kind of decision that an answer to a view is."""
    if view.running < 0:
        return BEGUN
    return LEVER if levers_alone(view.cache, view.running, action) else _KINDS[action.how]


@dataclass(frozen=True, eq=False)
class Track:
    """What one way through the trace gave, epoch by epoch."""

    name: str
    net_tokens: Floats  # (T,) tokens less egress in tokens
    tokens: Floats  # (T,)
    egress_usd: Floats  # (T,)
    downtime_s: Floats  # (T,)
    moved_bytes: Floats  # (T,)
    utilization: Floats  # (T,)
    running: Ints  # (T,) configuration at the start of each epoch
    moves: int

    @property
    def work(self) -> float:
        """Net tokens of the whole run."""
        return float(self.net_tokens.sum())

    def document(self, best: float) -> dict[str, object]:
        """Keys of a row of ``watch --json``'s ``work``; ``best``: work of hindsight."""
        return {
            "work": self.work,
            "of_hindsight": self.work / best if best > 0 else None,
            "tokens": float(self.tokens.sum()),
            "egress_usd": float(self.egress_usd.sum()),
            "downtime_s": float(self.downtime_s.sum()),
            "moved_bytes": float(self.moved_bytes.sum()),
            "moves": self.moves,
            "utilization": float(self.utilization.mean()),
        }


@dataclass(frozen=True, eq=False)
class Story:
    """Everything that is told of a run. ``keeping``: what the run began with, never touched again; ``plain``: where
    what crosses domains may be compressed, the same run without that."""

    problem: Problem
    cache: PlanCache
    source: str  # of the trace
    method: str
    begin_s: float  # time of the trace's first instant
    epoch_s: float
    bandwidth_bytes_per_s: Floats  # (T, E)
    base_bytes_per_s: Floats  # (E,)
    told: NDArray[np.bool_]  # (T, E) False: the value did not arrive
    mine: Track
    keeping: Track
    hindsight: Track
    decisions: tuple[StoryEntry, ...]
    decision_s: Floats  # (T,)
    usd_per_token: float
    weights: tuple[float, float, float]
    plain: Story | None = None

    @property
    def epochs(self) -> int:
        """T."""
        return len(self.bandwidth_bytes_per_s)

    @property
    def seconds(self) -> float:
        """Length of the run."""
        return self.epochs * self.epoch_s

    @property
    def tracks(self) -> tuple[Track, Track, Track]:
        """The method's, keeping and hindsight."""
        return self.mine, self.keeping, self.hindsight

    @property
    def of_hindsight(self) -> float:
        """Work as a share of hindsight's."""
        return self.mine.work / self.hindsight.work if self.hindsight.work > 0 else 1.0

    @property
    def captured(self) -> float | None:
        """Share of what hindsight gains over keeping that the method gains; None: there is nothing to gain."""
        gain = self.hindsight.work - self.keeping.work
        return (self.mine.work - self.keeping.work) / gain if gain > 1e-3 * self.hindsight.work else None

    @property
    def used(self) -> tuple[int, ...]:
        """Configurations that ran, or that a decision leads to, in the order of their first appearance."""
        ran = [int(index) for index in self.mine.running] + [told.after for told in self.decisions]
        return tuple(dict.fromkeys(index for index in ran if index >= 0))

    @property
    def stranded(self) -> bool:
        """Whether the run ends with nothing that could run."""
        last = np.array(self.bandwidth_bytes_per_s[-1:])
        used = (self.cache.bytes_per_step(index) for index in range(len(self.cache)))
        return all(bool((last[0, sent > 0] <= 0).any()) for sent in used)

    def printed(self, index: int) -> PrintedStep:
        """The step of a configuration while the links are as the cluster says."""
        return printed_step(self.problem, self.cache.configurations[index].plan, self.cache.score(index).step_time_s)

    def document(self) -> dict[str, object]:
        """What ``watch --json`` prints. ``plan`` of decisions and epochs is a key of ``plans``."""
        return {
            "method": self.method,
            "trace": self.source,
            "epochs": self.epochs,
            "epoch_s": self.epoch_s,
            "begin_s": self.begin_s,
            "usd_per_token": self.usd_per_token,
            "weights": list(self.weights),
            **self._outcome(),
            **({} if self.plain is None else {"without_compression": self.plain._outcome()}),
            "decision_ms_p50": 1e3 * float(np.percentile(self.decision_s[1:], 50)) if self.epochs > 1 else None,
            "decision_ms_p99": 1e3 * float(np.percentile(self.decision_s[1:], 99)) if self.epochs > 1 else None,
            "decisions": [told.document() for told in self.decisions],
            "running": [int(index) for index in self.mine.running],
            "plans": self._plans(),
            "uncalibrated": uncalibrated(self.problem),
            **told_runtime(self.problem),
        }

    def _outcome(self) -> Mapping[str, object]:
        return {
            "work": {track.name: track.document(self.hindsight.work) for track in self.tracks},
            "of_hindsight": self.of_hindsight,
            "captured": self.captured,
        }

    def _plans(self) -> Mapping[str, object]:
        """Plans that ran, as plan files, by their index."""
        found = {}
        for index in self.used:
            known = self.cache.configurations[index]
            found[str(index)] = {
                "origin": known.origin,
                "lever": known.lever,
                "plan": plan_to_document(self.problem, known.plan),
                **self.printed(index).document(),
            }
        return found
