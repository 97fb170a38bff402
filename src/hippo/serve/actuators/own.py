"""hippo's own executor: a job is a ``hippo run`` of its own, which takes orders and outlives the service.

Each job has a folder: ``plan.json``, the run's socket, journal, checkpoints and page, and ``state.json`` with the key
of the last order that was carried out. The run is planned for the devices of its place when it begins or moves; layers
move beside the training where they can. All is found again from the folders, the processes and the runs' own words.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any

from hippo.errors import HippoError, InfeasibleError, InputError
from hippo.files import json_text, write_whole
from hippo.problem.cluster import Cluster
from hippo.problem.load import load_model
from hippo.run.checkpoint import last
from hippo.run.control import RefusedError, RunClient, journal_of
from hippo.serve.actuators.base import ActuatorError
from hippo.serve.actuators.placing import plan_at, runs_cluster, runs_folder, until
from hippo.serve.records import (
    BEGIN,
    CANCEL,
    DONE,
    FAILED,
    MOVE,
    RESIZE,
    RUNNING,
    STEERED,
    JobOrder,
    LinkPoint,
    Receipt,
    SeenJob,
)

CHECKPOINT_EVERY = 25  # steps
BEGINS_WITHIN_S, MOVES_WITHIN_S, ENDS_WITHIN_S = 120.0, 120.0, 20.0
PATIENCE_S = 300
"""A run in which nothing moves for so long ends."""
SEED = 0
RUNTIME = "hippo:live"  # levers act at the border of a step
LOOKS_EVERY_S, LEVER_S = 0.1, 120.0
"""At an order for a plan that is under way; and how long, before it is asked for anew."""
TELLS_BYTES = 1e6
"""Less over a link in a step says nothing of what it carries."""
GIVES_WAY = ("nice", "-n", "5")
"""Where cores are few, who trains gives way to who watches."""


@dataclass(frozen=True)
class KeptRun:
    """What is kept of a job."""

    key: str
    first: str  # key of the order that began the processes
    steps: int  # in all
    pid: int
    over: str = ""  # DONE or FAILED
    told: str = ""


@dataclass(frozen=True)
class PlanMove:
    """Layers of a job that move to another plan, as its run forecast it."""

    since_s: float  # monotonic
    lasts_s: float
    stands: bool

    @property
    def arrived(self) -> float:
        """Share of it that should have arrived."""
        return min(1.0, (time.monotonic() - self.since_s) / self.lasts_s) if self.lasts_s > 0 else 1.0


class Own:
    """See the top of the file. ``folder`` and ``cluster``: else of ``HIPPO_RUNS`` and ``HIPPO_RUNS_CLUSTER``."""

    name = "own"
    tells = True
    steers = True

    def __init__(self, folder: Path | None = None, cluster: str | Path | None = None) -> None:
        self.cluster: Cluster = runs_cluster(cluster, self.name)
        self.folder = runs_folder(folder)
        self._lock = Lock()  # of what is kept of jobs
        self._moves: dict[str, PlanMove] = {}  # under way, by job
        self._looks: dict[str, tuple[int, float, tuple[LinkPoint, ...]]] = {}  # at runs: step, when, what links carried
        self._over: set[str] = set()  # jobs that have ended, which the service knows
        self._numbers: dict[str, int] = {}  # that the runs of jobs gave the orders for their plans that are under way

    def close(self) -> None:
        """Runs go on."""

    def lacks(self, spec: Mapping[str, Any]) -> str:
        """A model to train."""
        return (
            "" if spec.get("tokens") else "job: tokens: is missing. To fix: name model and tokens, or another actuator"
        )

    # ------------------------------------------------------------------------------------------------------- orders
    def carry_out(self, order: JobOrder) -> Receipt:
        """Begin, move or end a run, once for each key."""
        self._over.discard(order.job)
        home = self.folder / order.job
        state = _state(home)
        if state is not None and state.key == order.key:
            return Receipt(True, "was carried out before", _plan(home))
        if order.act in STEERED:
            return self._steer(home, state, order)
        if order.act == BEGIN or (order.act == RESIZE and not _alive(home, state)):
            return self._begin(home, order)
        if order.act == RESIZE:
            assert state is not None
            return self._move(home, state, order)
        _end(home, state)
        if state is not None:
            with self._lock:
                _keep(home, replace(state, key=order.key))
        return Receipt(True, "ended; its checkpoint is kept")

    def _begin(self, home: Path, order: JobOrder) -> Receipt:
        home.mkdir(parents=True, exist_ok=True)
        if (pid := _process(home, order.key)) is not None:  # the service was killed between the act and its note
            with self._lock:
                _keep(home, KeptRun(order.key, order.key, _steps(order), pid))
            return Receipt(True, "had begun before", _plan(home))
        _end(home, _state(home))
        try:
            document = plan_at(self.cluster, order, precision="fp32", runtime=RUNTIME)
        except InfeasibleError as error:
            return Receipt(False, f"no plan: {error}")
        except InputError as error:
            return Receipt(False, str(error))
        write_whole(home / "plan.json", json_text(document))
        journal_of(home / "run").unlink(missing_ok=True)  # what was ordered to the run before is in this plan, or past
        checkpoints, done = home / "checkpoints", 0
        if checkpoints.exists() and any(checkpoints.iterdir()):
            with suppress(HippoError):
                done = last(checkpoints, load_model(order.spec["model"]), seed=SEED).step
        words = ["--steps", str(max(1, _steps(order) - done)), "--control", str(home / "run"), "--no-reference"]
        words += ["--checkpoint", str(checkpoints), "--every", str(CHECKPOINT_EVERY), "--precision", "fp32"]
        words += ["--timeout", str(PATIENCE_S), "--out", str(home / "out")] + (["--resume"] if done else [])
        (home / "out" / "run.json").unlink(missing_ok=True)
        with open(home / "log.txt", "ab") as log:
            process = subprocess.Popen(
                [*GIVES_WAY, sys.executable, "-m", "hippo", "run", str(home / "plan.json"), *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **order.environment, "HIPPO_ORDER": order.key},
            )
        _PROCESSES[process.pid] = process
        with self._lock:
            _keep(home, KeptRun(order.key, order.key, _steps(order), process.pid))
        if not until(lambda: (home / "run.token").exists() or process.poll() is not None, BEGINS_WITHIN_S):
            _end(home, _state(home))
            return Receipt(False, f"did not begin within {BEGINS_WITHIN_S:g} s")
        if process.poll() not in (None, 0):
            return Receipt(False, _last_words(home))
        return Receipt(True, f"goes on from step {done}" if done else "began", document)

    def _move(self, home: Path, state: KeptRun, order: JobOrder) -> Receipt:
        try:
            document = plan_at(self.cluster, order, precision="fp32", runtime=RUNTIME)
        except HippoError as error:
            return Receipt(False, f"no plan: {error}", _plan(home))
        try:
            with RunClient(home / "run") as run:
                told = _ask_to_move(run, document, order.key)
        except RefusedError as error:
            return Receipt(False, str(error), _plan(home))
        except (InputError, OSError) as error:  # it may have taken the order
            raise ActuatorError(f"the run says nothing: {error}") from None
        if told.get("state") == "done":
            write_whole(home / "plan.json", json_text(document))
            with self._lock:
                _keep(home, replace(state, key=order.key))
            stopped, took = told.get("stopped_s"), told.get("measured_s")
            return Receipt(
                True, f"moved: stopped {stopped or 0.0:.2f} s of {took or 0.0:.2f} s, loss goes on", document
            )
        return Receipt(False, str(told.get("why") or "the move was given up"), _plan(home))

    def _steer(self, home: Path, state: KeptRun | None, order: JobOrder) -> Receipt:
        """Another plan on the devices that a job has, from the border of a step on; or what moves there given up."""
        if state is None or not _alive(home, state):
            return Receipt(False, "it does not run")
        try:
            if order.act == CANCEL:
                return self._give_up(home, order)
            try:
                told = self._changed(home, order)
            finally:
                self._moves.pop(order.job, None)
                self._numbers.pop(order.job, None)
        except RefusedError as error:
            return Receipt(False, str(error))
        except (InputError, OSError) as error:  # it may have taken the order
            raise ActuatorError(f"the run says nothing: {error}") from None
        if told.get("state") != "done":
            return Receipt(False, str(told.get("why") or "it was given up"))
        assert order.plan is not None, "it is decided with its plan"
        write_whole(home / "plan.json", json_text(dict(order.plan)))
        with self._lock:
            _keep(home, replace(state, key=order.key))
        after, stopped_s = told.get("after_step"), told.get("stopped_s") or 0.0
        return Receipt(True, f"holds after step {after}: stopped {stopped_s:.2f} s, loss goes on", order.plan)

    def _give_up(self, home: Path, order: JobOrder) -> Receipt:
        """What is under way of a job's plan, and nothing that was ordered otherwise."""
        if (number := self._numbers.get(order.job)) is None:
            return Receipt(False, "nothing of its plan is under way")
        with RunClient(home / "run") as run:
            run.ask({"order": "give-up", "number": number, "key": order.key})
        return Receipt(True, "is given up at the next border")

    def _changed(self, home: Path, order: JobOrder) -> Mapping[str, Any]:
        """Order a plan, and wait for what becomes of it: for layers as long as they take, as who ordered that may give
        it up; for a lever ``LEVER_S``, and then who waits behind it is asked first."""
        asked = {"order": "plan", "plan": dict(order.plan or {}), "way": order.way or "stop", "key": order.key}
        with RunClient(home / "run") as run:
            try:
                told = run.ask(asked)
            except RefusedError as error:
                if "changes nothing" in str(error):
                    return {"state": "done"}
                raise
            if order.act == MOVE:
                lasts_s = float((told.get("move") or {}).get("predicted_s") or 0.0)
                self._moves[order.job] = PlanMove(time.monotonic(), lasts_s, order.way != "background")
            number = self._numbers[order.job] = int(told["accepted"])
            began_s = time.monotonic()
            while order.act == MOVE or time.monotonic() < began_s + LEVER_S:
                found: Mapping[str, Any] = run.ask({"ask": "status"})["orders"][number - 1]
                if found["state"] != "accepted":
                    return found
                time.sleep(LOOKS_EVERY_S)
            raise ActuatorError(f"its run has not come to it within {LEVER_S:g} s")

    # --------------------------------------------------------------------------------------------------- what there is
    def seen(self) -> Sequence[SeenJob]:
        """All runs that are not forgotten, by their folders, processes and own words."""
        with os.scandir(self.folder) as there:
            names = sorted(each.name for each in there if each.name not in self._over)
        return tuple(found for each in names if (found := self._seen(self.folder / each)) is not None)

    def forget(self, job: SeenJob) -> None:
        """Its folder, which stays, is not read again."""
        self._over.add(job.job)
        self._looks.pop(job.job, None)

    def _seen(self, home: Path) -> SeenJob | None:
        state = _state(home)
        if state is None:
            return None
        if state.over:
            return SeenJob(home.name, state.key, state.over, 1.0 if state.over == DONE else None, told=state.told)
        if not _alive(home, state):
            whole = (home / "out" / "run.json").exists()
            with self._lock:
                if _state(home) == state:  # no order has come meanwhile
                    words = "" if whole else _last_words(home)
                    _keep(home, replace(state, over=DONE if whole else FAILED, told=words))
            return self._seen(home) if _state(home) != state else None
        try:
            with RunClient(home / "run", timeout_s=2.0) as run:
                told = run.ask({"ask": "status"})
        except (InputError, OSError):
            return SeenJob(home.name, state.key, RUNNING)
        step, step_s, move = int(told["step"]), told.get("step_s"), self._moves.get(home.name)
        return SeenJob(
            home.name,
            state.key,
            RUNNING,
            min(0.999, step / state.steps),
            step_s,
            told.get("loss"),
            left_s=None if step_s is None else max(0.0, (int(told["last_step"]) - step) * step_s),
            arrived=None if move is None else move.arrived,
            stands=move is not None and move.stands,
            links=self._carried(home.name, step, step_s, told.get("links") or ()),
        )

    def _carried(
        self, job: str, step: int, step_s: float | None, used: Sequence[Mapping[str, Any]]
    ) -> tuple[LinkPoint, ...]:
        """What links carried at least in the last step, as of the earliest time at which it can have begun."""
        now_s, (last, last_s, found) = time.time(), self._looks.get(job, (step, time.time(), ()))
        if step != last:
            began_s = last_s - (step_s or 0.0)
            told = [each for each in used if each["bytes"] >= TELLS_BYTES]
            found = tuple(LinkPoint(began_s, each["from"], each["to"], each["bytes_per_s"], None, job) for each in told)
        self._looks[job] = step, now_s, found
        return found


_PROCESSES: dict[int, subprocess.Popen[bytes]] = {}
"""Children of this process, which would stay as zombies were they not asked after."""


def _ask_to_move(run: RunClient, document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Another plan, beside the training where that can be; what became of it."""
    try:
        number = run.ask({"order": "plan", "plan": dict(document), "way": "background", "key": key})["accepted"]
    except RefusedError as error:
        if "changes nothing" in str(error):
            return {"state": "done"}
        number = run.ask({"order": "plan", "plan": dict(document), "way": "stop", "key": f"{key}-stop"})["accepted"]
    found: dict[str, Any] = {}

    def over() -> bool:
        found.update(run.ask({"ask": "status"})["orders"][number - 1])
        return bool(found["state"] != "accepted")

    if not until(over, MOVES_WITHIN_S):
        run.ask({"order": "give-up", "number": number, "key": f"{key}-up"})
        until(over, ENDS_WITHIN_S)
    return found


def _steps(order: JobOrder) -> int:
    """Steps of a job in all."""
    return max(1, round(float(order.spec["tokens"]) / (int(order.spec["batch"]) * int(order.spec["seq"]))))


def _state(home: Path) -> KeptRun | None:
    try:
        return KeptRun(**json.loads((home / "state.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _plan(home: Path) -> dict[str, Any] | None:
    """Under which a run was begun, or moved to."""
    try:
        return dict(json.loads((home / "plan.json").read_text()))
    except (OSError, ValueError):
        return None


def _keep(home: Path, state: KeptRun) -> None:
    write_whole(home / "state.json", json.dumps(state.__dict__))


def _alive(home: Path, state: KeptRun | None) -> bool:
    if state is None:
        return False
    known = _PROCESSES.get(state.pid)
    if known is not None:
        return known.poll() is None
    return _is_ours(state.pid, state.first)


def _is_ours(pid: int, key: str) -> bool:
    """Whether a process is the run that an order began."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return status != "Z" and f"HIPPO_ORDER={key}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _process(home: Path, key: str) -> int | None:
    """The launcher that an order began, whoever has forgotten it."""
    plan_file = str(home / "plan.json").encode()
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (each / "cmdline").read_bytes().split(b"\0")
            if plan_file in words and b"hippo" in words and _is_ours(int(each.name), key):
                return int(each.name)
    return None


def _end(home: Path, state: KeptRun | None) -> None:
    """End the processes of a run, if it has any."""
    if state is None or not _alive(home, state):
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(OSError):
            os.killpg(state.pid, number)
        if until(lambda: not _alive(home, state), ENDS_WITHIN_S):
            return


def _last_words(home: Path) -> str:
    with suppress(OSError):
        lines = (home / "log.txt").read_bytes().decode(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "its processes ended without a word"
    return "its processes ended without a word"
