"""Why, as data: what else was possible, what was turned down, and what would fit where nothing does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hippo.decide.reasons import Reason
from hippo.decide.wording import capital, count, gb, listed, number, percent, seconds


@dataclass(frozen=True)
class RunnerUp(Reason):
    """The best plan of another way to join domains; ``subject`` describes it."""

    kind: ClassVar[str] = "runner_up"
    domains: tuple[str, ...]
    joining: str
    step_time_s: float
    egress_usd_per_step: float
    worse_share: float  # by the objective: (its value - the plan's) / the plan's; rewards: the difference

    def _said(self) -> str:
        egress = f" and {number(self.egress_usd_per_step)} USD egress" if self.egress_usd_per_step > 0 else ""
        side = "worse" if self.worse_share >= 0 else "better"
        figures = f"{seconds(self.step_time_s)}{egress} a step, {percent(abs(self.worse_share))} {side}"
        return f"Runner-up: {self.subject}; {figures}."


@dataclass(frozen=True)
class Switch(Reason):
    """What would have to change for a runner-up to win; ``subject`` is what changes: a link, or all links.

    ``runner_up`` says what one would then do: ``add c``, ``stay in a``, ``leave out b``.
    ``actual`` and ``threshold`` are in ``unit`` (``x``: times today's value). ``verified``: both plans were scored
    from scratch on either side of the threshold, and the winner changed. ``planned_anew``: over the same domains, for
    every change; otherwise both plans stay as they are.
    """

    kind: ClassVar[str] = "switch"
    runner_up: str
    quantity: str  # "bandwidth", "latency" or "price"
    unit: str
    actual: float
    threshold: float
    factor: float  # threshold / actual
    verified: bool
    planned_anew: bool = False

    def _said(self) -> str:
        side = "Above" if self.factor > 1 else "Below"
        if self.unit == "x":
            limit = f"{side} {number(self.threshold)} times today's {self.quantity} on {self.subject}"
        else:
            of = "" if self.quantity == "bandwidth" else f" {self.quantity}"
            limit = f"{side} {number(self.threshold)} {self.unit}{of} on {self.subject} (today {number(self.actual)})"
        doubt = "" if self.verified else " (at the limit the two are too close to tell)"
        return f"{limit} it pays to {self.runner_up}{doubt}."


@dataclass(frozen=True)
class NoSwitch(Reason):
    """No single change that was tried makes it pay to do as the runner-up does (``subject``)."""

    kind: ClassVar[str] = "no_switch"
    tried: tuple[str, ...]
    within: float  # times today's value, up and down

    def _said(self) -> str:
        widest = f"{self.within:g}"
        changes = f"No change of {listed(self.tried, 'or')} between 1/{widest} and {widest} times today's"
        return f"{changes} makes it pay to {self.subject}."


@dataclass(frozen=True)
class IdleDomain(Reason):
    """A domain that the plan leaves idle, and why."""

    kind: ClassVar[str] = "idle_domain"
    gpus: int
    best_link: str | None
    best_link_tokens_per_s: float
    needed_tokens_per_s: float  # what the GPUs in use compute when nothing waits for links
    best_with_it_s: float | None  # step time of the best plan found that uses it
    step_time_s: float

    def _said(self) -> str:
        head = f"Domain {self.subject} ({count(self.gpus, 'GPU')}) stays idle"
        if self.best_link is None:
            return f"{head}: no pair of links joins it to the domains in use."
        carries = f"{self.best_link} carries {number(self.best_link_tokens_per_s)} tokens/s"
        needs = f"the GPUs in use compute {number(self.needed_tokens_per_s)} without it"
        if self.best_with_it_s is None:
            return f"{head}: {carries}, {needs}."
        change = self.best_with_it_s / self.step_time_s - 1
        slower = f"{percent(abs(change))} {'longer' if change >= 0 else 'shorter'}"
        return (
            f"{head}: the best plan with it takes {seconds(self.best_with_it_s)} a step ({slower}); {carries}, {needs}."
        )


@dataclass(frozen=True)
class LocalSgd(Reason):
    """What local SGD would give if it were allowed; it changes the optimizer, so it is told, never chosen unasked."""

    kind: ClassVar[str] = "local_sgd"
    every: int
    step_time_s: float
    faster_share: float
    penalty: str  # as published, with its source

    def _said(self) -> str:
        gain = f"{percent(abs(self.faster_share))} {'less' if self.faster_share >= 0 else 'more'}"
        return (
            f"If local SGD were allowed (--allow-local-sgd): {self.subject}; {seconds(self.step_time_s)} a step "
            f"({gain}). {self.penalty}"
        )


@dataclass(frozen=True)
class Better(Reason):
    """The best plan a planner (``subject``) finds against the plan explained."""

    kind: ClassVar[str] = "better"
    best: str
    best_step_time_s: float
    step_time_s: float
    worse_share: float  # of the plan explained, by the objective; 0 or less: it is as good

    def _said(self) -> str:
        best = f"{seconds(self.best_step_time_s)} a step ({self.best})"
        if self.worse_share <= 0.0005:
            return f"{self.subject} finds nothing better: its best takes {best}."
        worse = f"{percent(self.worse_share)} worse"
        return f"{self.subject} finds a better plan: {best}; this one takes {seconds(self.step_time_s)}, {worse}."


@dataclass(frozen=True)
class Rejected(Reason):
    """Candidates turned down by cause; ``subject`` is the planner."""

    kind: ClassVar[str] = "rejected"
    counts: tuple[tuple[str, int], ...]  # cause, number; the most frequent first

    def _said(self) -> str:
        causes = ", ".join(f"{cause} {times:,}" for cause, times in self.counts)
        return f"Turned down by {self.subject}, by cause: {causes}."


@dataclass(frozen=True)
class Dropped(Reason):
    """A planner's plan (``subject``) that did not pass the check or does not fit: it does not count."""

    kind: ClassVar[str] = "dropped"
    cause: str

    def _said(self) -> str:
        return f"The plan of {self.subject} was dropped: {self.cause}."


@dataclass(frozen=True)
class Note(Reason):
    """What a planner (``subject``) says about its own answer."""

    kind: ClassVar[str] = "note"
    text: str

    def _said(self) -> str:
        return f"{self.subject}: {self.text}"


@dataclass(frozen=True)
class Violated(Reason):
    """A constraint that the plan breaks; ``subject`` says where."""

    kind: ClassVar[str] = "violation"
    message: str

    def _said(self) -> str:
        return f"{capital(self.subject)}: {self.message}."


@dataclass(frozen=True)
class MissingMemory(Reason):
    """Nothing fits, and by how much; ``subject`` is the model."""

    kind: ClassVar[str] = "missing_memory"
    usable_bytes: float  # of one GPU
    needed_bytes: float  # of one GPU: what the fullest needs in a plan that was found
    too_little_bytes: float  # of one GPU: the most with which no plan was found

    def _said(self) -> str:
        missing, no_less = self.needed_bytes - self.usable_bytes, self.too_little_bytes - self.usable_bytes
        least = "" if self.needed_bytes <= _WITHIN * self.too_little_bytes else f", or as little as {gb(no_less)}"
        if least and no_less <= 0:
            least = " at most"
        return (
            f"{self.subject} needs {gb(self.needed_bytes)} on a GPU, {gb(self.usable_bytes)} are usable: "
            f"{gb(missing)} of memory are missing per GPU{least}."
        )


_WITHIN = 1.02  # needed and too little this close: the figure needs no qualification


@dataclass(frozen=True)
class NearestChange(Reason):
    """A change of the problem (``subject``) with which a plan fits, found by planning again and scored."""

    kind: ClassVar[str] = "nearest_change"
    step_time_s: float

    def _said(self) -> str:
        return f"It fits {self.subject}: {seconds(self.step_time_s)} a step."


@dataclass(frozen=True)
class UnusableProfile(Reason):
    """No layout of the measured profile (``subject``: its file or origin) can be used, and why."""

    kind: ClassVar[str] = "unusable_profile"
    micro_batches: tuple[int, ...]  # measured, of the tensor-parallel degrees that could be used
    global_batch: int
    causes: tuple[str, ...]

    def _said(self) -> str:
        of = f" ({self.subject})" if self.subject else ""
        return f"No plan can use the profile{of}: {'; '.join(self.causes)}."


@dataclass(frozen=True)
class NothingFound(Reason):
    """Neither a plan nor a change with which one fits; ``subject`` is the planner that was asked."""

    kind: ClassVar[str] = "nothing_found"
    tried: tuple[str, ...]  # kinds of changes, all to their end; none where time ran out

    def _said(self) -> str:
        if not self.tried:
            return f"{self.subject} finds no plan, nor a change with which one fits before time runs out."
        return f"{self.subject} finds no plan, and none with {listed(self.tried, 'or')}."
