"""Three tasks on three agents: a learned scheduler and heuristics against the optimum by enumeration.

    python examples/tasks_on_agents.py

prints a table and a Gantt chart; 20 to 30 s on one core (needs torch: ``pip install -e '.[learn]'``).

Tasks: (500 GFLOP, 10 GB), (200, 5), (800, 20). Agents: (1 GPU, 16 GB), (2, 32), (4, 64). An agent runs one task at a
time on all of its GPUs, and holds it from the first byte to the last operation:

    duration = FLOPs / (GPUs x speed of a GPU) + data / bandwidth

Figures used: a GPU sustains 100 GFLOP/s, each agent has a link of its own of 10 Gbit/s (1.25 GB/s) to where the data
lies. They are chosen so that neither part vanishes; with an A100's 312 TFLOP/s compute would take milliseconds and all
agents would be alike (``--gflops`` and ``--gbit`` try other figures). The GB of an agent limit the data of the task it
runs: 20 GB do not fit into 16 GB, so the third task cannot run on the first agent; everything else can run anywhere.

The optimum enumerates every assignment in every order: starting later than possible never helps, so no schedule is
left out. The heuristics are list schedules. The learned scheduler is a small network that scores (task, agent) pairs,
trained by REINFORCE on drawn tasks and agents, never on the three above; its baseline is the mean of the other plays
of the same draw (Kool, van Hoof, Welling 2019). One network is trained for each of the two goals.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import permutations, product

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table

from hippo.errors import InfeasibleError, InputError, MissingExtraError

try:
    import torch
    from torch import Tensor, nn
except ModuleNotFoundError:
    sys.exit(f"error: {MissingExtraError('torch', 'learn')}")

from hippo.jobs.engine.play import play
from hippo.jobs.job import Job
from hippo.jobs.policies.heuristics import TWO_QUEUE
from hippo.jobs.settings import ReplayRules
from hippo.jobs.site import DevicePool, JobSite
from hippo.jobs.workload import JobWorkload
from hippo.learn.ppo import choice

Order = Sequence[tuple[int, int]]
"""(task, agent) in the order in which tasks are given out; an agent runs its own in that order."""
GOALS = ("makespan", "mean completion")
HEURISTICS = ("fifo, fastest free agent", "fifo, earliest finish", "shortest first", "longest first")


@dataclass(frozen=True)
class Task:
    """Work and the data it needs."""

    gflop: float
    data_gb: float


@dataclass(frozen=True)
class Agent:
    """Equal GPUs that work on one task, and the room for its data."""

    gpus: int
    memory_gb: float


@dataclass(frozen=True)
class Figures:
    """Speed of a GPU and of each agent's link."""

    gflop_per_s: float = 100.0
    gbit_per_s: float = 10.0

    def __post_init__(self) -> None:
        for key, value in (("gflops", self.gflop_per_s), ("gbit", self.gbit_per_s)):
            if not 0 < value < np.inf:
                raise InputError("must be above 0", source=f"--{key}", value=value, remedy="give a speed")

    def durations(self, tasks: Sequence[Task], agents: Sequence[Agent]) -> NDArray[np.float64]:
        """Seconds (tasks, agents); infinite where the data does not fit."""
        compute = np.array([[task.gflop / (agent.gpus * self.gflop_per_s) for agent in agents] for task in tasks])
        moving = np.array([[8 * task.data_gb / self.gbit_per_s] for task in tasks])
        fits = np.array([[task.data_gb <= agent.memory_gb for agent in agents] for task in tasks])
        return np.where(fits, compute + moving, np.inf)


TASKS = (Task(500, 10), Task(200, 5), Task(800, 20))
AGENTS = (Agent(1, 16), Agent(2, 32), Agent(4, 64))


@dataclass(frozen=True)
class Outcome:
    """A schedule: who runs what, from when to when."""

    name: str
    order: Order
    starts: tuple[float, ...]  # (tasks,) s
    ends: tuple[float, ...]  # (tasks,) s

    @property
    def makespan(self) -> float:
        """End of the last task, s."""
        return max(self.ends)

    @property
    def mean(self) -> float:
        """Mean completion time, s; every task is there at 0."""
        return sum(self.ends) / len(self.ends)

    def value(self, goal: str) -> float:
        """What a goal asks to be small."""
        return self.makespan if goal == GOALS[0] else self.mean


def played(name: str, order: Order, durations: NDArray[np.float64]) -> Outcome:
    """Every agent runs its tasks in their order, without a pause."""
    free, starts, ends = np.zeros(durations.shape[1]), np.zeros(len(durations)), np.zeros(len(durations))
    for task, agent in order:
        starts[task] = free[agent]
        ends[task] = free[agent] = free[agent] + durations[task, agent]
    return Outcome(name, tuple(order), tuple(starts.tolist()), tuple(ends.tolist()))


def replayed(
    order: Order, tasks: Sequence[Task], agents: Sequence[Agent], figures: Figures, name: str = "replayed"
) -> Outcome:
    """The same assignment as jobs of the queue's engine: agents of different speed, data that move before a job runs.

    An agent is a domain with one device, as quick as its GPUs together; a job may use its own agent only. All come at 0
    in the order given out, and nobody is stopped.
    """
    pools = [DevicePool("store", "store", 1, 1)]
    pools += [
        DevicePool(f"agent-{k}", f"agent-{k}", 1, 1, float(each.gpus), each.memory_gb) for k, each in enumerate(agents)
    ]
    rate = [
        [figures.gbit_per_s * 1e9 / 8 if a == 0 < b else np.inf for b in range(len(pools))] for a in range(len(pools))
    ]
    links = tuple(tuple(row) for row in rate), ((0.0,) * len(pools),) * len(pools)
    jobs = [
        Job(
            name=f"task-{task}",
            arrival_s=0.0,
            duration_s=tasks[task].gflop / figures.gflop_per_s,
            runs_on=(f"agent-{agent}",),
            memory_gb=tasks[task].data_gb,
            data_gb=tasks[task].data_gb,
            data_at="store",
        )
        for task, agent in order
    ]
    rules = ReplayRules(span="never", data="before")
    found = play(JobWorkload.of(jobs), JobSite(tuple(pools), *links), replace(TWO_QUEUE, preempts=False), rules)
    place = {task: row for row, (task, _) in enumerate(order)}
    rows = [place[task] for task in range(len(tasks))]
    return Outcome(name, tuple(order), tuple(found.first_start_s[rows].tolist()), tuple(found.finish_s[rows].tolist()))


# ------------------------------------------------------------------------------------------------- optimum, heuristics
def every_order(durations: NDArray[np.float64]) -> Iterator[Order]:
    """All assignments that fit, each in all orders."""
    tasks, agents = durations.shape
    for sequence in permutations(range(tasks)):
        for places in product(range(agents), repeat=tasks):
            if all(np.isfinite(durations[pair]) for pair in zip(sequence, places, strict=True)):
                yield tuple(zip(sequence, places, strict=True))


def optimum(durations: NDArray[np.float64], goal: str) -> Outcome:
    """The best of all schedules; ties go to the smaller other goal, then to the first.

    Raises
    ------
    InfeasibleError
        A task fits nowhere.
    """
    if not np.isfinite(durations).any(axis=1).all():
        task = int(np.flatnonzero(~np.isfinite(durations).any(axis=1))[0])
        raise InfeasibleError(
            [f"The data of task {task + 1} fits into no agent; split it, or give an agent more memory."]
        )
    other = GOALS[1 - GOALS.index(goal)]
    everything = (played(f"optimum: {goal}", order, durations) for order in every_order(durations))
    return min(everything, key=lambda each: (each.value(goal), each.value(other)))


def heuristic(name: str, durations: NDArray[np.float64]) -> Outcome:
    """A list schedule: the tasks in the order of the rule, each to the agent of the rule (Graham 1969)."""
    least = durations.min(axis=1)
    sequence = {"shortest first": np.argsort(least, kind="stable"), "longest first": np.argsort(-least, kind="stable")}
    free, order = np.zeros(durations.shape[1]), []
    for task in sequence.get(name, np.arange(len(durations))):
        fits = np.isfinite(durations[task])
        if name == "fifo, fastest free agent":  # who is free first; of those, who is quickest
            first = free == free[fits].min()
            agent = int(np.argmin(np.where(first & fits, durations[task], np.inf)))
        else:
            agent = int(np.argmin(free + durations[task]))
        free[agent] += durations[task, agent]
        order.append((int(task), agent))
    return played(name, order, durations)


def all_heuristics(durations: NDArray[np.float64]) -> tuple[Outcome, ...]:
    """Every list schedule."""
    return tuple(heuristic(name, durations) for name in HEURISTICS)


# ------------------------------------------------------------------------------------------------------------- learned
FEATURES = 9


def features(durations: Tensor, free: Tensor, left: Tensor) -> Tensor:
    """Of (task, agent) pairs, (B, N, A, FEATURES). ``durations`` (B, N, A), ``free`` (B, A), ``left`` (B, N)."""
    open_pairs = left[:, :, None] & torch.isfinite(durations)
    finite = torch.where(torch.isfinite(durations), durations, 0.0)
    least = durations.amin(2)
    scale = torch.where(torch.isfinite(least), least, 0.0).sum(1)[:, None, None] / durations.shape[2]
    finish = free[:, None, :] + durations
    soonest = finish.amin(2, keepdim=True)
    waiting = torch.where(left, least, 0.0).sum(1)[:, None, None].expand_as(finite)
    longest = torch.where(left, least, 0.0).amax(1)[:, None, None].clamp_min(1e-9)
    makes = [
        finite / scale,
        free[:, None, :].expand_as(finite) / scale,
        torch.where(open_pairs, finish, 0.0) / scale,
        torch.where(open_pairs, finish - soonest, 0.0) / scale,
        (least[:, :, None] / longest).expand_as(finite),
        waiting / scale,
        free.amax(1)[:, None, None].expand_as(finite) / scale,
        open_pairs.float().mean(2, keepdim=True).expand_as(finite),
        (finite / least[:, :, None].clamp_min(1e-9)),
    ]
    return torch.where(open_pairs[..., None], torch.stack(makes, -1), 0.0)


class Exchange(nn.Module):
    """A layer that treats tasks, and agents, alike: a pair, and means over its task, its agent and all (Hartford,
    Graham, Leyton-Brown, Ravanbakhsh 2018, equation 2, over the pairs that are open)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.mix = nn.Linear(4 * inputs, outputs)

    def forward(self, seen: Tensor, mask: Tensor) -> Tensor:
        """(B, N, A, inputs) and open pairs (B, N, A) to (B, N, A, outputs)."""
        weight = mask[..., None].float()
        inside = seen * weight
        means = [
            (inside.sum(axes, keepdim=True) / weight.sum(axes, keepdim=True).clamp_min(1.0)).expand_as(seen)
            for axes in ((2,), (1,), (1, 2))
        ]
        return torch.tanh(self.mix(torch.cat([inside, *means], -1)))


class Scheduler(nn.Module):
    """Scores of pairs; any number of tasks and agents."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Exchange(FEATURES, width), Exchange(width, width), Exchange(width, width)])
        self.score = nn.Linear(width, 1)

    def forward(self, seen: Tensor, mask: Tensor) -> Tensor:
        """Logits (B, N A) of features (B, N, A, FEATURES) and open pairs (B, N, A)."""
        for layer in self.layers:
            seen = layer(seen, mask)
        scores: Tensor = self.score(seen)
        return scores.flatten(1)


def rollout(net: Scheduler, durations: Tensor, *, greedy: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Plays to the end: pairs chosen (B, N), log probability (B,), mean entropy (B,), completion times (B, N)."""
    runs, tasks, agents = durations.shape
    free, left = torch.zeros(runs, agents), torch.ones(runs, tasks, dtype=torch.bool)
    ends, row, chosen = torch.zeros(runs, tasks), torch.arange(runs), []
    log_prob, chaos = torch.zeros(runs), torch.zeros(runs)
    for _ in range(tasks):
        mask = left[:, :, None] & torch.isfinite(durations)
        log_probs, entropy = choice(net(features(durations, free, left), mask), mask.flatten(1))
        pick = log_probs.argmax(1) if greedy else torch.multinomial(log_probs.exp(), 1).squeeze(1)
        log_prob, chaos = log_prob + log_probs[row, pick], chaos + entropy / tasks
        task, agent = pick // agents, pick % agents
        end = free[row, agent] + durations[row, task, agent]
        free, left, ends = free.clone(), left.clone(), ends.clone()
        free[row, agent], left[row, task], ends[row, task] = end, False, end
        chosen.append(pick)
    return torch.stack(chosen, 1), log_prob, chaos, ends


def drawn(rng: np.random.Generator, figures: Figures, *, tasks: int, agents: int) -> NDArray[np.float64]:
    """Durations of tasks and agents like those above; every task fits somewhere."""
    some = [Agent(int(gpus), 16.0 * gpus) for gpus in rng.choice([1, 2, 4], agents)]
    room = max(agent.memory_gb for agent in some)
    work = [Task(float(rng.uniform(100, 1000)), float(rng.uniform(2, min(24.0, room)))) for _ in range(tasks)]
    return figures.durations(work, some)


@dataclass(frozen=True)
class Training:
    """Size of the training."""

    updates: int = 250
    draws: int = 48  # of tasks and agents per update
    plays: int = 8  # of each draw
    learning_rate: float = 4e-3
    entropy: float = 0.02  # falls to nothing
    seed: int = 0

    def __post_init__(self) -> None:
        for key, value in (("updates", self.updates), ("seed", self.seed)):
            if value < 0:
                raise InputError("must be 0 or more", source=f"--{key}", value=value, remedy="give a whole number")


def train(goal: str, figures: Figures, size: Training) -> Scheduler:
    """Trained on fresh draws."""
    torch.manual_seed(size.seed)
    rng, net = np.random.default_rng(size.seed), Scheduler()

    def draws() -> NDArray[np.float64]:
        shape = {"tasks": int(rng.integers(2, 6)), "agents": int(rng.integers(2, 5))}
        return np.stack([drawn(rng, figures, **shape) for _ in range(size.draws)])

    reinforce(net, goal, draws, size)
    return net


def search(net: Scheduler, goal: str, durations: NDArray[np.float64], size: Training) -> Scheduler:
    """A copy that learns on from plays of these very tasks (active search: Bello, Pham, Le, Norouzi, Bengio 2016)."""
    torch.manual_seed(size.seed)
    own = deepcopy(net)
    reinforce(own, goal, lambda: durations[None], replace(size, updates=100, plays=64, entropy=0.2))
    return own


def reinforce(net: Scheduler, goal: str, draws: Callable[[], NDArray[np.float64]], size: Training) -> None:
    """REINFORCE (Williams 1992), the mean of a draw's other plays as the baseline."""
    optimizer = torch.optim.Adam(net.parameters(), lr=size.learning_rate)
    for update in range(size.updates):
        left = 1 - update / size.updates
        optimizer.param_groups[0]["lr"] = size.learning_rate * max(left, 0.05)
        durations = torch.from_numpy(draws()).float().repeat_interleave(size.plays, 0)
        _, log_prob, chaos, ends = rollout(net, durations, greedy=False)
        paid = -(ends.amax(1) if goal == GOALS[0] else ends.mean(1)).reshape(-1, size.plays)
        paid = paid / paid.mean(1, keepdim=True).abs()
        advantage = (paid - paid.mean(1, keepdim=True)) * size.plays / (size.plays - 1)
        loss = -(advantage.flatten() * log_prob).mean() - size.entropy * left**2 * chaos.mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def learned(net: Scheduler, durations: NDArray[np.float64], name: str) -> Outcome:
    """The schedule of the likeliest choices."""
    with torch.no_grad():
        picks, _, _, _ = rollout(net, torch.from_numpy(durations).float()[None], greedy=True)
    order = [divmod(pick, durations.shape[1]) for pick in picks[0].tolist()]
    return played(name, order, durations)


# --------------------------------------------------------------------------------------------------------------- shown
def gantt(outcome: Outcome, durations: NDArray[np.float64], *, tasks: Sequence[Task], figures: Figures) -> str:
    """A line per agent, a column per .5 s: ``-`` while data moves, the task's number while it computes."""
    lines = [f"{outcome.name} (- data moves, digits: the task computes; a column is .5 s)"]
    for agent in range(durations.shape[1]):
        cells = [" "] * round(2 * outcome.makespan)
        for task in (task for task, where in outcome.order if where == agent):
            computes = outcome.starts[task] + 8 * tasks[task].data_gb / figures.gbit_per_s
            first, middle, last = (round(2 * time) for time in (outcome.starts[task], computes, outcome.ends[task]))
            cells[first:middle] = "-" * (middle - first)
            cells[middle:last] = str(task + 1) * (last - middle)
        lines.append(f"agent {agent + 1} |{''.join(cells)}|")
    return "\n".join(lines)


def table(outcomes: Sequence[Outcome], best: dict[str, float]) -> Table:
    """For the terminal."""
    shown = Table(title="Tasks on agents: seconds, and how far above the optimum", title_justify="left")
    for index, head in enumerate(("schedule", "task > agent", *(word for goal in GOALS for word in (goal, "above")))):
        shown.add_column(head, justify="left" if index < 2 else "right", no_wrap=True)
    for each in outcomes:
        cells = [each.name, " ".join(f"{task + 1}>{agent + 1}" for task, agent in each.order)]
        for goal in GOALS:
            cells += [f"{each.value(goal):.2f}", f"{100 * (each.value(goal) / best[goal] - 1):.1f} %"]
        shown.add_row(*cells)
    return shown


Shares = dict[str, dict[str, float]]


def gaps(nets: dict[str, Scheduler], figures: Figures, *, draws: int, seed: int = 10_007) -> Shares:
    """Mean share above the optimum on fresh draws of 4 tasks and 3 agents, by schedule and goal."""
    rng = np.random.default_rng(seed)
    found: Shares = {name: dict.fromkeys(GOALS, 0.0) for name in (*HEURISTICS, "learned")}
    for _ in range(draws):
        durations = drawn(rng, figures, tasks=4, agents=3)
        for goal in GOALS:
            best = optimum(durations, goal).value(goal)
            for each in (*all_heuristics(durations), learned(nets[goal], durations, "learned")):
                found[each.name][goal] += (each.value(goal) / best - 1) / draws
    return found


def main(arguments: Sequence[str] | None = None) -> tuple[Outcome, ...]:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gflops", type=float, default=Figures.gflop_per_s, help="GFLOP/s that a GPU sustains")
    parser.add_argument("--gbit", type=float, default=Figures.gbit_per_s, help="Gbit/s of each agent's link")
    parser.add_argument("--updates", type=int, default=Training.updates, help="of each network")
    parser.add_argument("--draws", type=int, default=100, help="fresh draws for the mean gap; 0: none")
    parser.add_argument("--seed", type=int, default=Training.seed)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    figures, size = Figures(given.gflops, given.gbit), Training(given.updates, seed=given.seed)
    console = Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 110)
    durations = figures.durations(TASKS, AGENTS)
    best = [optimum(durations, goal) for goal in GOALS]
    nets = {goal: train(goal, figures, size) for goal in track(GOALS, "Training", console=Console(stderr=True))}
    outcomes = [*best, *all_heuristics(durations)]
    for goal, net in nets.items():
        outcomes.append(learned(net, durations, f"learned: {goal}"))
        outcomes.append(learned(search(net, goal, durations, size), durations, f"learned on: {goal}"))
    console.print(table(outcomes, {goal: each.value(goal) for goal, each in zip(GOALS, best, strict=True)}))
    for each in (best[0], outcomes[2], outcomes[-1]):
        console.print(gantt(each, durations, tasks=TASKS, figures=figures), highlight=False)
    again = [replayed(each.order, TASKS, AGENTS, figures) for each in outcomes]
    same = all(np.allclose(own.ends, each.ends) for own, each in zip(again, outcomes, strict=True))
    console.print(
        f"replayed as jobs by the queue's engine: {'the same times' if same else 'OTHER TIMES'}", highlight=False
    )
    if given.draws > 0:
        for name, share in gaps(nets, figures, draws=given.draws).items():
            said = ", ".join(f"{100 * share[goal]:.1f} % ({goal})" for goal in GOALS)
            console.print(f"4 tasks on 3 agents, {given.draws} fresh draws: {name} is {said} above", highlight=False)
    return tuple(outcomes)


if __name__ == "__main__":
    try:
        main()
    except (InputError, InfeasibleError) as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2 if isinstance(error, InputError) else 3)
