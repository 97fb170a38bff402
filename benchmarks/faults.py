"""Faults drawn evenly over kind and phase against a run of real layers over emulated links, each in a run of its own.

Two replicas of two stages, one in each of two domains, fp64; a checkpoint every third step, a move of a layer beside
the training, orders over the control socket. Each run meets one fault of a *kind* in a *phase*, at an instant drawn
within it (*forward*: whatever a step computes, backwards too; *agreement*: replicas sum), and is judged from outside:
the losses of all steps are those of one process (1e-9); nothing is left behind (processes, folders, shared memory, a
socket); it ends within its limit. Rows go to ``--record`` one by one, and those that are there are not played again, so
a batch may be broken off. ``--tell`` prints the table of what is recorded. A link is dead for longer than the run's
patience, 12 s against 8, or for a minute where that is 20 s. A porter, which hands on what replicas send one another
through a third domain, is killed or stopped. *Out of memory*: a process may hold half of what it holds; *killed for
memory*: it comes into a control group that may take none, and the kernel kills it (as root, control groups of the first
version). *Full disk*: files of 4 kB at most, or a disk that is full. *Alone*: a pipeline over both domains without a
replica, which nobody can go on with: the run ends within its limit, names the cause, and is resumed. ``--kinds`` names
some.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path
from statistics import median
from threading import Thread, Timer
from typing import Any

from hippo.emulate.emulate import emulate, setting_of
from hippo.emulate.emulation import emulation
from hippo.files import json_line, json_text
from hippo.plan.codec import plan_to_document
from hippo.plan.plan import Pipeline, Plan, Relay, Stage
from hippo.problem.cluster import Cluster, Domain, Link
from hippo.problem.gpus import gpu
from hippo.problem.model import gpt_model
from hippo.problem.problem import Problem
from hippo.problem.workload import Workload
from hippo.run import checkpoint
from hippo.run.control import PROTOCOL, Desk, RunClient, listening
from hippo.run.job import RunJob, RunOptions
from hippo.run.journal import Journal, read_journal
from hippo.run.lost import RunError
from hippo.run.reference import reference_losses
from hippo.run.run import LEAD_S, Crew, Emulated, RunStep, RunStretch, run
from hippo.run.saving import Saving
from hippo.run.version import Version

KINDS = (
    *("killed", "stopped", "out of memory", "link dead", "domain gone", "full disk"),
    *("torn journal", "two orders at once", "client gone", "porter gone", "link dead a minute"),
    "killed for memory",
    *("killed, alone", "stopped, alone", "domain gone, alone", "link dead, alone"),
)
ALONE = ", alone"
NAMESPACES = Path("/run/netns")
PHASES = ("forward", "agreement", "move", "checkpoint", "hand-over")
STEPS, EVERY, MOVE_AT = 12, 3, 4
LINK_OUT_S, TIMEOUT_S = 12.0, 8.0  # a dead link outlasts the run's patience
MINUTE_OUT_S, MINUTE_TIMEOUT_S = 60.0, 20.0
LIMIT_S = 150.0  # of a run with all that it waits for
GONE_WITHIN_S = 5.0  # processes of a launcher that was killed
MOST_OFF = 1e-9
DISK = "120m"  # holds three checkpoints of 26 MB

MODEL = gpt_model("gpt-1m", layers=4, hidden=128, heads=4, vocab=256, seq=32)
LINKS = tuple(Link(one, two, 2.5e7, 0.01, 0.0) for one, two in permutations("abc", 2))
CLUSTER = Cluster("three", gpu("A100-SXM-80GB"), tuple(Domain(each, 1, 2, 1e11, 1e11, 1e-6) for each in "abc"), LINKS)
PROBLEM = Problem(MODEL, CLUSTER, Workload(8, 32, "fp32"), runtime="hippo")
THROUGH = Relay("a", "b", "c"), Relay("b", "a", "c")


def line_of(cut: int) -> Plan:
    """One pipeline over two domains, cut before a layer."""
    stages = Stage("a", (0, cut), 1, 1, ("a/0/0",)), Stage("b", (cut, 6), 1, 1, ("b/0/0",))
    return Plan((Pipeline(stages, 4),), 2, precision="fp32")


def plan_of(cut: int, relays: tuple[Relay, ...] = ()) -> Plan:
    """A replica of two stages in each of two domains, cut before a layer."""
    lines = (
        Pipeline((Stage(d, (0, cut), 1, 1, (f"{d}/0/0",)), Stage(d, (cut, 6), 1, 1, (f"{d}/0/1",))), 2) for d in "ab"
    )
    return Plan(tuple(lines), 2, precision="fp32", relays=relays)


JOB = RunJob(PROBLEM, plan_of(3), RunOptions(steps=STEPS, precision="fp64", timeout_s=TIMEOUT_S))


def job_of(kind: str) -> tuple[RunJob, Plan]:
    """What meets a fault of a kind, and the plan that it moves to."""
    if kind == "porter gone":
        return replace(JOB, plan=plan_of(3, THROUGH)), plan_of(4, THROUGH)
    if kind.endswith(ALONE):
        return replace(JOB, plan=line_of(3)), line_of(4)
    if kind == "link dead a minute":
        return replace(JOB, options=replace(JOB.options, timeout_s=MINUTE_TIMEOUT_S)), plan_of(4)
    return JOB, plan_of(4)


# ------------------------------------------------------------------------------------------------------------ one fault
@dataclass(frozen=True)
class Fault:
    """What happens to a run, and when."""

    kind: str
    phase: str
    seed: int

    @property
    def name(self) -> str:
        """As a file may bear it."""
        return f"{self.kind}-{self.phase}-{self.seed}".replace(" ", "-")


class StruckCrew(Crew):
    """Processes that meet a fault."""

    def __init__(self, fault: Fault, strike: Callable[[StruckCrew], None], *rest: Any) -> None:
        super().__init__(*rest)
        self.fault, self.strike = fault, strike
        self.draw = random.Random(self.fault.name)
        self._step = self.draw.randint(3, STEPS - 2)
        self._before: RunStep | None = None
        self._save = self.draw.randint(1, STEPS // EVERY - 1)
        self.struck_s = 0.0

    def say(self, whom: Any, **told: Any) -> None:
        """As always, and then the fault where its phase begins."""
        super().say(whom, **told)
        delay_s = self._delay_s(told)
        if delay_s is not None and not self.struck_s:
            self.struck_s = time.monotonic() + delay_s
            Timer(delay_s, self.strike, (self,)).start()

    def finish(self, number: int, version: Version) -> Any:
        """Keeps what the step was, so that the next one's phases are known."""
        found = super().finish(number, version)
        self._before = found[0]
        return found

    def _delay_s(self, told: Mapping[str, Any]) -> float | None:
        """Until the fault, where its phase begins with these words; None: it does not."""
        part, before, phase = self.draw.random, self._before, self.fault.phase
        if phase == "checkpoint" and "save" in told:
            self._save -= 1
            return 0.1 * part() if self._save == 0 else None
        if phase == "hand-over" and "hand" in told:
            return 0.05 * part()
        if phase == "move" and told.get("background"):
            return 2.0 * (before.seconds if before else 0.2) * part()
        if before is None or told.get("go") != self._step:
            return None
        waits = [row for rows in before.operations for row in rows if row[0] == 3]  # for sums
        first, last = min(float(row[3]) for row in waits), max(float(row[4]) for row in waits)
        if phase == "forward":
            return LEAD_S + part() * first
        return LEAD_S + first + part() * (last - first) if phase == "agreement" else None


def strike_of(fault: Fault, control: Path) -> Callable[[StruckCrew], None]:
    """What the fault does."""

    def one(crew: StruckCrew) -> int:
        return crew.draw.choice([each.pid for each in crew.processes.values()])

    def link(gbps: float) -> None:
        around = emulation()
        assert around is not None, "links are emulated"
        for ends in ("ab", "ba"):
            around.set_link(*ends, gbps=gbps, latency_ms=10.0)

    def strike(crew: StruckCrew) -> None:
        kind = fault.kind.removesuffix(ALONE)
        if kind == "killed":
            os.kill(one(crew), signal.SIGKILL)
        elif kind == "stopped":
            os.kill(one(crew), signal.SIGSTOP)
        elif kind == "out of memory":
            process = one(crew)
            held = int(Path(f"/proc/{process}/statm").read_text().split()[0]) * resource.getpagesize()
            resource.prlimit(process, resource.RLIMIT_AS, (held // 2, held // 2))
        elif kind == "killed for memory":
            group = memory_group()
            group.mkdir()
            (group / "memory.limit_in_bytes").write_text("65536")
            (group / "cgroup.procs").write_text(str(one(crew)))
        elif kind.startswith("link dead"):
            link(0.0)
            Timer(LINK_OUT_S if kind == "link dead" else MINUTE_OUT_S, link, (0.2,)).start()
        elif kind == "porter gone":
            porters = [each.pid for number, each in crew.processes.items() if number not in crew._workers]
            os.kill(crew.draw.choice(porters), crew.draw.choice([signal.SIGKILL, signal.SIGSTOP]))
        elif kind == "domain gone":
            place = crew.draw.choice("ab")
            for number, worker in list(crew._workers.items()):
                if worker.domain == place and number in crew.processes:
                    crew.processes[number].kill()
        elif full_disk(fault):
            fill(control.with_name("saved"))
        elif kind == "full disk":
            for each in crew.processes.values():
                with suppress(ProcessLookupError):
                    resource.prlimit(each.pid, resource.RLIMIT_FSIZE, (4096, 4096))
        elif kind == "torn journal":
            os.kill(os.getpid(), signal.SIGKILL)
        elif kind == "two orders at once":
            for words in ({"order": "micro-batch", "size": 1}, {"order": "schedule", "name": "gpipe"}):
                Thread(target=_ask, args=(control, words), daemon=True).start()
        else:
            _leave(control, crew.draw)

    return strike


def full_disk(fault: Fault) -> bool:
    """Whether checkpoints lie on a disk of their own, which is full from the fault on: every second of its kind."""
    return fault.kind == "full disk" and fault.seed % 2 == 1


def fill(folder: Path) -> None:
    """Until nothing is left on its disk."""
    with suppress(OSError), (folder / "filler").open("wb", buffering=0) as stream:
        while stream.write(bytes(1 << 16)):
            pass


def memory_group() -> Path:
    """Of this process, for whom it lets run out of memory."""
    return Path("/sys/fs/cgroup/memory") / f"hippo-faults-{os.getpid()}"


def _killed_for_memory() -> int:
    """How many the kernel killed there; the group is given back."""
    group = memory_group()
    if not group.exists():
        return 0
    kills = int((group / "memory.oom_control").read_text().split()[-1])
    group.rmdir()
    return kills


def _ask(control: Path, words: Mapping[str, Any]) -> None:
    with suppress(Exception), RunClient(control) as client:  # a refusal is an answer, too
        client.ask({**words, "key": f"{words['order']}"})


def _leave(control: Path, draw: random.Random) -> None:
    """A client that goes in the middle of its order, or before its answer."""
    token = control.with_name(f"{control.name}.token").read_text()
    words = json.dumps({"order": "micro-batch", "size": 1, "key": "gone"}) + "\n"
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(control))
        client.sendall((json.dumps({"hello": PROTOCOL, "token": token}) + "\n").encode())
        client.sendall(words[: draw.choice([len(words), len(words) // 2])].encode())


def play(fault: Fault, folder: Path, *, again: bool) -> None:
    """The run of one fault, in this process; ``again``: the second half of one whose launcher was killed."""
    around, saved, control = emulation(), folder / "saved", folder / "run"
    assert around is not None, "it runs inside its links"
    (job, moved), before = job_of(fault.kind), tuple[float, ...]()
    if again and saved.exists() and any(saved.glob("step-*")):
        found = checkpoint.last(saved, MODEL)
        before = found.losses
        left, folder_ = STEPS - found.step, str(found.folder)
        job = replace(job, options=replace(job.options, first_step=found.step + 1, resume_from=folder_, steps=left))
    if full_disk(fault):
        saved.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(saved)], check=True)
    desk, missed = Desk(job, Journal(folder / "journal")), list[tuple[int, str]]()
    strike = None if again else strike_of(fault, control)
    crews: list[StruckCrew] = []

    def crew_of(*rest: Any) -> Crew:
        if strike is None:
            return Crew(*rest)
        crews.append(StruckCrew(fault, strike, *rest))
        return crews[0]

    steps: list[RunStep] = []
    ended_s: list[float] = []

    def watch(step: RunStep) -> None:
        steps.append(step)
        ended_s.append(time.monotonic())
        desk.made(step)
        if step.number == MOVE_AT and not again:
            desk.answer({"order": "plan", "plan": plan_to_document(PROBLEM, moved), "way": "background", "key": "move"})

    def miss(step: int, why: str) -> None:
        missed.append((step, why))
        desk.missed(step, why)

    error, stretches = "", tuple[RunStretch, ...]()
    with listening(control, lambda: desk):
        try:
            saving = Saving(saved, EVERY, before, miss)
            stretches = run(
                job, place=Emulated(around), watch=watch, saving=saving, changes=desk, crew_of=crew_of
            ).stretches
        except RunError as failed:
            error = str(failed)
        orders = desk.status()["orders"]
    struck = crews[0].struck_s if crews else 0.0
    if fault.kind == "killed for memory" and struck and _killed_for_memory() != 1:
        error = f"{error}; the kernel killed nobody"
    told = {
        "losses": [*before, *(step.loss for step in steps)],
        "error": error,
        "struck": bool(struck),
        "on_s": next((each - struck for each in ended_s if struck and each > struck), None),
        "lost": [stretch.change.lost for stretch in stretches if stretch.change is not None and stretch.change.lost],
        "missed": missed,
        "orders": [(each["kind"], each["state"]) for each in orders],
        "twice": twice(read_journal(folder / "journal")),
        "saved": sorted(path.name for path in saved.iterdir()) if saved.exists() else [],
    }
    if full_disk(fault):
        subprocess.run(["umount", str(saved)], check=True)
    (folder / "out.json").write_text(json_text(told))


def twice(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Orders of the last run in a journal that were numbered or done more than once."""
    begun = max(at for at, line in enumerate(lines) if line["kind"] == "begun")
    told = Counter((line["kind"], line["key"]) for line in lines[begun:] if line["kind"] == "order")
    told.update(("done", str(line["order"])) for line in lines[begun:] if line["kind"] == "done")
    return [f"{kind} {what}" for (kind, what), count in told.items() if count > 1]


# --------------------------------------------------------------------------------------------------------------- judge
def judged(fault: Fault, expected: Sequence[float]) -> dict[str, Any]:
    """Plays a fault in processes of its own, and looks at what it did and left."""
    began_s, shared = time.monotonic(), set(os.listdir("/dev/shm"))
    with tempfile.TemporaryDirectory(prefix="hippo-fault-") as name:
        folder, runs = Path(name), Path(name, "runs")
        runs.mkdir()
        hung, ended, out = _played(fault, folder, runs), {}, folder / "out.json"
        if fault.kind == "torn journal" and not out.exists():
            _tear(folder / "journal", random.Random(fault.name))
            hung = hung or _played(fault, folder, runs, "--again")
        if fault.kind.endswith(ALONE) and out.exists() and (first := json.loads(out.read_text()))["error"]:
            ended = {"ended": first["error"], "made": len(first["losses"]), "struck": first["struck"]}
            ended["left_then"] = _left(folder, runs, shared)
            out.unlink()
            hung = hung or _played(fault, folder, runs, "--again")
        until_s = time.monotonic() + GONE_WITHIN_S
        while (left := _left(folder, runs, shared)) and time.monotonic() < until_s:
            time.sleep(0.1)
        log = (folder / "log").read_text()
        told = json.loads(out.read_text()) if out.exists() else {"error": "no answer", "log": log[-2000:]}
    losses = told.pop("losses", [])
    off = max((abs(a / b - 1) for a, b in zip(losses, expected, strict=False)), default=0.0)
    return {
        **{"kind": fault.kind, "phase": fault.phase, "seed": fault.seed, "seconds": time.monotonic() - began_s},
        **{"hung": hung, "left": left, "off": off, "wrong": off > MOST_OFF, "steps": len(losses), **told, **ended},
    }


def _played(fault: Fault, folder: Path, runs: Path, *more: str) -> bool:
    """Whether it took longer than its limit."""
    words = ["--one", fault.kind, fault.phase, str(fault.seed), str(folder), *more]
    command = [sys.executable, "-m", "benchmarks.faults", *words]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | {"TMPDIR": str(runs)})
        try:
            process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return True
    return False


def _tear(journal: Path, draw: random.Random) -> None:
    """Cuts into the last line, as a crash amid writing does."""
    content = journal.read_bytes()
    last = content.rstrip(b"\n").rfind(b"\n") + 1
    journal.write_bytes(content[: draw.randint(last, len(content))])


def _left(folder: Path, runs: Path, shared: set[str]) -> list[str]:
    """Processes, folders, sockets and shared memory that are still there."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if str(runs).encode() in (entry / "cmdline").read_bytes():
                found.append(f"process {entry.name}")
    found += [f"folder {each.name}" for each in runs.iterdir()]
    found += [f"socket {each.name}" for each in folder.iterdir() if each.is_socket()]
    found += [f"hidden {each.name}" for each in folder.glob("saved/.step-*")]
    return found + [f"shared memory {each}" for each in {*os.listdir("/dev/shm")} - shared]


def batch(record: Path, kinds: Sequence[str], numbers: Iterable[int], most_s: float) -> None:
    """Plays what is not recorded yet, evenly, until all are or the time is over."""
    end_s = time.monotonic() + most_s
    done = {(row["kind"], row["phase"], row["seed"]) for row in recorded(record)}
    expected = reference_losses(JOB, lambda phase, share: None)
    for number in numbers:
        cell = number % (len(kinds) * len(PHASES))
        fault = Fault(kinds[cell % len(kinds)], PHASES[cell // len(kinds)], number // (len(kinds) * len(PHASES)))
        if (fault.kind, fault.phase, fault.seed) in done:
            continue
        if time.monotonic() > end_s:
            return
        row = judged(fault, expected)
        with record.open("a") as stream:
            stream.write(json_line(row))
        sys.stderr.write(f"{fault.name}: {row['seconds']:.0f} s {row['error'] or 'went on'}\n")


def recorded(record: Path) -> list[dict[str, Any]]:
    """The rows of a record."""
    return [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """By kind: how many, and what became of them."""
    titles = (
        "kind | faults | least in a phase | left-overs | wrong losses | orders twice | hangs | ended early | "
        "ended, named and resumed | processes lost | on, s"
    )
    lines = [f"| {titles} |", "|---" * 11 + "|"]
    for kind in KINDS:
        if not (mine := [row for row in rows if row["kind"] == kind]):
            continue
        least = min(sum(row["phase"] == phase for row in mine) for phase in PHASES)
        on = [row["on_s"] for row in mine if row.get("on_s") is not None]
        cells = [kind, len(mine), least]
        cells += [sum(bool(row.get(key)) for row in mine) for key in ("left", "wrong", "twice", "hung", "error")]
        cells.append(sum(named(row) and row["steps"] == STEPS and not row["error"] for row in mine))
        cells.append(sum(bool(row.get("lost")) for row in mine))
        cells.append(f"{median(on):.2f}, at most {max(on):.1f}" if on else "")
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def named(row: Mapping[str, Any]) -> bool:
    """Whether a run ended saying who was lost, or waited for whom."""
    return bool(re.search(r"rank \d", row.get("ended", "")))


def main() -> None:
    """Plays a batch inside its links, or tells of the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", type=Path, default=Path("results/faults.jsonl"))
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=list(KINDS))
    parser.add_argument("--count", type=int, default=385)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument(
        "--part", type=int, nargs=2, default=(0, 1), metavar=("I", "N"), help="every N-th, from the I-th on"
    )
    parser.add_argument("--tell", action="store_true")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--again", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        kind, phase, seed, folder = asked.one
        play(Fault(kind, phase, int(seed)), Path(folder), again=asked.again)
    elif asked.inside:
        batch(asked.record, asked.kinds, range(asked.part[0], asked.count, asked.part[1]), 60 * asked.minutes)
    else:
        if not asked.tell:
            words = ["--record", str(asked.record), "--count", str(asked.count), "--minutes", str(asked.minutes)]
            words += ["--inside", "--part", *map(str, asked.part), "--kinds", *asked.kinds]
            command = [sys.executable, "-m", "benchmarks.faults", *words]
            spaces = {*NAMESPACES.glob("*")}
            assert emulate(setting_of(CLUSTER, command, source="faults")).exit_code == 0, "the batch failed"
            assert {*NAMESPACES.glob("*")} <= spaces, "a namespace is left"
        print(table(recorded(asked.record)))


if __name__ == "__main__":
    main()
