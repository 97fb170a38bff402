"""Layers that stream while their weights change arrive as their giver has them, bit for bit."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
import torch

from hippo.plan.plan import Plan
from hippo.run.executor import streaming
from hippo.run.executor.streaming import Giving, StateSlice, Streaming, Taking, sliced
from hippo.run.job import RunJob, RunOptions
from hippo.run.model.stage import Part, settings_of
from hippo.run.model.weights import TensorSplit
from hippo.run.version import Version
from hippo.run.work import Work

from ..worlds import GPT2, PLANS, pipelines, problem

LEFT = PLANS["stages"][1]
RIGHT = Plan(pipelines((4, [("a", 0, 5, 1, 1), ("b", 5, 6, 1, 1)])), 2)
WIDE = PLANS["tensor parallel"][1]


def part_of(job: RunJob, rank: int) -> Part:
    work = Work(job.problem.model, job.plan)
    worker = work.workers[rank]
    split = TensorSplit(work.widths(work.stage(worker))[0], worker.tp_index, work.parts)
    return Part.new(job.problem.model, work.chunks(worker), settings_of(job), split)


def gradients(part: Part, step: int) -> None:
    """Those of a step, the same for every cut of a weight."""
    for layer, weights in part.weights.items():
        for weight in weights.values():
            weight.total.copy_(weight.value.detach() * (0.1 + 0.01 * step * layer))


class Slow:
    """As ``Spare``: nothing may be sent until somebody is in a hurry, but for so many bytes at a time."""

    rate_bytes_per_s = 1e6

    def __init__(self) -> None:
        self.granted = 0

    def wait(self, wanted: int, hurry: Event) -> int:
        while not hurry.wait(0.001):
            if self.granted:
                found = min(wanted, self.granted)
                self.granted -= found
                return found
        return wanted

    def close(self) -> None:
        """Nothing is held."""


def test_a_piece_is_cut_into_runs_of_rows():
    assert list(sliced(3, (5, 4), 8)) == [StateSlice(3, 0, 2, 8), StateSlice(3, 2, 4, 8), StateSlice(3, 4, 5, 4)]
    assert list(sliced(0, (2, 100), 8)) == [StateSlice(0, 0, 1, 100), StateSlice(0, 1, 2, 100)]
    assert list(sliced(0, (7,), 8)) == [StateSlice(0, 0, 7, 7)]


@pytest.mark.parametrize("precision", ["fp64", "fp32", "bf16"])
@pytest.mark.parametrize("two", [RIGHT, WIDE])
@pytest.mark.parametrize("granted", [0, 3_000, 40_000, 10**9])
def test_what_streams_is_kept_in_step(
    precision: str, two: Plan, granted: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Five steps meanwhile: on a link that carries nothing of it, a part of the state, all of it, all gradients too."""
    monkeypatch.setattr(streaming, "sliced", lambda piece, shape: sliced(piece, shape, 500))
    spares: list[Slow] = []
    monkeypatch.setattr(streaming, "Spare", lambda *_: spares.append(Slow()) or spares[-1])
    options = RunOptions(timeout_s=20.0, precision=precision)
    before, after = RunJob(problem(GPT2), LEFT, options), RunJob(problem(GPT2), two, options)
    old = Version(0, before, (0, 1))
    new = Version(1, after, tuple(range(2, 2 + len(after.work.workers))))
    for version in (old, new):
        version.write(tmp_path)
    held = {rank: part_of(before, rank) for rank in (0, 1)}
    empty = {2 + rank: part_of(after, rank) for rank in range(len(after.work.workers))}
    for part in empty.values():
        for states in part.states.values():
            for state in states.values():
                state.master.zero_()
    with ThreadPoolExecutor(len(held) + len(empty)) as pool:

        def made(process: int) -> Streaming:
            return Streaming(old, new, process, tmp_path, (held.get(process), empty.get(process)))

        ways = dict(zip((*held, *empty), pool.map(made, (*held, *empty)), strict=True))
        for way in ways.values():
            way.begin()
        for step in range(1, 6):
            for process, part in held.items():
                gradients(part, step)
                ways[process].made(step, lambda part=part, step=step: part.finish(step))  # type: ignore[misc]
            for spare in spares:
                spare.granted += granted
        sent = sum(pool.map(lambda way: way.do(), ways.values()))
    assert sent > 0
    wanted = {process: part_of(after, process - 2) for process in empty}
    for step in range(1, 6):
        for part in wanted.values():
            gradients(part, step)
            part.finish(step)
    for process, part in empty.items():
        for layer, states in part.states.items():
            for name, state in states.items():
                for field in ("master", "first", "second"):
                    want = getattr(wanted[process].states[layer][name], field)
                    assert torch.equal(getattr(state, field), want), (process, layer, name, field)
                value = part.weights[layer][name].value
                assert torch.equal(value, wanted[process].weights[layer][name].value)


def test_a_slice_that_is_three_gradients_behind_is_sent_whole_again(both: tuple[socket.socket, socket.socket]):
    held, hurry = streaming.Bytes([100]), Slow()
    giving = Giving(held, 1, both[0], hurry)  # type: ignore[arg-type]
    assert giving.left_bytes == 3 * 4 * 100
    giving.begin()
    hurry.granted = 1  # the state is under way
    for step, left in enumerate((1, 2, 0), start=1):
        while giving.left_bytes == 3 * 4 * 100 and step == 1 and not giving.sent_bytes:
            pass
        with giving.lock:
            giving.made(step)
            behind = [len(each) for each in giving._behind.values()]
            assert behind == ([left] if left else [])
    taking = Taking(streaming.Bytes([100]), both[1])
    assert giving.end() == 2 * (12 * 100 + streaming.HEAD.size) + streaming.HEAD.size
    taking.end()


def test_a_connection_that_breaks_is_told_and_ends_nothing_else(both: tuple[socket.socket, socket.socket]):
    giving = Giving(streaming.Bytes([100]), 1, both[0], None)
    both[1].close()
    giving.begin()
    with pytest.raises(RuntimeError, match="layers could not be sent"):
        giving.end()
    one, two = socket.socketpair()
    taking = Taking(streaming.Bytes([100]), one)
    two.close()
    with pytest.raises(RuntimeError, match="layers did not come: the other side left"):
        taking.end()
