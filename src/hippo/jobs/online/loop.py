"""The online loop: decide on live state, log, learn beside it, swap only what is better.

    with Loop(learner, first, guard, settings) as loop:
        while (moment := source.look()) is not None:
            source.carry_out(loop.decide(moment))
        loop.told(source.rest())

``serve`` is these lines. A decision is on disk (``log``) before it is given out. Every ``review_every_jobs`` jobs that
ended, or that came, the measurements are held against the guard (``guard.watch``: the guard takes over at once where
they fall behind by more than the margin), whatever becomes of the learner's update, which begins after that and is
judged on replays of recent history (``guard.judge``). A policy that is accepted is first written whole to a file, then
noted in the log as serving, then serves: whenever the process dies, a new loop goes on with the last one that was
noted, or with the one before where its file is broken. A policy that cannot decide is out at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from hippo.errors import InputError, UnknownNameError
from hippo.files import write_whole
from hippo.jobs.job import Job
from hippo.jobs.online.background import WAYS, Background, Failed
from hippo.jobs.online.guard import Margins, ReplayVerdict, Watch, judge, watch
from hippo.jobs.online.learner import ChoosingPolicy, JobHistory, OnlineLearner, OnlinePolicy, history_of
from hippo.jobs.online.log import DURABLE, Ended, Left, Log, SiteState, Transition

W = TypeVar("W")
GUARD = 0
"""Version under which the guard stands in the log."""


@dataclass(frozen=True, eq=False)
class LiveMoment:
    """What is there to decide on, and what has come about since the last decision."""

    time_s: float
    observation: NDArray[np.float32]
    mask: NDArray[np.bool_]  # (A,) at least one is allowed
    reward: float = 0.0  # since the last decision
    came: tuple[Job, ...] = ()
    ended: tuple[Ended, ...] = ()
    attained_s: Mapping[str, float] = field(default_factory=dict)  # work that jobs in the system have had
    left: tuple[Left, ...] = ()  # cancelled or lost
    state: SiteState | None = None  # where the site does not stand still, and now stands otherwise


@dataclass(frozen=True)
class News:
    """What has come about since the last decision, where nothing is left to decide."""

    time_s: float
    reward: float = 0.0
    came: tuple[Job, ...] = ()
    ended: tuple[Ended, ...] = ()
    left: tuple[Left, ...] = ()
    state: SiteState | None = None


class LiveSite(Protocol):
    """A site that runs."""

    def look(self) -> LiveMoment | None:
        """Wait until something can be decided; None: never again."""
        ...

    def carry_out(self, action: int) -> None:
        """Do it."""
        ...

    def rest(self) -> News:
        """Once ``look`` has said None: what was not told yet."""
        ...


@dataclass(frozen=True)
class LoopSettings:
    """Of a loop. ``folder`` holds its log and its policies; an empty one is a new start."""

    folder: Path
    review_every_jobs: int = 250
    """Jobs from one review to the next: so many that ended, or so many that came."""
    margins: Margins = field(default_factory=Margins)
    explore: bool = False
    """Whether decisions are drawn from the policy's probabilities; else the most probable is taken."""
    background: str = "process"
    durable: str = "full"
    seed: int = 0
    update_transitions: int = 0
    """Logged decisions that an update is given (those that came last)."""
    by_replay: bool = False
    """Whether a policy serves only while replays of the last jobs say that it is no worse than the guard by more than
    the margin: the guard begins, and gives way again when they say so."""
    belongs: Mapping[str, str] = field(default_factory=dict)
    """What else the log is of, by name: another loop does not go on with it."""

    def __post_init__(self) -> None:
        if self.background not in WAYS:
            raise UnknownNameError("way to learn beside", self.background, WAYS, source="settings", key="background")
        if self.durable not in DURABLE:
            raise UnknownNameError("way to be durable", self.durable, DURABLE, source="settings", key="durable")
        if self.review_every_jobs < 1:
            problem, value = "no such number of jobs", self.review_every_jobs
            raise InputError(problem, source="settings", key="review_every_jobs", value=value, remedy="write 1 or more")


@dataclass(frozen=True, eq=False)
class Review:
    """What came of a look back: the measurements, and what an update is worth."""

    seen: Watch
    weights: Any = None
    verdict: ReplayVerdict | None = None


@dataclass(frozen=True, eq=False)
class ServedPolicy:
    """Who decides, since when, and from which weights learning goes on."""

    since_s: float
    weights: Any
    by_guard: bool


def updated(
    learner: OnlineLearner[Any], served: ServedPolicy, guard: OnlinePolicy[Any], history: JobHistory, margins: Margins
) -> tuple[Any, ReplayVerdict] | None:
    """New weights and what they are worth; None: no job has ended from which to learn.

    An update learns from the jobs before those on which it is judged.
    """
    older = history.older(margins.judged_jobs)
    if not older.ended.any():
        return None
    weights = learner.update(served.weights, older)
    present = guard if served.by_guard else learner.policy(served.weights)
    return weights, judge(learner.policy(weights), present, guard, history, margins)


def review(
    learner: OnlineLearner[Any], served: ServedPolicy, guard: OnlinePolicy[Any], history: JobHistory, margins: Margins
) -> Review:
    """Both halves of a review at once, for who plays the rules without a loop: the watch, then the update."""
    seen = watch(guard, history, margins, since_s=served.since_s)
    found = updated(learner, replace(served, by_guard=served.by_guard or seen.fallen), guard, history, margins)
    return Review(seen) if found is None else Review(seen, *found)


class Loop(Generic[W]):
    """See the top of the file. ``first``: weights that serve in an empty folder; ``history``: what is made of the log.

    Raises
    ------
    InputError
        Another loop uses the folder; its log is damaged (and was put aside) or belongs to other observations.
    """

    def __init__(
        self,
        learner: OnlineLearner[W],
        first: W,
        guard: OnlinePolicy[Any],
        settings: LoopSettings,
        *,
        history: Callable[..., JobHistory] = history_of,
    ) -> None:
        self.learner, self.guard, self.settings, self.read = learner, guard, settings, history
        self._watching, self._learning = (Background(settings.background) for _ in range(2))
        self._looked: JobHistory | None = None  # what the watch under way looks at
        self._log: Log | None = None
        self._weights: W = first  # from which the next update starts
        self._held, self._version = GUARD, GUARD  # of those weights, and who serves
        self._serving: OnlinePolicy[Any] = guard
        self._reviewed, self._told, self._last = (0, 0), (0, 0), 0  # told: jobs that came, jobs that ended
        self._fell = 0  # jobs that had come when the guard took over
        self.time_s = 0.0

    def __enter__(self) -> Loop[W]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give up an update that is under way, and give the log back."""
        self._watching.close()
        self._learning.close()
        if self._log is not None:
            self._log.close()

    @property
    def log(self) -> Log:
        """The log, open from the first moment on."""
        assert self._log is not None
        return self._log

    @property
    def opened(self) -> bool:
        """Whether it has its log."""
        return self._log is not None

    @property
    def version(self) -> int:
        """Who serves; 0: the guard."""
        return self._version

    @property
    def serving(self) -> OnlinePolicy[Any]:
        """Who that is."""
        return self._serving

    def decide(self, moment: LiveMoment) -> int:
        """What to do; on disk when this returns."""
        self.look(moment)
        chances = self._chances(moment)
        action = self._chosen(chances)
        self.note(moment.time_s, moment.observation, moment.mask, action, float(chances[action]))
        return action

    def look(self, moment: LiveMoment) -> None:
        """Note what has come about, and act on reviews (``decide`` does it): from now on ``serving`` decides."""
        if self._log is None:
            self.open(moment)
        self.told(moment)
        self._look_back(moment)

    def note(
        self, time_s: float, seen: NDArray[np.float32], mask: NDArray[np.bool_], action: int, probability: float = 1.0
    ) -> None:
        """A decision, on disk when this returns; of several at one moment the last has the outcome."""
        if self._last:
            self.log.happened(outcomes=[(self._last, 0.0, time_s)])
        (self._last,) = self.log.decided([Transition(time_s, self._version, seen, mask, action, probability)])

    def fall(self, why: str, *, broken: bool = False) -> None:
        """From now on the guard decides. ``broken``: those weights do not come back, whatever replays say."""
        self.log.serve(GUARD, self.time_s, why)
        self._held = GUARD if broken else self._held
        self._version, self._serving, self._fell = GUARD, self.guard, self._told[0]

    def told(self, news: LiveMoment | News) -> None:
        """Note what has come about since the last decision (``decide`` does it; at the end nobody decides any more)."""
        self.time_s = news.time_s
        outcomes = [(self._last, news.reward, news.time_s)] if self._last else []
        self._last = 0
        states = () if news.state is None else (news.state,)
        if news.came or news.ended or news.left or outcomes or states:
            self.log.happened(came=news.came, ended=news.ended, left=news.left, outcomes=outcomes, states=states)
        self._told = (self._told[0] + len(news.came), self._told[1] + len(news.ended))

    def finish_review(self) -> None:
        """Wait for the review that is under way, if any, and act on it."""
        if self._watching.busy:
            self._watched(self._watching.take(patient=True))
        if self._learning.busy:
            self._learned(self._learning.take(patient=True))

    # --------------------------------------------------------------------------------------------------------- reviews
    def _look_back(self, moment: LiveMoment) -> None:
        """Act on what has come back; begin a review when it is due."""
        self._take()
        since = [now - then for now, then in zip(self._told, self._reviewed, strict=True)]
        if max(since) < self.settings.review_every_jobs or self._watching.busy:
            return
        self._reviewed, self._looked = self._told, self._history(moment)
        held = self.learner.policy(self._weights) if self.settings.by_replay else None
        self._watching.start(_watch, self.guard, self._looked, self.settings.margins, self._since_s(), held)
        if self.settings.background == "none":
            self._take()

    def _take(self) -> None:
        for beside, act in ((self._watching, self._watched), (self._learning, self._learned)):
            answer = beside.take() if beside.busy else None
            if answer is not None:
                act(answer)

    def _since_s(self) -> float:
        """When the policy that serves began to; notes about it change nothing."""
        rows = self.log.served
        since_s, present, _ = rows[-1]
        for time_s, version, _ in reversed(rows):
            if version != present:
                break
            since_s = time_s
        return since_s

    def _history(self, moment: LiveMoment) -> JobHistory:
        known = self.log.jobs(self.settings.margins.history_jobs)
        wanted = self.settings.update_transitions
        transitions = self.log.transitions(wanted) if wanted else ()
        states = self.log.states(known[0].job.arrival_s) if known else ()
        return self.read(known, moment.attained_s, now_s=moment.time_s, transitions=transitions, states=states)

    def _watched(self, seen: Watch | Failed) -> None:
        """Fall back where measurements say so, or replays; come back; then learn, unless that is under way."""
        history, self._looked = self._looked, None
        if isinstance(seen, Failed):
            self._note(f"watch failed: {seen.reason}")
        elif seen.fallen and self._version != GUARD:
            self.fall(seen.why)
        margins = self.settings.margins
        if not isinstance(seen, Failed) and seen.back and self._version == GUARD and self._held and self._may_return():
            self.log.serve(self._held, self.time_s, "replayed no worse than the guard")
            self._version, self._serving = self._held, self.learner.policy(self._weights)
        if self._learning.busy or history is None or self._told[1] <= margins.judged_jobs:
            return
        served = ServedPolicy(self._since_s(), self._weights, self._version == GUARD)
        self._learning.start(updated, self.learner, served, self.guard, history, margins)
        if self.settings.background == "none":
            self._learned(self._learning.take())

    def _may_return(self) -> bool:
        """Whether enough jobs have come since the guard took over: each time that it did twice as many, for where
        measurements speak against a policy its replays say too little."""
        served = [version for _, version, _ in self.log.served]
        falls = sum(now == GUARD != before for before, now in pairwise(served))
        return self._told[0] - self._fell >= self.settings.margins.judged_jobs << (falls - 1)

    def _learned(self, found: tuple[W, ReplayVerdict] | Failed | None) -> None:
        """Swap, or leave everything as it is."""
        if isinstance(found, Failed):
            self._note(f"update failed: {found.reason}")
        if found is None or isinstance(found, Failed) or not found[1].accepted:
            return
        weights, verdict = found
        if self._version == GUARD and self.settings.by_replay and not self._may_return():
            return
        better = self.settings.margins.better
        if self._version == GUARD and not self.settings.by_replay and verdict.new_s > (1 - better) * verdict.guard_s:
            return  # the guard took over meanwhile
        why = f"{verdict.why}: {verdict.new_s:.0f} s, before {verdict.present_s:.0f}, guard {verdict.guard_s:.0f}"
        self._swap(weights, why)

    def _note(self, what: str) -> None:
        """In the log, beside who serves."""
        self.log.serve(self._version, self.time_s, what)

    def _swap(self, weights: W, why: str) -> None:
        """File first, then the log, then the policy that serves."""
        known = max((version for version, _, _ in self.log.versions), default=GUARD)
        version = 1 + max(known, _newest(self.settings.folder))
        policy = self.learner.policy(weights)
        made = _put(self.settings.folder, version, self.learner.packed(weights))
        self.log.serve(version, self.time_s, why, made)
        self._weights, self._held, self._version, self._serving = weights, version, version, policy

    # ----------------------------------------------------------------------------------------------------------- start
    def open(self, like: LiveMoment) -> float:
        """Open the log (``decide`` does, where nobody has), for moments like this one: go on where the last loop ended,
        or begin. When the last decision was made, 0 in a new log: a source's clock must not lie before."""
        path, actions = self.settings.folder / "log.sqlite", len(like.mask)
        asked = {"durable": self.settings.durable, "belongs": self.settings.belongs}
        self._log = Log(path, shape=like.observation.shape, actions=actions, **asked)  # type: ignore[arg-type]
        self.time_s = self.log.last_s
        if not self.log.served:
            self._swap(self._weights, "the first policy")
            if self.settings.by_replay:
                self.fall("until replays say what the first policy is worth")
        else:
            self._go_on()
        known = self.log.jobs()
        self._told = self._reviewed = (len(known), sum(each.ran_s is not None for each in known))
        if self._version == GUARD:
            self._fell = sum(each.job.arrival_s < self._since_s() for each in known)
        return self.log.last_s

    def _go_on(self) -> None:
        """The last policy that was noted, or the newest one whose file is whole."""
        last = self.log.served[-1][1]
        for version, name, sha256 in reversed(self.log.versions):
            if last != GUARD and version > last:
                continue
            try:
                self._weights = _load(self.settings.folder, name, sha256, self.learner)
            except InputError as error:
                self.log.serve(self._version, self.time_s, f"version {version} cannot be used: {error}")
                continue
            self._held = version
            if last != GUARD:
                self._version, self._serving = version, self.learner.policy(self._weights)
                if version != last:
                    self.log.serve(version, self.time_s, "the newest policy whose file is whole")
            return
        self.log.serve(GUARD, self.time_s, "no policy is whole")

    def _chances(self, moment: LiveMoment) -> NDArray[np.float64]:
        """Of the policy that serves; if it has no answer that can be given out, it is out and the guard answers."""
        serving: ChoosingPolicy = self._serving  # type: ignore[assignment]  # of a queue, where this is asked
        if self._version != GUARD:
            try:
                chances = serving.probabilities(moment.observation, moment.mask)
                if not (fault := fault_of(chances, moment.mask)):
                    return chances
            except Exception as error:  # whatever breaks in a policy must not break the loop
                fault = f"{type(error).__name__}: {error}"
            self.fall(f"version {self._version} could not decide: {fault}", broken=True)
            serving = self._serving  # type: ignore[assignment]
        chances = serving.probabilities(moment.observation, moment.mask)
        assert not (fault := fault_of(chances, moment.mask)), f"the guard could not decide: {fault}"
        return chances

    def _chosen(self, chances: NDArray[np.float64]) -> int:
        if not self.settings.explore:
            return int(np.argmax(chances))
        rng = np.random.default_rng([self.settings.seed, self.log.decisions])
        return int(rng.choice(len(chances), p=chances / chances.sum()))


def fault_of(chances: NDArray[np.float64], mask: NDArray[np.bool_]) -> str:
    """Why these are no probabilities (A,) of the choices of a moment; empty: they are."""
    if np.shape(chances) != mask.shape:
        return f"an answer of shape {np.shape(chances)} for {len(mask)} choices"
    if not np.isfinite(chances).all() or (chances < 0).any() or not chances.sum() > 0:
        return f"{chances.tolist()[:8]} are no probabilities"
    return "it chose what is not allowed" if chances[~mask].any() else ""


def _watch(
    guard: OnlinePolicy[Any], history: JobHistory, margins: Margins, since_s: float, held: OnlinePolicy[Any] | None
) -> Watch:
    return watch(guard, history, margins, since_s=since_s, policy=held)


def serve(
    source: LiveSite, learner: OnlineLearner[W], first: W, guard: OnlinePolicy[Any], settings: LoopSettings
) -> int:
    """Serve until the source ends; the decisions that were made."""
    with Loop(learner, first, guard, settings) as loop:
        made = 0
        while (moment := source.look()) is not None:
            source.carry_out(loop.decide(moment))
            made += 1
        if made:
            loop.told(source.rest())
        return made


# ---------------------------------------------- policies that served: files, written whole, known by their hash
def _newest(folder: Path) -> int:
    """The highest version of which a file lies there, known to the log or not; 0: none."""
    found = (path.stem.removeprefix("policy-") for path in folder.glob("policy-*.npz"))
    return max((int(number) for number in found if number.isdecimal()), default=0)


def _put(folder: Path, version: int, content: bytes) -> tuple[str, str]:
    """Write a policy of a new version; its file's name and SHA-256."""
    name = f"policy-{version}.npz"
    assert not (folder / name).exists(), "a policy is never overwritten"
    write_whole(folder / name, content)
    return name, hashlib.sha256(content).hexdigest()


def _load(folder: Path, name: str, sha256: str, learner: OnlineLearner[W]) -> W:
    """Read a policy; ``InputError`` where it is missing, not what was written, or of another shape."""
    path = folder / name
    try:
        content = path.read_bytes()
    except OSError as error:
        remedy = "put the file back, or let an older policy serve"
        raise InputError(f"cannot read the policy: {error.strerror}", source=str(path), remedy=remedy) from None
    if hashlib.sha256(content).hexdigest() != sha256:
        remedy = "put the file back as it was, or let an older policy serve"
        raise InputError("the policy is not what the loop wrote", source=str(path), remedy=remedy)
    return learner.unpacked(content, str(path))
