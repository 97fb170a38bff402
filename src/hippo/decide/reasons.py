"""Why: reasons as data. Each is a frozen value with its figures (units in their names) that can say itself in a sentence.

``kind`` names the sort of reason, ``subject`` what it is about, every other field is a figure. ``document()`` is what
``--json`` prints; docs/reasons.md lists the kinds and defines every figure.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import isfinite
from typing import ClassVar

from hippo.decide.wording import count, gb, gbps, number, percent, seconds


@dataclass(frozen=True)
class Reason:
    """One reason. Subclasses add their figures and say them in ``sentence``."""

    kind: ClassVar[str] = ""
    subject: str

    @property
    def figures(self) -> dict[str, object]:
        """Figure name (unit in the name) to value; numbers that are not finite become None."""
        names = [item.name for item in fields(self) if item.name != "subject"]
        return {name: _plain(getattr(self, name)) for name in names}

    def sentence(self) -> str:
        """The reason in one sentence or two."""
        raise NotImplementedError

    def document(self) -> dict[str, object]:
        """The reason for JSON: kind, subject, figures, sentence."""
        return {"kind": self.kind, "subject": self.subject, "figures": self.figures, "sentence": self.sentence()}


def _plain(value: object) -> object:
    if isinstance(value, float) and not isfinite(value):
        return None
    return list(value) if isinstance(value, tuple) else value


@dataclass(frozen=True)
class Binding(Reason):
    """The constraint that binds: ``subject`` is compute, bandwidth, latency, bubble, synchronisation or memory.

    The shares add up to the step (waterfall): what the busiest rank computes, what waiting for links' bandwidth and
    latency adds, what fill, drain and imbalance of the pipeline add, and what agreeing and the optimizer add.
    """

    kind: ClassVar[str] = "binding_constraint"
    compute_share: float
    bubble_share: float
    bandwidth_share: float
    latency_share: float
    synchronisation_share: float
    tightest_headroom_share: float  # free memory of the fullest stage / usable memory

    def sentence(self) -> str:
        waterfall = (
            f"of a step the busiest stage computes {percent(self.compute_share)}, fill, drain and imbalance take "
            f"{percent(self.bubble_share)}, waiting for bandwidth between domains {percent(self.bandwidth_share)}, for "
            f"latency {percent(self.latency_share)}, agreeing on gradients and the optimizer {percent(self.synchronisation_share)}"
        )
        return f"{_BINDING[self.subject]}: {waterfall}."


_BINDING = {
    "compute": "Compute binds",
    "bubble": "The pipeline's bubble binds (more micro-batches or fewer stages would help)",
    "bandwidth": "Bandwidth between domains binds",
    "latency": "Latency between domains binds",
    "synchronisation": "Agreeing on gradients binds",
    "memory": "Memory binds",
}


@dataclass(frozen=True)
class Bottleneck(Reason):
    """The stage or link that sets the pace: ``share`` = d ln(step time) / d ln(its duration), measured by playing."""

    kind: ClassVar[str] = "bottleneck"
    share: float
    busy_share: float  # of the step, from the timeline

    def sentence(self) -> str:
        return (
            f"The bottleneck is {self.subject}: it is busy {percent(self.busy_share)} of the step, and 10 % off its time "
            f"would take {percent(self.share * 0.1)} off the step."
        )


@dataclass(frozen=True)
class LinkThreshold(Reason):
    """A link whose bandwidth or latency has crossed the value at which it starts to cost time (spec A13)."""

    kind: ClassVar[str] = "link_threshold"
    quantity: str  # "bandwidth" or "latency"
    actual: float  # bytes/s or s
    threshold: float  # where the step is within 1 % of what it is with this link at its best
    lost_share: float  # of the step, against this link at its best

    def sentence(self) -> str:
        crossed = self.lost_share > 0.01
        if self.quantity == "bandwidth":
            actual, threshold, side = gbps(self.actual), gbps(self.threshold), "below" if crossed else "above"
        else:
            actual, threshold, side = seconds(self.actual), seconds(self.threshold), "above" if crossed else "below"
        effect = f"so {percent(self.lost_share)} of the step is waiting for it" if crossed else "so it costs nothing that matters"
        return f"{self.quantity.capitalize()} of {self.subject} is {actual}, {side} the {threshold} this plan needs, {effect}."


@dataclass(frozen=True)
class Capacity(Reason):
    """Tokens per second a link carries (B / bytes per token) against what GPUs compute."""

    kind: ClassVar[str] = "capacity"
    bandwidth_bytes_per_s: float
    link_tokens_per_s: float  # one direction; gradients take the other
    used_tokens_per_s: float  # what the GPUs of the plan compute when nothing waits
    all_tokens_per_s: float  # what all GPUs of the cluster would compute at the same efficiency
    in_use: bool

    def sentence(self) -> str:
        carried = f"{self.subject.capitalize()} carries {number(self.link_tokens_per_s)} tokens/s at {gbps(self.bandwidth_bytes_per_s)}"
        if self.in_use:
            enough = self.link_tokens_per_s >= self.used_tokens_per_s
            verdict = "enough" if enough else "too little, so the GPUs wait"
            return f"{carried}; the GPUs of the plan compute {number(self.used_tokens_per_s)}: {verdict}."
        if self.link_tokens_per_s < self.used_tokens_per_s:
            more = "a pipeline across it would run slower than the plan does without it: more domains only wait"
            return f"{carried}, less than the {number(self.used_tokens_per_s)} the plan's GPUs compute already: {more}."
        pays = "a pipeline across it can pay"
        return f"{carried}; the plan's GPUs compute {number(self.used_tokens_per_s)}, all GPUs {number(self.all_tokens_per_s)}: {pays}."


@dataclass(frozen=True)
class RunnerUp(Reason):
    """The best plan of another way to join domains; ``subject`` describes it."""

    kind: ClassVar[str] = "runner_up"
    domains: tuple[str, ...]
    joining: str
    step_time_s: float
    egress_usd_per_step: float
    worse_share: float  # (its objective - the chosen plan's) / the chosen plan's, where lower is better

    def sentence(self) -> str:
        return (
            f"Runner-up: {self.subject}; {seconds(self.step_time_s)} a step, "
            f"{number(self.egress_usd_per_step)} USD egress, {percent(self.worse_share)} worse by the objective."
        )


@dataclass(frozen=True)
class Switch(Reason):
    """What would have to change for a runner-up to win; ``subject`` is what changes (a link, all links, latency, price).

    ``actual`` and ``threshold`` are in ``unit``. ``verified`` says that both plans were scored again from scratch on
    either side of the threshold and the winner changed. The runner-up is kept as it is: planned anew it may win earlier.
    """

    kind: ClassVar[str] = "switch"
    runner_up: str
    joining: str
    quantity: str  # "bandwidth", "latency", "price"
    unit: str
    actual: float
    threshold: float
    factor: float  # threshold / actual
    verified: bool

    def sentence(self) -> str:
        direction = "Above" if self.threshold > self.actual else "Below"
        if self.unit == "x":
            limit = f"{direction.lower()} {number(self.threshold)} times today's {self.quantity} on {self.subject}"
        else:
            limit = f"{direction.lower()} {number(self.threshold)} {self.unit} on {self.subject}"
            limit += f" (now {number(self.actual)})"
        limit = limit[0].upper() + limit[1:]
        proof = "" if self.verified else " (not confirmed when scored from scratch)"
        return f"{limit}, {self.runner_up} pays off{proof}."


@dataclass(frozen=True)
class NoSwitch(Reason):
    """No single change that was tried lets the runner-up win."""

    kind: ClassVar[str] = "no_switch"
    tried: tuple[str, ...]

    def sentence(self) -> str:
        return f"{self.subject[0].upper()}{self.subject[1:]} does not win by any one change tried ({'; '.join(self.tried)})."


@dataclass(frozen=True)
class Sensitivity(Reason):
    """Change of the step time when one link's bandwidth moves by +-30 %."""

    kind: ClassVar[str] = "sensitivity"
    swing: float
    slower_share: float  # at bandwidth * (1 - swing)
    faster_share: float  # at bandwidth * (1 + swing)

    def sentence(self) -> str:
        if max(abs(self.slower_share), abs(self.faster_share)) < 0.0005:
            return f"{self.subject.capitalize()} may move by +-{percent(self.swing)} without moving the step time."
        return (
            f"With {percent(self.swing)} less bandwidth on {self.subject} the step takes {percent(self.slower_share)} longer, "
            f"with {percent(self.swing)} more {percent(self.faster_share)} less."
        )


@dataclass(frozen=True)
class RewardParts(Reason):
    """R = w1 R_eff + w2 R_util - w3 R_cost against the baseline plan, which ``subject`` names."""

    kind: ClassVar[str] = "reward"
    r_eff: float
    r_util: float
    r_cost: float
    w_eff: float
    w_util: float
    w_cost: float
    reward: float
    baseline_step_time_s: float
    baseline_egress_usd_per_step: float

    def sentence(self) -> str:
        faster = f"{percent(self.r_eff)} faster" if self.r_eff >= 0 else f"{percent(-self.r_eff)} slower"
        egress = f"{number(self.r_cost)} of its egress bill" if self.baseline_egress_usd_per_step > 0 else "no egress bill to compare"
        terms = f"{number(self.w_eff)} x {self.r_eff:.3f} + {number(self.w_util)} x {self.r_util:.3f} - {number(self.w_cost)} x {self.r_cost:.3f}"
        return (
            f"Against {self.subject} ({seconds(self.baseline_step_time_s)} a step) the plan is {faster}, keeps its domains busy "
            f"{percent(self.r_util)} of the time and pays {egress}: R = {terms} = {self.reward:.3f}."
        )


@dataclass(frozen=True)
class IdleDomain(Reason):
    """A domain the plan leaves idle, and why."""

    kind: ClassVar[str] = "idle_domain"
    gpus: int
    best_link: str | None
    best_link_tokens_per_s: float
    needed_tokens_per_s: float  # what the used GPUs compute already
    best_plan_with_it_step_time_s: float | None
    step_time_s: float

    def sentence(self) -> str:
        text = f"{self.subject} ({count(self.gpus, 'GPU')}) stays idle: "
        if self.best_link is None:
            return text + "no link joins it to the domains in use."
        if self.best_plan_with_it_step_time_s is not None:
            slower = self.best_plan_with_it_step_time_s / self.step_time_s - 1
            text += f"the best plan that uses it takes {seconds(self.best_plan_with_it_step_time_s)} a step ({percent(slower)} more); "
        carries = f"its best link, {self.best_link}, carries {number(self.best_link_tokens_per_s)} tokens/s"
        if self.best_link_tokens_per_s < self.needed_tokens_per_s:
            return f"{text}{carries}, and the domains in use compute {number(self.needed_tokens_per_s)} without it."
        return f"{text}{carries}; the domains in use compute {number(self.needed_tokens_per_s)} without it."


@dataclass(frozen=True)
class MemoryHeadroom(Reason):
    """Memory of every stage in pipeline order against what a plan may use of a GPU."""

    kind: ClassVar[str] = "memory"
    peak_bytes: tuple[float, ...]  # per stage
    usable_bytes: float
    fullest_stage: int

    def sentence(self) -> str:
        fullest, least = max(self.peak_bytes), min(self.peak_bytes)
        free = self.usable_bytes - fullest
        spread = "" if len(self.peak_bytes) == 1 else f" (the emptiest {gb(least)})"
        return (
            f"The fullest GPU, {self.subject}, needs {gb(fullest)} of {gb(self.usable_bytes)} usable{spread}: "
            f"{gb(free)} free." if free >= 0 else f"{self.subject} needs {gb(fullest)} of {gb(self.usable_bytes)} usable: {gb(-free)} too much."
        )


@dataclass(frozen=True)
class Rejected(Reason):
    """Candidates turned down, by cause."""

    kind: ClassVar[str] = "rejected"
    counts: tuple[tuple[str, int], ...]  # cause, number; most frequent first

    def sentence(self) -> str:
        return f"Turned down by {self.subject}: " + ", ".join(f"{number_of:,} {cause}" for cause, number_of in self.counts) + "."


@dataclass(frozen=True)
class Gap(Reason):
    """How far from the optimum the plan can be, and what that rests on."""

    kind: ClassVar[str] = "gap"
    gap: float | None
    lower_bound_s: float | None
    notes: tuple[str, ...]

    def sentence(self) -> str:
        tail = f" ({'; '.join(self.notes)})" if self.notes else ""
        if self.gap is None:
            return f"{self.subject} proves nothing about the optimum{tail}."
        if self.gap <= 0:
            return f"{self.subject} searched all of its plans: no better one exists in its cost model{tail}."
        bound = f", whose step time is at least {seconds(self.lower_bound_s)}" if self.lower_bound_s else ""
        return f"{self.subject} proves the plan within {percent(self.gap)} of the optimum{bound}{tail}."


@dataclass(frozen=True)
class LocalSgd(Reason):
    """What local SGD would give if it were allowed (it changes the optimizer, so it is only told, not chosen)."""

    kind: ClassVar[str] = "local_sgd"
    every: int
    step_time_s: float
    faster_share: float
    penalty: str  # published, with source

    def sentence(self) -> str:
        gain = f"{percent(self.faster_share)} less" if self.faster_share > 0 else f"{percent(-self.faster_share)} more"
        return (
            f"If local SGD were allowed, {self.subject}, averaging every {self.every} steps, would take "
            f"{seconds(self.step_time_s)} a step ({gain}). {self.penalty}"
        )


@dataclass(frozen=True)
class MissingMemory(Reason):
    """Nothing fits: by how much."""

    kind: ClassVar[str] = "missing_memory"
    usable_bytes: float
    needed_bytes: float  # per GPU, of the smallest layout found or bounded
    exact: bool  # True: a plan was found at ``needed_bytes``; False: a lower bound

    def sentence(self) -> str:
        least = "" if self.exact else "at least "
        return (
            f"{self.subject} needs {least}{gb(self.needed_bytes)} per GPU; {gb(self.usable_bytes)} are usable: "
            f"{gb(self.needed_bytes - self.usable_bytes)} missing on every GPU."
        )


@dataclass(frozen=True)
class NearestChange(Reason):
    """A change of the problem that makes it feasible, found by planning again with it; ``subject`` says the change."""

    kind: ClassVar[str] = "nearest_change"
    step_time_s: float

    def sentence(self) -> str:
        return f"It fits {self.subject}: {seconds(self.step_time_s)} a step, planned and scored."


@dataclass(frozen=True)
class Violated(Reason):
    """A constraint that the plan breaks; ``subject`` is where."""

    kind: ClassVar[str] = "violation"
    message: str

    def sentence(self) -> str:
        return f"{self.subject}: {self.message}"


@dataclass(frozen=True)
class Dropped(Reason):
    """A planner's plan that did not pass the check or could not be scored; ``subject`` is the planner."""

    kind: ClassVar[str] = "dropped"
    cause: str

    def sentence(self) -> str:
        return f"The plan of {self.subject} was dropped: {self.cause}."


@dataclass(frozen=True)
class Note(Reason):
    """What a planner says about itself; ``subject`` is the planner."""

    kind: ClassVar[str] = "note"
    text: str

    def sentence(self) -> str:
        return f"{self.subject}: {self.text}"


@dataclass(frozen=True)
class Better(Reason):
    """The planner's best plan against the plan explained; ``subject`` is the planner."""

    kind: ClassVar[str] = "better"
    best: str
    best_step_time_s: float
    step_time_s: float
    worse_share: float  # by the objective; 0 or less: the plan explained is as good

    def sentence(self) -> str:
        if self.worse_share <= 0.0005:
            return f"{self.subject} finds nothing better: its best takes {seconds(self.best_step_time_s)} a step ({self.best})."
        return (
            f"{self.subject} finds a plan of {seconds(self.best_step_time_s)} a step against {seconds(self.step_time_s)} "
            f"({percent(self.worse_share)} worse by the objective): {self.best}."
        )

