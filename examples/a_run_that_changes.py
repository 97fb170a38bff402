"""A training run that meets what runs meet, and one page of it.

    python examples/a_run_that_changes.py --out out/changing

trains ``examples/two-domains.json`` over an emulated WAN (no root needed) and, from outside, with the words that
``hippo ctl`` takes: lets a link collapse to a tenth, pulls a lever, moves layers beside the training to where no link
is needed, mends the link, adds a replica, kills one of its processes, and adds a replica again.
``out/changing/run.html`` shows step times predicted and measured through it all, and the loss curve beside that of one
process. Fails where the loss is another one. A minute or two on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hippo.cli.output import check_folder
from hippo.errors import HippoError
from hippo.plan.codec import load_plan, plan_to_document
from hippo.plan.plan import Pipeline, Plan, Stage
from hippo.run.control import RunClient

EXAMPLE = Path(__file__).parent / "two-domains.json"
BETWEEN = 8  # steps between two events
MOST_S = 300.0  # for anything to happen
MOST_OFF = 1e-5  # of the loss, relative: fp32 summed in another order


@dataclass(frozen=True)
class Running:
    """The run, and what can be done to it."""

    client: RunClient
    process: subprocess.Popen[bytes]
    problem: Any

    def step(self) -> int:
        """The last step that was made."""
        return int(self.client.ask({"ask": "status"})["step"])

    def until(self, done: Callable[[], bool], what: str) -> None:
        """Waits, or ends with what did not happen."""
        end_s = time.monotonic() + MOST_S
        while not done():
            if time.monotonic() > end_s or self.process.poll() is not None:
                raise SystemExit(f"{what} did not happen")
            time.sleep(0.05)

    def train(self, steps: int = BETWEEN) -> None:
        """So many steps more."""
        last = self.step() + steps
        self.until(lambda: self.step() >= last, f"step {last}")

    def order(self, words: Mapping[str, Any]) -> None:
        """Asks, and waits until it is done."""
        number = self.client.ask({**words, "key": str(time.monotonic_ns())})["accepted"]
        self.until(lambda: self._state(number) != "accepted", f"order {number}")
        if (state := self._state(number)) != "done":
            raise SystemExit(f"order {number} ({words['order']}) is {state}")

    def _state(self, number: int) -> str:
        return str(self.client.ask({"ask": "status"})["orders"][number - 1]["state"])

    def link(self, gbps: float) -> None:
        """The link from east to west."""
        self.client.ask({"ask": "link", "from": "east", "to": "west", "gbps": gbps, "latency_ms": 20.0})

    def plan(self, plan: Plan, way: str) -> None:
        """Another plan."""
        self.order({"order": "plan", "plan": plan_to_document(self.problem, plan), "way": way})

    def kill(self) -> None:
        """The youngest process of the run, of a replica that came last; waits until the others go on."""
        found = {int(words[-2]): process for process, words in _workers(self.process.pid)}
        number = max(found)
        step = self.step()
        os.kill(found[number], signal.SIGKILL)
        self.until(lambda: self.step() > step + 1, "going on without a replica")


def _workers(parent: int) -> list[tuple[int, list[bytes]]]:
    """Workers of this run, whatever namespace they live in, and their words."""
    above, words = {}, {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            above[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            words[int(entry.name)] = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue

    def ours(process: int) -> bool:
        while process in above and process != parent:
            process = above[process]
        return process == parent

    return [(each, told) for each, told in words.items() if b"hippo.run.process" in told and ours(each)]


def line(domain: str, waves: int) -> Pipeline:
    """A replica: two stages in one domain."""
    stages = tuple(Stage(domain, (3 * at, 3 * at + 3), 1, 1, (f"{domain}/0/{at}",)) for at in range(2))
    return Pipeline(stages, waves)


def play(run: Running, plan: Plan) -> None:
    """What happens, in turn."""
    waves = plan.pipelines[0].num_micro_batches
    alone = replace(plan, pipelines=(line("east", waves),))
    both = replace(plan, pipelines=(line("east", waves // 2), line("west", waves // 2)))
    run.train()
    _say("the link from east to west collapses to a tenth")
    run.link(0.01)
    run.train()
    _say("a lever: half as many sequences in a micro-batch")
    run.order({"order": "micro-batch", "size": plan.micro_batch // 2})
    run.train()
    _say("west's layers move to east, beside the training")
    run.plan(alone, "background")
    run.train()
    _say("the link is mended, and a replica joins in west")
    run.link(0.1)
    run.plan(both, "stop")
    run.train()
    _say("a process of that replica is killed")
    run.kill()
    run.train()
    _say("another replica joins")
    run.plan(both, "stop")


def _say(told: str) -> None:
    sys.stdout.write(f"{told}\n")
    sys.stdout.flush()


def main() -> None:
    """Plays it, and holds the loss against that of one process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/changing"))
    parser.add_argument("--steps", type=int, default=90)
    asked = parser.parse_args()
    try:
        check_folder(asked.out)
        problem, plan = load_plan(EXAMPLE)
        with tempfile.TemporaryDirectory() as folder:
            control = Path(folder, "run")
            words = [
                "run",
                str(EXAMPLE),
                "--emulate",
                "--control",
                str(control),
                "--out",
                str(asked.out),
                "--reference",
            ]
            command = [sys.executable, "-m", "hippo", *words, "--steps", str(asked.steps)]
            with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
                try:
                    end_s = time.monotonic() + MOST_S
                    while not control.with_name("run.token").exists():
                        if process.poll() is not None or time.monotonic() > end_s:
                            raise SystemExit("the run did not begin")
                        time.sleep(0.05)
                    with RunClient(control) as client:
                        play(Running(client, process, problem), plan)
                    if process.wait(MOST_S) != 0:
                        raise SystemExit("the run failed")
                finally:
                    process.terminate()
    except HippoError as error:
        raise SystemExit(str(error)) from None
    told = json.loads((asked.out / "run.json").read_text())
    off = max(abs(a / b - 1) for a, b in zip(told["loss"], told["reference_loss"], strict=True))
    _say(f"{len(told['loss'])} steps; the loss is that of one process to {off:.1e}; {asked.out / 'run.html'}")
    if off > MOST_OFF:
        raise SystemExit("the loss is another one")


if __name__ == "__main__":
    main()
