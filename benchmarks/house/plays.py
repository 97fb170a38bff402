"""What plays of a pipeline cost, in a tree and in another, in turn: CPU time, and whether both answer the same.

    python -m benchmarks.house.plays --before DIR [--rounds 7] [--only BEGINNING,..]

DIR is a checkout of hippo from 5af291c on. Each tree has a process of its own that is asked for one thing at a time, so
that what else the machine does meets both. A line: least CPU time before and now, the least's ratio, the median ratio.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from statistics import median

PREPARED = """
import time
from dataclasses import replace
import numpy as np
try:
    from hippo.schedule.problem import RankLink as Link, ScheduleProblem
    from hippo.schedule.methods import generate
    from hippo.schedule.replay import makespan, replay
    from hippo.schedule.search.policy import _Climber, pipe, first_policy
    from hippo.schedule.search.hint import Shifts
    from hippo.schedule.search.clock import Clock
    from hippo.dispatch.noise.fluctuation import Fluctuation, spread
    from hippo.dispatch.noise.learned_play import spread_learned
except ImportError:  # 5af291c
    from hippo.pipeline.problem import ScheduleProblem, Link
    from hippo.pipeline.methods import generate
    from hippo.pipeline.replay import makespan, replay
    from hippo.pipeline.search.policy import _Climber, pipe, first_policy
    from hippo.pipeline.search.hint import Shifts
    from hippo.pipeline.search.clock import Clock
    from hippo.simulate.fluctuation import Fluctuation, spread
    from hippo.simulate.learned_play import spread_learned
SLOW = [0.05] * 3 + [5.0] + [0.05] * 3
TIMES = (1.0, 1.05, 0.75)
tight = ScheduleProblem.uniform(8, 32, TIMES, comm=SLOW, live_limit=8)
ways = {way: tuple(Link(*each) for each in links) for way, links in {
    "down": [(0.3, 0.2 + 0.1 * i) for i in range(7)], "up": [(0.1 * i, 0.3) for i in range(7)]}.items()}
moving = replace(tight, **ways, reduction=tuple(0.5 * i for i in range(8)))
wide = ScheduleProblem.uniform(8, 32, TIMES, comm=SLOW, live_limit=16)
long = ScheduleProblem.uniform(16, 128, TIMES, comm=0.3, live_limit=20)
middling = ScheduleProblem.uniform(16, 32, TIMES, comm=0.3, live_limit=20)
ORDERS = {8: (wide, generate("zb-h2", wide)), 16: (long, generate("zb-auto", long))}

def timed(function, count=1):
    begin = time.process_time()
    found = function()
    return (time.process_time() - begin) / count, found

def policy(problem, mirrored):
    climber = _Climber(problem, (mirrored, first_policy(pipe(problem, mirrored=mirrored), 0)), [1, 2])
    taken, _ = timed(lambda: climber.go(3000, 0.0, Clock(1e6), 1.0), 3000)
    return taken, (climber.span, climber.kinds.tobytes())

def due(problem):
    search = Shifts(problem, generate("cross-domain", problem), [3])
    taken, _ = timed(lambda: search.go(2000, 0.0), 2000)
    return taken, (search.span, search.rows[0].tobytes())

def schedule(name, problem):
    fresh = [replace(problem) for _ in range(4)]
    taken, found = timed(lambda: [generate(name, each) for each in fresh], 4)
    return taken, found[0].order.tobytes()

def noise(size, samples, **how):
    problem, order = ORDERS[size]
    taken, found = timed(lambda: spread(problem, order, Fluctuation(0.2), samples=samples, **how), samples)
    return taken, found.makespans.tobytes()

def learned(samples):
    taken, found = timed(lambda: spread_learned(wide, Fluctuation(0.2), samples=samples), samples)
    return taken, found.makespans.tobytes()

def once(function):
    problem, order = ORDERS[16]
    taken, found = timed(lambda: [function(problem, order) for _ in range(200)], 200)
    return taken, makespan(problem, order)
"""
ASKED = {
    "makespan of an order, 16 ranks of 128": "once(makespan)",
    "with all times": "once(replay)",
    "policy": "policy(tight, False)",
    "policy, backwards in time": "policy(tight, True)",
    "policy, links that transfer": "policy(moving, False)",
    "policy, both": "policy(moving, True)",
    "due times": "due(tight)",
    "due times, links that transfer": "due(moving)",
    "hint, 8 ranks of 32": "noise(8, 500, by_hint=True)",
    "hint, 16 of 128": "noise(16, 60, by_hint=True)",
    "patient hint, 8 of 32": "noise(8, 500, by_hint=True, patience=0.5)",
    "patient hint, 16 of 128": "noise(16, 60, by_hint=True, patience=0.5)",
    "fixed order, 8 of 32": "noise(8, 500)",
    "fixed order, 16 of 128": "noise(16, 60)",
    "learned dispatch, 8 of 32": "learned(100)",
    "cross-domain, 8 of 32": "schedule('cross-domain', tight)",
    "cross-domain, 16 of 32": "schedule('cross-domain', middling)",
    "zb-auto, 8 of 32": "schedule('zb-auto', wide)",
    "zb-v, 8 of 32": "schedule('zb-v', ScheduleProblem.uniform(8, 32, TIMES, comm=0.5).placed('v'))",
    "v-min, 16 of 32": "schedule('v-min', ScheduleProblem.uniform(16, 32, TIMES, comm=0.5).placed('v'))",
}
ASKS = "import sys\nprint('ready', flush=True)\nfor line in sys.stdin:\n    print(repr(eval(line)), flush=True)\n"


class Asked:
    """A tree's process."""

    def __init__(self, tree: Path) -> None:
        given = {"PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", PREPARED + ASKS]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env={**os.environ, **given})
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == "ready"

    def answer(self, question: str) -> tuple[float, str]:
        """CPU seconds of one, and a digest of what came out."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(question, file=self.process.stdin, flush=True)
        taken, _, found = self.process.stdout.readline()[1:-2].partition(", ")
        return float(taken), sha256(found.encode()).hexdigest()


def main() -> int:
    """Exit code 1: some answer differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    trees, differs = [Asked(given.before.resolve()), Asked(Path(__file__).resolve().parents[2])], False
    for name, question in ASKED.items():
        if not name.startswith(tuple(given.only.split(","))):
            continue
        found = [[each.answer(question) for each in trees] for _ in range(given.rounds + 1)]  # the first compiles
        equal = len({answer for row in found for _, answer in row}) == 1
        before, now = ([row[each][0] for row in found[1:]] for each in range(2))
        middle = median(after / first for first, after in zip(before, now, strict=True))
        least = f"{1e6 * min(before):9.1f} us {1e6 * min(now):9.1f} us {min(now) / min(before):6.2f} {middle:6.2f}"
        print(f"{name:40} {least}  {'equal' if equal else 'DIFFERENT'}", flush=True)
        differs |= not equal
    for each in trees:
        each.process.terminate()
    return int(differs)


if __name__ == "__main__":
    sys.exit(main())
