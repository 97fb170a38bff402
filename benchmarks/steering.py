"""How soon a service answers a link that collapses under a running job: seconds from the measurement that shows it to
the order in the store, to the run's word that it has it, and to the border at which the run goes over.

    python -m benchmarks.steering [--rounds N] [--json]
    python -m benchmarks.steering --move

A real ``hippo run`` (actuator ``own``) of one pipeline over three domains in the emulated WAN of this machine, no root
needed; the service's loop with its store, steered by ``hi_ppo``. Once the run goes steadily, the link between the first
two stages collapses to a fiftieth, later it comes back, and again; each time links are measured a period later at the
latest, so these seconds are what comes on top of the telemetry's period.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import sqlalchemy as sql
from tests.serve.worlds import whole_offer

from hippo.emulate.emulate import emulate, setting_of
from hippo.emulate.emulation import emulation
from hippo.errors import HippoError, InputError
from hippo.files import write_files
from hippo.front_door.service import Client
from hippo.jobs.job import TrainingKind
from hippo.problem.load import load_cluster
from hippo.registry import JOB_SCHEDULERS, load
from hippo.run.control import RunClient
from hippo.run.journal import read_journal
from hippo.serve import demo
from hippo.serve import tables as t
from hippo.serve.actuators.own import Own
from hippo.serve.jobs import take_in
from hippo.serve.loop import LoopTerms, ServeLoop
from hippo.serve.records import STEERED, LinkPoint, StoredDecision
from hippo.serve.site import ServedSite
from hippo.serve.steering import Steering, SteeringTerms
from hippo.serve.store import Store, decision_of_row
from hippo.units import bytes_per_s_from_gbps

DOMAINS = ("oslo", "lyon", "porto")
MODEL = {**demo.MODEL, "n_layer": 10}
GBPS, LATENCY_MS, COLLAPSE = 0.4, 5.0, 0.02
PERIOD_S = 1.0
STEPS = 20_000
STEADY_S, WITHIN_S, MOVE_WITHIN_S = 15.0, 60.0, 180.0
ASKED_S = 2.0


def cluster_text() -> str:
    """Three domains of one GPU, a share of a core each."""
    lines = ["name: steered", demo.files()["demo.yaml"].splitlines()[1], "domains:"]
    lines += [f"  - {{name: {name}, nodes: 1, gpus_per_node: 1, intra_node_gbps: 20}}" for name in DOMAINS]
    lines.append("links:")
    for at, one in enumerate(DOMAINS):
        for two in DOMAINS[at + 1 :]:
            lines.append(
                f"  - {{from: {one}, to: {two}, bandwidth_gbps: {GBPS}, latency_ms: {LATENCY_MS}, both: true}}"
            )
    return "\n".join([*lines, ""])


class Steered:
    """The service of one run, inside the emulation."""

    def __init__(self, folder: Path, method: str) -> None:
        inside = emulation()
        assert inside is not None, "inside an emulated WAN"
        self.inside, self.folder = inside, folder
        cluster = load_cluster(folder / "steered.yaml")
        self.model = str(folder / "small.json")
        self.store = Store(f"sqlite:///{folder / 'store.db'}")
        rule, began_s = load(JOB_SCHEDULERS, "policy", "srpt"), time.time()
        site = ServedSite.of(cluster, rule, began_s)
        kind = TrainingKind(self.model, demo.BATCH, demo.SEQ)
        site.learn(whole_offer(kind, [each.gpus for each in cluster.domains]))
        steering = Steering(SteeringTerms(method), cluster, began_s)
        terms = LoopTerms(mode="act", actuator="own")
        self.own = Own(folder / "runs", folder / "steered.yaml")
        self.loop = ServeLoop(self.store, site, [self.own], terms, rule=rule, clock=time.time, steering=steering)
        self.share = dict.fromkeys(((one, two) for one in DOMAINS for two in DOMAINS if one != two), 1.0)
        self.pushed_s = 0.0

    def submit(self) -> None:
        """One job over all domains."""
        tokens = float(demo.BATCH * demo.SEQ * STEPS)
        spec = {"model": self.model, "batch": demo.BATCH, "seq": demo.SEQ, "tokens": tokens, "least": 3, "most": 3}
        job, _ = self.store.write(take_in(spec, "one", "me", time.time())).result()
        self.loop.come(job)

    def carry(self, ends: tuple[str, str], share: float) -> None:
        """A link carries a share of what is bought, both ways."""
        for pair in (ends, ends[::-1]):
            self.share[pair] = share
            self.inside.set_link(*pair, gbps=GBPS * share, latency_ms=LATENCY_MS)

    def push(self) -> None:
        """Every link, measured now."""
        now_s = time.time()
        rate = bytes_per_s_from_gbps(GBPS)
        told = [LinkPoint(now_s, *pair, rate * share, LATENCY_MS / 1e3) for pair, share in self.share.items()]
        self.loop.points(told)
        self.pushed_s = now_s

    def until(self, what: Callable[[], Any], most_s: float) -> Any:
        """Push every period until something holds; None: it has not come about."""
        end_s = time.time() + most_s
        while time.time() < end_s:
            if time.time() - self.pushed_s >= PERIOD_S:
                self.push()
            if found := what():
                return found
            time.sleep(0.02)
        return None

    def decisions(self) -> list[StoredDecision]:
        """About plans."""
        asked = sql.select(t.DECISIONS).where(t.DECISIONS.c.act.in_(STEERED)).order_by("number")
        return [decision_of_row(each) for each in self.store.read(lambda at: at.execute(asked).all())]

    def said(self) -> list[str]:
        """By the service, of itself."""
        asked = sql.select(t.EVENTS.c.told).where(t.EVENTS.c.kind == "service")
        return [json.loads(each)["told"] for each in self.store.read(lambda at: at.execute(asked).scalars().all())]

    def status(self) -> dict[str, Any]:
        """Of the run."""
        try:
            with RunClient(self.folder / "runs" / "j1" / "run", timeout_s=5.0) as run:
                return run.ask({"ask": "status"})
        except (InputError, OSError):
            return {}

    def one(self, ends: tuple[str, str], share: float) -> dict[str, Any]:
        """A link changes: seconds from the measurement that shows it to what is done about it."""
        before, orders = len(self.decisions()), len(self.status()["orders"])
        step_s, first = self.status()["step_s"], self.status()["step"]
        self.carry(ends, share)
        self.push()
        shown_s = self.pushed_s
        found: dict[str, Any] = {"share": share, "step_before_s": step_s}

        def decided() -> bool:
            rows = self.decisions()[before:]
            if rows:
                found["act"], found["lever"] = rows[0].act, (rows[0].after or {}).get("lever")
                found.setdefault("decided_s", rows[0].time_s - shown_s)
            told = self.status().get("orders", [])[orders:]
            if told:
                found.setdefault("acknowledged_s", time.time() - shown_s)
            return bool(told) and told[0]["state"] != "accepted"

        if self.until(decided, WITHIN_S):
            done = self.status()["orders"][orders]
            found |= {"executed_s": time.time() - shown_s, "state": done["state"], "stopped_s": done.get("stopped_s")}
            made, ready = self.status()["step"], done.get("after_step") or 0
            lines = read_journal(self.folder / "runs" / "j1" / "run.journal")
            slow = [each["seconds"] for each in lines if each.get("kind") == "step" and first < each["step"] <= ready]
            found |= {"steps_until": len(slow), "slowest_step_s": max(slow, default=None)}
            self.until(lambda: self.status().get("step", 0) >= made + 3, WITHIN_S)
            found["step_after_s"] = self.status()["step_s"]
        return found

    def close(self) -> None:
        """The run ends with its service."""
        self.loop.close()
        self.store.close()
        for state in (self.folder / "runs").glob("*/state.json"):
            os.killpg(int(json.loads(state.read_text())["pid"]), signal.SIGTERM)


def inside(folder: Path, rounds: int, method: str) -> None:
    """Collapses and comes back so often; writes what was seen."""
    made = Steered(folder, method)
    rows: list[dict[str, Any]] = []
    try:
        made.push()
        made.loop.start()
        made.submit()
        assert made.until(lambda: made.status().get("step", 0) > 3, 300.0), "the run never began"
        assert made.until(lambda: made.loop.steering.pilots["j1"].begun, 300.0), "nobody decides"  # type: ignore[union-attr]
        made.until(lambda: False, STEADY_S)
        ends = DOMAINS[0], DOMAINS[1]
        for _ in range(rounds):
            for share in (COLLAPSE, 1.0):
                rows.append(made.one(ends, share))
                made.until(lambda: False, STEADY_S)
        lines = [each for each in read_journal(folder / "runs" / "j1" / "run.journal") if each.get("kind") == "step"]
        told = {"rows": rows, "losses": [each["loss"] for each in lines], "steps": [each["step"] for each in lines]}
        told["decisions"] = [[each.act, each.state, each.policy, each.told] for each in made.decisions()]
        told["said"] = made.said()
        (folder / "found.json").write_text(json.dumps(told))
    finally:
        made.close()


def measured(rounds: int, method: str = "hi_ppo") -> dict[str, Any]:
    """What was seen in an emulation of its own."""
    with TemporaryDirectory(prefix="hippo-steering-") as name:
        folder = Path(name)
        write_files(folder, {"steered.yaml": cluster_text(), "small.json": json.dumps(MODEL)})
        options = ("--inside", name, "--rounds", str(rounds), "--method", method)
        command = (sys.executable, "-m", "benchmarks.steering", *options)
        cluster = load_cluster(folder / "steered.yaml")
        outcome = emulate(setting_of(cluster, command, source="steering"))
        assert outcome.exit_code == 0, "it broke inside"
        return dict(json.loads((folder / "found.json").read_text()))


def moved() -> dict[str, float]:
    """Seconds from when the service heard of the demo's first collapse to what came of it."""
    with TemporaryDirectory(prefix="hippo-steering-") as name:
        folder, found = Path(name) / "demo", dict[str, float]()
        command = [sys.executable, "-m", "hippo", "serve", "--demo", str(folder), "--port", "0"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            try:
                assert process.stderr is not None
                line = next(each for each in process.stderr if "the page:" in each)
                url, _, token = line.split()[-1].partition("/#token=")
                with Client(url, token) as service:
                    rows, end_s = list[dict[str, Any]](), time.time() + MOVE_WITHIN_S
                    while not rows and time.time() < end_s:
                        with suppress(HippoError), RunClient(folder / "runs" / "j1" / "run", timeout_s=5.0) as run:
                            if run.ask({"ask": "status"})["orders"]:
                                found.setdefault("taken_s", time.time())
                        with suppress(HippoError):
                            about = service.why("j1") if "taken_s" in found else []
                            rows = [each for each in about if (each["act"], each["state"]) == ("resize", "carried out")]
                        time.sleep(0.02)
                    assert rows, "nothing moved"
                    found |= {"decided_s": rows[-1]["ordered_s"], "there_s": time.time()}
                    for event in service.events(since=0):
                        if event["kind"] == "links" and event["time_s"] <= found["decided_s"]:
                            shown_s = float(event["time_s"])
                        elif event["kind"] == "decision" and event["act"] == "resize":
                            return {what: at_s - shown_s for what, at_s in found.items()}
            finally:
                process.send_signal(signal.SIGINT)
                process.wait(60.0)
    raise AssertionError("no decision was told")


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--method", default="hi_ppo")
    parser.add_argument("--move", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.inside is not None:
        inside(asked.inside, asked.rounds, asked.method)
        return
    if asked.move:
        print(json.dumps(moved()))
        return
    found = measured(asked.rounds, asked.method)
    if asked.json:
        print(json.dumps(found))
        return
    for row in found["rows"]:
        print(json.dumps(row))
    for share, words in ((COLLAPSE, "collapse"), (1.0, "back")):
        rows = [each for each in found["rows"] if each["share"] == share and "executed_s" in each]
        print(f"{words}: answered {len(rows)} of {asked.rounds}")
        for name in ("decided_s", "acknowledged_s", "executed_s"):
            seconds = [each[name] for each in rows]
            if seconds:
                print(f"  {name[:-2]}: median {median(seconds):.2f} s, at most {max(seconds):.2f} s")


if __name__ == "__main__":
    main()
