"""Schedulers with the settings that were found for them on training worlds: ``settings.json``, which
``python -m benchmarks.rivals --write`` writes. As many plays for each rule that takes no longer than others; the test
worlds are never used for this.

Sites differ: on some, running jobs may be stopped and moved, on others they are kept. A rule has a setting for each.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any, Generic, TypeVar

from hippo.jobs.joint import rules
from hippo.jobs.joint.moment import Moment, Scheduler
from hippo.jobs.joint.ranked import FIRST, FULLEST, GRADIENT
from hippo.jobs.joint.receding_horizon import JointHorizon

Rule = TypeVar("Rule", rules.Ranked, rules.GoodputProgram, JointHorizon)


@dataclass(frozen=True)
class Tuned(Generic[Rule]):
    """A rule with its setting where running jobs may be stopped, and that where they are kept."""

    stopped: Rule
    kept: Rule

    @property
    def name(self) -> str:
        """See ``Scheduler``, as the next ones."""
        return self.stopped.name

    @property
    def summary(self) -> str:
        """One sentence."""
        return self.stopped.summary

    @property
    def source(self) -> str:
        """Paper."""
        return self.stopped.source

    @property
    def knows(self) -> str:
        """Either "nothing" or "durations"."""
        return self.stopped.knows

    @property
    def preempts(self) -> bool:
        """Whether it stops jobs where that is allowed."""
        return self.stopped.preempts

    @property
    def learns(self) -> bool:
        """Whether it was trained."""
        return self.stopped.learns

    def at(self, stops: bool) -> Rule:
        """As it is where running jobs may be stopped, or may not."""
        return self.stopped if stops else self.kept

    def decide(self, moment: Moment) -> None:
        """As the rule that fits the site."""
        self.at(moment.sight.stops).decide(moment)


def fitting(scheduler: Scheduler, stops: bool) -> Scheduler:
    """The rule behind a scheduler where running jobs may be stopped, or may not."""
    return scheduler.at(stops) if isinstance(scheduler, Tuned) else scheduler


@cache
def searched() -> Mapping[str, Any]:
    """The document: ``budget``; ``rules``: of each rule and kind of site (``stopped``, ``kept``) the ``setting`` and
    what it costs with it, over ``separate`` with its usual one in the same worlds."""
    text = files("hippo.jobs.joint").joinpath("settings.json").read_text(encoding="utf-8")
    found: Mapping[str, Any] = json.loads(text)
    return found


def setting_of(name: str, kind: str) -> dict[str, Any]:
    """The best of a rule on a kind of site; none where none was searched."""
    found: dict[str, Any] = searched()["rules"].get(name, {}).get(kind, {}).get("setting", {})
    return found


def tuned(rule: Rule, kept: Rule | None = None) -> Tuned[Rule]:
    """A rule with its best settings. ``kept``: another form of it for sites where running jobs are kept."""
    other = rule if kept is None else kept
    return Tuned(
        replace(rule, **setting_of(rule.name, "stopped")),
        replace(other, **setting_of(rule.name, "kept")),
    )


def placed(name: str, summary: str, source: str, place: int) -> Tuned[rules.Ranked]:
    """``srpt`` that chooses otherwise between the places of the size that it takes."""
    named = {"name": name, "summary": summary, "source": source, "place": place}
    return Tuned(replace(SRPT.stopped, **named), replace(SRPT.kept, **named))  # type: ignore[arg-type]


SEPARATE, MAST, SAILOR = tuned(rules.SEPARATE), tuned(rules.MAST), tuned(rules.SAILOR)
CROSSPIPE, HYPERION = tuned(rules.CROSSPIPE), tuned(rules.HYPERION)
SLA_MORL, SHORTEST, SRPT = tuned(rules.SLA_MORL), tuned(rules.SHORTEST), tuned(rules.SRPT)
CRUX = tuned(*(replace(rules.CRUX, **setting_of("srpt", kind)) for kind in ("stopped", "kept")))
FIRST_FIT = placed("first_fit", "as srpt, in the first domain and the first nodes", "Johnson et al., 1974", FIRST)
BEST_FIT = placed("best_fit", "as srpt, in the fullest domain and the fullest nodes", "Johnson et al., 1974", FULLEST)
FGD = placed(
    "fgd",
    "as srpt, where least becomes useless to the jobs that come (fragmentation gradient)",
    "Weng et al., Beware of Fragmentation, USENIX ATC 2023",
    GRADIENT,
)
GOODPUT, DILOCO = tuned(rules.GOODPUT), rules.DILOCO
RECEDING_HORIZON = tuned(JointHorizon(base=SRPT.stopped), JointHorizon(base=SRPT.kept))
