"""What checkpoints cost a training run over an emulated WAN: real layers, a state of some 200 MB, a checkpoint often.

Two stages in two domains. From one step's beginning to the next, so that the copy at the border counts as well as the
writing beside the steps after it. Each run trains with and without checkpoints in turns (``--every`` steps with one,
as many without), since two runs of one machine differ by more than a checkpoint costs. Printed: the median interval of
steps without, the mean excess of an interval of a checkpoint's steps over it, as a share of a step for one checkpoint
and for one every ten steps (the default), bytes, and 95 % of what a bootstrap over checkpoints finds.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np

from hippo.emulate.emulate import emulate, setting_of
from hippo.emulate.emulation import emulation
from hippo.files import json_text
from hippo.plan.plan import Pipeline, Plan, Stage
from hippo.problem.cluster import Cluster, Domain, Link
from hippo.problem.gpus import gpu
from hippo.problem.model import gpt_model
from hippo.problem.problem import Problem
from hippo.problem.workload import Workload
from hippo.run.change import Planned
from hippo.run.job import RunJob, RunOptions
from hippo.run.run import Conductor, Crew, Emulated
from hippo.run.saving import Saver, Saving

SEQ = 64
MODEL = gpt_model("gpt-18m", layers=5, hidden=512, heads=8, vocab=2048, seq=SEQ)
LINKS = tuple(Link(one, two, 1e8 / 8 * 4, 0.01, 0.0) for one, two in ("ab", "ba"))
CLUSTER = Cluster("two", gpu("A100-SXM-80GB"), tuple(Domain(each, 1, 1, 1e11, 1e11, 1e-6) for each in "ab"), LINKS)
STAGES = Stage("a", (0, 3), 1, 1, ("a/0/0",)), Stage("b", (3, 7), 1, 1, ("b/0/0",))


class Sometimes(Saver):
    """A saver that rests every other turn."""

    def __init__(self, crew: Crew, saving: Saving) -> None:
        super().__init__(crew, saving)
        self.began: list[int] = []

    def is_due(self, step: int, *, last: bool) -> bool:
        """At the end of every second turn."""
        turn, place = divmod(step - 1, self._saving.every)
        found = place == 0 and turn % 2 == 1
        self.began += [step] if found else []
        return found


def inside(turns: int, every: int, waves: int, out: Path) -> None:
    """One run, inside its emulated links."""
    around = emulation()
    assert around is not None, "it runs inside its links"
    problem = Problem(MODEL, CLUSTER, Workload(waves, SEQ, "fp32"))
    plan = Plan((Pipeline(STAGES, waves),), 1, precision="fp32")
    job = RunJob(problem, plan, RunOptions(steps=turns * every + 1))
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as saved:
        crew = Crew(Path(name), Emulated(around), job.options.timeout_s)
        try:
            saver = Sometimes(crew, Saving(Path(saved), every))
            conductor = Conductor(job, crew, Planned(), saver)
            began = []
            for number in range(1, job.options.steps + 1):
                conductor.border(number - 1)
                began.append(conductor.step(number).began_s)
                conductor.save(number)
            saver.finish()
            size = sum(each.stat().st_size for each in Path(saved).glob("*/*"))
            crew.dismiss(conductor.version.members)
        finally:
            crew.end()
    seconds = [two - one for one, two in pairwise(began)]
    out.write_text(json_text({"seconds": seconds, "saved": saver.began, "bytes": size}))


def main() -> None:
    """Runs it and prints a line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=20, help="every other one saves")
    parser.add_argument("--every", type=int, default=6, help="steps of a turn")
    parser.add_argument("--waves", type=int, default=8, help="micro-batches of a sequence in a step")
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.inside:
        inside(asked.turns, asked.every, asked.waves, asked.out)
        return
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out.json")
        numbers = {"--turns": asked.turns, "--every": asked.every, "--waves": asked.waves}
        words = ["--inside", *(str(each) for pair in numbers.items() for each in pair), "--out", str(out)]
        command = [sys.executable, "-m", "benchmarks.checkpoints", *words]
        assert emulate(setting_of(CLUSTER, command, source="checkpoints")).exit_code == 0, "the run failed"
        found = json.loads(out.read_text())
    seconds, every = np.array(found["seconds"]), asked.every
    kept = seconds[: asked.turns * every].reshape(asked.turns, every)[1:]  # without the first, on cold connections
    without, among = kept[1::2], kept[0::2]
    usual = median(without.ravel().tolist())
    lost = among.sum(axis=1) / usual - every  # steps, for each checkpoint
    rests = without.sum(axis=1) / usual - every
    rng = np.random.default_rng(0)
    draws = [rng.choice(lost, len(lost)).mean() - rng.choice(rests, len(rests)).mean() for _ in range(2000)]
    low, high = np.quantile(draws, (0.025, 0.975))
    cost = lost.mean() - rests.mean()
    told = f"{found['bytes'] / 1e6 / 2:.0f} MB a checkpoint, {len(lost)} of them; a step {usual:.3f} s; one costs"
    share = f"of a step ({low:+.1%} to {high:+.1%})"
    print(f"{told} {cost:+.1%} {share}, {cost * usual:.3f} s; every ten steps {cost / 10:+.2%}")


if __name__ == "__main__":
    main()
