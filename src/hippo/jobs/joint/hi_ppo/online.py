"""The agents on a site that lives: they decide and are logged, learn beside it from worlds like those that the log
shows, and serve only while replays of logged windows say that the rule would not do better.

The loop, its log and its guard are those of queues (``jobs.online``). What the log holds of a site are its jobs as they
were told and as they ended, what links carried, and which devices others held or were broken. A replay plays that
window from an empty site: the same jobs, links and devices for whoever is judged. Learning draws worlds from it:
stretches of its arrivals with its links and devices, jobs drawn from all of its jobs (sizes, models, users, deadlines
together); ``learner`` does the rest, as in training. Logged answers are not learned from: those of a rule, or of a
policy of long ago, are off what serves, and a replay costs less than waiting for more.

Letters: K domains, B nodes, J jobs shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from importlib.resources import as_file, files
from importlib.util import find_spec
from pathlib import Path
from sqlite3 import Error as SqliteError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hippo.errors import MissingExtraError
from hippo.jobs.engine import observe
from hippo.jobs.engine import world as c
from hippo.jobs.engine.keys import attained
from hippo.jobs.engine.observe import Sight
from hippo.jobs.job import Job, TrainingKind
from hippo.jobs.joint.env import JOBS, PLACES, WorldScene, priced
from hippo.jobs.joint.hi_ppo.policy import FORM, MULTIPLIERS, SHIPPED, Agents, Answer, Eyes, HiPpoScheduler
from hippo.jobs.joint.hi_ppo.settings import WorldLearning, parse_settings
from hippo.jobs.joint.moment import Moment, Scheduler
from hippo.jobs.joint.play import play_jointly
from hippo.jobs.joint.settings import SRPT
from hippo.jobs.online.guard import Margins
from hippo.jobs.online.learner import JobHistory, OnlinePolicy, guessed_s, history_of
from hippo.jobs.online.log import Ended, KnownJob, Left, SiteState, Transition
from hippo.jobs.online.loop import LiveMoment, Loop, LoopSettings, News
from hippo.jobs.placement.offers import OfferTable
from hippo.jobs.settings import ReplayRules, Tenants
from hippo.jobs.site import JobSite, LinkHistory
from hippo.jobs.workload import JobWorkload

Floats = NDArray[np.float64]

BY_RULE = -1
"""Logged in place of an answer where the guard decided: its answers have another form."""
HOLDS_ON_S = 3600.0
"""In a replay the last logged state holds so long; then nobody else has devices, and links carry their mean."""
MARGINS = Margins(judged_jobs=60, watched_jobs=60, history_jobs=400)
"""Of a site, whose jobs are fewer and longer than those of a queue."""
REVIEW = 60
"""Jobs from one review to the next, there."""


# ---------------------------------------------------------------------------------------------------------- history
@dataclass(frozen=True)
class SiteGround:
    """What of a site stands still: ``site`` as it is bought, what the planner offers there, the rules of the place."""

    site: JobSite
    offers: OfferTable
    rules: ReplayRules

    def history(
        self,
        known: tuple[KnownJob, ...],
        attained_s: Mapping[str, float],
        *,
        now_s: float,
        transitions: tuple[Transition, ...] = (),
        states: tuple[SiteState, ...] = (),
    ) -> SiteHistory:
        """What the log says of the last jobs, but of those that nobody has planned for since the service came back.
        One that has not ended takes the share of what was told that jobs took which took more of theirs than it has."""
        pace = dict(zip(self.offers.kinds, self.offers.tokens_per_s.tolist(), strict=True))
        known = tuple(each for each in known if not each.job.least or _kind(each.job) in pace)
        told = JobWorkload.of(each.job for each in known).timed(pace)
        base = history_of(known, attained_s, now_s=now_s, transitions=transitions, states=states)
        had_s = np.array([attained_s.get(each.job.name, 0.0) for each in known])
        ran_s = np.array([np.nan if each.ran_s is None else each.ran_s for each in known])
        share = guessed_s(ran_s / told.told_s, had_s / told.told_s, told.devices, least=1.0)
        workload = replace(told, duration_s=told.told_s * share, estimate_s=told.told_s)
        return SiteHistory(
            workload,
            base.ended,
            base.finish_s,
            now_s,
            transitions,
            states,
            ground=self,
        )


def _kind(job: Job) -> TrainingKind:
    return TrainingKind(job.model, job.batch, job.seq)


@dataclass(frozen=True, eq=False)
class SiteHistory(JobHistory):
    """Jobs that came last, on the site as it stood meanwhile."""

    ground: SiteGround = field(kw_only=True)

    @property
    def price(self) -> Floats:
        """As agents are rewarded, and methods judged."""
        return self.ground.offers.prices(self.workload)

    def finishes(self, policy: OnlinePolicy[Any]) -> Floats:
        """(n,) when these jobs would have ended."""
        return policy.finishes(self.scene(self.workload))

    def scene(self, workload: JobWorkload) -> WorldScene:
        """Jobs on the site as it stood; broken nodes are devices that others hold."""
        ground, until_s = self.ground, self.now_s + HOLDS_ON_S
        rules = replace(ground.rules, failures=None)
        if not self.states:
            return WorldScene(workload, ground.site, ground.offers, rules)
        time_s = np.array([each.time_s for each in self.states])
        carried = np.stack([each.bandwidth_bytes_per_s for each in self.states])
        lasts_s = np.diff(time_s, append=max(self.now_s, time_s[-1] + 1.0))
        mean = np.einsum("t,tkl->kl", lasts_s / lasts_s.sum(), np.where(np.isfinite(carried), carried, 0.0))
        mean[~np.isfinite(carried).all(axis=0)] = np.inf
        links = LinkHistory(np.append(time_s, max(until_s, time_s[-1] + 1.0)), np.concatenate([carried, mean[None]]))
        held = np.stack([each.taken for each in self.states])
        changed = np.diff(held, axis=0, prepend=0, append=0)  # at last all are given back
        instant, node = np.nonzero(changed)
        return WorldScene(
            workload,
            replace(ground.site, history=links),
            ground.offers,
            rules,
            Tenants(links.time_s[instant], node, changed[instant, node]) if len(instant) else None,
        )


@dataclass(frozen=True, eq=False)
class LoggedScenes:
    """Worlds to learn in, by number: a stretch of logged arrivals, with links and devices as they stood then, for jobs
    drawn from all that are logged."""

    history: SiteHistory
    jobs: int  # of a world
    seed: int

    @property
    def domains(self) -> tuple[str, ...]:
        """Of every world."""
        return self.history.ground.site.domains

    def scene(self, number: int) -> WorldScene:
        """World ``number``."""
        rng, known = np.random.default_rng([self.seed, number]), self.history.workload
        count = min(self.jobs, len(known))
        first = int(rng.integers(len(known) - count + 1))
        rows = rng.integers(len(known), size=count)
        drawn = known.take(rows)
        arrival_s = known.arrival_s[first : first + count]
        deadline_s = arrival_s + (drawn.deadline_s - drawn.arrival_s)
        return self.history.scene(replace(drawn, names=(), arrival_s=arrival_s, deadline_s=deadline_s))


# -------------------------------------------------------------------------------------------------- policy, learner
@dataclass(frozen=True, eq=False)
class SitePolicy:
    """Whoever decides for all jobs of a site: agents, or a rule."""

    scheduler: Scheduler

    def finishes(self, scene: WorldScene, /) -> Floats:
        """(n,) when the jobs of a world end; inf: never."""
        asked = (scene.workload, scene.site, self.scheduler, scene.settings)
        found = play_jointly(*asked, offers=scene.offers, tenants=scene.tenants).finish_s
        return np.where(np.isfinite(found), found, np.inf)


@dataclass(frozen=True)
class AgentsLearner:
    """The agents by their weights. An update is a few of PPO's in ``worlds`` worlds at once, drawn from the log."""

    settings: WorldLearning = field(default_factory=WorldLearning)
    updates: int = 2
    worlds: int = 16
    jobs: int = 80  # of a world
    seed: int = 0

    @classmethod
    def read(cls, path: str | Path) -> tuple[AgentsLearner, Agents]:
        """Of a file that training wrote, with the weights in it: the same networks, terms and discount, small steps."""
        arrays, made = FORM.read(path)
        found = parse_settings(made["settings"], source=str(path))
        ppo = replace(
            found.ppo, steps_per_update=4096, minibatch=512, learning_rate=2e-4, learning_rate_end=2e-4, entropy_end=0.0
        )
        learner = cls(replace(found, ppo=ppo))
        return learner, learner._checked(arrays, made, str(path))

    def policy(self, weights: Agents) -> SitePolicy:
        """As it serves: the likeliest answers."""
        return SitePolicy(HiPpoScheduler(agents=weights))

    def update(self, weights: Agents, history: JobHistory) -> Agents:
        """What PPO makes of them in worlds like those that were logged."""
        import torch

        from hippo.jobs.joint.hi_ppo.learner import SiteAgents, WorldLearner, WorldShare
        from hippo.jobs.joint.hi_ppo.worlds import WorldBatch
        from hippo.learn.distributed import Place

        assert isinstance(history, SiteHistory)
        seed = [self.seed, len(history.workload), int(history.now_s)]
        rng, scenes = np.random.default_rng(seed), LoggedScenes(history, self.jobs, int(history.now_s))
        torch.manual_seed(int(rng.integers(2**31)))
        policy = SiteAgents(self.settings)
        known = {name: torch.from_numpy(np.array(array)) for name, array in _named(weights).items()}
        policy.load_state_dict({name: array for name, array in known.items() if name != HEADS})
        batch = WorldBatch(scenes, self.worlds, len(scenes.domains), regret=True, charges=weights.charges)
        learner = WorldLearner(policy, [WorldShare(batch, rng)], self.settings, Place())
        learner.updates = self.settings.run.value_updates  # values were learned before
        for _ in range(self.updates):
            learner.learn(0.0)
        arrays = {name: array.numpy().copy() for name, array in policy.state_dict().items()}
        found = Agents.of({**arrays, HEADS: np.array(self.settings.network.heads)})
        return replace(found, stops=weights.stops, limits=weights.limits)

    def packed(self, weights: Agents) -> bytes:
        """The bytes of a file, as training writes them."""
        from dataclasses import asdict

        return FORM.packed(_named(weights), settings=asdict(self.settings))

    def unpacked(self, content: bytes, source: str) -> Agents:
        """From such bytes; ``InputError`` where they are damaged or of another shape."""
        return self._checked(*FORM.unpacked(content, source), source)

    def _checked(self, arrays: Mapping[str, NDArray[Any]], made: Mapping[str, Any], source: str) -> Agents:
        if not all(np.isfinite(array).all() for array in arrays.values()):
            raise FORM.wrong(source)
        try:
            return Agents.of(arrays, made)
        except (KeyError, ValueError):
            raise FORM.wrong(source) from None


HEADS = "upper.heads"


def _named(weights: Agents) -> dict[str, NDArray[Any]]:
    """All arrays by the names that they have in a file."""
    parts = {"upper": weights.upper, "lower": weights.lower}
    found = {f"{agent}.{name}": array for agent, network in parts.items() for name, array in network.items()}
    return {**found, MULTIPLIERS: weights.multipliers}


# ------------------------------------------------------------------------------------------------------------ serving
class _Logged(Agents):
    """Agents whose every answer is noted before it is carried out."""

    def __init__(self, agents: Agents, note: Callable[[Moment, Sight, Answer | None], None]) -> None:
        super().__init__(**{each.name: getattr(agents, each.name) for each in fields(Agents)})
        object.__setattr__(self, "asked", (agents, note))

    def answer(self, moment: Moment, eyes: Eyes, rng: np.random.Generator | None = None) -> Answer | None:
        """Theirs."""
        agents, note = self.asked  # type: ignore[attr-defined]
        found: Answer | None = agents.answer(moment, eyes, rng)
        note(moment, eyes.sight, found)
        return found


class OnlineScheduler:
    """A scheduler that is the loop of a live site: use it in a ``with``, and say ``finish`` at the end.

    A folder that another play has used goes on behind it: the clock of the log does, and so does the policy that served
    last; what was there is told as left. ``lives``: a site that is served, whose clock and jobs' names outlast a
    process, and where work is what is measured, seconds run at the rates that were thought; its world is opened anew
    when jobs, links or offers come. ``tell`` hears who serves from now on, and why.
    """

    summary = "the agents, learning while they serve, held by a rule"
    source = ""
    knows = "durations"
    preempts = True
    learns = True

    def __init__(
        self,
        ground: SiteGround,
        learner: AgentsLearner,
        first: Agents,
        guard: Scheduler,
        settings: LoopSettings,
        *,
        name: str = "hi_ppo_online",
        lives: bool = False,
    ) -> None:
        self._name, self.guard, self._ground, self._lives = name, guard, ground, lives
        self.tell: Callable[[str], None] = lambda told: None
        self.loop: Loop[Agents] = Loop(learner, first, SitePolicy(guard), settings, history=ground.history)
        self._moment: Moment | None = None
        self._told_served = 0  # notes of who serves
        self._agents: tuple[int, HiPpoScheduler] | None = None  # of a version
        self._forget()

    def _forget(self) -> None:
        """Nothing of the play has been told yet."""
        self._begins_s, self._run = 0.0, ""
        self._told_came, self._told = 0, np.zeros(0, np.bool_)
        self._price, self._at_s, self._per_s = np.zeros(0), 0.0, 0.0
        self._state: SiteState | None = None
        self._eyes = HiPpoScheduler()
        self._ran: dict[str, tuple[float, float, float]] = {}  # of live jobs: work done at a moment, and the rate then

    @property
    def name(self) -> str:
        """By which it is asked for; of a site that is served: who decides now."""
        if not self._lives:
            return self._name
        return f"{self._name} {self.loop.version}" if self.loop.version else self.guard.name

    def __enter__(self) -> OnlineScheduler:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Give up what is being learned, and give the log back."""
        self.loop.close()

    def open(self) -> None:
        """Take the folder, unless it is taken; ``InputError``: another loop has it, or its log is damaged or of another
        site or store."""
        if not self.loop.opened:
            seen = np.zeros(_numbers(len(self._ground.site.domains)), np.float32)
            self.loop.open(LiveMoment(0.0, seen, np.ones(JOBS + 1, np.bool_)))

    def finish(self) -> None:
        """Tell the loop what has come about since the last moment; wait for what it is learning."""
        if self._moment is not None:
            self._told_rest(self._moment)
            self.loop.finish_review()

    def _told_rest(self, moment: Moment) -> None:
        news = self._news(moment)
        self.loop.told(News(news.time_s, news.reward, news.came, news.ended, news.left, news.state))

    def watch(self, moment: Moment) -> None:
        """Another decides at this moment; what has come about is told."""
        with self._begun_anew():
            self._stands_at(moment)
            self._told_rest(moment)

    @contextmanager
    def _begun_anew(self) -> Iterator[None]:
        """Where the log cannot be written it goes by the log again, as after a restart, once it can be."""
        try:
            yield
        except (OSError, SqliteError):
            self._moment = None
            raise

    def _stands_at(self, moment: Moment) -> None:
        if self._moment is None:
            self._begin(moment)
        elif self._moment is not moment:
            self._opened_anew(moment)

    def decide(self, moment: Moment) -> None:
        """Whoever serves decides; if that breaks, the guard does, from now on."""
        with self._begun_anew():
            self._stands_at(moment)
            self.loop.look(self._news(moment))
            self._tell_served()
            self._decide(moment)
        for job in moment.running.tolist() if self._lives else ():
            self._work(moment, job)  # from now on at another rate

    def _decide(self, moment: Moment) -> None:
        if self.loop.version:
            try:
                self._serving().decide(moment)
                return
            except (OSError, SqliteError):  # of the log, not of the agents
                raise
            except Exception as error:  # whatever breaks in a policy must not break the site
                self.loop.fall(
                    f"version {self.loop.version} could not decide: {type(error).__name__}: {error}", broken=True
                )
        seen = _seen(self._glance(moment), None)
        self.loop.note(self._clock(moment), *seen, BY_RULE)
        self.guard.decide(moment)

    # -------------------------------------------------------------------------------------------------- what is told
    def _begin(self, moment: Moment) -> None:
        """A play begins, or goes on."""
        self._forget()
        self.open()
        self._moment = moment
        self._told = np.zeros(len(moment.workload), np.bool_)
        self._price = moment.offers.prices(moment.workload)
        last_s = self.loop.log.last_s
        known = {each.job.name: each.finish_s is not None for each in self.loop.log.jobs()}
        arrived = range(int(moment.world.tally[c.ARRIVED]))
        if self._lives:
            self._learn_offers(moment)
            there = {moment.workload.name(job) for job in arrived}
            lost = [Left(name, moment.now_s) for name, gone in known.items() if not gone and name not in there]
            self.loop.log.happened(left=lost)  # whatever became of them while nobody served
            self._told_served = len(self.loop.log.served)
        elif last_s > moment.now_s:  # a log of another play: go on behind it
            self._begins_s, self._run = last_s + 1.0, f"run at {last_s:.0f}, job "
            self.loop.log.happened(left=[Left(name, last_s) for name, gone in known.items() if not gone])
        gone = [known.get(self._name_of(moment, job)) for job in arrived]  # None: not told yet
        self._told_came = [*gone, None].index(None)
        self._told[: len(gone)] = [each is True for each in gone]
        self._at_s = moment.now_s

    def _opened_anew(self, moment: Moment) -> None:
        """The world of a site that is served was opened anew for who is there; what had ended in it is told first."""
        before = self._moment
        assert before is not None
        self._told_rest(before)
        told = {before.workload.name(job): self._told[job] for job in range(self._told_came)}
        there = {moment.workload.name(job) for job in range(len(moment.workload))}
        lost = [Left(name, moment.now_s) for name, over in told.items() if not over and name not in there]
        self.loop.log.happened(left=lost)  # in a world that nobody was asked in: it was held, or opened twice since
        self._moment, self._price = moment, moment.offers.prices(moment.workload)
        arrived = range(int(moment.world.tally[c.ARRIVED]))
        self._told_came = sum(moment.workload.name(job) in told for job in arrived)  # they come first
        self._told = np.zeros(len(moment.workload), np.bool_)
        self._ran = {each: kept for each, kept in self._ran.items() if each in told}
        self._learn_offers(moment)

    def _learn_offers(self, moment: Moment) -> None:
        if moment.offers is not self._ground.offers:
            self._ground = replace(self._ground, offers=moment.offers)
            self.loop.read = self._ground.history

    def _tell_served(self) -> None:
        """Of changes of who serves, and of what speaks for them."""
        for _, version, why in self.loop.log.served[self._told_served :] if self._lives else ():
            who = f"version {version} of {self._name}" if version else self.guard.name
            self.tell(f"{who} decides: {why}")
            self._told_served += 1

    def _clock(self, moment: Moment) -> float:
        return self._begins_s + moment.now_s

    def _work(self, moment: Moment, job: int) -> float:
        """Work that a job has had, in seconds at the reference rate: as it is known, or as it was measured where the
        site is served, whose jobs say how far they are and not what that took."""
        world = moment.world
        if not self._lives:
            return float(attained(world, job, moment.now_s))
        name, row = moment.workload.name(job), world.job[job]
        runs, over = (world.mark[job, c.STATUS] == each for each in (c.RUNNING, c.DONE))
        known_s = float(moment.workload.duration_s[job] if over else attained(world, job, moment.now_s))
        had_s, at_s, rate = self._ran.get(name, (known_s, moment.now_s, 0.0))  # nobody measured: as it was told
        until_s = float(row[c.FINISH]) if over else moment.now_s
        had_s += rate * max(0.0, until_s - at_s)
        begins_s = max(moment.now_s, float(row[c.READY])) if runs else moment.now_s
        self._ran[name] = had_s, begins_s, float(row[c.RATE]) if runs else 0.0
        return had_s

    def _name_of(self, moment: Moment, job: int) -> str:
        return f"{self._run}{moment.workload.name(job)}"

    def _news(self, moment: Moment) -> LiveMoment:
        """What has come about since the last moment. Nobody is told how a job is going to end."""
        world, now_s, workload = moment.world, self._clock(moment), moment.workload
        arrived = int(world.tally[c.ARRIVED])
        status = world.mark[:arrived, c.STATUS]
        came = tuple(self._told_job(moment, job) for job in range(self._told_came, arrived))
        ended = tuple(
            Ended(
                self._name_of(moment, job),
                self._begins_s + float(world.job[job, c.FINISH]),
                self._work(moment, job) if self._lives else float(workload.duration_s[job]),
            )
            for job in np.flatnonzero((status == c.DONE) & ~self._told[:arrived]).tolist()
        )
        left = tuple(
            Left(self._name_of(moment, job), now_s)
            for job in np.flatnonzero((status > c.DONE) & ~self._told[:arrived]).tolist()
        )
        there = np.flatnonzero((status == c.WAITING) | (status == c.RUNNING)).tolist()
        had_s = {self._name_of(moment, job): self._work(moment, job) for job in there}
        reward = -self._per_s * (moment.now_s - self._at_s)
        self._told_came, self._told[:arrived] = arrived, status >= c.DONE
        self._per_s, self._at_s = float(priced(world, self._price)), moment.now_s
        seen = _seen(self._glance(moment), None)
        return LiveMoment(now_s, *seen, reward, came, ended, had_s, left, self._new_state(moment))

    def _told_job(self, moment: Moment, job: int) -> Job:
        found = moment.workload.job(job)
        told_s = float(moment.workload.told_s[job])
        return replace(
            found,
            name=self._name_of(moment, job),
            arrival_s=found.arrival_s + self._begins_s,
            deadline_s=None if found.deadline_s is None else found.deadline_s + self._begins_s,
            duration_s=np.nan if found.least else told_s,
            estimate_s=None if found.least else told_s,
            ends_after=0.0,
        )

    def _new_state(self, moment: Moment) -> SiteState | None:
        """How the site stands, where it stands otherwise than last."""
        world, old = moment.world, self._state
        node = world.bin
        taken = np.where(node[:, c.BIN_UP] == 1, node[:, c.BIN_TENANTS], node[:, c.BIN_SIZE]).astype(np.int64)
        new = SiteState(self._clock(moment), world.links.capacity.copy(), taken)
        if old is not None:
            same = np.array_equal(old.bandwidth_bytes_per_s, new.bandwidth_bytes_per_s)
            if same and np.array_equal(old.taken, taken):
                return None
        self._state = new
        return new

    # ----------------------------------------------------------------------------------------------------- who serves
    def _glance(self, moment: Moment) -> Sight:
        """What is seen at a moment, by whoever decides."""
        eyes = self._eyes.eyes(moment)
        eyes.look(moment)
        return eyes.sight

    def _serving(self) -> HiPpoScheduler:
        """The agents that serve, noted."""
        if self._agents is None or self._agents[0] != self.loop.version:
            agents = _Logged(self._agents_now(), self._note)
            self._agents = (self.loop.version, HiPpoScheduler(agents=agents, watched=self._eyes.watched))
        return self._agents[1]

    def _agents_now(self) -> Agents:
        served: Any = self.loop.serving
        found: Agents = served.scheduler.agents
        return found

    def _note(self, moment: Moment, seen: Sight, found: Answer | None) -> None:
        slot, place, shape = (JOBS, 0, -1) if found is None else found
        self.loop.note(self._clock(moment), *_seen(seen, found), _action(slot, place, shape))


def _action(slot: int, place: int, shape: int) -> int:
    """An answer as one number."""
    return (slot * PLACES + place) * (observe.SHAPES + 1) + shape + 1


def answered(action: int) -> tuple[int, int, int]:
    """Slot (``JOBS``: nobody), place and shape (-1: as the place says) of a logged answer."""
    rest, shape = divmod(action, observe.SHAPES + 1)
    slot, place = divmod(rest, PLACES)
    return slot, place, shape - 1


def _numbers(domains: int) -> int:
    """How many ``_seen`` are."""
    of_places = observe.PLACE_NUMBERS + observe.SHAPE_NUMBERS
    return observe.SITE_NUMBERS + domains * observe.DOMAIN_NUMBERS + JOBS * observe.JOB_NUMBERS + of_places


def _seen(seen: Sight, found: Answer | None) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """What is logged of a moment, but its links, which ``SiteState`` has: site, domains and jobs, the place and the
    shape that were chosen (0: none); and who could be (J + 1,), nobody last."""
    place, shape = np.zeros(observe.PLACE_NUMBERS, np.float32), np.zeros(observe.SHAPE_NUMBERS, np.float32)
    if found is not None:
        place = seen.places[found[1]]
        shape = seen.shapes[found[2]] if found[2] >= 0 else shape
    flat = np.concatenate([seen.site, seen.domains.ravel(), seen.jobs.ravel(), place, shape])
    return flat, np.append(seen.may, True)


def live_agents(
    site: JobSite,
    offers: OfferTable,
    rules: ReplayRules,
    folder: Path,
    *,
    epoch_s: float | None = None,
) -> OnlineScheduler:
    """The agents that ship, as they serve this site: the rule begins, log and policies lie in ``folder``.

    Of a replay what is learned is there in the instant in which it is due; ``epoch_s``: from when the clock of a site
    that is served counts, whose reviews and updates go on in processes of their own.

    ``MissingExtraError`` without torch; ``InputError`` where another loop uses the folder, or the log is damaged, or of
    another site or store.
    """
    if find_spec("torch") is None:
        raise MissingExtraError("torch", "learn", source="--online")
    with as_file(files("hippo.jobs.joint.hi_ppo") / SHIPPED) as path:
        learner, first = AgentsLearner.read(path)
    served = epoch_s is not None
    belongs = {
        "site": ", ".join(f"{each.domain} {each.nodes}" for each in site.pools),
        "store": f"begun at {epoch_s:.3f}" if served else "none, as of a replay",
    }
    beside = "process" if served else "none"
    settings = LoopSettings(folder, REVIEW, MARGINS, background=beside, by_replay=True, belongs=belongs)
    ground = SiteGround(replace(site, history=None), offers, rules)
    name = "hi_ppo" if served else "hi_ppo_online"
    found = OnlineScheduler(ground, learner, first, SRPT, settings, name=name, lives=served)
    found.open()
    return found
