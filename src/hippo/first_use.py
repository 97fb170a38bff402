"""What happens once per installation: compiled loops are compiled before any time limit begins to run.

The first use of a planner on a machine would spend half a minute of its time limit on compiling, and then answer as if
it had searched. So a planner plans a few small problems first, unless a mark beside the compiled files says that this
was done with these sources. Nothing heavy is imported where the mark is there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from hippo.registry import AUTO, LOCAL_SGD, USUAL, planner, planners

if TYPE_CHECKING:
    from hippo.planners.base import Planner, Progress
    from hippo.problem.problem import Problem

SOURCES = Path(__file__).resolve().parent
MARK = "hippo-compiled"
PATIENCE_S = 600.0  # for small problems on a slow machine
FRONT = "exact"  # whose shapes the front is searched over
SCHEDULES = "schedules"  # in the name of their mark


def prepare(asked: Sequence[Planner], *, progress: Progress | None = None) -> None:
    """Compiles what these planners and the explanation of their plans need; free where that was done before."""
    folder = _folder()
    for each in asked:
        mark = folder / f"{MARK}-{each.name}-{_state()}"
        if each.name in AUTO and not mark.exists():
            if progress is not None:
                progress(f"{each.name}: compiling, once", 0.0)
            _plan_something(each)
            _leave(mark)


def prepare_schedules(*, progress: Progress | None = None) -> None:
    """Compiles what ``hippo schedule`` and the last ordering of a plan need; free where that was done before."""
    mark = _folder() / f"{MARK}-{SCHEDULES}-{_state()}"
    if not mark.exists():
        if progress is not None:
            progress("schedules: compiling, once", 0.0)
        _schedule_something()
        _leave(mark)


def prepare_all() -> None:
    """Compiles everything; for installers."""
    prepare(planners(AUTO))
    prepare_schedules()


def _schedule_something() -> None:
    """Every method of every placement, as it stands and as a hint, on a problem of a few operations."""
    import numpy as np

    from hippo.pipeline.problem import PLACEMENTS, ScheduleProblem
    from hippo.pipeline.solve import solve
    from hippo.simulate.fluctuation import Fluctuation, makespans

    rng = np.random.default_rng(0)
    for placement in PLACEMENTS:
        small = ScheduleProblem.uniform(2, 3, (1.0, 1.0, 0.5), comm=0.5, live_limit=3).placed(placement)
        answer = solve(small, "best", time_limit_s=0.1)
        solve(small, "best", time_limit_s=0.1, hint=True)
        for by_hint in (False, True):
            makespans(small, answer.schedule, Fluctuation(), samples=2, rng=rng, by_hint=by_hint)


def _plan_something(asked: Planner) -> None:
    from hippo.decide import choose
    from hippo.decide.front import pareto_front
    from hippo.planners.base import Stop
    from hippo.planners.front import front_candidates

    stop, usual, local_sgd = Stop(PATIENCE_S), planners(USUAL), planner(LOCAL_SGD)
    for problem in _problems():
        choose.decide(problem, (asked,), stop, baseline=usual, local_sgd=local_sgd)
        if asked.name == FRONT:
            pareto_front(problem, (asked,), stop, search=front_candidates, baseline=usual)


def _folder() -> Path:
    """Where marks lie: beside the first compiled files, else in the user's cache."""
    beside = os.environ.get("NUMBA_CACHE_DIR") or SOURCES / "__pycache__"
    places = (Path(beside), Path.home() / ".cache" / "hippo")
    return next((place for place in places if os.access(place, os.W_OK)), places[-1])


@cache
def _state() -> str:
    """A short name for these sources under this Python and this compiler."""
    stats = [(str(path), path.stat()) for path in sorted(SOURCES.rglob("*.py"))]
    known = [(name, stat.st_mtime_ns, stat.st_size) for name, stat in stats]
    return sha256(repr((known, sys.version, version("numba"))).encode()).hexdigest()[:16]


def _leave(mark: Path) -> None:
    """Leaves the mark and takes away older ones of the same planner; where nothing can be written, nothing is said."""
    with suppress(OSError):
        mark.parent.mkdir(parents=True, exist_ok=True)
        for older in mark.parent.glob(f"{mark.name.rpartition('-')[0]}-*"):
            older.unlink(missing_ok=True)
        mark.touch()


def _problems() -> Iterator[Problem]:
    """Three small domains in a triangle, with and without local SGD; and one where it pays to cross."""
    from hippo.problem.cluster_yaml import cluster_from_document
    from hippo.problem.load import load_problem

    names = ("a", "b", "c")
    ends = ((one, other) for index, one in enumerate(names) for other in names[index + 1 :])
    speed = {"bandwidth_gbps": 5, "latency_ms": 10, "price_usd_per_gb": 0.02, "both": True}
    document = {
        "gpu": "A100-SXM-80GB",
        "domains": [{"name": name, "nodes": 2, "gpus_per_node": 4} for name in names],
        "links": [{"from": one, "to": other, **speed} for one, other in ends],
    }
    cluster = cluster_from_document(document, source="first use", name="first use")
    for allowed in (True, False):
        yield load_problem(model="gpt3-2.7b", cluster=cluster, global_batch=16, seq=512, allow_local_sgd=allowed)
    yield load_problem(model="llama-3-70b", cluster="four-hubs")
