"""Agents that pull jobs, trained by RLlib: PPO, APPO or IMPALA, on a Ray cluster or on this machine.

    python examples/jobs_rllib.py --algorithm ppo --iterations 20
    python examples/jobs_rllib.py --algorithm appo --address auto --runners 16 --trace philly.csv

needs two extras, ``pip install -e '.[learn,ray]'`` (RLlib 2.60 pins gymnasium 1.2.2: use an environment of its own).
``--address auto`` joins the cluster that ``ray start`` made; every node of it needs hippo and the trace. Without it Ray
starts here.

Each domain is an agent (``hippo.jobs.env.multi_agent``); all share one policy, which scores candidates one by one and
so serves any number of them. It is trained on cuts of the first part of a trace and judged on cuts of the last part:
mean completion time against the rules of the engine. Without ``--trace`` jobs are drawn (log-normal durations, four
users). PPO is synchronous; APPO and IMPALA are the asynchronous forms (RLlib has no A3C any more). Every runner counts
answers that its masks forbid, and the script fails if there are any.

How good it gets in a few iterations: see results/queue.md. The policies that ship are trained by ``hippo.network``.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from hippo.errors import InputError, MissingExtraError
from hippo.jobs.engine.play import play
from hippo.jobs.env.env import C, Cuts, F, Queue
from hippo.jobs.env.multi_agent import Pullers, multi_agent_env
from hippo.jobs.policies.heuristics import FIFO, SRTF, TWO_QUEUE
from hippo.jobs.site import DevicePool, JobSite, site
from hippo.jobs.traces.load import load_trace
from hippo.jobs.workload import JobWorkload
from hippo.learn.turns import ALLOWED, OBSERVED

ALGORITHMS = ("ppo", "appo", "impala")
NEVER = -1e8  # logit of what a mask forbids
RULES = (FIFO, TWO_QUEUE, SRTF)


@dataclass(frozen=True)
class World:
    """Where jobs run and where they come from; plain data, made anew by every runner."""

    domains: int = 4
    nodes: int = 2
    per_node: int = 8
    candidates: int = 12
    jobs: int = 150  # of an episode
    trace: str = ""

    def site(self) -> JobSite:
        """Equal domains."""
        pools = [DevicePool(f"domain-{index}", "gpu", self.nodes, self.per_node) for index in range(self.domains)]
        return site(pools, bandwidth_bytes_per_s=6.25e8, latency_s=0.02)

    def workload(self) -> JobWorkload:
        """All jobs."""
        if self.trace:
            return load_trace(self.trace).workload
        rng, jobs = np.random.default_rng(0), 20_000
        user = rng.integers(0, 4, jobs)
        columns = {
            "arrival_s": np.cumsum(rng.exponential(120.0, jobs)),
            "duration_s": rng.lognormal(5.0 + user, 1.0),
            "devices": 2 ** rng.choice(5, jobs, p=[0.5, 0.2, 0.15, 0.1, 0.05]),
            "user": user,
        }
        return JobWorkload.of_columns(columns, users=("a", "b", "c", "d"))

    def queue(self, first: float, last: float) -> Queue:
        """Cuts of a part of the jobs, at a load of .9 to 1.1."""
        part = self.workload().part(first, last)
        return Queue(Cuts((part,), self.site(), jobs=self.jobs, load=(0.9, 1.1)).draw, self.site())


def pulling_module() -> type:
    """The network. Ray is imported only where it is needed, so that ``--help`` works without it."""
    from ray.rllib.core.columns import Columns
    from ray.rllib.core.learner.utils import make_target_network
    from ray.rllib.core.rl_module.apis import TARGET_NETWORK_ACTION_DIST_INPUTS, TargetNetworkAPI, ValueFunctionAPI
    from ray.rllib.core.rl_module.torch import TorchRLModule

    class PullingModule(TorchRLModule, ValueFunctionAPI, TargetNetworkAPI):
        """Scores each candidate by its own row and the queue's; "none" by the queue's alone. Masked answers are out."""

        def setup(self) -> None:
            """Networks."""
            self.rows, width = self.model_config["candidates"], self.model_config["width"]
            self.pi = nn.Sequential(nn.Linear(F + C, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
            self.pi.append(nn.Linear(width, 1))
            self.none = nn.Sequential(nn.Linear(C, width), nn.Tanh(), nn.Linear(width, 1))
            self.vf = nn.Sequential(nn.Linear(F + C, width), nn.Tanh(), nn.Linear(width, 1))
            nn.init.constant_(self.none[-1].bias, -2.0)  # begin by taking jobs

        def _parts(self, seen: Tensor) -> tuple[Tensor, Tensor]:
            """Candidates with the queue beside them (B, M, F + C), and the queue (B, C)."""
            rows, context = seen[..., : self.rows * F], seen[..., self.rows * F :]
            rows = rows.unflatten(-1, (self.rows, F))
            return torch.cat([rows, context[..., None, :].expand(*rows.shape[:-1], C)], -1), context

        def _logits(self, batch: dict[str, Any], pi: nn.Module, none: nn.Module) -> Tensor:
            seen, mask = batch[Columns.OBS][OBSERVED], batch[Columns.OBS][ALLOWED]
            rows, context = self._parts(seen)
            logits = torch.cat([pi(rows).squeeze(-1), none(context)], -1)
            return torch.where(mask > 0, logits, NEVER)

        def _forward(self, batch: dict[str, Any], **_: Any) -> dict[str, Any]:
            return {Columns.ACTION_DIST_INPUTS: self._logits(batch, self.pi, self.none)}

        def compute_values(self, batch: dict[str, Any], embeddings: Any = None) -> Tensor:
            """What the mean candidate promises."""
            rows, _ = self._parts(batch[Columns.OBS][OBSERVED])
            return self.vf(rows.mean(-2)).squeeze(-1)

        def make_target_networks(self) -> None:
            """For APPO."""
            self._old_pi, self._old_none = make_target_network(self.pi), make_target_network(self.none)

        def get_target_network_pairs(self) -> list[tuple[Any, Any]]:
            """For APPO."""
            return [(self.pi, self._old_pi), (self.none, self._old_none)]

        def forward_target(self, batch: dict[str, Any]) -> dict[str, Any]:
            """For APPO."""
            return {TARGET_NETWORK_ACTION_DIST_INPUTS: self._logits(batch, self._old_pi, self._old_none)}

        def get_non_inference_attributes(self) -> list[str]:
            """What runners do without."""
            return ["vf", "_old_pi", "_old_none"]

    return PullingModule


def watched(world: World) -> Any:
    """The environment, counting answers and those that its masks forbid; ``forbidden`` is told at every end."""
    env = multi_agent_env(world.queue(0.0, 0.7), candidates=world.candidates)
    reset, step = env.reset, env.step
    env.seen, env.answers, env.forbidden = {}, 0, 0

    def reset_and_note(**choices: Any) -> Any:
        found = reset(**choices)
        env.seen = found[0]
        return found

    def step_and_note(answers: dict[str, int]) -> Any:
        env.answers += len(answers)
        env.forbidden += sum(not env.seen[name][ALLOWED][answer] for name, answer in answers.items())
        assert env.forbidden == 0, "an answer was masked"
        found = step(answers)
        env.seen = found[0]
        return found

    env.reset, env.step = reset_and_note, step_and_note
    return env


def configured(algorithm: str, world: World, *, runners: int, seed: int, batch: int) -> Any:
    """RLlib's configuration."""
    from ray.rllib.algorithms.appo import APPOConfig
    from ray.rllib.algorithms.impala import IMPALAConfig
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module import RLModuleSpec
    from ray.tune.registry import register_env

    config = {"ppo": PPOConfig, "appo": APPOConfig, "impala": IMPALAConfig}[algorithm]()
    settings: dict[str, Any] = {"lr": 1e-3, "gamma": 1.0, "train_batch_size_per_learner": batch, "entropy_coeff": 0.003}
    if algorithm == "ppo":
        settings |= {"minibatch_size": batch // 4, "num_epochs": 4, "lambda_": 0.97, "vf_clip_param": 100.0}
    else:
        settings |= {"train_batch_size_per_learner": batch // 4, "vf_loss_coeff": 0.5, "grad_clip": 5.0}
    register_env("hippo-jobs", lambda _: watched(world))
    model = {"candidates": world.candidates, "width": 64}
    return (
        config.environment("hippo-jobs", disable_env_checking=True)  # its check answers what is masked
        .env_runners(num_env_runners=runners, rollout_fragment_length="auto" if algorithm == "ppo" else 100)
        .learners(num_learners=0)
        .multi_agent(policies={"domain"}, policy_mapping_fn=lambda agent, episode, **_: "domain")
        .rl_module(rl_module_spec=RLModuleSpec(module_class=pulling_module(), model_config=model))
        .training(**settings)
        .debugging(seed=seed, log_level="ERROR")
    )


def judged(module: Any, world: World, *, episodes: int, seed: int = 9) -> dict[str, float]:
    """Mean completion times over cuts of the last part, of the policy (likeliest answers) and of the rules."""
    from ray.rllib.core.columns import Columns

    pullers, rng = Pullers(world.queue(0.7, 1.0), candidates=world.candidates), np.random.default_rng(seed)
    found: dict[str, list[float]] = {name: [] for name in ("learned", *(rule.name for rule in RULES))}
    for _ in range(episodes):
        workload = pullers.queue.draw(rng)
        seen, over = pullers.reset(workload=workload), False
        while not over:
            batch = {
                key: torch.from_numpy(np.stack([each[key] for each in seen.values()])) for key in (OBSERVED, ALLOWED)
            }
            with torch.no_grad():
                logits = module.forward_inference({Columns.OBS: batch})[Columns.ACTION_DIST_INPUTS]
            seen, _, over = pullers.step(dict(zip(seen, logits.argmax(-1).tolist(), strict=True)))
        found["learned"].append(pullers.mean_completion_s)
        for rule in RULES:
            finish_s = play(workload, world.site(), rule).finish_s
            found[rule.name].append(float(np.nanmean(finish_s - workload.arrival_s)))
    return {name: float(np.mean(values)) for name, values in found.items()}


@contextmanager
def cluster(address: str) -> Iterator[Any]:
    """Ray, joined or started here."""
    try:
        import ray
        import ray.rllib
    except ImportError as error:
        raise MissingExtraError(f"RLlib ({error.name}; in an environment of its own)", "learn,ray") from None
    if address:
        ray.init(address=address, log_to_driver=False)
    else:
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        yield ray
    finally:
        ray.shutdown()


def trained(algorithm: str, world: World, *, iterations: int, console: Console, **choices: int) -> Any:
    """The module after so many iterations, and (iteration, mean return, answers) of each."""
    algo, rows = configured(algorithm, world, **choices).build_algo(), []
    try:
        for iteration in range(iterations):
            told = algo.train()
            runner, learner = told["env_runners"], told.get("learners", {}).get("domain", {})
            paid = runner.get("agent_episode_returns_mean", {})
            mean = float(np.mean(list(paid.values()))) if paid else float("nan")
            steps = int(runner.get("num_env_steps_sampled_lifetime", 0))
            loss = float(learner.get("total_loss", float("nan")))
            rows.append((iteration + 1, mean, steps, loss))
            console.print(f"iteration {iteration + 1}: mean return {mean:.3f}, {steps} moments, loss {loss:.3f}")
        counted = algo.env_runner_group.foreach_env_runner(_counted, local_env_runner=choices["runners"] == 0)
        return algo.get_module("domain"), rows, sum(each[0] for each in counted), sum(each[1] for each in counted)
    finally:
        algo.stop()


def _counted(runner: Any) -> tuple[int, int]:
    """Answers of a runner, and forbidden ones among them."""
    envs = [env.unwrapped for env in runner.env.envs]
    return sum(env.answers for env in envs), sum(env.forbidden for env in envs)


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--algorithm", choices=ALGORITHMS, default="ppo")
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--runners", type=int, help="processes that play; default 0 (in this one), APPO and IMPALA: 1")
    parser.add_argument("--address", default="", help="of a Ray cluster, for instance auto; default: start one here")
    parser.add_argument("--trace", default="", help="jobs to learn on; default: drawn ones")
    parser.add_argument("--jobs", type=int, default=World.jobs, help="of an episode")
    parser.add_argument("--batch", type=int, default=2000, help="moments of an iteration of PPO")
    parser.add_argument("--judged", type=int, default=10, help="episodes of the last part")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    for name, least in (("iterations", 1), ("runners", 0), ("jobs", 1), ("batch", 4), ("judged", 1), ("seed", 0)):
        if (number := getattr(given, name)) is not None and number < least:
            raise InputError(f"must be {least} or more", source=f"--{name}", value=number, remedy="give a whole number")
    warnings.simplefilter("ignore")  # of Ray and what it brings
    world, console = World(jobs=given.jobs, trace=given.trace), Console(stderr=True, highlight=False)
    runners = int(given.algorithm != "ppo") if given.runners is None else given.runners
    with cluster(given.address):
        choices = {"iterations": given.iterations, "runners": runners, "seed": given.seed, "batch": given.batch}
        module, rows, answers, forbidden = trained(given.algorithm, world, **choices, console=console)
    times = judged(module, world, episodes=given.judged)
    table = Table(title=f"Mean completion time on jobs of the last part, {given.judged} episodes", title_justify="left")
    for head in ("who decides", "s", "share of fifo"):
        table.add_column(head, justify="left" if head == "who decides" else "right", no_wrap=True)
    for name, value in times.items():
        shown = f"{given.algorithm}, {given.iterations} iterations" if name == "learned" else name
        table.add_row(shown, f"{value:.0f}", f"{value / times['fifo']:.3f}")
    Console().print(table)
    Console(highlight=False).print(f"{answers} answers, {forbidden} of them masked")
    assert forbidden == 0, "an answer was masked"
    return {"rows": rows, "answers": answers, "forbidden": forbidden, "times": times}


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
