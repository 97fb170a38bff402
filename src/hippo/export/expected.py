"""What a run of the exported files is expected to take: under the runtime that they start, not the plan's own.

And whether one domain would do as well: a plan may be the best under one runtime and not worth its links under another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hippo.decide.wording import between, count, described, seconds, usd
from hippo.errors import HippoError
from hippo.plan.check import check
from hippo.plan.plan import Plan
from hippo.planners.answers import answer_of
from hippo.planners.base import Stop
from hippo.planners.baselines.single_domain import SingleDomain
from hippo.problem.problem import Problem
from hippo.problem.runtimes import runtime_of
from hippo.score.interval import assumed_span, interval_document, span_document
from hippo.score.judge import Judged, judge

AS_GOOD = 0.005
"""A plan inside one domain is as good that takes at most so much longer."""

STOP = Stop(time_limit_s=5.0)


@dataclass(frozen=True)
class ExportTimes:
    """The step of a plan under the runtime that its files start, beside what was told when it was planned."""

    run: Judged  # under the runtime of the target
    planned: Judged  # under the runtime of the plan
    one_domain: Judged | None = None  # as good inside one domain, under the runtime of the target; None: no plan is

    @property
    def problem(self) -> Problem:
        """The question whose time is told: as the folder's plan file has it.

        A program of the user's own may run what no runtime here can; then the plan's own runtime stays.
        """
        return self.planned.problem if check(self.run.problem, self.run.plan) else self.run.problem

    def sentences(self) -> tuple[str, ...]:
        """For people: what one domain would do, the time, that under the plan's own runtime, what is assumed.

        The plan may be the nearest to the one that was made, so both times are said to be of what is exported."""
        own, planned = self.run.problem, self.planned.problem
        batch, gpus = count(self.run.plan.global_batch, "sequence"), count(self.run.plan.gpus, "GPU")
        confirm = " (`hippo simulate plan.json`)" if self.problem.runtime == own.runtime else ""
        found = [] if self.one_domain is None else [self._one_domain(self.one_domain)]
        found.append(f"Expected: {_priced(self.run)} of {batch} on {gpus} {under(own.runtime)}{confirm}.")
        if planned.runtime != own.runtime:
            made = f"The plan was made {_for(planned.runtime)}"
            found.append(f"{made}; as exported it would take {_priced(self.planned)} there.")
        if own.rules.assumed:
            found.append(" ".join([*(f"Assumed: {each.rstrip('.')}." for each in own.rules.assumed), *self._ends()]))
        return tuple(found)

    def _ends(self) -> list[str]:
        """The step at both ends of what is assumed; nothing where that does not touch it."""
        span = assumed_span(self.run.problem, self.run.plan)
        if span is None:
            return []
        return [f"A step takes {between(span.fast_s, span.slow_s)} as assumed ({span.fast}; {span.slow})."]

    def _one_domain(self, other: Judged) -> str:
        quicker = other.step_time_s < (1 - AS_GOOD) * self.run.step_time_s
        verdict = "Better inside one domain" if quicker else "As good inside one domain"
        command = f"hippo plan --runtime {self.run.problem.runtime} --planner single_domain"
        own, gpus = _priced(self.run), count(other.plan.gpus, "GPU")
        return (
            f"{verdict}: {_priced(other)} on {gpus}, where this plan takes {own} "
            f"({described(other.plan)}; `{command}` with the same question finds it)."
        )

    def document(self) -> dict[str, object]:
        """``expected`` and ``one_domain`` for JSON: seconds and US dollars a step."""
        own, differs = self.run.problem, self.planned.problem.runtime != self.run.problem.runtime
        other = self.one_domain
        return {
            "expected": {
                "runtime": own.runtime,
                "runtime_is": own.rules.told,
                **_figures(self.run),
                **interval_document(self.run.interval),
                **span_document(assumed_span(own, self.run.plan)),
                "assumed": list(own.rules.assumed),
                "planned": {"runtime": self.planned.problem.runtime, **_figures(self.planned)} if differs else None,
            },
            "one_domain": None
            if other is None
            else {**_figures(other), "domain": other.plan.domains[0], "gpus": other.plan.gpus},
        }


def expected(problem: Problem, plan: Plan, runtime: str) -> ExportTimes:
    """The plan under a runtime and under its own, and a plan inside one domain where one is as good.

    Raises ``InputError`` for a plan that cannot be played.
    """
    planned = judge(problem, plan)
    run = planned if runtime == problem.runtime else judge(replace(problem, runtime=runtime), plan)
    other = inside_one_domain(run.problem) if len(plan.domains) > 1 else None
    worth = other is not None and other.step_time_s <= (1 + AS_GOOD) * run.step_time_s
    return ExportTimes(run, planned, other if worth else None)


def inside_one_domain(problem: Problem) -> Judged | None:
    """The best plan inside one domain that the search over layouts finds (``single_domain``); None: there is none."""
    try:
        found = answer_of(SingleDomain(), problem, STOP).plan
    except HippoError:
        return None
    return None if found is None else judge(problem, found)


def under(runtime: str) -> str:
    """``under Megatron-LM``."""
    return "under no runtime (ideal)" if runtime == "ideal" else f"under {runtime_of(runtime).told}"


def _for(runtime: str) -> str:
    return "for no runtime (ideal)" if runtime == "ideal" else f"for {runtime_of(runtime).told}"


def _priced(found: Judged) -> str:
    return f"{seconds(found.step_time_s)} and {usd(found.score.usd_per_step)} a step"


def _figures(found: Judged) -> Mapping[str, object]:
    return {"step_time_s": found.step_time_s, "usd_per_step": found.score.usd_per_step}
