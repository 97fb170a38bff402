"""What is left when `hippo serve` is killed with -9 again and again: at each step of its loop, and at any instant.

    python -m benchmarks.kills [--kills N] [--out FILE]

A client submits, cancels, approves and measures all the while, sends again under the same key what was not answered,
and notes what was: after every kill the jobs, decisions and outcomes that were told must be there, as they were told,
cancels and approvals that were acknowledged must have been taken up at the end. An actuator writes down what it does
in a file that outlives the service, once for each key, as an engine must; it refuses some orders, some of its jobs
fail, and now and then its answer is lost, or late. Plans of its running jobs are changed by chance, as a method of
steering would. At the end of a batch nothing may have begun or been stopped twice, nor have been sent where it was,
no plan may have been changed that was not the one believed to run, no order may be open, and what the store says was
carried out must be what the file says was. That a key is told twice is allowed: taking it once is the actuator's
side. Batches go to SQLite and PostgreSQL in turns, every third in the mode advise, and are counted in a file, from
which the next call goes on.

The service is this process, forked, with the patches of ``STEPS`` that kill it from within; so it starts in tenths of a
second. What is killed between is real: sockets, files and threads.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import sqlalchemy as sql
from tests.serve.servers import has_postgresql, postgresql
from tests.serve.worlds import JOB, SERVER, offers, url

from hippo import first_use
from hippo.problem.load import load_cluster
from hippo.serve import store as store_module
from hippo.serve import tables as t
from hippo.serve.actuators.base import ActuatorError
from hippo.serve.loop import OPEN, ServeLoop
from hippo.serve.records import (
    ACT,
    ADVISE,
    BEGIN,
    CARRIED_OUT,
    DONE,
    FAILED,
    GIVEN_UP,
    LEVER,
    OVER,
    RESIZE,
    RUNNING,
    STEERED,
    STOP,
    JobOrder,
    Receipt,
    SeenJob,
)
from hippo.serve.server import Service, ServiceTerms
from hippo.serve.site import ServedSite
from hippo.serve.steering import PlanAnswer, SteeredRun, Steering
from hippo.serve.store import Store, plan_id
from hippo.serve.worker import ActuatorWorker

ENDED = (CARRIED_OUT, GIVEN_UP)
BATCH = 40
LIMIT_S = 4.0
"""A step that has not come by then is not hit; the service is killed where it is."""
JOBS_AT_ONCE = 12
REFUSED, FAILING, CHANGED = 0.05, 0.1, 0.3
LEAST_HITS = 20
"""Of each step, in a thousand kills."""
INSTANT = "at any instant"
BEFORE, AFTER = "before", "after"
STEPS: dict[str, tuple[Any, str, str]] = {
    "standing as the store says": (ServeLoop, "_begin", AFTER),
    "open orders told again": (ServeLoop, "_again", AFTER),
    "a turn begins": (ServeLoop, "_take_answers", BEFORE),
    "jobs and cancels taken": (ServeLoop, "_take_truth", BEFORE),
    "links taken, nothing decided": (ServeLoop, "_pass", BEFORE),
    "decided, not written": (ServeLoop, "_order", AFTER),
    "in the middle of a transaction": (store_module, "note", BEFORE),
    "committed, not answered": (store_module, "Future.set_result", BEFORE),
    "answered, not noted by the loop": (ServeLoop, "come", BEFORE),
    "written, not handed on": (ServeLoop, "_hand", BEFORE),
    "handed on, not told": (ActuatorWorker, "_carry_out", BEFORE),
    "told, not carried out": (None, "", BEFORE),
    "carried out, not answered": (None, "", AFTER),
    "answered, not taken": (ServeLoop, "_answered", BEFORE),
    "taken, not written": (ServeLoop, "_took_answer", AFTER),
    INSTANT: (None, "", ""),
}
"""Where the service is killed: before or after a function; the actuator's own two, and what no function knows."""
ONCE = frozenset({"standing as the store says", "open orders told again"})
"""Steps that a service passes once."""


def die() -> NoReturn:
    """As kill -9 does."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


class Fuse:
    """Kills at the ``number``-th passage of a step."""

    def __init__(self, step: str, number: int) -> None:
        self.step, self.left = step, number

    def passes(self, step: str) -> None:
        """A step is passed."""
        if step == self.step:
            self.left -= 1
            if self.left <= 0:
                die()

    def laid(self) -> None:
        """Into the function of the step."""
        owner, name, when = STEPS[self.step]
        if owner is None:
            return
        if name == "Future.set_result":
            outer = self

            class BurningFuture(Future[Any]):
                def set_result(self, result: Any) -> None:
                    outer.passes(outer.step)
                    super().set_result(result)

            vars(store_module)["Future"] = BurningFuture
            return
        whole = getattr(owner, name)

        def with_fuse(*args: Any, **rest: Any) -> Any:
            if when == BEFORE:
                self.passes(self.step)
            found = whole(*args, **rest)
            if when == AFTER:
                self.passes(self.step)
            return found

        setattr(owner, name, with_fuse)
        if owner is store_module:  # others have taken it by its name
            for module in list(sys.modules.values()):
                if getattr(module, "__name__", "").startswith("hippo.serve") and getattr(module, name, None) is whole:
                    setattr(module, name, with_fuse)


class Ledger:
    """An engine on paper that outlives the service: what it did stands in a file, once for each key."""

    name, tells, steers = "ledger", True, True

    def __init__(self, path: Path, fuse: Fuse, seed: int) -> None:
        self.path, self.fuse, self._draw = path, fuse, random.Random(seed)
        self._lock = threading.Lock()

    def done(self) -> list[dict[str, Any]]:
        """All that was done, in order."""
        return [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []

    def lacks(self, spec: Mapping[str, Any]) -> str:
        """Nothing."""
        return ""

    def carry_out(self, order: JobOrder) -> Receipt:
        """Do it once."""
        with self._lock:
            done = self.done()
            last = next((each for each in reversed(done) if each["job"] == order.job), None)
            if any(each["key"] == order.key for each in done):
                return Receipt(True, "was carried out before", None if last is None else last["plan"])
            self.fuse.passes("told, not carried out")
            if order.act != STOP and self._draw.random() < REFUSED:
                return Receipt(False, "no room there")
            row: dict[str, Any] = {"key": order.key, "act": order.act, "job": order.job, "place": order.place}
            row["time_s"] = time.time()
            if order.act in STEERED:
                if last is None or last["act"] == STOP or self._share(last) >= 1.0:
                    return Receipt(False, "it does not run")
                row = {**last, "key": order.key, "act": order.act, "was": last["plan"], "plan": dict(order.plan or {})}
            else:
                row |= {"lasts_s": self._draw.uniform(0.1, 1.5), "fails": self._draw.random() < FAILING}
                row["plan"] = None if order.act == STOP else {"made by": order.key}
            with open(self.path, "a") as out:
                out.write(json.dumps(row) + "\n")
            self.fuse.passes("carried out, not answered")
        luck = self._draw.random()
        if luck < 0.1:
            raise ActuatorError("the answer was lost")
        if luck < 0.2:
            time.sleep(0.2)
        return Receipt(True, "done", row["plan"])

    @staticmethod
    def _share(row: Mapping[str, Any]) -> float:
        """How far a run is."""
        return min(1.0, float(time.time() - row["time_s"]) / float(row["lasts_s"]))

    def seen(self) -> Sequence[SeenJob]:
        """Who runs, and who has run to the end."""
        last = {each["job"]: each for each in self.done()}
        found = []
        for job, row in last.items():
            if row["act"] != STOP:
                share = self._share(row)
                ended = FAILED if row["fails"] else DONE
                found.append(SeenJob(job, row["key"], ended if share >= 1.0 else RUNNING, share, 1.0))
        return tuple(found)

    def close(self) -> None:
        """Nothing to do."""


def by_chance(self: Steering, now_s: float, runs: Mapping[str, SteeredRun], *, holds: bool = False) -> list[PlanAnswer]:
    """In place of a method: now and then a running job is to go on under another plan."""
    found = []
    for name, run in runs.items():
        if not holds and not run.ordered and random.random() < CHANGED:
            document, before = {"made for": name, "at": random.random()}, str(run.place["plan"])
            found.append(PlanAnswer(name, LEVER, 0, "by chance", True, before, document, "stop", "relay"))
    return found


def serve(store: str, folder: Path, listening: socket.socket, fuse: Fuse, seed: int, mode: str) -> NoReturn:
    """The service, in a process that was forked for it."""
    try:
        fuse.laid()
        random.seed(seed)
        Steering.turn = by_chance  # type: ignore[method-assign]
        ledger = Ledger(folder / "ledger", fuse, seed)
        terms = ServiceTerms(store=store, mode=mode, policy="srpt")
        cluster = load_cluster("four-hubs")
        ServedSite.planned = lambda *_, **__: offers()  # type: ignore[method-assign]
        Service.of(cluster, terms, actuators=[ledger], listening=listening).run()
        os._exit(0)
    except BaseException as error:
        with open(folder / "log", "a") as out:
            out.write(f"{type(error).__name__}: {error}\n")
        os._exit(1)


class Client:
    """Asks, notes what was answered, and asks again under the same key what was not."""

    def __init__(self, seed: int, mode: str = ACT) -> None:
        self.mode = mode
        self.draw, self.token, self.port = random.Random(seed), "", 0
        self.count = 0
        self.pending: list[tuple[str, dict[str, Any]]] = []  # submissions that nobody has answered
        self.jobs: dict[str, tuple[str, dict[str, Any]]] = {}  # acknowledged: key and body
        self.over: dict[str, str] = {}  # how jobs were told to have ended
        self.cancelled: set[str] = set()  # acknowledged
        self.approved: set[str] = set()  # acknowledged
        self.decisions: dict[str, dict[str, Any]] = {}  # as they were told
        self.wrong: list[str] = []

    def ask(self, method: str, path: str, body: Any = None, key: str = "") -> tuple[int, Any]:
        """``OSError`` or ``HTTPException``: it has gone."""
        at = HTTPConnection("127.0.0.1", self.port, timeout=5.0)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        headers |= {"Idempotency-Key": key} if key else {}
        try:
            at.request(method, path, None if body is None else json.dumps(body), headers)
            answer = at.getresponse()
            told = answer.read()
            return answer.status, json.loads(told) if told[:1] in b"{[" else told
        finally:
            at.close()

    def submit(self) -> None:
        """Once more what was not answered, or a new job."""
        if not self.pending:
            self.count += 1
            gang = {"devices": self.draw.choice([8, 16, 64]), "duration_s": self.draw.uniform(60.0, 6000.0)}
            elastic = {**JOB, "tokens": self.draw.uniform(1e9, 1e11), "least": self.draw.choice([8, 16])}
            self.pending.append((f"k{self.count}-{os.getpid()}", gang if self.draw.random() < 0.5 else elastic))
        key, body = self.pending[0]
        status, told = self.ask("POST", "/v1/jobs", body, key)
        if status in (200, 201):
            self.pending.pop(0)
            self.jobs[told["id"]] = key, body
        elif status < 500:
            self.wrong.append(f"a submission was answered {status}: {told}")

    def act(self) -> None:
        """One of the things that clients do."""
        alive = [each for each in self.jobs if each not in self.over]
        luck = self.draw.random()
        if luck < 0.5 and len(alive) < JOBS_AT_ONCE:
            self.submit()
        elif luck < 0.6 and alive:
            name = self.draw.choice(alive)
            status, told = self.ask("DELETE", f"/v1/jobs/{name}")
            if status == 202:
                self.cancelled.add(name)
            elif status not in (409, 503):
                self.wrong.append(f"a cancel was answered {status}: {told}")
        elif luck < 0.75 and self.mode == ADVISE:
            self.approve()
        elif luck < 0.8:
            gbps = self.draw.choice([0.05, 1.0, 5.0])
            links = [{"from": one, "to": two, "gbps": gbps} for one, two in self.pairs]
            self.ask("POST", "/v1/telemetry", {"links": links})
        else:
            self.look()

    def approve(self) -> None:
        """Say yes to what is proposed."""
        _, told = self.ask("GET", "/v1/decisions?state=proposed")
        for each in told["decisions"][:3]:
            status, answer = self.ask("POST", f"/v1/decisions/{each['id']}/approve")
            if status == 200:
                self.approved.add(each["id"])
            elif status not in (409, 503):
                self.wrong.append(f"an approval was answered {status}: {answer}")

    pairs: Sequence[tuple[str, str]] = ()

    def look(self) -> None:
        """Hold what is told against what was told."""
        since = max((int(each[1:]) for each in self.decisions), default=0)
        _, told = self.ask("GET", f"/v1/decisions?limit=500&since=d{max(0, since - 40)}")
        now = {each["id"]: each for each in told["decisions"]}
        for name, each in now.items():
            before = self.decisions.get(name)
            if before is not None:
                fixed = ("job", "act", "time_s") if before["ordered_s"] is None else ("job", "act", "time_s", "after")
                same = all(each[key] == before[key] for key in fixed)
                ended = before["state"] in ENDED and (each["state"], each["told"]) != (before["state"], before["told"])
                unsaid = before["measured_after_s"] is not None and each["measured_after_s"] is None
                if not same or ended or unsaid:
                    self.wrong.append(f"decision {name} was told as {before}, now {each}")
            self.decisions[name] = each
        for name in list(self.jobs)[-60:]:
            self.hold(name)

    def hold(self, name: str) -> None:
        """One job against what was told of it."""
        status, told = self.ask("GET", f"/v1/jobs/{name}")
        if status != 200:
            self.wrong.append(f"job {name} is gone ({status})")
            return
        if told["job"] != {"actuator": "ledger", **self.jobs[name][1]}:
            self.wrong.append(f"job {name} is another one")
        if name in self.over and told["state"] != self.over[name]:
            self.wrong.append(f"job {name} was {self.over[name]}, is {told['state']}")
        if told["state"] in OVER:
            self.over[name] = told["state"]


def batch(store: str, folder: Path, steps: Sequence[str], seed: int, client: Client) -> Counter[str]:
    """So many kills, and the reckoning after them; steps that were hit."""
    hit: Counter[str] = Counter()
    for at, step in enumerate(steps):
        fuse = Fuse(step, 1 if step in ONCE else client.draw.randint(1, 3))
        with served(store, folder, client, fuse, seed + at) as child:
            end_s = time.monotonic() + (client.draw.uniform(0.02, 1.0) if step == INSTANT else LIMIT_S)
            hit[step] += lives_until(child, end_s, client) == (step != INSTANT)
    with served(store, folder, client, Fuse(INSTANT, 0), seed - 1) as child:
        settled(client)
        for _ in range(200):
            with suppress(OSError, HTTPException):
                for name in client.jobs:
                    if name not in client.over:
                        client.ask("DELETE", f"/v1/jobs/{name}")
                        client.hold(name)
                if all(name in client.over for name in client.jobs):
                    break
            time.sleep(0.1)
        else:
            left = [name for name in client.jobs if name not in client.over]
            client.wrong.append(f"jobs that do not end: {left}")
        try:
            for _ in range(200):  # an order whose answer was lost is told again
                if not client.ask("GET", "/v1/decisions?state=ordered")[1]["decisions"]:
                    break
                time.sleep(0.1)
            client.look()
        except (OSError, HTTPException) as error:
            client.wrong.append(f"it does not answer at the end: {error}")
    client.wrong += reckoned(store, folder)
    return hit


def settled(client: Client) -> None:
    """Before anything more is asked for: cancels and approvals that were acknowledged are taken up by themselves."""
    left, waits = set(client.cancelled), set(client.approved)
    for _ in range(100):
        with suppress(OSError, HTTPException):
            for name in sorted(left):
                client.hold(name)
            left = {name for name in left if name not in client.over}
            client.look()
            waits = {name for name in client.approved if client.decisions[name]["state"] in ("proposed", "approved")}
            if not left and not waits:
                return
        time.sleep(0.1)
    client.wrong += [f"the cancel of {name} was acknowledged and lost" for name in sorted(left)]
    client.wrong += [f"the approval of {name} was acknowledged and lost" for name in sorted(waits)]


@contextmanager
def served(store: str, folder: Path, client: Client, fuse: Fuse, seed: int) -> Iterator[int]:
    """A service, of which the client knows; killed at the end, if it has not been."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(128)
        client.port = listening.getsockname()[1]
        child = os.fork()
        if child == 0:
            serve(store, folder, listening, fuse, seed, client.mode)
    try:
        yield child
    finally:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(child, 0)


def lives_until(child: int, end_s: float, client: Client) -> bool:
    """Whether the service was killed from within before then; the client asks all the while."""
    while time.monotonic() < end_s:
        gone, status = os.waitpid(child, os.WNOHANG)
        if gone:
            if not os.WIFSIGNALED(status):
                client.wrong.append(f"the service ended by itself ({status})")
            return True
        try:
            client.act()
        except (OSError, HTTPException):
            time.sleep(0.01)
    return False


def reckoned(store: str, folder: Path) -> list[str]:
    """What the store says against what was done."""
    opened, wrong = Store(store), list[str]()
    orders = opened.read(lambda at: at.execute(sql.select(t.ORDERS)).all())
    decisions = opened.read(lambda at: at.execute(sql.select(t.DECISIONS.c.number, t.DECISIONS.c.before)).all())
    events = opened.read(lambda at: at.execute(sql.select(t.EVENTS.c.told).where(t.EVENTS.c.kind == "service")).all())
    opened.close()
    done = Ledger(folder / "ledger", Fuse("", 0), 0).done()
    for key, count in Counter(each["key"] for each in done).items():
        if count > 1:
            wrong.append(f"{key} was carried out {count} times")
    said, did = {each.key for each in orders if each.state == "done"}, {each["key"] for each in done}
    wrong += [f"{key} was done, and the store does not say so" for key in sorted(did - said)]
    wrong += [f"{key} was not done, and the store says so" for key in sorted(said - did)]
    wrong += [f"{each.key} is open" for each in orders if each.state == OPEN]
    last: dict[str, dict[str, Any]] = {}  # of each job, what was done with it, stopping left out
    believed = {f"d{each.number}": json.loads(each.before or "{}").get("plan") for each in decisions}
    for each in done:
        job, act = each["job"], each["act"]
        if act in STEERED:
            name = f"d{each['key'].split('-')[1]}"
            if name not in believed:
                wrong.append(f"{each['key']}: carried out, and its decision is lost")
            elif believed[name] != plan_id(each["was"]):
                wrong.append(f"{each['key']}: {job} did not run under the plan that was believed to run")
            continue
        before = last.get(job)
        failed = before is not None and before["fails"] and before["time_s"] + before["lasts_s"] <= each["time_s"]
        if act == BEGIN and before is not None and not failed:
            wrong.append(f"{each['key']}: {act} of {job}, which runs or has run to its end")
        if act == RESIZE and before is None:
            wrong.append(f"{each['key']}: {act} of {job}, which was not begun or was stopped")
        if act == RESIZE and before is not None and before["place"] == each["place"]:
            wrong.append(f"{each['key']}: {job} is sent where it is")
        if act == STOP:
            last.pop(job, None)
        else:
            last[job] = each
    asked: dict[str, str] = {}  # of each job, the act of its last order: one that was refused may be stopped, unheard
    for order in sorted(orders, key=lambda each: each.made_s):
        act = json.loads(order.body)["act"]
        if act in STEERED:
            continue
        if act == STOP and asked.get(order.job, STOP) == STOP:
            wrong.append(f"{order.key}: {act} of {order.job}, of which nothing was asked")
        asked[order.job] = act
    wrong += [json.loads(each.told)["told"] for each in events if "a turn broke" in each.told]
    return wrong


def warmed() -> None:
    """Everything compiled and imported, so that it need not be in every fork."""
    from tests.serve.worlds import Clock, Served

    first_use.prepare_serving()
    with TemporaryDirectory() as name:
        made = Served.of(f"sqlite:///{name}/store.db", Clock())
        made.submit()
        made.turn()
        made.turn(1.0)
        made.submit()
        made.turn(1.0)
        made.close()
        made = Served.of(f"sqlite:///{name}/store.db", made.clock)
        made.turn(1.0)
        made.close()


def main() -> int:
    """Prints a table; 1: something was lost or done twice, or a step was hit too seldom."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("out/kills.json"))
    asked = parser.parse_args()
    found: dict[str, Any] = (
        json.loads(asked.out.read_text()) if asked.out.exists() else {"batches": 0, "hit": {}, "wrong": []}
    )
    warmed()
    with suppress(KeyboardInterrupt), _servers() as kinds:
        while sum(sum(each.values()) for each in found["hit"].values()) < asked.kills:
            kind, number = kinds[found["batches"] % len(kinds)], found["batches"]
            with TemporaryDirectory(prefix="hippo-kills-") as name:
                folder = Path(name)
                client = Client(number, ADVISE if number % 3 == 2 else ACT)
                store = url(folder) if kind == "postgresql" else f"sqlite:///{folder / 'store.db'}"
                client.token = first(store, folder)
                client.pairs = [(each.source, each.destination) for each in load_cluster("four-hubs").links]
                draw = random.Random(number)
                steps = [list(STEPS)[(number * BATCH + at) % len(STEPS)] for at in range(BATCH)]
                draw.shuffle(steps)
                hit = batch(store, folder, steps, 1000 * number, client)
            sums = Counter(found["hit"].get(kind, {}))
            sums.update(hit)
            found["hit"][kind], found["batches"] = dict(sums), number + 1
            found["wrong"] += [f"batch {number}, {kind}: {each}" for each in client.wrong]
            asked.out.parent.mkdir(parents=True, exist_ok=True)
            asked.out.write_text(json.dumps(found, indent=1))
            told = f"batch {number}, {kind}: {sum(hit.values())} kills, {len(client.jobs)} jobs"
            plans = sum(each["act"] in STEERED for each in client.decisions.values())
            told = f"{told}, {len(client.decisions)} decisions, {plans} of them about plans"
            sys.stdout.write(f"{told}, wrong: {client.wrong or 'nothing'}\n")
            sys.stdout.flush()
    for step in STEPS:
        row = "  ".join(f"{kind} {hit.get(step, 0):4d}" for kind, hit in found["hit"].items())
        sys.stdout.write(f"{step:34} {row}\n")
    sys.stdout.write(f"wrong: {len(found['wrong'])}\n" + "".join(f"  {each}\n" for each in found["wrong"][:40]))
    rarest = min(sum(hit.get(step, 0) for hit in found["hit"].values()) for step in STEPS)
    rare = asked.kills >= 1000 and rarest < LEAST_HITS
    return int(bool(found["wrong"]) or rare)


def first(store: str, folder: Path) -> str:
    """The token of an empty store."""
    from hippo.serve.access import first_token

    opened = Store(store)
    path = first_token(opened, folder / "token", time.time())
    opened.close()
    assert path is not None
    return path.read_text().strip()


@contextmanager
def _servers() -> Iterator[list[str]]:
    if not has_postgresql():
        sys.stdout.write("no PostgreSQL on this machine: all kills are on SQLite\n")
        yield ["sqlite"]
        return
    with postgresql() as folder:
        os.environ[SERVER] = folder
        yield ["sqlite", "postgresql"]


if __name__ == "__main__":
    sys.exit(main())
