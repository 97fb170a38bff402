"""What answers say would happen otherwise, each sentence held against plans made with more effort.

    hippo bench answers
    python benchmarks/answers.py [questions] [first] [runtime]

Thirty questions drawn from a seed that is written down: half over regions of `data/wan_regions.json`, half over random
clusters. *Truth* of a sentence: the exact search, `crosspipe` and `sailor` are asked the changed question itself, and
the search plans it once more, from all plans known, with twice the patience of the answer. A threshold is true where
the best of these plans does as the sentence says at either end, or one that does so is within 0.5 % of the best (plans
that close count as equal, and the cheaper is taken). A runner-up, the best plan with an idle domain, and local SGD: how
much longer than the best plan of that kind that was found for the truth. *Unsure*: called "not searched to the end" by
the answer itself, or the truth found no plan to hold it against; neither true nor untrue.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import combinations
from random import Random
from statistics import median
from time import process_time
from types import ModuleType
from typing import Any
from unittest.mock import patch

from hippo.decide.best_order import with_best_order
from hippo.decide.choose import Panel, choose, with_reasons
from hippo.decide.decision import Decision
from hippo.decide.reasons import IdleDomain, LocalSgd, NoSwitch, RunnerUp, Switch
from hippo.decide.rivals import Knob
from hippo.decide.wording import Way, way_of
from hippo.plan.plan import Plan
from hippo.planners import effort
from hippo.planners.base import Stop
from hippo.planners.effort import Effort
from hippo.planners.exact import mixed, polish, search, uniform
from hippo.planners.exact.replan import DomainReplanner
from hippo.planners.exact.space import Only
from hippo.planners.exact.thrift import cheapest
from hippo.problem.catalogue.clusters import cluster
from hippo.problem.catalogue.models import model
from hippo.problem.cluster import Cluster, Domain, Link
from hippo.problem.gpus import gpu
from hippo.problem.problem import Problem
from hippo.problem.workload import Workload
from hippo.registry import AUTO, LOCAL_SGD, USUAL, planner, planners
from hippo.score.judge import Judged, flaw, judge
from hippo.units import bytes_per_s_from_gbps

SEED, QUESTIONS = 20261123, 30
STOP, LONG = Stop(10.0), Stop(60.0)
MODELS = (
    ("llama-3-8b", 4096),
    ("megatron-18b", 2048),
    ("megatron-39b", 2048),
    ("llama-3-70b", 4096),
    ("qwen2.5-72b", 4096),
    ("mixtral-8x7b", 4096),
    ("gpt3-175b", 2048),
)
EQUAL, CLOSE = 0.005, 0.03
WITHIN = (0.5, 2.0)  # factors at which "no change" is tried beside those that the sentence names
EFFORT: dict[ModuleType, dict[str, Any]] = {
    search: {"PATIENCE": 12, "ORDERED_PATIENCE": 6, "LONG_PATIENCE": 80, "FIRST_WAYS": 24},
    polish: {"OPERATIONS": 60_000, "REACH": 1.1},
    mixed: {"MOST_FAMILIES": 12},
    uniform: {"FEW_RULES": 20},
}
"""Constants of the exact search for the truth: twice those of the answer."""


def questions(first: int = 0, last: int = QUESTIONS, runtime: str = "hippo") -> Iterator[Problem]:
    """Problems by their number; each has a generator of its own."""
    for number in range(first, last):
        random = Random(SEED + number)
        where = regions(random) if number % 2 == 0 else drawn(random)
        name, seq = random.choice(MODELS)
        yield Problem(model(name), where, Workload(random.choice((128, 256, 512, 1024)), seq), runtime=runtime)


def regions(random: Random) -> Cluster:
    """Two to five of the twelve cloud regions, with 16 to 128 GPUs each."""
    whole, nodes = cluster("twelve-cloud-regions"), random.choice((2, 4, 8, 16))
    chosen = random.sample(whole.domains, random.randint(2, 5))
    names = {domain.name for domain in chosen}
    domains = tuple(replace(domain, nodes=nodes) for domain in whole.domains if domain.name in names)
    links = tuple(link for link in whole.links if {link.source, link.destination} <= names)
    return replace(whole, name=f"{len(domains)} regions x {8 * nodes}", domains=domains, links=links)


def drawn(random: Random) -> Cluster:
    """Two to five domains, alike or not, with links of 1 to 100 Gbit/s and 2 to 60 ms."""
    count, like, kind = (
        random.randint(2, 5),
        random.choice((4, 8, 16)),
        gpu(random.choice(("A100-SXM-80GB", "H100-SXM-80GB"))),
    )
    alike = random.random() < 0.5
    sizes = [like if alike else random.choice((4, 8, 16)) for _ in range(count)]
    fabric = 5e10 if "H100" in kind.name else 2.5e10
    domains = tuple(
        Domain(f"d{index}", size, 8, kind.nvlink_bytes_per_s, 8 * fabric, 5e-6) for index, size in enumerate(sizes)
    )
    links: list[Link] = []
    for one, two in combinations(domains, 2):
        rate, late = bytes_per_s_from_gbps(10 ** random.uniform(0, 2)), random.uniform(2e-3, 60e-3)
        links += [Link(one.name, two.name, rate, late, 0.02), Link(two.name, one.name, rate, late, 0.02)]
    return Cluster(f"{count} domains x {'|'.join(str(8 * size) for size in sizes)}", kind, domains, tuple(links))


def answered(problem: Problem) -> tuple[Decision, float]:
    """The answer with its sentences, as ``hippo plan`` gives it, and the CPU seconds of the sentences alone."""
    panel = Panel(
        planners(AUTO), planners(USUAL), planner(LOCAL_SGD), DomainReplanner, thrift=cheapest, order=with_best_order
    )
    found = choose(problem, panel, STOP)
    if found.judged is None:
        return found, 0.0
    began = process_time()
    found = with_reasons(found, panel, STOP)
    return found, process_time() - began


@dataclass(eq=False)
class Truth:
    """Plans of one problem, and of what it would be otherwise, made with more effort than the answer's."""

    problem: Problem
    replanner: DomainReplanner
    known: list[Plan]  # of the answer

    @classmethod
    def of(cls, problem: Problem, decision: Decision) -> Truth:
        """With tables of its own, and with every plan that the answer found, under whatever links."""
        every = [decision.judged, *decision.runners_up]
        if decision.others is not None:
            every += [each for sweep in decision.others.sweeps.values() for each in sweep.pool.values()]
        return cls(problem, DomainReplanner.of(replace(problem)), [each.plan for each in every if each is not None])

    def best(self, problem: Problem, only: Only | None = None, *, local_sgd: bool = False) -> dict[Way, Judged]:
        """The best plan of each way to join domains."""
        with more_effort():
            found = [plan for _, plan in self.replanner.plans(problem, Effort(), only, local_sgd=local_sgd)]
        if only is None:
            for name in (LOCAL_SGD,) if local_sgd else ("exact", "crosspipe", "sailor"):
                asked = planner(name).propose(problem, LONG)
                found += [
                    each for each in (asked.plan, *(other.plan for other in asked.runners_up)) if each is not None
                ]
        self.known += [plan for plan in found if plan not in self.known]
        best: dict[Way, Judged] = {}
        for plan in [*found, *self.known]:
            if flaw(problem, plan) is None and local_sgd == (plan.sync.method == "local_sgd"):
                one, way = judge(problem, plan), way_of(plan)
                if way not in best or one.step_time_s < best[way].step_time_s:
                    best[way] = one
        return best

    def best_with(self, name: str) -> float:
        """Least step time of any plan that uses a domain."""
        times = [float("inf")]
        for bound, only in self.replanner.sets_with(name, [frozenset(plan.domains) for plan in self.known]):
            if bound < min(times):
                found = self.best(self.problem, only).values()
                times += [each.step_time_s for each in found if name in each.plan.domains]
        return min(times)


@contextmanager
def more_effort() -> Iterator[None]:
    """Inside, the exact search has more patience."""
    changes = [patch.multiple(module, **constants) for module, constants in EFFORT.items()]
    for change in changes:
        change.start()
    try:
        yield
    finally:
        for change in changes:
            change.stop()


@dataclass(frozen=True)
class Checked:
    """One sentence: whether it is true, and its figure (ratio to the best, or width); None: it says it is not sure."""

    kind: str
    sentence: str
    true: bool | None
    figure: float = 0.0
    strict: bool | None = None  # without counting plans within 0.5 % as equal


def checked(problem: Problem, decision: Decision) -> Iterator[Checked]:
    """Every sentence about what would be otherwise."""
    truth, way = Truth.of(problem, decision), way_of(decision.judged.plan) if decision.judged else ("", frozenset())
    for reason in decision.reasons:
        told = reason.sentence()
        if isinstance(reason, RunnerUp):
            way = reason.joining, frozenset(reason.domains)
            at = problem.cluster.domain_index
            only = Only(frozenset(at[name] for name in reason.domains))
            best = truth.best(problem, only).get(way)
            ratio = 0.0 if best is None else reason.step_time_s / best.step_time_s
            sure = reason.searched and best is not None
            yield Checked("runner-up", told, ratio <= 1 + CLOSE if sure else None, ratio)
        elif isinstance(reason, IdleDomain) and reason.best_with_it_s is not None:
            ratio = reason.best_with_it_s / truth.best_with(reason.subject)
            yield Checked("idle domain", told, ratio <= 1 + CLOSE if reason.searched else None, ratio)
        elif isinstance(reason, LocalSgd):
            best_s = min(
                each.step_time_s for each in truth.best(replace(problem, allow_local_sgd=True), local_sgd=True).values()
            )
            ratio = reason.step_time_s / best_s
            yield Checked("local SGD", told, ratio <= 1 + CLOSE if reason.searched else None, ratio)
        elif isinstance(reason, Switch) and reason.planned_anew:
            knob = knob_of(problem, reason.subject, reason.quantity)
            low, high = reason.low / reason.actual, reason.high / reason.actual
            inner, outer = (does(truth, knob, factor, way) for factor in (low, high))
            width = max(low, high) / min(low, high) - 1
            true, strict = inner <= EQUAL and outer >= -EQUAL, inner < 0 <= outer
            yield Checked("threshold", told, true if reason.verified else None, width, strict)
        elif isinstance(reason, NoSwitch) and reason.planned_at:
            knob = knob_of(problem, reason.on, reason.tried[0])
            within = [each for each in WITHIN if min(reason.planned_at) <= each <= max(reason.planned_at)]
            tried = dict.fromkeys((min(reason.planned_at), *within, max(reason.planned_at)))
            ahead = [does(truth, knob, factor, way) for factor in tried]
            yield Checked(
                "no change", told, max(ahead) <= EQUAL if reason.searched else None, max(ahead), max(ahead) < 0
            )


def does(truth: Truth, knob: Knob, factor: float, way: Way) -> float:
    """By how much (a share) the best plan of this way is ahead of the best of all others; behind: negative."""
    best = truth.best(knob.changed(truth.problem, factor))
    mine = best[way].step_time_s if way in best else float("inf")
    others = min((each.step_time_s for other, each in best.items() if other != way), default=float("inf"))
    return others / mine - 1


def knob_of(problem: Problem, subject: str, quantity: str) -> Knob:
    """The knob that a sentence speaks of: all links, or ``the link a <-> b``."""
    if not subject.startswith("the link "):
        return Knob(quantity)
    one, arrow, two = subject.removeprefix("the link ").split(" ")
    pairs = ((one, two), (two, one))[: 2 if arrow == "<->" else 1]
    return Knob(quantity, tuple(problem.cluster.link_index[pair] for pair in pairs))


def main() -> None:
    """Prints each question with its untrue sentences, then the totals."""
    last, first = (int(each) for each in (*sys.argv[1:3], *(str(QUESTIONS), "0")[len(sys.argv[1:3]) :]))
    runtime = sys.argv[3] if len(sys.argv) > 3 else "hippo"
    effort.SLACK = float("inf")  # a slow machine finds the same
    rows: list[Checked] = []
    seconds: list[float] = []
    choose(next(questions(runtime=runtime)), Panel(planners(AUTO), planners(USUAL)), STOP)  # loads the compiled kernels
    for number, problem in enumerate(questions(first, last, runtime), start=first):
        decision, spent_s = answered(problem)
        name = f"{number:2d} {problem.model.name}, {problem.workload.global_batch} x, {problem.cluster.name}"
        if decision.score is None:
            print(f"{name}: no plan fits", flush=True)
            continue
        found = list(checked(problem, decision))
        rows += found
        seconds.append(spent_s)
        wrong = [each for each in found if each.true is False]
        unsure = sum(each.true is None for each in found)
        told = f"{decision.score.step_time_s:.4g} s, {len(found)} sentences in {spent_s:.1f} CPU s, {len(wrong)} untrue"
        told += f", {unsure} unsure" if unsure else ""
        print(f"{name}: {told}", flush=True)
        for each in wrong:
            print(f"     {each.figure:+.3f}  {each.sentence}", flush=True)
    print()
    for line in totals(rows, seconds):
        print(line)


def totals(rows: list[Checked], seconds: list[float]) -> Iterator[str]:
    """The figures: share true, ratios and widths by kind of sentence, CPU seconds."""
    yield f"{'sentences':14s}{'said':>6s}{'unsure':>8s}{'true':>6s}{'strictly':>10s}{'median':>9s}{'worst':>9s}"
    for kind in ("runner-up", "idle domain", "local SGD", "threshold", "no change"):
        mine = [each for each in rows if each.kind == kind]
        sure = [each for each in mine if each.true is not None]
        strict = [each for each in sure if each.strict is not None]
        figures = [each.figure for each in sure] or [0.0]
        true, exact = sum(each.true is True for each in sure), sum(each.strict is True for each in strict)
        yield (
            f"{kind:14s}{len(mine):6d}{len(mine) - len(sure):8d}{true:6d}{exact if strict else '':>10}"
            f"{median(figures):9.3f}{max(figures):9.3f}"
        )
    if seconds:
        yield f"CPU seconds of all sentences of an answer: median {median(seconds):.1f}, most {max(seconds):.1f}"


if __name__ == "__main__":
    main()
