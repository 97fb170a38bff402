"""Messages of fewer bits: their size, their error, and what they do to training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from hippo.plan.plan import Compression
from hippo.run.executor.channels import Channel, Codec
from hippo.run.job import RunJob, RunOptions
from hippo.run.model.reference import losses
from hippo.run.model.stage import settings_of

from ..worlds import PLANS, problem
from .test_training import trained


@pytest.mark.parametrize(("kind", "size", "error"), [("bf16", 400, 2**-8), ("fp8", 204, 2**-4), ("int8", 204, 1 / 127)])
def test_what_comes_out_is_near_what_went_in(kind: str, size: int, error: float):
    given = torch.linspace(-3.0, 7.0, 200).view(10, 20)
    codec = Codec(kind)
    message = codec.encode(given)
    assert message.dtype == torch.uint8
    assert message.numel() == size == codec.size(given)
    found = torch.empty_like(given)
    codec.decode(message, found)
    allowed = error * (given.abs() if kind != "int8" else torch.full_like(given, 7.0)) + 1e-2 * (kind == "fp8")
    assert ((found - given).abs() <= allowed).all()
    assert found.abs().amax() == pytest.approx(7.0, rel=error)


@pytest.mark.parametrize("kind", ["bf16", "fp8", "int8"])
def test_zeros_stay_zeros_and_tiny_gradients_are_not_lost(kind: str):
    codec, found = Codec(kind), torch.ones(3)
    codec.decode(codec.encode(torch.zeros(3)), found)
    assert (found == 0).all()
    small = torch.tensor([1e-9, -2e-9, 4e-9])
    codec.decode(codec.encode(small), found)
    assert torch.allclose(found, small, rtol=0.07)


@pytest.mark.parametrize(("kind", "near"), [("bf16", 2e-3), ("fp8", 2e-2)])
def test_training_goes_on_nearly_as_without(kind: str, near: float, tmp_path: Path):
    model, plan = PLANS["stages"]
    squeezed = replace(plan, compression=(Compression("a", "b", kind), Compression("b", "a", kind)))
    job = RunJob(problem(model), squeezed, RunOptions(steps=3, timeout_s=20.0))
    expected = list(losses(job.problem, settings_of(job), steps=3, micro_batch=2))
    found = trained(job, tmp_path)
    assert found == pytest.approx(expected, abs=near)
    assert found != pytest.approx(expected, abs=1e-7)


class _Gone:
    """A group whose other side has left: gloo says so where something is begun."""

    def send(self, *_: Any) -> Any:
        raise RuntimeError("Connection closed by peer")

    recv = send


def test_a_way_that_has_broken_already_is_told_as_one_that_breaks():
    heard: list[BaseException] = []
    channel = Channel(_Gone(), failed=heard.append)
    channel.send(torch.zeros(3), 0)
    channel.receive(torch.zeros(3), 0, lambda: None)
    channel.close()
    assert [str(each) for each in heard] == ["Connection closed by peer"] * 2
