"""A filled book and views of it, for the tests of this folder."""

from __future__ import annotations

import numpy as np

from hippo.network.dynamics.forecast import Forecast, Telemetry
from hippo.network.plans.candidates import fill, usd_per_token
from hippo.network.plans.plan_cache import Book
from hippo.network.plans.replan import Net
from hippo.network.rules.move import STILL
from hippo.network.rules.view import View
from hippo.problem.links import base_bandwidth, base_latency
from hippo.problem.load import load_problem

HORIZONS = np.array([0, 1, 4, 16, 64])


def hubs() -> Book:
    """The book of four hubs of equal size."""
    book = Book(load_problem(model="gpt3-175b", cluster="four-hubs", global_batch=64))
    fill(book)
    return book


def base(book: Book) -> Net:
    """The base state of its links."""
    return Net(base_bandwidth(book.problem.cluster), base_latency(book.problem.cluster))


def view(
    book: Book,
    share: np.ndarray | None = None,
    *,
    running: int = 0,
    target: int = -1,
    phase: int = STILL,
    arrived: float = 0.0,
    left: int = 100,
    epoch_s: float = 300.0,
    sd: float = 0.0,
) -> View:
    """A view whose links are forecast to have ``share`` (5, E) of their base bandwidth."""
    cluster, state = book.problem.cluster, base(book)
    bandwidth = state.bandwidth_bytes_per_s * (np.ones((5, len(cluster.links))) if share is None else share)
    latency = np.tile(state.latency_s, (5, 1))
    compute = np.ones((5, len(cluster.domains)))
    forecast = Forecast(HORIZONS, bandwidth, latency, compute, np.full_like(bandwidth, sd))
    told = Telemetry(bandwidth[:1], latency[:1], compute[:1], np.ones((1, len(cluster.links)), dtype=bool))
    price = usd_per_token(book, state)
    return View(book, 0, epoch_s, left, told, forecast, running, target, phase, arrived, 30.0, price)


def weak(book: Book, index: int, share: float, until: int = 5) -> np.ndarray:
    """Shares of all links at the horizons: those that a configuration uses are weak at the first ``until`` of them."""
    found = np.ones((5, len(book.problem.cluster.links)))
    found[:until, book.bytes_per_step(index) > 0] = share
    return found
