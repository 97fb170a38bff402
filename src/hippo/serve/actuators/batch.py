"""Engines that somebody else runs (Slurm, Ray, Kueue): a job is a batch job of theirs, and begins anew from its
checkpoint when it moves.

The key of an order is the name of the engine's job: what was begun is found again whoever has forgotten it. A job has a
folder that its nodes see: ``place.json``, ``plan.json`` (of elastic training), ``before.json`` (the plan under which it
last left checkpoints), what it says of itself in ``progress.json`` (share_done, step_s, loss),
``log.txt``, its checkpoints, and ``exit-KEY`` once it has ended.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

from hippo.errors import HippoError
from hippo.files import json_text, write_whole
from hippo.problem.cluster import Cluster
from hippo.problem.runtimes import RUNTIMES
from hippo.serve.actuators.base import ActuatorError
from hippo.serve.actuators.placing import held_gpus, nodes_of, plan_at, runs_cluster, runs_folder, until
from hippo.serve.records import DONE, FAILED, RUNNING, STOP, JobOrder, Receipt, SeenJob

ENDS_WITHIN_S, BEGINS_WITHIN_S = 60.0, 120.0
LOOK_EVERY_S = 0.3
PENDING, TAKEN = "pending", "taken"
"""It waits at its engine; its engine has taken its devices away, and may begin it again."""
ALIVE = (PENDING, RUNNING)
HELD = (*ALIVE, TAKEN)
"""What is ended before another of the same job begins."""
RAN = "ran.json"
"""The plan under which a job was last begun."""
LEFT = "left.txt"
"""What its folders ``checkpoint*`` held when it was last begun: a run that added nothing left no checkpoint."""
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
RUN_WORDS = frozenset({"command", "environment", "runtime", "image"})
"""What a submission may say under ``run``."""
KEPT_VARIABLES = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "VIRTUAL_ENV", "PYTHONPATH")
"""Of the service's environment what jobs get; tokens are not among them."""


class LaunchRefusedError(HippoError):
    """The engine will not do it, however often it is asked."""


@dataclass(frozen=True)
class DomainNodes:
    """What a job holds of a domain."""

    domain: str
    nodes: int
    gpus_per_node: int


@dataclass(frozen=True)
class BatchLaunch:
    """A batch job to be begun."""

    key: str
    words: tuple[str, ...]
    environment: Mapping[str, str]
    home: Path
    shares: tuple[DomainNodes, ...]
    image: str = ""  # of a container that the words run in, where its engine has such


@dataclass(frozen=True)
class BatchJob:
    """A batch job as its engine tells it."""

    id: str
    key: str
    state: str  # PENDING, RUNNING, TAKEN, DONE, FAILED
    told: str = ""  # why


class Engine(Protocol):
    """What begins and ends batch jobs. One that knows nodes has ``usable(domains) -> dict[str, int]``, too."""

    name: str

    def begin(self, launch: BatchLaunch) -> None:
        """``LaunchRefusedError``: it will never; anything else: nobody knows whether it did."""
        ...

    def jobs(self) -> Sequence[BatchJob]:
        """All that it remembers."""
        ...

    def end(self, job: BatchJob) -> None:
        """Let it end."""
        ...

    def close(self) -> None:
        """Leave what was held open to ask it."""
        ...


class BatchActuator:
    """An actuator by way of an engine. ``folder`` and ``cluster``: else as the environment says."""

    tells = True

    def __init__(self, engine: Engine, folder: Path | None = None, cluster: str | Path | None = None) -> None:
        self.engine, self.name = engine, engine.name
        self.cluster: Cluster = runs_cluster(cluster, engine.name)
        self.folder = runs_folder(folder)
        self._over: dict[str, str] = {}  # jobs that have ended, which the service knows, and their last keys

    def close(self) -> None:
        """Jobs go on."""
        self.engine.close()

    def lacks(self, spec: Mapping[str, Any]) -> str:
        """A command to start."""
        run = spec.get("run") or {}
        words, more = run.get("command"), run.get("environment") or {}
        if unknown := sorted(run.keys() - RUN_WORDS):
            return f"job: run.{unknown[0][:60]}: is unknown. To fix: write {', '.join(sorted(RUN_WORDS))}"
        if not isinstance(words, list) or not words or not all(map(_is_word, words)):
            return "job: run.command: is no list of words. To fix: write what is to be started, word by word"
        if not isinstance(more, dict) or not all(NAME.fullmatch(name) and _is_word(more[name]) for name in more):
            return "job: run.environment: is no mapping of names to words. To fix: write NAME: text"
        if (name := run.get("runtime", "auto")) not in ("auto", *RUNTIMES):
            return f"job: run.runtime: is no runtime (got {name!r:.60}). To fix: write {', '.join(RUNTIMES)}"
        if "image" in run and not _is_word(run["image"]):
            return "job: run.image: is no word. To fix: write the name of a container's image, or leave it out"
        return ""

    def carry_out(self, order: JobOrder) -> Receipt:
        """Begin, begin anew elsewhere, or end a batch job, once for each key."""
        self._over.pop(order.job, None)
        home = self.folder / order.job
        mine = [each for each in self.engine.jobs() if _same(each.key, order.key)]
        this = [each for each in mine if each.key == order.key]
        if _last(home) == order.key and not any(each.state == PENDING for each in this):
            return Receipt(True, "was carried out before", _document(home / "plan.json"))
        if this:  # the service was killed between the act and its note, or while it waited for its engine
            _note_begun(home, order.key)
            return self._began(order, _document(home / "plan.json"))
        held = [each for each in mine if each.state in HELD]
        if order.act == STOP:
            self._end(held, order.key)
            _note(home, order.key)
            return Receipt(True, "ended; its checkpoints are kept")
        try:
            document = self._planned(order)  # first: who cannot run there runs on where it is
            self._end(held, order.key)
            self.engine.begin(self._launch(order, home, document))
        except _UnfitError as error:
            return Receipt(False, str(error))
        except LaunchRefusedError as error:
            return Receipt(False, str(error), ended=True)
        except HippoError as error:
            raise ActuatorError(str(error)) from None
        _note_begun(home, order.key)
        return self._began(order, document)

    def _planned(self, order: JobOrder) -> dict[str, Any] | None:
        """Its plan, of elastic training; ``_UnfitError``: nothing can be begun so."""
        if why := self.lacks(order.spec):
            raise _UnfitError(why)
        if not order.spec.get("tokens"):
            return None
        try:
            return plan_at(self.cluster, order, parts=True, runtime=order.spec["run"].get("runtime", "auto"))
        except HippoError as error:
            raise _UnfitError(f"no plan: {error}") from None

    def _launch(self, order: JobOrder, home: Path, document: dict[str, Any] | None) -> BatchLaunch:
        run, place = order.spec["run"], order.place or {}
        words, more = run["command"], run.get("environment") or {}
        home.mkdir(parents=True, exist_ok=True)
        before = None
        if document is not None:
            write_whole(home / "plan.json", json_text(document))
            left, known = _left(home), home / LEFT
            same = left and known.exists() and left == known.read_text()  # as when it began last
            if (before := _document(home / ("before.json" if same else RAN))) is not None:
                write_whole(home / "before.json", json_text(before))
            write_whole(known, left)
        write_whole(home / "place.json", json_text(dict(place)))
        held = held_gpus(place)
        per = {each.name: each.gpus_per_node for each in self.cluster.domains}
        shares = tuple(DomainNodes(name, *nodes_of(gpus, per[name])) for name, gpus in held.items())
        told = {"HIPPO_JOB": order.job, "HIPPO_KEY": order.key, "HIPPO_HOME": str(home)}
        told |= {"HIPPO_DOMAINS": ",".join(held), "HIPPO_GPUS": ",".join(map(str, held.values()))}
        told |= {"HIPPO_PLAN": str(home / "plan.json")} if document else {}
        told |= {"HIPPO_PLAN_BEFORE": str(home / "before.json")} if before else {}
        kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        given = {**kept, **order.environment, **more, **told}
        return BatchLaunch(order.key, tuple(words), given, home, shares, run.get("image", ""))

    def _began(self, order: JobOrder, document: dict[str, Any] | None) -> Receipt:
        """Once its engine runs it; who is not run for too long is taken back."""
        found: list[BatchJob] = []

        def runs() -> bool:
            found[:] = [each for each in self.engine.jobs() if each.key == order.key]
            return bool(found) and all(each.state != PENDING for each in found)

        if until(runs, BEGINS_WITHIN_S, LOOK_EVERY_S):
            return Receipt(True, f"runs in {self.name} as {found[0].id}", document)
        why = found[0].told if found else "it has it no more"
        self._end(found, order.key)
        _note_not_begun(self.folder / order.job)
        return Receipt(False, f"{self.name} has not begun it within {BEGINS_WITHIN_S:g} s: {why}", ended=True)

    def _end(self, jobs: Sequence[BatchJob], key: str) -> None:
        for each in jobs:
            self.engine.end(each)
        ids = {each.id for each in jobs}

        def gone() -> bool:
            return not any(each.id in ids and each.state in HELD for each in self.engine.jobs())

        if ids and not until(gone, ENDS_WITHIN_S, LOOK_EVERY_S):
            raise ActuatorError(f"{key}: {', '.join(sorted(ids))} of {self.name} does not end")

    # --------------------------------------------------------------------------------------------------- what there is
    def usable(self) -> Mapping[str, int]:
        """GPUs of each domain whose nodes can be used, as far as its engine knows nodes."""
        counts = getattr(self.engine, "usable", None)
        return {} if counts is None else counts([each.name for each in self.cluster.domains])

    def seen(self) -> Sequence[SeenJob]:
        """All jobs that are not forgotten, or that their engine has again, by their folders, it and their own words."""
        with os.scandir(self.folder) as there:
            names = sorted(each.name for each in there if each.name not in self._over)
        keys = {name: key for name in names if (key := _last(self.folder / name))}
        known: dict[str, BatchJob] = {}
        for each in self.engine.jobs() if keys or self._over else ():  # after the keys: it knows what has one
            if each.key not in known or each.state in ALIVE:
                known[each.key] = each
            if each.state in HELD and self._over.get(name := _job(each.key)) == each.key:
                keys[name] = each.key
        return tuple(self._seen(self.folder / name, key, known.get(key)) for name, key in keys.items())

    def forget(self, job: SeenJob) -> None:
        """Its folder, which stays, is not read again while its engine does not have it."""
        self._over[job.job] = job.key

    def _seen(self, home: Path, key: str, job: BatchJob | None) -> SeenJob:
        told = _document(home / "progress.json") or {}
        share, step_s = _number(told.get("share_done"), 1.0), _number(told.get("step_s"), 1e9)
        loss = _number(told.get("loss"), 1e9)
        if job is not None and job.state in ALIVE:
            share = None if share is None else min(0.999, share)
            return SeenJob(home.name, key, RUNNING, share, step_s, loss, job.told)
        if job is not None and job.state == FAILED and not job.told.startswith("failed"):  # its engine knows better
            return SeenJob(home.name, key, FAILED, share, step_s, loss, f"{self.name}: {job.told}")
        with suppress(OSError, ValueError):
            code = int((home / f"exit-{key}").read_text())
            words = "" if code == 0 else f"its command ended with {code}: {_last_words(home)}"
            return SeenJob(home.name, key, FAILED if code else DONE, 1.0 if code == 0 else share, step_s, loss, words)
        if job is not None and job.state == DONE:
            return SeenJob(home.name, key, DONE, 1.0, step_s, loss)
        why = f"{self.name}: {job.told}" if job is not None else f"{self.name} has it no more"
        return SeenJob(home.name, key, FAILED, share, step_s, loss, why)


def _is_word(value: object) -> bool:
    """Whether a program can be told it."""
    return isinstance(value, str) and bool(value) and "\0" not in value and (value.isascii() or value.isprintable())


class _UnfitError(HippoError):
    """A submission that this actuator can make nothing of."""


def _same(one: str, other: str) -> bool:
    """Whether two keys (``o-NUMBER-JOB-STORE``) are of one job of one store."""
    return one.split("-")[2:] == other.split("-")[2:]


def _job(key: str) -> str:
    """The job of a key; empty: it is of no order."""
    return "".join(key.split("-")[2:3])


def _last(home: Path) -> str:
    """Key of the last order that was carried out."""
    try:
        return str(json.loads((home / "state.json").read_text())["key"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _note(home: Path, key: str) -> None:
    home.mkdir(parents=True, exist_ok=True)
    write_whole(home / "state.json", json.dumps({"key": key}))


def _note_begun(home: Path, key: str) -> None:
    """It runs under its plan from now on; noted first, as whoever reads the key goes by it."""
    if (plan := _document(home / "plan.json")) is not None:
        write_whole(home / RAN, json_text(plan))
    _note(home, key)


def _note_not_begun(home: Path) -> None:
    """Nothing ran under its plan: what it left is of the one before."""
    if (before := _document(home / "before.json")) is not None:
        write_whole(home / RAN, json_text(before))
    else:
        (home / RAN).unlink(missing_ok=True)


def _left(home: Path) -> str:
    """A digest of the checkpoints of a job, by names, sizes and times; empty: there are none."""
    found = sorted(each for each in home.glob("checkpoint*/**/*") if each.is_file())
    told = [(str(each), each.stat().st_size, each.stat().st_mtime_ns) for each in found]
    return sha256(repr(told).encode()).hexdigest() if told else ""


def _document(path: Path) -> dict[str, Any] | None:
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _number(value: object, most: float) -> float | None:
    """What a job says of itself, if it can be."""
    given = isinstance(value, int | float) and not isinstance(value, bool) and 0.0 <= value <= most
    return float(value) if given else None  # type: ignore[arg-type]


def _last_words(home: Path) -> str:
    with suppress(OSError):
        lines = (home / "log.txt").read_bytes()[-4000:].decode(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "without a word"
    return "without a word"
