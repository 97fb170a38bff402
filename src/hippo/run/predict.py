"""What a run should take: the simulator on the plan as the executor runs it. The one place where a run asks.

A run keeps the plan's order, and is played as the plan was. Where it runs what is ready, so does the simulator. Real
layers take the seconds that were measured in the run itself (medians per process), stand-ins those of the plan. Between
domains the runtime's transport counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from statistics import median

import numpy as np
from numpy.typing import NDArray

from hippo.dispatch.base import base_from
from hippo.dispatch.guard import settled
from hippo.dispatch.network import follower, policy_of
from hippo.dispatch.noise.fluctuation import Factors, play
from hippo.dispatch.noise.learned_play import play_learned
from hippo.emulate.emulation import emulation
from hippo.engine.program import BACKWARD, FORWARD, WEIGHT
from hippo.problem.runtimes import runtime_of
from hippo.problem.transport import CONGESTIONS, Transport
from hippo.run.dispatching import StepNoise, WorkerNoise, level_of, noise_of, problem_of
from hippo.run.job import RunJob
from hippo.run.network import RunNetwork, as_sent
from hippo.run.run import RunStep, RunStretch
from hippo.run.work import Work, Worker
from hippo.schedule.problem import RankLink, ScheduleProblem
from hippo.simulate import fast
from hippo.simulate.lower import lower, reordered
from hippo.simulate.ordering import LEAST_S
from hippo.simulate.program import Program
from hippo.simulate.timeline import OPTIMIZER
from hippo.simulate.transport.carried import from_instant
from hippo.simulate.transport.play import step_time, step_times
from hippo.simulate.transport.world import Circumstances

Floats = NDArray[np.float64]

INSTANTS = 50
"""Where in a trace a step may begin, for its prediction."""

MOST_PLAYED = 200
"""Steps of one stretch of a run that are played one by one."""

WAN = RunNetwork()


def predicted_s(
    job: RunJob, network: RunNetwork = WAN, *, result: RunStretch | None = None, cold: bool = False
) -> float:
    """Seconds of a step; ``result``: of real layers, whose seconds then count.

    ``cold``: of the first step of a run, in which TCP comes up to the rate of its links. Where links move: the mean of
    ``predicted_along``.
    """
    if network.trace is not None:
        return float(predicted_along(job, network, result=result).mean())
    program = _program(job, result)
    if network.emulated:
        return step_time(program, _transport(job, network), Circumstances(cold=cold, live_limit=_live_limits(job)))
    links = len(program.link_bandwidth_bytes_per_s)
    return fast.step_time(program, bandwidth_bytes_per_s=np.full(links, 1e12), latency_s=np.full(links, 1e-5))


def predicted_along(job: RunJob, network: RunNetwork, *, result: RunStretch | None = None) -> Floats:
    """Seconds of a step for each of ``INSTANTS`` in a trace at which it may begin, evenly spread, (INSTANTS,)."""
    trace = network.trace
    assert trace is not None, "links move along a trace"
    program, limits = _program(job, result), _live_limits(job)
    starts = np.linspace(trace.time_s[0], trace.time_s[-1], INSTANTS, endpoint=False)
    each = (Circumstances(from_instant(trace, start), live_limit=limits) for start in starts.tolist())
    return step_times(program, _transport(job, network), each)


def predicted_each(
    job: RunJob, network: RunNetwork, began_s: Sequence[float], *, result: RunStretch | None = None
) -> Floats:
    """Seconds of steps that began at these instants (``time.monotonic()``), (n,), over the links as they were then; of
    more than ``MOST_PLAYED`` some are played, and the others are those between."""
    if network.met is None:
        return np.full(len(began_s), predicted_s(job, network, result=result))
    program, limits, transport = _program(job, result), _live_limits(job), _transport(job, network)
    starts = np.asarray(began_s) - network.started_s
    every = max(1, ceil(len(starts) / MOST_PLAYED))
    each = (Circumstances(from_instant(network.met, start), live_limit=limits) for start in starts[::every].tolist())
    return np.interp(starts, starts[::every], step_times(program, transport, each))


def dispatched_each(job: RunJob, numbers: Sequence[int], *, result: RunStretch | None = None) -> Floats:
    """Seconds of steps whose ranks ask what is next, (n,), with the draws of these steps; errors as of ``rank_of``.

    Each pipeline is played alone: what replicas agree on between domains is left out. Links are the plan's.
    """
    found = np.zeros(len(numbers))
    for index in range(len(job.plan.pipelines)):
        problem, noise = _pipeline(job, index, result), noise_of(job, index)
        plays = [_factors(job, problem, noise, number) for number in numbers]
        factors = Factors(*(np.stack(each) for each in zip(*plays, strict=True)))
        found = np.maximum(found, _dispatched(job, index, problem, factors))
    finish = _program(job, result).finish_s
    return found + float(np.max(finish))


def _dispatched(job: RunJob, index: int, problem: ScheduleProblem, factors: Factors) -> Floats:
    """Makespans (n,) of a pipeline under draws, by the dispatcher of the job."""
    dispatch, order, planned = job.options.dispatch, job.work.schedules[index], problem_of(job, index)
    if dispatch == "fixed":
        return play(problem, order, factors)
    if dispatch == "hint":
        return play_learned(problem, follower(), factors, base=base_from(planned, order, job.options.patience))
    chosen = settled(planned, policy_of(dispatch), level_of(job))
    return play_learned(problem, chosen.weights, factors, base=chosen.base)


def _pipeline(job: RunJob, index: int, result: RunStretch | None) -> ScheduleProblem:
    """A pipeline as it is played: real layers take what they took, links on loopback nothing."""
    problem = problem_of(job, index)
    if not job.options.play_links and emulation() is None:
        nothing = (RankLink(),) * (problem.ranks - 1)
        problem = replace(problem, down=nothing, up=nothing)
    if result is None or job.options.stand_in:
        return problem
    seconds = np.zeros((problem.ranks, 3))
    noise = noise_of(job, index)
    for worker in result.workers:
        if worker.pipeline == index:
            took = _own_medians(result.steps, worker, noise, problem)
            seconds[worker.stage] = np.maximum(seconds[worker.stage], took)
    forward, backward, weight = (tuple(column) for column in np.maximum(seconds, LEAST_S).T.tolist())
    return replace(problem, forward=forward, backward=backward, weight=weight)


def _own_medians(steps: Sequence[RunStep], worker: Worker, noise: StepNoise | None, problem: ScheduleProblem) -> Floats:
    """(3,) of one process, without what noise has added; the first step is left out."""
    stretched = WorkerNoise(noise, (problem.ranks, problem.micro_batches), worker.stage)
    took: tuple[list[float], ...] = ([], [], [])
    for step in steps[1:] or steps:
        stretched.begin(step.number)
        for kind, _, wave, start, end in step.operations[worker.rank]:
            if kind < len(took):
                took[kind].append((end - start) / max(1.0, stretched.operation(kind, wave)))
    return np.array([median(each) if each else 0.0 for each in took])


def _factors(job: RunJob, problem: ScheduleProblem, noise: StepNoise | None, number: int) -> Factors:
    """The draws of a step as a run feels them: what takes time of its own is never shorter."""
    count = problem.ranks * problem.micro_batches
    if noise is None:
        return Factors(*(np.ones(size, np.float32) for size in (3 * count, 2 * count, problem.ranks)))
    operations, messages, ranks = noise.of(number)
    if not job.options.stand_in:
        each = np.repeat(ranks, problem.micro_batches)
        operations, ranks = np.maximum(operations * np.tile(each, 3), np.float32(1)), np.ones_like(ranks)
    if not job.options.play_links:
        messages = np.maximum(messages, np.float32(1))
    return Factors(operations, messages, ranks)


def _program(job: RunJob, result: RunStretch | None) -> Program:
    bare = replace(job.problem.cluster, congestion="")  # that of the network around the run counts
    program = lower(replace(job.problem, cluster=bare, runtime=job.options.runtime), job.plan)
    if job.options.backward == "whole":  # no runtime's own way: as the schedule says
        program = reordered(program, replace(job.problem, runtime="ideal"), job.plan)
    return program if result is None or job.options.stand_in else _with_measured(job, program, result)


def _transport(job: RunJob, network: RunNetwork) -> Transport:
    runtime = runtime_of(job.options.runtime).transport
    return replace(runtime, congestion=CONGESTIONS.get(network.congestion, runtime.congestion))


def _live_limits(job: RunJob) -> tuple[float | None, ...]:
    """Waves in flight of each stage that runs what is ready (None: it keeps its order); nothing: all keep theirs."""
    if job.options.runtime == "torch" or job.plan.interleave > 1 or job.options.order == "fixed":
        return ()
    work = Work(job.problem.model, job.plan, whole_stages=True)
    across = {rank for one in work.transfers if work.crosses_wan(one) for rank in (one.source, one.destination)}
    free = [job.options.order == "ready" or worker.rank in across for worker in work.workers]
    return tuple(work.live_limit(worker) if may else None for worker, may in zip(work.workers, free, strict=True))


def _with_measured(job: RunJob, program: Program, result: RunStretch) -> Program:
    """Seconds of the layers as they ran, bytes as they were sent; within a stage the slowest process counts."""
    places = zip(program.rank_pipeline.tolist(), program.rank_stage.tolist(), strict=True)
    rank_of = {place: rank for rank, place in enumerate(places)}
    seconds = np.zeros((*program.forward_s.shape, 4))
    for worker in result.workers:
        rank = rank_of[worker.pipeline, worker.stage]
        seconds[rank] = np.maximum(seconds[rank], _medians(result.steps, worker.rank, seconds.shape[1]))
    return replace(
        as_sent(job, program),
        forward_s=seconds[:, :, 0],
        backward_s=seconds[:, :, 1],
        weight_s=seconds[:, :, 2],
        finish_s=seconds[:, 0, 3].copy(),
        sync_s=np.zeros_like(program.sync_s),
    )


def _medians(steps: Sequence[RunStep], rank: int, chunks: int) -> Floats:
    """(chunks, 4): forward, backward, weight gradient, optimizer of one process; the first step is left out."""
    rows = [row for step in steps[1:] or steps for row in step.operations[rank]]
    found = np.zeros((chunks, 4))
    for column, kind in enumerate((FORWARD, BACKWARD, WEIGHT, OPTIMIZER)):
        for chunk in range(chunks):
            same = [end - start for k, c, _, start, end in rows if (k, c) == (kind, chunk)]
            found[chunk, column] = median(same) if same else 0.0
    return found
