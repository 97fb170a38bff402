"""What a step could take at the least: of each decision about training, a bound beside its prediction.

It is that of the exact search (``planners.exact``) on the devices that the job is given, over links as they were
measured to be and alone on them: no plan that this search covers is predicted to take less. So it says how far from the
best the decision can be, not what another place would have been. It is found beside everything else, in a thread that
rests longer than it works; where decisions come quicker than that, or the service ends before, some have none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from math import ceil
from queue import Full, Queue
from threading import Event, Thread
from time import thread_time
from typing import Any

from hippo.plan.codec import plan_from_document
from hippo.planners.answers import answer_of
from hippo.planners.base import Stop
from hippo.planners.exact.search import Exact
from hippo.problem.cluster import Cluster
from hippo.problem.load import load_problem
from hippo.problem.objective import for_time
from hippo.problem.problem import Problem
from hippo.serve.actuators.placing import held_gpus, held_part
from hippo.serve.logs import LOG

STOP = Stop(time_limit_s=1.0, gap=0.02)
MOST_WAITING = 8
RESTS, LONGEST_REST_S = 4.0, 30.0
"""Times what it worked."""

Ends = tuple[str, str]
Carried = Mapping[Ends, tuple[float, float]]
"""Bytes/s and seconds of links."""


def least_step_s(problem: Problem, place: Mapping[str, Any], links: Carried) -> float | None:
    """Seconds that a step takes at the least on the devices of a place; None: nothing is proven of it, or a link of it
    carries nothing."""
    part = held_part(problem.cluster, _whole_nodes(problem.cluster, place))
    now = {(each.source, each.destination): links[each.source, each.destination] for each in part.links}
    if any(rate <= 0.0 for rate, _ in now.values()):
        return None
    moved = [(each, *now[each.source, each.destination]) for each in part.links]
    told = tuple(replace(each, bandwidth_bytes_per_s=rate, latency_s=late) for each, rate, late in moved)
    asked = replace(problem, cluster=replace(part, links=told), objective=for_time(problem.objective))
    return answer_of(Exact(), asked, STOP).lower_bound_s


def _whole_nodes(cluster: Cluster, place: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The place with all of the last node where it has several: how devices lie in parts of nodes is not said, and who
    may use more is bounded no higher."""
    found: dict[str, list[Any]] = {"domains": [], "gpus": []}
    for name, held in held_gpus(place).items():
        size = cluster.domain(name).gpus_per_node
        found["domains"].append(name)
        found["gpus"].append(held if held <= size else size * ceil(held / size))
    return found


class StepBounds:
    """Finds the bounds of decisions, one after another. ``found`` hears of each, in the thread that found it."""

    def __init__(self, cluster: Cluster, found: Callable[[int, float], None]) -> None:
        self._cluster, self._found, self._over = cluster, found, Event()
        self._asked: Queue[Callable[[], None]] = Queue(MOST_WAITING)
        self._thread: Thread | None = None

    def ask(
        self,
        decision: int,
        spec: Mapping[str, Any],
        place: Mapping[str, Any],
        links: Carried,
        pace: float,
        document: Mapping[str, Any] | None = None,
    ) -> None:
        """Of a decision; ``document``: of the plan that it is about, whose problem counts in place of the job's kind;
        ``pace``: what the job's steps take of what is predicted of them, as in the prediction."""

        def find() -> None:
            if document is not None:
                problem = plan_from_document(document, source=f"decision {decision}")[0]
            else:
                asked = {"model": spec["model"], "global_batch": spec["batch"], "seq": spec["seq"]}
                problem = load_problem(cluster=self._cluster, **asked)
            least_s = least_step_s(problem, place, links)
            if least_s is not None:
                self._found(decision, pace * least_s)

        with suppress(Full):
            self._asked.put_nowait(find)
        if self._thread is None:  # nobody waits for it at the end
            self._thread = Thread(target=self._go_on, name="bounds", daemon=True)
            self._thread.start()

    def _go_on(self) -> None:
        while not self._over.is_set():
            find, began_s = self._asked.get(), thread_time()
            try:
                find()
            except Exception as error:  # whatever breaks in the search must not end the thread
                LOG.warning("a decision has no bound: %s: %s", type(error).__name__, error)
            self._over.wait(min(LONGEST_REST_S, RESTS * (thread_time() - began_s)))

    def close(self) -> None:
        """Find no more."""
        self._over.set()
