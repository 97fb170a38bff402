"""What the upper agent sees of a state: one kernel for a view in use and for a dataset of worlds in training.

Letters: K domains (padded in a batch), E links, H horizons, M options, C configurations, I instants of a scene.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.dynamics.forecast import HORIZONS
from hippo.network.observation.features import (
    CONTEXT,
    CONTEXT_FEATURES,
    EDGE_FEATURES,
    EDGES,
    MOST_OPTIONS,
    NODES,
    OPTIONS,
    Observation,
)
from hippo.network.observation.foresight import foresight
from hippo.network.observation.options import HOWS, RunState, empty_options, find_options
from hippo.network.observation.scene import (
    EPOCH_S,
    EPOCHS,
    TAIL,
    TOKENS_PER_STEP,
    USD_PER_TOKEN,
    Conditions,
    Rates,
    Scene,
    ages,
    figures,
    instants_met,
    log_net,
    rates,
    scalars,
    tokens_of,
)
from hippo.network.rules.move import STILL
from hippo.network.rules.view import Action, View
from hippo.problem.links import base_bandwidth

MOST_LOAD = 10.0  # factor that a lost domain shows
LATENCY_S, PRICE_USD_PER_GB = 0.03, 0.1  # what the features of a link are measured in
_BANDWIDTH, _DOUBT, _AGE, _LATENCY, _PRICE, _TRAFFIC, _MOVING, _BASE = (
    EDGE_FEATURES.index(name) for name in ("bandwidth", "doubt", "age", "latency", "price", "traffic", "moving", "base")
)
_STILL, _WEIGHTS, _FIRST = (CONTEXT_FEATURES.index(name) for name in ("still", "w_eff", "first"))
HORIZONS_COUNT = len(HORIZONS)


def observe(view: View, *, quiet: float = 0.0, scene: Scene | None = None) -> tuple[Observation, tuple[Action, ...]]:
    """What the agent sees (a batch of one) and what each option would be answered with.

    ``quiet``: epochs since the last decision that changed something. The answers of masked options are to keep.
    ``scene``: the tables of the view, where they are made already.
    """
    scene, now = scene_of(view) if scene is None else scene, standing(view, quiet)
    found, domains = empty_options(), len(view.cache.problem.cluster.domains)
    seen = empty_observation(1, domains)
    weights = np.array(view.weights, dtype=np.float64)
    count = find_options(scene, now, weights, found)
    fill(scene, now, weights, found, count, 0, seen)
    return seen, tuple(
        Action(HOWS[how], int(target)) if mask else Action()
        for how, target, mask in zip(found.how, found.target, found.mask, strict=True)
    )


def standing(view: View, quiet: float) -> RunState:
    """Where the run of a view stands."""
    return RunState(
        0, float(view.epochs_left), view.running, view.target, view.phase, float(view.arrived), float(quiet), 0
    )


def scene_of(view: View) -> Scene:
    """The tables of one view."""
    cache, forecast, told = view.cache, view.forecast, view.telemetry
    known = figures(cache, view.usd_per_token)
    seen = Conditions(
        forecast.bandwidth_bytes_per_s[None], forecast.latency_s[None], forecast.compute[None], forecast.sd[None]
    )
    met = instants_met(len(told.fresh) - 1)
    so_far = tokens_of(cache, told.bandwidth_bytes_per_s[met], told.latency_s[met], told.compute[met])
    base = base_bandwidth(cache.problem.cluster)
    epochs = view.epoch + view.epochs_left
    return assemble(
        known.arrays,
        scalars(
            cache,
            epoch_s=view.epoch_s,
            restart_s=view.restart_s,
            usd_per_token=view.usd_per_token,
            usual=known.usual,
            epochs=epochs,
        ),
        seen,
        rates(cache, seen),
        age=ages(told.bandwidth_bytes_per_s, base)[-1:],
        met=log_net(so_far, known.arrays["usd"], view.usd_per_token, known.usual).mean(axis=0)[None],
        left=[view.epochs_left],
        weights=np.array([view.weights], dtype=np.float64),
        standing=-1 if view.running < 0 else cache.configurations[view.running].place,
    )


def assemble(
    fixed: dict[str, NDArray[Any]],
    numbers: NDArray[np.float32],
    seen: Conditions,
    played: Rates,
    *,
    age: NDArray[np.float64],
    met: NDArray[np.float64],
    left: Sequence[float] | NDArray[Any],
    weights: NDArray[np.float64],
    standing: int | None = None,
    since: NDArray[np.int64] | None = None,
) -> Scene:
    """A scene from figures, what is seen at its instants, and what every configuration would do there; ``left`` (I,):
    epochs that are left at each; ``weights`` (F, 3): preferences that it is looked ahead under; ``standing``: the only
    place that the run may stand in (-1: in none yet); ``since`` (C,): instants from which on configurations are known
    (default: all from the first)."""
    moving: dict[str, NDArray[Any]] = {
        "scalars": numbers,
        **played._asdict(),
        "bandwidth": seen.bandwidth,
        "doubt": seen.sd[:, -1],
        "latency": seen.latency[:, 0],
        "age": age,
        "load": np.minimum(MOST_LOAD, seen.compute[:, [0, -1]]),
        "met": met,
    }
    moving["ahead"] = np.zeros((1, 1, 1))  # found from all the others
    moving["since"] = np.zeros(len(fixed["usd"]), dtype=np.int64) if since is None else since
    whole = {name: array for name, array in (*fixed.items(), *moving.items()) if name in Scene._fields}
    scene = Scene(**{name: _stored(array) for name, array in whole.items()})
    return scene._replace(ahead=foresight(scene, np.asarray(left, dtype=np.float64), weights, standing=standing))


def _stored(array: NDArray[Any]) -> NDArray[Any]:
    """Single precision, or integers as they are."""
    return np.ascontiguousarray(array, dtype=np.int64 if array.dtype.kind == "i" else np.float32)


def empty_observation(worlds: int, domains: int) -> Observation:
    """Room for a batch."""
    return Observation(
        nodes=np.zeros((worlds, domains, NODES), np.float32),
        edges=np.zeros((worlds, domains, domains, EDGES), np.float32),
        node_mask=np.zeros((worlds, domains), np.bool_),
        context=np.zeros((worlds, CONTEXT), np.float32),
        options=np.zeros((worlds, MOST_OPTIONS, OPTIONS), np.float32),
        option_nodes=np.zeros((worlds, MOST_OPTIONS, domains), np.float32),
        option_edges=np.zeros((worlds, MOST_OPTIONS, domains, domains), np.float32),
        option_mask=np.zeros((worlds, MOST_OPTIONS), np.bool_),
    )


@kernel(lean=True)
def fill(scene, now, weights, found, count, row, seen):  # type: ignore[no-untyped-def]
    """Writes row ``row`` of a batch; ``found`` are the options of the state, ``count`` of them."""
    for option in range(MOST_OPTIONS):
        seen.option_mask[row, option] = found.mask[option]
        for feature in range(OPTIONS):
            seen.options[row, option, feature] = found.features[option, feature]
    _nodes(scene, now, seen.nodes[row], seen.node_mask[row])
    _edges(scene, now, seen.edges[row])
    _context(scene, now, weights, seen.context[row])
    seen.option_nodes[row] = 0.0
    seen.option_edges[row] = 0.0
    for option in range(count):
        each = found.target[option]
        if each < 0:
            each = now.target if found.how[option] == 0 and now.target >= 0 else now.running
        if each >= 0 and found.mask[option]:
            _lies(scene, each, seen.option_nodes[row, option], seen.option_edges[row, option])


@kernel(lean=True)
def _lies(scene, each, nodes, edges):  # type: ignore[no-untyped-def]
    """Where a configuration holds layers, (K,), and which links carry its traffic, (K, K)."""
    for domain in range(len(scene.gpus)):
        nodes[domain] = scene.layers[each, domain]
    all_bytes = 0.0
    for link in range(len(scene.ends)):
        all_bytes += scene.sent[each, link]
    if all_bytes > 0.0:
        for link in range(len(scene.ends)):
            if scene.sent[each, link] > 0.0:
                edges[scene.ends[link, 0], scene.ends[link, 1]] = scene.sent[each, link] / all_bytes


@kernel(lean=True)
def _nodes(scene, now, nodes, mask):  # type: ignore[no-untyped-def]
    nodes[:] = 0.0
    mask[:] = False
    runs = now.running
    for domain in range(len(scene.gpus)):
        mask[domain] = True
        load, later = scene.load[now.instant, 0, domain], scene.load[now.instant, 1, domain]
        if runs >= 0:
            busy = scene.domain_busy[runs, domain] * scene.tokens[now.instant, 0, runs] * load
            nodes[domain, 0] = min(1.0, busy)
            nodes[domain, 1] = scene.memory[runs, domain]
            nodes[domain, 5] = 1.0 if scene.layers[runs, domain] > 0.0 else 0.0
            nodes[domain, 7] = scene.layers[runs, domain]
        nodes[domain, 2], nodes[domain, 3] = load - 1.0, later - 1.0
        nodes[domain, 4] = scene.gpus[domain]
        if now.target >= 0 and scene.layers[now.target, domain] > 0.0:
            nodes[domain, 6] = 1.0


@kernel(lean=True)
def _edges(scene, now, edges):  # type: ignore[no-untyped-def]
    edges[:] = 0.0
    instant, runs = now.instant, now.running
    epoch_s = scene.scalars[EPOCH_S]
    for link in range(len(scene.ends)):
        each, base = edges[scene.ends[link, 0], scene.ends[link, 1]], scene.base[link]
        each[0] = 1.0
        for horizon in range(HORIZONS_COUNT):
            ratio = scene.bandwidth[instant, horizon, link] / base
            each[_BANDWIDTH + horizon] = min(TAIL, max(-TAIL, np.log(ratio))) if ratio > 0.0 else -TAIL
        each[_DOUBT] = scene.doubt[instant, link]
        each[_AGE] = np.log1p(scene.age[instant, link])
        each[_LATENCY] = np.log(max(1e-4, scene.latency[instant, link]) / LATENCY_S)
        each[_PRICE] = scene.usd_per_byte[link] * 1e9 / PRICE_USD_PER_GB
        each[_BASE] = np.log10(base * 8e-9)
        bandwidth = max(scene.bandwidth[instant, 0, link], 1e-3 * base)
        if runs >= 0 and scene.sent[runs, link] > 0.0:
            steps_per_s = scene.tokens[instant, 0, runs] / scene.scalars[TOKENS_PER_STEP]
            each[_TRAFFIC] = min(1.0, scene.sent[runs, link] * steps_per_s / bandwidth)
        if now.phase != STILL:
            left = scene.move_bytes[scene.place[runs], scene.place[now.target], link] * (1.0 - now.arrived)
            each[_MOVING] = np.log1p(left / (bandwidth * epoch_s))


@kernel(lean=True)
def _context(scene, now, weights, context):  # type: ignore[no-untyped-def]
    context[:] = 0.0
    instant, runs, left = now.instant, now.running, now.epochs_left
    context[0] = left / scene.scalars[EPOCHS]
    context[1] = np.log(left / 100.0)
    context[2] = np.log10(scene.scalars[EPOCH_S] / 100.0)
    context[_STILL + now.phase] = 1.0
    context[6] = now.arrived
    if runs >= 0:
        best, best_later = 0.0, 0.0
        for each in range(len(scene.usd)):
            if scene.since[each] <= instant:
                best = max(best, scene.tokens[instant, 0, each])
                best_later = max(best_later, scene.tokens[instant, -1, each])
        pace, later = scene.tokens[instant, 0, runs], scene.tokens[instant, -1, runs]
        context[7] = pace / best if best > 0.0 else 0.0
        context[8] = pace / scene.base_tokens[runs]
        context[9] = later / best_later if best_later > 0.0 else 0.0
        if scene.scalars[USD_PER_TOKEN] > 0.0:
            context[10] = min(2.0, scene.usd[runs] / scene.scalars[USD_PER_TOKEN])
    context[11] = np.log1p(now.quiet) / 5.0
    for each in range(3):
        context[_WEIGHTS + each] = weights[each]
    context[_FIRST] = 1.0 if runs < 0 else 0.0
