"""Why, as data: what holds a plan back. A reason has figures (units in their names) and can say itself in a sentence.

``kind`` names the sort of reason, ``subject`` what it is about, every other field is a figure. ``document()`` is what
``--json`` prints. docs/planning.md lists the kinds and defines every figure.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from math import isfinite
from typing import ClassVar

from hippo.decide.wording import capital, count, duration, gb, gbps, listed, number, percent, seconds, usd
from hippo.planners.base import SLOWER


@dataclass(frozen=True)
class Reason(ABC):
    """One reason. Subclasses add their figures and say them in ``_said``."""

    kind: ClassVar[str] = ""
    subject: str

    @property
    def figures(self) -> dict[str, object]:
        """Figure name (unit in the name) to value; numbers that are not finite become None."""
        names = [item.name for item in fields(self) if item.name != "subject"]
        return {name: _plain(getattr(self, name)) for name in names}

    def sentence(self) -> str:
        """The reason in one sentence or two."""
        return self._said()

    def document(self) -> dict[str, object]:
        """The reason for JSON: kind, subject, figures, sentence."""
        return {"kind": self.kind, "subject": self.subject, "figures": self.figures, "sentence": self.sentence()}

    @abstractmethod
    def _said(self) -> str:
        """The sentence, from the figures."""


def _plain(value: object) -> object:
    if isinstance(value, float) and not isfinite(value):
        return None
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


@dataclass(frozen=True)
class Binding(Reason):
    """The constraint that binds: ``subject`` is compute, bubble, bandwidth, latency or synchronisation.

    The first shares add up to the step (a waterfall): what the busiest rank computes, what waiting for the bandwidth
    and the latency of links adds, what fill, drain and imbalance of the pipeline add, what agreeing and the optimizer
    add. The gains say what 10 % better GPUs, or links, would take off the step: the largest binds, unless both are
    matched.
    """

    kind: ClassVar[str] = "binding_constraint"
    compute_share: float
    bubble_share: float
    bandwidth_share: float
    latency_share: float
    synchronisation_share: float
    free_memory_share: float  # of the usable memory, on the fullest GPU
    compute_gain_share: float  # of the step, when everything is computed in 10 % less time
    bandwidth_gain_share: float  # when every link sends in 10 % less time
    latency_gain_share: float  # when every link has 10 % less latency

    def _said(self) -> str:
        losses = (
            (self.bubble_share, "fill, drain and imbalance"),
            (self.bandwidth_share, "waiting for bandwidth between domains"),
            (self.latency_share, "waiting for latency between domains"),
            (self.synchronisation_share, "agreeing on gradients and the optimizer"),
        )
        told = [(percent(share), words) for share, words in losses if share >= 0.0005]
        lost = listed(
            [f"{share} {'goes ' if not index else ''}to {words}" for index, (share, words) in enumerate(told)]
        )
        shares = f"the busiest stage computes {percent(self.compute_share)} of the step{lost and f'; {lost}'}"
        memory = f"{percent(self.free_memory_share)} of the fullest GPU's memory is free"
        close = ", the GPUs close behind" if self.of_links and self.compute_share > HARDLY_WAITS else ""
        binds = f"{_BINDING[self.subject]} binds{close}"
        if self.matched:
            binds = "GPUs and links are matched, neither binds alone"
        return f"{binds}: {self._gains()}. {capital(shares)}; {memory}."

    @property
    def of_links(self) -> bool:
        """Whether links help most."""
        return self.subject in ("bandwidth", "latency")

    @property
    def matched(self) -> bool:
        """Whether nothing binds alone: better GPUs take about as much off the step as better links."""
        links = max(self.bandwidth_gain_share, self.latency_gain_share)
        return self.subject != "synchronisation" and abs(self.compute_gain_share - links) < MATCHED

    def _gains(self) -> str:
        """What 10 % more of what binds gives, against 10 % more of the rest."""
        gains = {
            "bandwidth": (self.bandwidth_gain_share, "quicker links"),
            "latency": (self.latency_gain_share, "less latency"),
            "compute": (self.compute_gain_share, "quicker GPUs"),
        }
        share, words = gains.pop(self.subject if self.subject in gains else "compute")
        others = [f"{other} {percent(less)}" for less, other in gains.values() if less >= 0.0005]
        rest = listed(others) if others else "anything else nothing"
        return f"10 % {words} would take {percent(share)} off the step, {rest}"


MATCHED = 0.02
"""Nothing binds alone where what 10 % quicker GPUs take off the step and what 10 % better links do differ by less than
this share of it."""

HARDLY_WAITS = 0.9
"""Where the busiest stage computes more than this share of the step, GPUs would bind next after links."""

_BINDING = {
    "compute": "Compute",
    "bubble": "The pipeline's bubble",
    "bandwidth": "Bandwidth between domains",
    "latency": "Latency between domains",
    "synchronisation": "Agreeing on gradients",
}


@dataclass(frozen=True)
class Bottleneck(Reason):
    """The stage or link that sets the pace: slowing it by 10 % lengthens the step most (measured by playing)."""

    kind: ClassVar[str] = "bottleneck"
    slower_share: float  # how much longer the step gets when it takes 10 % longer
    faster_share: float  # how much shorter when it takes 10 % less
    busy_share: float  # of the step, from the timeline
    alone: bool = True  # False: nothing binds alone, this is what tells most

    def _said(self) -> str:
        head = f"{'The bottleneck is' if self.alone else 'What tells most is'} {self.subject}"
        return (
            f"{head}, busy {percent(self.busy_share)} of the step: 10 % slower, the step "
            f"would take {percent(self.slower_share)} longer; 10 % faster, {percent(self.faster_share)} less."
        )


@dataclass(frozen=True)
class LinkThreshold(Reason):
    """A link's bandwidth or latency against the value at which it starts to cost time."""

    kind: ClassVar[str] = "link_threshold"
    quantity: str  # "bandwidth" or "latency"
    actual: float  # bytes/s or s
    threshold: float  # where the step is longer than with this link at its best by ``allowed_share``
    allowed_share: float
    lost_share: float  # of the step, against this link at its best
    crossed: bool

    def _said(self) -> str:
        tell = gbps if self.quantity == "bandwidth" else seconds
        head = f"{self.quantity.capitalize()} of {self.subject} is {tell(self.actual)}"
        much, limit = percent(self.allowed_share), tell(self.threshold)
        if not self.crossed:
            side = "below" if self.quantity == "bandwidth" else "above"
            return f"{head}; only {side} {limit} would it cost more than {much}."
        side = f"from {limit} on" if self.quantity == "bandwidth" else f"up to {limit}"
        lost = percent(self.lost_share)
        return f"{head}, and {lost} of the step is waiting for it; {side} it would cost no more than {much}."


@dataclass(frozen=True)
class Capacity(Reason):
    """Tokens per second a link carries (B / bytes per token) against what GPUs compute."""

    kind: ClassVar[str] = "capacity"
    bandwidth_bytes_per_s: float
    link_tokens_per_s: float  # one direction; gradients take the other
    used_tokens_per_s: float  # what the GPUs of the plan compute when nothing waits for links
    all_tokens_per_s: float  # what all GPUs of the cluster would compute at the same efficiency
    in_use: bool
    lost_share: float = 0.0  # of the step, against the bandwidth of this link, both ways, at its best

    def _said(self) -> str:
        link, used = number(self.link_tokens_per_s), number(self.used_tokens_per_s)
        head = f"{capital(self.subject)} carries {link} tokens/s at {gbps(self.bandwidth_bytes_per_s)}"
        less = self.link_tokens_per_s < self.used_tokens_per_s
        if self.in_use:
            close = abs(self.link_tokens_per_s / self.used_tokens_per_s - 1) < 0.02
            verdict = "the two match" if close else "the GPUs wait for it" if less else "it keeps up"
            if not less and self.lost_share >= MATCHED:  # bytes of a whole step, of which some come all at once
                late = f"{percent(self.lost_share)} of the step waits for what crosses late or all at once"
                verdict = f"over the whole step it would keep up, but {late}"
            return f"{head}; the GPUs of the plan compute {used}: {verdict}."
        if less:
            return f"{head}, less than the {used} that the plan's GPUs compute without it: more domains only wait."
        times = number(self.link_tokens_per_s / self.used_tokens_per_s)
        return f"{head}, {times} times what the GPUs of the plan compute ({used})."


@dataclass(frozen=True)
class Sensitivity(Reason):
    """Change of the step time when the bandwidth of one link moves by ``swing`` either way, link after link."""

    kind: ClassVar[str] = "sensitivity"
    swing: float
    links: tuple[str, ...]  # every link used (the heaviest six), the most telling first
    slower_share: tuple[float, ...]  # how much longer the step gets at bandwidth * (1 - swing)
    faster_share: tuple[float, ...]  # how much shorter at bandwidth * (1 + swing)

    def _said(self) -> str:
        swing = percent(self.swing)
        told = [index for index, slower in enumerate(self.slower_share) if abs(slower) >= 0.0005][:3]
        if not told:
            return f"Every link may lose {swing} of its bandwidth without moving the step time."
        others = ", ".join(f"on {self.links[index]} {percent(self.slower_share[index])}" for index in told[1:])
        return (
            f"With {swing} less bandwidth on {self.links[0]} the step takes {percent(self.slower_share[0])} longer"
            f"{f' ({others})' if others else ''}; with {swing} more, {percent(self.faster_share[0])} less."
        )


@dataclass(frozen=True)
class ExpertsInside(Reason):
    """What it would take to spread experts over domains; ``subject`` is the link that would be busy longest."""

    kind: ClassVar[str] = "experts_inside"
    domains: tuple[str, ...]
    expert_parallel: int  # of the plan
    crossing_bytes: float  # of tokens and results in a step, over all links
    link_bytes: float  # of them on that link
    link_s: float  # that it would send in a step, what the plan sends there included
    inside_s: float  # exposed seconds of the plan's own exchange in a step
    step_time_s: float

    def _said(self) -> str:
        where = listed(self.domains)
        head = f"With experts spread over {where} tokens and results would be {gb(self.crossing_bytes)} a step"
        alone = f"{self.subject} alone would send {gb(self.link_bytes)}"
        own = (
            f"spread over {self.expert_parallel} ranks inside a domain they exchange for {seconds(self.inside_s)} of it"
        )
        if self.expert_parallel == 1:
            own = "kept together they exchange nothing"
        if self.link_s <= self.step_time_s:
            room = f"{seconds(self.link_s)} in a step of {seconds(self.step_time_s)}: links would carry it"
            return f"{head}, {alone}, {room}, but groups over domains are not searched; {own}."
        times = f"{number(self.link_s / self.step_time_s)} times the {seconds(self.step_time_s)} of the step"
        return f"{head}: {alone} and take at least {seconds(self.link_s)}, {times}; {own}."


@dataclass(frozen=True)
class MemoryHeadroom(Reason):
    """Memory of the fullest GPU of every stage, in pipeline order, against what a plan may use; ``subject``: where."""

    kind: ClassVar[str] = "memory"
    peak_bytes: tuple[float, ...]  # per stage
    usable_bytes: float
    reserved_bytes: float = 0.0  # of the peak: CUDA context, communicators, what the allocator cannot use
    inside_bytes: float | None = None  # of the fullest GPU if nothing were sharded beyond its stage; None: nothing is

    def _said(self) -> str:
        fullest, least = max(self.peak_bytes), min(self.peak_bytes)
        free = self.usable_bytes - fullest
        head = f"The fullest GPU, in {self.subject}, needs {gb(fullest)} of {gb(self.usable_bytes)} usable"
        if self.reserved_bytes > 0:
            head += f" (of it {gb(self.reserved_bytes)} in reserve, for the context and what the allocator cannot use)"
        shared = ""
        if self.inside_bytes is not None:
            over = self.inside_bytes > self.usable_bytes >= fullest
            tail = ", which does not fit" if over else ""
            shared = f" Were its state not shared out over all replicas it would need {gb(self.inside_bytes)}{tail}."
        if free < 0:
            return f"{head}: {gb(-free)} too much.{shared}"
        spread = "" if len(self.peak_bytes) == 1 else f"; the emptiest stage needs {gb(least)}"
        return f"{head}: {gb(free)} free{spread}.{shared}"


@dataclass(frozen=True)
class Gap(Reason):
    """How far from the optimum the plan can be, and what that rests on; ``subject`` is the planner."""

    kind: ClassVar[str] = "gap"
    gap: float | None
    lower_bound_s: float | None
    notes: tuple[str, ...]

    def _said(self) -> str:
        if self.gap is None:
            proof = f"Gap unknown: {self.subject} proves nothing about the optimum."
        elif self.gap <= 0:
            proof = f"Gap 0: {self.subject} searched to the end; no plan that it knows is better."
        else:
            head = "Gap below 0.05 %" if self.gap < 0.0005 else f"Gap at most {percent(self.gap)}"
            bound = "is better by more" if self.lower_bound_s is None else f"takes less than {self._bound()} a step"
            proof = f"{head}: no plan that {self.subject} knows {bound}."
        return " ".join((proof, *self.notes))

    def _bound(self) -> str:
        """The bound in digits enough to differ from the step time that the gap belongs to."""
        return seconds(self.lower_bound_s or 0.0, digits=3 if (self.gap or 0.0) >= 0.01 else 5)


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
    baseline_usd_per_step: float
    ahead_s: float | None = None  # steps are the mean over so long, as forecast; None: they are as printed

    def _said(self) -> str:
        over = "" if self.ahead_s is None else f", as forecast over the next {duration(self.ahead_s)}"
        faster = f"takes {percent(abs(self.r_eff))} {'less' if self.r_eff >= 0 else 'more'} time"
        egress = f"pays {number(self.r_cost)} times its egress" if self.r_cost else "pays no egress"
        if self.r_cost and self.baseline_egress_usd_per_step <= 0:
            whole = f"what a whole step of {self.subject} costs, which pays no egress"
            egress = f"pays for egress {number(self.r_cost)} times {whole}"
            if self.baseline_usd_per_step <= 0:
                egress = "pays for egress alone, where that one costs nothing"
        pairs = ((self.w_eff, self.r_eff), (self.w_util, self.r_util), (self.w_cost, self.r_cost))
        eff, util, cost = (f"{number(weight)} x {part:.3f}" for weight, part in pairs)
        return (
            f"Against {self.subject} ({seconds(self.baseline_step_time_s)} a step{over}) the plan {faster} (R_eff), "
            f"keeps its domains busy {percent(self.r_util)} of it (R_util) and {egress} (R_cost): "
            f"R = {eff} + {util} - {cost} = {self.reward:.3f}."
        )


AS_LONG = 5e-4  # share of a step below which another is as long in what is printed
NO_OPTION = "no option asks for it"
NOT_SEARCHED = "; found, not searched to the end"
"""Of what was not looked for with the effort of the answer."""


@dataclass(frozen=True)
class RunnerUp(Reason):
    """The best plan of another way to join domains; ``subject`` describes it."""

    kind: ClassVar[str] = "runner_up"
    domains: tuple[str, ...]
    joining: str
    step_time_s: float
    usd_per_step: float
    egress_usd_per_step: float  # of that
    worse_share: float  # by the objective: (its value - the plan's) / the plan's; rewards: the difference
    searched: bool = False  # with the effort of the answer; else found on the way
    beats_answer: bool = False  # by more than counts as equal: found only after the answer was chosen
    without: tuple[str, ...] = ()  # domains that it does not use, not even as relays

    def _said(self) -> str:
        egress = f" ({usd(self.egress_usd_per_step)} egress)" if self.egress_usd_per_step > 0 else ""
        price = f" and {usd(self.usd_per_step)}" if self.usd_per_step > 0 else ""
        side = "worse" if self.worse_share >= 0 else "better"
        figures = f"{seconds(self.step_time_s)}{price} a step{egress}, {percent(abs(self.worse_share))} {side}"
        if self.beats_answer:
            way = f"to get it, leave {listed(self.without)} out of the cluster file" if self.without else NO_OPTION
            return f"Better than the answer: {self.subject}; {figures}. Found after the answer was chosen; {way}."
        return f"Runner-up: {self.subject}; {figures}{'' if self.searched else NOT_SEARCHED}."


@dataclass(frozen=True)
class Switch(Reason):
    """What would have to change for a runner-up to win; ``subject`` is what changes: a link, or all links.

    ``runner_up`` says what one would then do: ``add c``, ``stay in a``, ``leave out b``.
    ``actual``, ``threshold``, ``low`` and ``high`` are in ``unit`` (``x``: times today's value); ``low`` is nearer to
    today. ``planned_anew``: whole plans were made for the changed problem, the one at ``low`` does not do as the
    runner-up, the one at ``high`` does; otherwise both plans stay as they are. ``verified``: the ends are as close as
    asked, or both plans were scored from scratch on either side of the threshold, and the winner changed.
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
    low: float = 0.0
    high: float = 0.0

    def _said(self) -> str:
        if self.planned_anew:
            return self._between()
        side = "Above" if self.factor > 1 else "Below"
        if self.unit == "x":
            limit = f"{side} {number(self.threshold)} times today's {self.quantity} on {self.subject}"
        else:
            of = "" if self.quantity == "bandwidth" else f" {self.quantity}"
            limit = f"{side} {number(self.threshold)} {self.unit}{of} on {self.subject} (today {number(self.actual)})"
        doubt = "" if self.verified else " (at the limit the two are too close to tell)"
        return f"{limit} it pays to {self.runner_up}{doubt}, both plans kept as they are."

    def _between(self) -> str:
        ends = f"between {number(self.low)} and {number(self.high)}"
        if self.unit == "x":
            limits = f"{ends} times today's {self.quantity} on {self.subject}"
        else:
            limits = f"{ends} {self.unit} on {self.subject} (today {number(self.actual)})"
        if self.verified:
            return f"{capital(limits)} it starts to pay to {self.runner_up}."
        return f"Somewhere {limits} it starts to pay to {self.runner_up}; not searched to the end."


@dataclass(frozen=True)
class NoSwitch(Reason):
    """No single change that was tried makes it pay to do as the runner-up does (``subject``)."""

    kind: ClassVar[str] = "no_switch"
    tried: tuple[str, ...]
    within: float  # times today's value, up and down
    on: str = ""  # the link that changes; empty: all
    planned_at: tuple[
        float, ...
    ] = ()  # times today's value: whole plans were made there; empty: plans stay as they are
    searched: bool = True

    def _said(self) -> str:
        widest, what = f"{self.within:g}", f"{listed(self.tried, 'or')}{self.on and f' on {self.on}'}"
        if not self.planned_at:
            change = f"between 1/{widest} and {widest} times today's"
            return f"No change of {what} {change} makes it pay to {self.subject}, both plans kept as they are."
        low, high = min(self.planned_at), max(self.planned_at)
        limits = f"between {_times(low)} and {_times(high)} times today's"
        if low > 1 or high < 1:
            limits = f"up to {_times(high)} times today's" if low > 1 else f"down to {_times(low)} of today's"
        few = listed([_times(each) for each in self.planned_at])
        planned = (
            f"planned anew at {few} times" if len(self.planned_at) < 6 else f"planned {len(self.planned_at)} times"
        )
        end = "" if self.searched else "; not searched to the end"
        return f"No change of {what} {limits} makes it pay to {self.subject} ({planned}){end}."


def _times(factor: float) -> str:
    """``16``, ``1/4``, ``2.05``."""
    return f"{factor:.3g}" if factor >= 1 else f"1/{1 / factor:.3g}"


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
    searched: bool = False  # with the effort of the answer, over every set of domains that could hold a better one
    alone: bool = False  # that plan lies in this domain alone

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
        if abs(change) < AS_LONG:
            slower = "as long"
        which = "in it alone" if self.alone else "each domain once in a pipeline"
        best = f"the best plan with it ({which}) takes {seconds(self.best_with_it_s)} a step ({slower})"
        if not self.searched:
            some = "a plan in it alone" if self.alone else "a plan with it"
            best = f"{some} takes {seconds(self.best_with_it_s)} a step ({slower}{NOT_SEARCHED})"
        return f"{head}: {best}; {carries}, {needs}."


@dataclass(frozen=True)
class Degree(Reason):
    """Why this degree of context, expert or expert-tensor parallelism: what the best plans with others give."""

    kind: ClassVar[str] = "degree"
    degree: int
    slower: tuple[tuple[int, float | None], ...]  # another degree, and the share by which its best plan is worse by the
    # objective; None: by more than ``FAR``, or nothing fits

    def _said(self) -> str:
        told = []
        for degree, share in self.slower:
            name = "without it" if degree == 1 and self.degree > 1 else f"with {degree}"
            told.append(f"{name} {f'nothing within {percent(FAR)}' if share is None else f'{percent(share)} worse'}")
        return f"{capital(self.subject)} {self.degree} in all stages: {listed(told)}."


FAR = SLOWER - 1.0
"""Share up to which plans of other degrees are looked for."""


@dataclass(frozen=True)
class LocalSgd(Reason):
    """What local SGD would give if it were allowed; it changes the optimizer, so it is told, never chosen unasked."""

    kind: ClassVar[str] = "local_sgd"
    every: int
    step_time_s: float
    faster_share: float
    penalty: str  # as published, with its source
    searched: bool = False  # with the effort of the answer

    def _said(self) -> str:
        gain = f"{percent(abs(self.faster_share))} {'less' if self.faster_share >= 0 else 'more'}"
        return (
            f"If local SGD were allowed (--allow-local-sgd): {self.subject}; {seconds(self.step_time_s)} a step "
            f"({gain}{'' if self.searched else NOT_SEARCHED}). {self.penalty}"
        )


@dataclass(frozen=True)
class LeftOut(Reason):
    """What was left out when the work that reasons may take was spent; ``subject``: the reasons."""

    kind: ClassVar[str] = "left_out"
    limit_s: float  # seconds of work (``planners.effort``)
    sets_of_domains: int  # that were not searched, or not to the end
    links: tuple[str, ...]  # for other bandwidths of which no, or fewer, whole plans were made
    local_sgd: bool  # whether its search was cut short

    def _said(self) -> str:
        sets = [f"{count(self.sets_of_domains, 'set')} of domains"] if self.sets_of_domains else []
        links = [f"whole plans for other bandwidths of {listed(self.links)}"] if self.links else []
        what = "; ".join([*sets, *links, *(["local SGD"] if self.local_sgd else [])])
        return (
            f"Searches for these sentences ended with their limit ({seconds(self.limit_s)} of work). Left out, or cut "
            f"short: {what}. With a higher time limit (--time-limit) they go on."
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
