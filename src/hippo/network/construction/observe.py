"""What the agents see while they draft a plan, and the masks on what they may answer; see ``draft``.

Letters: W drafts of a batch, K domains (padded), S claims, M rows (padded): recipes or layouts that are told apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.network.construction.draft import CLAIMS, Draft, Site, first_cuts, layouts_weighed
from hippo.network.construction.estimate import ahead, weighed

Floats = NDArray[np.float32]
Wide = NDArray[np.float64]
Ints = NDArray[np.int64]
Masks = NDArray[np.bool_]

MOST_ROWS = 24
RECOMPUTED = ("none", "selective", "full")
NO_LIMIT = 1e30  # bytes
WITHOUT_ROOM = 3.0  # how many times as long a step counts that does not fit yet: other domains may bring the room

DOMAIN_FEATURES = (
    "gpus",  # log2 / 6
    "gpu_share",  # of the problem's
    "used",  # in the chain
    "tail",  # the last of it
    "head",  # the first
    "slower",  # log of the factor on its operations
    "room",  # log of its memory over the model's state
    "claim",  # layers over its GPUs' share, less 1
)
PAIR_FEATURES = (
    "exists",
    "rate",  # log of the tokens/s that a link carries over those that all GPUs compute, / 3
    "latency",  # log over 0.03 s
    "relay",  # a third domain is quicker
    "price",  # USD per GB over 0.1
)
DRAFT_FEATURES = (
    "length",  # domains of the chain over 8
    "fits",  # the chain as it is
    "pace",  # log of its step over the ideal one
    "left",  # share of the GPUs outside
    "layers",  # log of the model's over 64
    "batch",  # log2 of the batch over 256
)
CANDIDATE_FEATURES = (
    "best",  # log of the least step in sight over that with the candidate: what a greedy choice would follow
    "gain",  # log of the step as it is over that with the candidate
    "fits",
    "stop",  # the candidate is to stop
    "rate",  # of the border to it, as in ``PAIR_FEATURES``
    "latency",
    "gpu_share",
    "before",  # the chain, not behind it
)
RECIPE_FEATURES = (
    "best",  # log of the least T over the recipe's
    "wave",  # log2 / 6
    "waves",  # log2 of the waves of a step / 6
    *(f"recompute_{name}" for name in RECOMPUTED),
    "gathered",  # weights are gathered for every wave
    "stages",  # of the plan / 16
    "bubble",  # stages over waves
    "idle",  # share of the chain's GPUs that its layouts leave out
    "layers_over",  # how much fuller the fullest stage is than the mean one, at least, because layers are not cut
)
LAYOUT_FEATURES = (
    "best",  # log of the least T over the layout's
    "tp",  # log2 / 3
    "dp",  # log2 / 4
    "stages",  # / 8
    "used",  # share of the domain's GPUs
    "stranded",  # Frag_k
    "room",  # log2 of the waves a stage has room for over the stages from here on, / 3
    "pace",  # log of its slowest stage over what the rest of the chain allows
    "inside",  # share of exposed communication in its seconds
    "trip",  # share of the step
    "own",  # the one that the recipe was weighed with
    "layers_over",
    "total_over",  # of all stages of the plan
)
PLACE_FEATURES = ("length", "place", "last", "layer_share", "wave", "stages_besides")

NODES, PAIRS, DRAFTS, CANDIDATES, RECIPES, LAYOUTS, PLACES = (
    len(names)
    for names in (
        DOMAIN_FEATURES,
        PAIR_FEATURES,
        DRAFT_FEATURES,
        CANDIDATE_FEATURES,
        RECIPE_FEATURES,
        LAYOUT_FEATURES,
        PLACE_FEATURES,
    )
)


class Domains(NamedTuple):
    """A batch of states of the upper agent.

    A candidate is domain x 2 + end (0: behind the chain, 1: before it); answers are candidate x S + claim; the last one
    is to stop.
    """

    nodes: Floats  # (W, K, NODES)
    edges: Floats  # (W, K, K, PAIRS)
    node_mask: Masks  # (W, K)
    context: Floats  # (W, DRAFTS)
    candidates: Floats  # (W, 2 K + 1, CANDIDATES) the last is to stop
    mask: Masks  # (W, 2 K S + 1)


class Rows(NamedTuple):
    """A batch of choices among rows: recipes by the upper agent, layouts of a domain by the lower one."""

    rows: Floats  # (W, M, features)
    context: Floats  # (W, DRAFTS) or (W, PLACES)
    mask: Masks  # (W, M)


@dataclass(eq=False)
class ConstructionState:
    """A draft that grows."""

    site: Site
    chain: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    claims: Wide = field(default_factory=lambda: np.zeros(0))
    recipe: int = -1
    rows: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    now: Wide = field(init=False)  # (R,) T under every recipe
    lies: Ints = field(init=False)  # (R, n) the layouts that T assumes
    after: Wide = field(init=False)  # (K, 2) least T with a domain behind or before, fitting or not; inf: no way
    fits: Masks = field(init=False)  # (K, 2)
    told: Ints = field(init=False)  # recipes or layouts in the order of the rows that were shown
    _still: tuple[Floats, Floats] | None = None  # features that do not change within a draft

    def __post_init__(self) -> None:
        self._weigh()

    @property
    def draft(self) -> Draft:
        """What was chosen so far."""
        return Draft(self.chain, self.claims, self.recipe, self.rows)

    @property
    def step_s(self) -> float:
        """Least T of the chain as it is."""
        return float(self.now.min(initial=np.inf))

    def add(self, answer: int) -> None:
        """Another domain: (domain x 2 + end) x S + claim."""
        candidate, claim = divmod(answer, len(CLAIMS))
        domain, end = divmod(candidate, 2)
        at = 0 if end else len(self.chain)
        self.chain = np.insert(self.chain, at, domain)
        self.claims = np.insert(self.claims, at, CLAIMS[claim])
        self._weigh()

    def _weigh(self) -> None:
        where = self.site
        arrays, links, slower = where.table.arrays, where.links, where.slower
        if len(self.chain):
            self.now, self.lies = weighed(arrays, links, slower, self.chain, self.claims)
        else:
            self.now, self.lies = np.full(len(arrays.wave), np.inf), np.zeros((len(arrays.wave), 0), np.int64)
        self.after = ahead(arrays, links, slower, self.chain, self.claims, self.now)
        self.after[where.lost] = np.inf
        self.fits = np.isfinite(self.after)
        if not np.isfinite(self.step_s) and not self.fits.all():
            roomy = arrays._replace(usable_bytes=NO_LIMIT)
            free = ahead(roomy, links, slower, self.chain, self.claims, self.now)
            free[where.lost] = np.inf
            self.after = np.where(self.fits, self.after, WITHOUT_ROOM * free)

    def choose_recipe(self, row: int) -> None:
        """The recipe of a row that was shown; layouts are those it was weighed with, until the lower agent answers."""
        self.recipe = int(self.told[row])
        self.rows = self.lies[self.recipe].copy()


def allowed(draft: ConstructionState, size: int) -> Masks:
    """What may be answered, (2 size S + 1,), for a batch padded to ``size`` domains: any domain that can be joined; to
    stop where the chain fits, or where nothing else is left."""
    joins = np.zeros((size, 2, len(CLAIMS)), dtype=bool)
    joins[: len(draft.after)] = np.isfinite(draft.after)[..., None]
    if len(draft.chain) == 0 and joins.any():
        joins &= np.arange(len(CLAIMS)) == CLAIMS.index(1.0)  # alone it holds all layers anyway
    stop = bool(np.isfinite(draft.step_s)) or not joins.any()
    return np.append(joins.ravel(), stop)


def observe_domains(drafts: Sequence[ConstructionState], *, size: int | None = None) -> Domains:
    """What the upper agent sees of each draft."""
    size = max(len(draft.after) for draft in drafts) if size is None else size
    count = len(drafts)
    found = Domains(
        np.zeros((count, size, NODES), np.float32),
        np.zeros((count, size, size, PAIRS), np.float32),
        np.zeros((count, size), bool),
        np.zeros((count, DRAFTS), np.float32),
        np.zeros((count, 2 * size + 1, CANDIDATES), np.float32),
        np.stack([allowed(draft, size) for draft in drafts]),
    )
    for w, draft in enumerate(drafts):
        known = len(draft.after)
        if draft._still is None:
            draft._still = _still_nodes(draft.site), _pairs(draft.site)
        nodes, pairs = draft._still
        found.nodes[w, :known], found.edges[w, :known, :known] = nodes, pairs
        found.node_mask[w, :known] = True
        _moving_nodes(draft, found.nodes[w])
        found.context[w] = _context(draft)
        candidates = _candidates(draft, pairs)
        found.candidates[w, : 2 * known], found.candidates[w, -1] = candidates[:-1], candidates[-1]
    return found


def observe_recipes(drafts: Sequence[ConstructionState]) -> Rows:
    """The recipes of least T, at most ``MOST_ROWS``, best first."""
    found = _empty(len(drafts), RECIPES, DRAFTS)
    for w, draft in enumerate(drafts):
        order = np.argsort(draft.now, kind="stable")[:MOST_ROWS]
        draft.told = order[np.isfinite(draft.now[order])]
        if len(draft.told):
            found.rows[w, : len(draft.told)] = _recipes(draft)
            found.mask[w, : len(draft.told)] = True
        found.context[w] = _context(draft)
    found.mask[:, 0] |= ~found.mask.any(axis=1)
    return found


def observe_layouts(draft: ConstructionState) -> tuple[Rows, Ints]:
    """The layouts of least T of every domain of the chain, (n, M, ..), and the row of the table of each (n, M)."""
    arrays, count = draft.site.table.arrays, len(draft.chain)
    found, told = _empty(count, LAYOUTS, PLACES), np.zeros((count, MOST_ROWS), np.int64)
    cuts = first_cuts(draft.site, draft.chain, draft.claims)
    for place, domain in enumerate(draft.chain):
        kind = arrays.kind[domain]
        low, high = int(arrays.first[kind, draft.recipe]), int(arrays.last[kind, draft.recipe])
        figures = layouts_weighed(draft.site, draft.draft, place, (low, high))
        figures[arrays.stages[low:high] > cuts[place + 1] - cuts[place], 0] = np.inf
        order = np.argsort(figures[:, 0], kind="stable")[:MOST_ROWS]
        order = order[np.isfinite(figures[order, 0])]
        told[place, : len(order)] = low + order
        found.mask[place, : len(order)] = True
        if len(order):
            found.rows[place, : len(order)] = _layouts(draft, place, cuts, low + order, figures[order])
        else:
            told[place, 0], found.mask[place, 0] = draft.rows[place], True
        found.context[place] = _place(draft, place, cuts)
    return found, told


def _empty(count: int, features: int, context: int) -> Rows:
    return Rows(
        np.zeros((count, MOST_ROWS, features), np.float32),
        np.zeros((count, context), np.float32),
        np.zeros((count, MOST_ROWS), bool),
    )


def _still_nodes(where: Site) -> Floats:
    arrays, problem = where.table.arrays, where.table.problem
    state = problem.workload.state_bytes_per_parameter * problem.model.parameters
    found = np.zeros((where.table.domains, NODES), np.float32)
    found[:, 0] = np.log2(arrays.gpus) / 6
    found[:, 1] = arrays.gpus / arrays.gpus.sum()
    found[:, 5] = np.log(where.slower)
    found[:, 6] = np.log(arrays.usable_bytes * arrays.gpus / state)
    return found


def _pairs(where: Site) -> Floats:
    arrays, links = where.table.arrays, where.links
    size = where.table.domains
    found = np.zeros((size, size, PAIRS), np.float32)
    exists = np.isfinite(links.pace)
    computed = arrays.batch * arrays.border_bytes / where.table.ideal_s  # bytes/s were every sequence sent
    found[..., 0] = exists
    found[..., 1] = np.where(exists, -np.log(np.where(exists, links.pace, 1.0) * computed) / 3, -2.0)
    found[..., 2] = np.where(exists, np.log(np.maximum(np.where(exists, links.latency_s, 1.0), 1e-4) / 0.03), 0.0)
    found[..., 3] = links.via >= 0
    at = where.table.problem.cluster.domain_index
    for link in where.table.problem.cluster.links:
        found[at[link.source], at[link.destination], 4] = link.price_usd_per_gb / 0.1
    return found


def _moving_nodes(draft: ConstructionState, nodes: Floats) -> None:
    """Fills the features of domains that change while drafting."""
    for claim, domain in zip(draft.claims, draft.chain, strict=True):
        nodes[domain, 2], nodes[domain, 7] = 1.0, claim - 1.0
    if len(draft.chain):
        nodes[draft.chain[-1], 3] = nodes[draft.chain[0], 4] = 1.0


def _context(draft: ConstructionState) -> Floats:
    arrays, where = draft.site.table.arrays, draft.site.table
    fits = bool(np.isfinite(draft.step_s))
    pace = np.log(draft.step_s / where.ideal_s) if fits else 2.0
    left = 1.0 - arrays.gpus[draft.chain].sum() / arrays.gpus.sum()
    layers, batch = np.log((len(arrays.work) - 1) / 64), np.log2(arrays.batch / 256)
    return np.array([len(draft.chain) / 8, fits, min(pace, 4.0), left, layers, batch], np.float32)


def _candidates(draft: ConstructionState, pairs: Floats) -> Floats:
    """(2 K + 1, CANDIDATES)"""
    arrays, known = draft.site.table.arrays, len(draft.after)
    found = np.zeros((2 * known + 1, CANDIDATES), np.float32)
    steps = np.append(draft.after.ravel(), draft.step_s)
    finite = np.isfinite(steps)
    least = steps.min(initial=np.inf)
    with np.errstate(invalid="ignore", divide="ignore"):
        found[:, 0] = np.where(finite, np.maximum(np.log(least / steps), -3.0), -3.0)
        if finite[-1]:
            found[:, 1] = np.where(finite, np.clip(np.log(draft.step_s / steps), -3.0, 3.0), -3.0)
    found[:-1, 2], found[-1, 2] = draft.fits.ravel(), finite[-1]
    found[-1, 3] = 1.0
    for end, domain in enumerate(draft.chain[[-1, 0]] if len(draft.chain) else ()):
        found[end:-1:2, 4] = np.minimum(pairs[domain, :, 1], pairs[:, domain, 1])
        found[end:-1:2, 5] = pairs[domain, :, 2]
    found[:-1, 6] = np.repeat(arrays.gpus / arrays.gpus.sum(), 2)
    found[1:-1:2, 7] = 1.0
    return found


def _recipes(draft: ConstructionState) -> Floats:
    """Features of the recipes told, (told, RECIPES)."""
    arrays, known = draft.site.table.arrays, draft.site.table
    found = np.zeros((len(draft.told), RECIPES), np.float32)
    wave, lies = arrays.wave[draft.told], draft.lies[draft.told]
    stages = arrays.stages[lies]
    total = stages.sum(axis=1)
    used = (arrays.tp[lies] * arrays.dp[lies] * stages).sum(axis=1)
    found[:, 0] = np.log(draft.step_s / draft.now[draft.told])
    found[:, 1], found[:, 2] = np.log2(wave) / 6, np.log2(arrays.batch / wave) / 6
    for row, recipe in enumerate(draft.told):
        choice = known.choices[recipe]
        found[row, 3 + RECOMPUTED.index(choice.recompute)] = 1.0
        found[row, 6] = choice.sharding == "hybrid"
    found[:, 7], found[:, 8] = total / 16, total * wave / arrays.batch
    found[:, 9] = 1.0 - used / arrays.gpus[draft.chain].sum()
    found[:, 10] = _over(len(arrays.work) - 1, total)
    return found


def _layouts(draft: ConstructionState, place: int, cuts: Ints, rows: Ints, figures: Wide) -> Floats:
    """Features of the layouts of the domain at ``place``, (rows, LAYOUTS); ``figures`` by ``weigh_layouts``."""
    arrays = draft.site.table.arrays
    tp, dp, stages = arrays.tp[rows], arrays.dp[rows], arrays.stages[rows]
    besides = int(arrays.stages[draft.rows].sum() - arrays.stages[draft.rows[place]])
    behind = int(arrays.stages[draft.rows[place + 1 :]].sum())
    seconds = arrays.seconds[arrays.timing[rows], -1]
    columns = (
        np.log(figures[:, 0].min() / figures[:, 0]),
        np.log2(tp) / 3,
        np.log2(dp) / 4,
        stages / 8,
        tp * dp * stages / arrays.gpus[draft.chain[place]],
        arrays.stranded[rows],
        np.clip(np.log2(figures[:, 3] / (behind + stages)) / 3, -1.0, 1.0),
        np.clip(np.log(figures[:, 1] / np.maximum(figures[:, 5], 1e-12)), -2.0, 2.0),
        arrays.inside_s[rows] / seconds,
        figures[:, 2] / figures[:, 0],
        rows == draft.rows[place],
        _over(int(cuts[place + 1] - cuts[place]), stages),
        _over(len(arrays.work) - 1, stages + besides),
    )
    return np.stack(columns, axis=1).astype(np.float32)


def _place(draft: ConstructionState, place: int, cuts: Ints) -> Floats:
    arrays, count = draft.site.table.arrays, len(draft.chain)
    besides = arrays.stages[draft.rows].sum() - arrays.stages[draft.rows[place]]
    share = (cuts[place + 1] - cuts[place]) / (len(arrays.work) - 1)
    wave = np.log2(arrays.wave[draft.recipe]) / 6
    return np.array([count / 8, place / count, place + 1 == count, share, wave, besides / 16], np.float32)


def _over(layers: int, stages: Ints) -> Wide:
    """How much fuller the fullest stage is than the mean one."""
    return np.asarray(np.ceil(layers / stages) * stages / layers - 1.0)
