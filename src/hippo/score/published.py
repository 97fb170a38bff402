"""Predict published training runs and compare: the cost model and the simulator against figures others measured.

A row becomes a problem (one domain of ``gpus`` GPUs) and a plan, and goes the way every plan goes: lowered, played by
``fast``, its memory added up. What a row does not say is filled by one rule: of the settings that fit the memory, the
one with the least predicted time, because published runs are tuned (``candidates`` lists the settings). Rows over
several places (``wan``) have their places and their placement; measured pipelines (``pipelines``) their seconds too;
runs over emulated links (``emulated``) stand beside what was printed before them; measured peaks of memory
(``allocated``) have no step to predict.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from hippo.cost.calibration import CALIBRATION, Calibration
from hippo.cost.cost_model import CostModel
from hippo.cost.stage import Layout
from hippo.errors import InfeasibleError, InputError
from hippo.files import read_text
from hippo.plan.plan import Pipeline, Plan, ScheduleChoice, Stage
from hippo.problem.cluster import Cluster, Domain
from hippo.problem.document import parse_json
from hippo.problem.model import Model
from hippo.problem.problem import Problem
from hippo.problem.routing import Routing
from hippo.problem.workload import Workload
from hippo.schedule.schedule import order
from hippo.score import allocated, emulated, pipelines, throughput, wan
from hippo.score.allocated import MemoryRun
from hippo.score.cases import PublishedRun, cases_of
from hippo.score.emulated import EmulatedRun
from hippo.score.interval import coverage, fitted_to, has_experts
from hippo.score.kernels import KernelErrors, kernel_errors, kernel_folder
from hippo.score.pipelines import MeasuredPipeline
from hippo.simulate import fast
from hippo.simulate.lower import lower, reordered
from hippo.units import gb_from_bytes

Case = PublishedRun | MeasuredPipeline | EmulatedRun | MemoryRun
Known = dict[PublishedRun, tuple[float, float]]

DOMAIN = "cluster"
RACK_GPUS = 64  # of the 72 GPUs of an NVL72 rack, jobs use powers of two
FABRIC_LATENCY_S = 5e-6
MICRO_BATCHES = (1, 2, 4, 8, 16)
_PLAYED = {"1f1b": (16, 32), "gpipe": (24, 48)}  # waves of a drawn placement by schedule: enough for an even pace
RECOMPUTE = ("none", "selective", "full")
CAPACITY = 2**30 / 1e9  # cards hold GiB where their names say GB: what a run really has, against what a plan may use
NEAR = 0.6  # of a GPU's memory: a run that took as much cannot have had room for four times its micro-batch
CLEAR = 0.05  # two measured times differ clearly from this share on, or by three standard deviations where logged
FILES = (
    *("training_open.json", "geo_open.json", "emulated_runs.csv"),
    *("published/pipemorph_measured_pipelines.csv", "published/training_throughput.csv"),
    *("published/megatron_memory_time.csv", "published/mindspore_dryrun_memory_dsv3.csv"),
)
"""What ``hippo validate --data DIR`` looks for, beside the tables of ``kernels``."""
SEVERAL = "several chunks a stage"
TOLERANCE = 1.25  # a run that leaves recomputation or chunks open may seem this much too large: our own error


@dataclass(frozen=True)
class Prediction:
    """One row: measured and predicted. Seconds per step; GB = 1e9 bytes on the fullest GPU."""

    id: str
    family: str
    measured_s: float | None
    predicted_s: float | None
    predicted_memory_gb: float | None
    out_of_memory: bool | None  # predicted
    refused: str | None
    plan: Plan | None = None
    apart: bool = False  # shown beside the others, not among them
    deviation_s: float | None = None  # standard deviation of what was measured, where it was logged
    group: str = ""  # what of the prediction the row tries
    memory_gb: float | None = None  # measured
    peak_only: bool = False  # it tells its memory, and no step to predict
    four_times: bool | None = (
        None  # of a run near its limit: whether it is predicted out of memory at four times its batch
    )

    @property
    def error(self) -> float | None:
        """(predicted - measured) / measured; None where one of the two is missing."""
        if self.measured_s is None or self.predicted_s is None:
            return None
        return self.predicted_s / self.measured_s - 1


@dataclass(frozen=True)
class Errors:
    """Errors of a set of rows, as fractions; ``pairs_right``: share of pairs (same model, batch) in the right order.

    A pair that measures the same run twice has no order to predict: it counts among ``repeats``, not ``pairs``.
    """

    n: int
    mape: float | None
    median: float | None
    bias: float | None
    pairs_right: float | None
    pairs: int = 0
    refused: int = 0
    repeats: int = 0
    worst: float | None = None
    clear_pairs_right: float | None = None  # of those whose measured times differ clearly (``CLEAR``)
    clear_pairs: int = 0


@dataclass(frozen=True)
class ValidationReport:
    """Errors overall and by family, and every row; ``apart``: the rows that are shown beside the others, if any."""

    overall: Errors
    families: Mapping[str, Errors]
    rows: tuple[Prediction, ...]
    apart: Errors | None = None
    together: Errors | None = None
    groups: Mapping[str, Errors] = field(default_factory=dict)  # by what of the prediction they try
    chunks: Mapping[str, Errors] = field(default_factory=dict)  # of pipelines, by chunks a stage; ``SEVERAL``: above 1
    memory: Mapping[str, float] = field(default_factory=dict)  # of the rows that tell theirs; empty: none
    memory_families: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    unknown: Mapping[str, int] = field(default_factory=dict)  # columns that nothing reads: rows that have them
    skipped: tuple[str, ...] = ()  # files that were looked for and are not there
    kernels: tuple[KernelErrors, ...] = ()  # of measured kernels, by sort, GPU and group

    def document(self) -> dict[str, object]:
        """The ``validate --json`` document."""
        keys = (
            *(
                "id",
                "family",
                "group",
                "measured_s",
                "predicted_s",
                "memory_gb",
                "predicted_memory_gb",
                "out_of_memory",
            ),
            *("four_times", "refused"),
        )
        beside = {"apart": self.apart, "together": self.together}
        return {
            "overall": asdict(self.overall),
            **{name: asdict(each) for name, each in beside.items() if each is not None},
            "groups": {name: asdict(errors) for name, errors in self.groups.items()},
            "chunks": {name: asdict(errors) for name, errors in self.chunks.items()},
            "families": {name: asdict(errors) for name, errors in self.families.items()},
            "memory": {**self.memory, "families": dict(self.memory_families)} if self.memory else {},
            "intervals": coverage(),
            "fitted": fitted_to(),
            "unknown_columns": dict(self.unknown),
            "skipped_files": list(self.skipped),
            "kernels": [asdict(each) for each in self.kernels],
            "rows": [{key: getattr(row, key) for key in keys} for row in self.rows],
        }


def load(path: str | Path) -> tuple[Case, ...]:
    """Cases of a file in any form that is known; raises ``InputError`` for another."""
    path = Path(path)
    if path.suffix == ".csv":
        known = (
            (emulated.is_emulated, emulated.cases),
            (throughput.is_throughput, throughput.cases),
            (allocated.is_allocated, allocated.cases),
        )
        return next((read(path) for fits, read in known if fits(path)), None) or pipelines.cases(path)
    document: Any = parse_json(read_text(path, what="file of cases"), str(path))
    return wan.cases(document, path) if wan.is_wan(document) else cases_of(document, str(path))


def load_all(folder: str | Path) -> tuple[tuple[Case, ...], tuple[str, ...]]:
    """Cases of every known file of a folder, or of the one that holds it, and the names of those that are not there."""
    places = [(Path(folder) / name, Path(folder) / Path(name).name) for name in FILES]
    paths = [bare if bare.is_file() and not usual.is_file() else usual for usual, bare in places]
    there = [path for path in paths if path.is_file()]
    if Path(folder).is_file():
        remedy = "name its folder, or leave out --data"
        raise InputError("is a file, not a folder", source="--data", value=str(folder), remedy=remedy)
    if not there and kernel_folder(folder) is None:
        remedy = f"give a folder with {', '.join(FILES[:-1])} or {FILES[-1]}"
        raise InputError("the folder holds none of the known files", source=str(folder), remedy=remedy)
    skipped = tuple(str(path) for path in paths if path not in there)
    return tuple(case for path in there for case in load(path)), skipped


def validate(
    cases: Sequence[Case],
    *,
    calibration: Calibration = CALIBRATION,
    skipped: tuple[str, ...] = (),
    kernels: Path | None = None,
) -> ValidationReport:
    """Every case predicted, errors overall and by family; ``kernels``: a folder of tables of measured kernels."""
    known: Known = {}
    rows = tuple(predict(case, calibration=calibration, known=known) for case in cases)
    keys = {case.id: comparison_key(case) for case in cases}
    families: dict[str, list[Prediction]] = {}
    groups: dict[str, list[Prediction]] = {}
    timed = [row for row in rows if not row.peak_only]
    for row in timed:
        families.setdefault(row.family, []).append(row)
        groups.setdefault(row.group, []).append(row)
        if row.plan is not None and row.plan.context_parallel > 1:  # of these once more, by degree
            groups.setdefault(f"context parallel {row.plan.context_parallel}", []).append(row)
    by_chunks: dict[str, list[Prediction]] = {}
    for row in timed:
        if row.plan is not None and len(row.plan.pipelines[0].stages) > 1:
            several = [SEVERAL] if row.plan.interleave > 1 else []
            for name in (str(row.plan.interleave), *several):
                by_chunks.setdefault(name, []).append(row)
    peaks: dict[str, list[Prediction]] = {}
    for row in rows:
        peaks.setdefault(row.family, []).append(row)
    by_family = {name: errors(group, keys) for name, group in families.items()}
    by_group = {name: errors(group, keys) for name, group in groups.items()}
    judged = [row for row in timed if not row.apart]
    beside = [row for row in timed if row.apart]
    unknown = Counter(key for case in cases for key in case.unknown)
    return ValidationReport(
        errors(judged, keys),
        by_family,
        rows,
        errors(beside, keys) if beside else None,
        errors(timed, keys) if beside else None,
        by_group,
        {name: errors(group, keys) for name, group in sorted(by_chunks.items())},
        memory_errors(rows),
        {name: found for name, group in peaks.items() if (found := memory_errors(group))},
        unknown,
        skipped,
        () if kernels is None else kernel_errors(kernels, calibration),
    )


def group_of(case: Case) -> str:
    """What of the prediction a row tries, in words."""
    if isinstance(case, MemoryRun):
        return "peak memory"
    if isinstance(case, EmulatedRun):
        return f"emulated links, {case.runtime or 'unnamed'}"
    if isinstance(case, MeasuredPipeline):
        method = pipelines.METHODS.get(case.method)
        if method is None:
            return "measured pipelines, unread"
        how = "1F1B" if method.batched else "zero bubble, by CPU" if method.by_cpu else "zero bubble"
        return f"measured pipelines, {how}"
    if case.apart:
        return "several places, the authors' own system"
    if case.cluster is not None:
        return "several places, Megatron-LM"
    experts = case.model is not None and has_experts(case.model)
    return f"one place, {'experts' if experts else 'dense'}, {case.gpu.family}"


def memory_errors(rows: Iterable[Prediction]) -> dict[str, float]:
    """Errors of the peak memory of the rows that tell theirs, and whether rows are said to have enough that had it.

    ``ran`` rows had enough, of which ``called_out`` are said not to; ``out_of_memory`` had not, which ``.._seen`` are
    said of; ``four_times`` came near their GPU's memory, and ``.._seen`` are said to exceed it with four times the
    micro-batch. Empty where no row tells any of it.
    """
    rows = tuple(rows)
    told = [row for row in rows if row.memory_gb and row.predicted_memory_gb]
    said = [row for row in rows if row.out_of_memory is not None]
    ran = [row for row in said if row.measured_s is not None or row.memory_gb]
    lost = [row for row in said if row.measured_s is None and not row.memory_gb]
    four = [row for row in rows if row.four_times is not None]
    if not said:
        return {}
    found = np.array([(row.predicted_memory_gb or 0.0) / (row.memory_gb or 1.0) - 1 for row in told])
    size, counted = np.abs(found), {}
    if len(found):
        counted = {
            "mape": float(size.mean()),
            "median": float(np.median(size)),
            "bias": float(found.mean()),
            "p90": float(np.quantile(size, 0.9)),
            "worst": float(found[np.argmax(size)]),
        }
    return {
        "n": len(found),
        **counted,
        "refused": sum(row.refused is not None and row.peak_only for row in rows),
        "ran": len(ran),
        "called_out": sum(bool(row.out_of_memory) for row in ran),
        "out_of_memory": len(lost),
        "out_of_memory_seen": sum(bool(row.out_of_memory) for row in lost),
        "four_times": len(four),
        "four_times_seen": sum(bool(row.four_times) for row in four),
    }


def errors(rows: Iterable[Prediction], keys: Mapping[str, object]) -> Errors:
    """Errors of ``rows``; ``keys``: rows with equal keys are ordered against each other."""
    rows = tuple(rows)
    found = np.array([row.error for row in rows if row.error is not None], dtype=np.float64)
    pairs = _pairs(rows, keys)
    refused = sum(row.refused is not None for row in rows)
    share = pairs["right"] / pairs["all"] if pairs["all"] else None
    clear = pairs["right clear"] / pairs["clear"] if pairs["clear"] else None
    size = np.abs(found)
    mape, median, bias, worst = (
        (float(size.mean()), float(np.median(size)), float(found.mean()), float(found[np.argmax(size)]))
        if len(found)
        else (None, None, None, None)
    )
    return Errors(
        len(found), mape, median, bias, share, pairs["all"], refused, pairs["repeats"], worst, clear, pairs["clear"]
    )


def _pairs(rows: Sequence[Prediction], keys: Mapping[str, object]) -> Counter[str]:
    """Pairs of rows with equal keys and different measured times: all, in the right order, clear ones, repeats."""
    groups: dict[object, list[Prediction]] = {}
    for row in rows:
        if row.error is not None:
            groups.setdefault(keys[row.id], []).append(row)
    counted: Counter[str] = Counter()
    for group in groups.values():
        for one, other in combinations(group, 2):
            gap = (one.measured_s or 0.0) - (other.measured_s or 0.0)
            predicted = (one.predicted_s or 0.0) - (other.predicted_s or 0.0)
            if predicted == 0 and one.plan == other.plan and one.plan is not None:
                counted["repeats"] += gap != 0
                continue
            clear = abs(gap) > _noise(one, other)
            counted["all"] += gap != 0
            counted["right"] += gap * predicted > 0
            counted["clear"] += clear
            counted["right clear"] += clear and gap * predicted > 0
    return counted


def _noise(one: Prediction, other: Prediction) -> float:
    """Seconds by which two measured times must differ to be called different."""
    if one.deviation_s is not None and other.deviation_s is not None:
        return 3 * math.hypot(one.deviation_s, other.deviation_s)
    return CLEAR * min(one.measured_s or 0.0, other.measured_s or 0.0)


def comparison_key(case: Case) -> object:
    """Rows with equal keys are from one source and train the same model with the same batch (over the same links)."""
    if isinstance(case, MeasuredPipeline):
        return case.key
    if isinstance(case, EmulatedRun):
        return case.links
    if isinstance(case, MemoryRun):
        return case.family
    model = case.model
    sizes = None if model is None else (model.num_blocks, model.layers[1], model.vocab, case.seq)
    return (case.family if case.cluster is None else case.cluster.name, sizes, case.global_batch)


def predict(case: Case, *, calibration: Calibration = CALIBRATION, known: Known | None = None) -> Prediction:
    """Step time and memory of one case; a case that cannot be predicted is refused with its reason.

    ``known``: what earlier rows with the same calibration have played, and this one adds.
    """
    if isinstance(case, MeasuredPipeline):
        return _predict_pipeline(case)
    if isinstance(case, MemoryRun):
        return _predict_peak(case, calibration)
    if isinstance(case, EmulatedRun):
        told = Prediction(case.id, case.family, case.measured_s, case.printed_s, None, None, case.refusal)
        return replace(told, group=group_of(case))
    nothing = Prediction(case.id, case.family, case.measured_s, None, None, None, case.refusal, apart=case.apart)
    nothing = replace(nothing, group=group_of(case), memory_gb=case.memory_gb)
    if case.refusal is not None:
        return nothing
    problem = problem_of(case)
    cost = CostModel(problem, reaching(case, calibration))
    if case.cluster is not None:
        return replace(nothing, predicted_s=_mean_step(case, problem, cost, {} if known is None else known))
    best: _Choice | None = None
    least, open_ = math.inf, case.recompute is None or case.interleave is None
    for plan in candidates(case):
        peak = peak_bytes(cost, plan, etp=case.etp)
        least = min(least, peak)  # who leaves settings open and has run had one that fits
        over = peak > cost.usable_memory_bytes() * (TOLERANCE if open_ else CAPACITY)
        rank = 0 if case.recompute else RECOMPUTE.index(plan.recompute)
        if best is not None and (over, rank) > (best.over, best.recompute):
            continue
        seconds = fast.step_time(lower(problem, plan, cost=cost))
        choice = _Choice(over, rank, seconds, peak, plan)
        best = choice if best is None or choice.key < best.key else best
    if best is None:
        reason = "no whole layout: the degrees, the batch and the number of GPUs do not divide"
        return replace(nothing, refused=reason)
    timed = replace(nothing, predicted_s=best.seconds, plan=best.plan)
    if case.offloads:
        return timed
    room = cost.usable_memory_bytes() * CAPACITY
    near = (case.memory_gb or 0.0) >= NEAR * gb_from_bytes(room)
    four = replace(best.plan, micro_batch=4 * best.plan.micro_batch)
    return replace(
        timed,
        predicted_memory_gb=gb_from_bytes(best.peak_bytes),
        out_of_memory=least > room,
        four_times=peak_bytes(cost, four, etp=case.etp) > room if near else None,
    )


@dataclass(frozen=True)
class _Choice:
    """One way to fill what a row leaves open; the best has the least ``key``."""

    over: bool
    recompute: int
    seconds: float
    peak_bytes: float
    plan: Plan

    @property
    def key(self) -> tuple[bool, int, float]:
        """Fits first, then the least recomputation, then the least time."""
        return self.over, self.recompute, self.seconds


def _predict_peak(case: MemoryRun, calibration: Calibration) -> Prediction:
    told = Prediction(case.id, case.family, None, None, None, None, case.refusal, group=group_of(case), peak_only=True)
    measured = case.measured_bytes and gb_from_bytes(case.measured_bytes)
    if case.refusal is not None or case.gpu is None:
        return replace(told, memory_gb=measured)
    room = case.gpu.memory_bytes * CAPACITY
    near = case.measured_bytes is not None and case.measured_bytes >= NEAR * room
    return replace(
        told,
        memory_gb=measured,
        predicted_memory_gb=gb_from_bytes(case.allocated_bytes(calibration)),
        out_of_memory=case.peak_bytes(calibration) > room if case.ran else None,
        four_times=case.peak_bytes(calibration, times=4) > room if case.ran and near else None,
    )


def _predict_pipeline(case: MeasuredPipeline) -> Prediction:
    played, refused = None, case.refusal
    if refused is None:
        try:
            played = pipelines.step_seconds(case)
        except InfeasibleError as error:  # no such order within the row's memory limit
            refused = str(error)
    told = Prediction(case.id, case.family, case.measured_s, played, None, None, refused, deviation_s=case.deviation_s)
    return replace(told, group=group_of(case))


def _mean_step(case: PublishedRun, problem: Problem, cost: CostModel, known: Known) -> float:
    """Seconds of a step over several places: of the row's placement, or the mean over the drawn ones.

    Of drawn ones ``_PLAYED`` waves are played; each more lasts as long as the last of those. ``known``: these times by
    the case without its batch, filled here.
    """
    assert case.model is not None
    plans = wan.plans(case, cut(case.model, case.pp or 1))
    if case.placement != "random":
        return fast.step_time(lower(problem, next(plans), cost=cost))
    alike = replace(case, id="", family="", global_batch=None, measured_s=None)
    if alike not in known:
        times = np.array([_steps(problem, plan, cost) for plan in plans]).mean(axis=0)
        known[alike] = float(times[0]), float(times[1])
    first, second = _PLAYED[case.schedule]
    (few, more), waves = known[alike], (case.global_batch or 1) // ((case.dp or 1) * (case.micro_batch or 1))
    return more + (more - few) / (second - first) * (waves - second)


def _steps(problem: Problem, plan: Plan, cost: CostModel) -> list[float]:
    """Seconds of a step of each number of waves of ``_PLAYED``."""
    program, found = lower(problem, plan, cost=cost), []
    for waves in _PLAYED[plan.schedule.name]:
        short = replace(plan, pipelines=tuple(replace(each, num_micro_batches=waves) for each in plan.pipelines))
        found.append(
            fast.step_time(replace(reordered(program, problem, short), num_waves=np.full(len(plan.pipelines), waves)))
        )
    return found


def peak_bytes(cost: CostModel, plan: Plan, *, etp: int | None = None) -> float:
    """Bytes on the fullest GPU of a plan of one pipeline; ``etp``: ranks that an expert is cut over, where it is said.

    Where experts lie on more ranks than there are data-parallel lanes, they take them from tp.
    """
    pipeline = plan.pipelines[0]
    schedule = order(
        plan.schedule.name,
        stages=len(pipeline.stages),
        micro_batches=pipeline.num_micro_batches,
        chunks=plan.interleave,
    )
    layout = layout_of(plan)
    lanes = layout.tp * layout.dp * layout.cp
    layout = replace(layout, etp=max(1, min(etp or layout.tp, lanes // layout.ep)))
    return max(
        cost.memory(stage.domain, *stage.layers, layout, live=live).peak_bytes
        for stage, live in zip(pipeline.stages, schedule.peak_live, strict=True)
    )


def layout_of(plan: Plan) -> Layout:
    """Layout of every stage of a plan of one pipeline of equal stages."""
    stage = plan.pipelines[0].stages[0]
    return Layout(
        tp=stage.tp,
        dp=stage.dp,
        micro_batch=plan.micro_batch,
        cp=plan.context_parallel,
        ep=plan.expert_parallel,
        recompute=plan.recompute,
        sharding=plan.sharding,
        sequence_parallel=plan.sequence_parallel,
        interleave=plan.interleave,
        precision=plan.precision,
        num_stages=len(plan.pipelines[0].stages),
        replicas=stage.dp,
    )


def reaching(case: PublishedRun, calibration: Calibration) -> Calibration:
    """The constants for a case: of a network whose figures are what it achieves, no share is taken again."""
    whole: dict[str, Any] = dict.fromkeys(case.achieved, 1.0)
    return replace(calibration, **whole)


def problem_of(case: PublishedRun) -> Problem:
    """The problem of a case: its model on one domain of its GPUs."""
    assert case.model is not None
    workload = Workload(
        global_batch=case.global_batch or 1,
        seq=case.seq,
        precision=case.precision,
        state_bytes_per_parameter=18.0 if case.fp32_gradients else 16.0,
        gradient_bytes_per_parameter=4.0 if case.fp32_gradients else 2.0,
        software=case.software,
        routing=Routing(case.routing_skew),
    )
    return Problem(case.model, case.cluster or cluster_of(case), workload, runtime=case.runtime)


def cluster_of(case: PublishedRun) -> Cluster:
    """One domain: nodes as large as the GPU's NVLink domain, the node network the row states or the usual one."""
    island = 8 if case.gpu.nvlink_domain <= 8 else RACK_GPUS
    per_node = next(size for size in range(min(island, case.gpus), 0, -1) if case.gpus % size == 0)
    usual = (case.gpu.node_bytes_per_s or 0.0) / case.gpu.nvlink_domain * per_node
    domain = Domain(
        DOMAIN,
        case.gpus // per_node,
        per_node,
        case.gpu.nvlink_bytes_per_s,
        case.node_bytes_per_s or usual,
        FABRIC_LATENCY_S,
    )
    return Cluster(case.id, case.gpu, (domain,), ())


def candidates(case: PublishedRun) -> Iterator[Plan]:
    """Every plan that agrees with the row: unknown degrees, micro-batches, chunks and recomputation are enumerated."""
    for tp, pp, dp in _degrees(case):
        for micro_batch in _micro_batches(case, dp):
            waves = math.ceil((case.global_batch or 1) / (dp * micro_batch))
            for chunks in _chunks(case, pp, waves):
                for recompute in RECOMPUTE if case.recompute is None else (case.recompute,):
                    yield _plan(case, (tp, pp, dp), micro_batch, waves, chunks, recompute)


def _degrees(case: PublishedRun) -> Iterator[tuple[int, int, int]]:
    """(tp, pp, dp) with tp x pp x dp x cp = GPUs."""
    assert case.model is not None
    blocks = case.model.num_blocks
    for tp in (case.tp,) if case.tp else (1, 2, 4, 8):
        for pp in (case.pp,) if case.pp else [p for p in range(1, min(blocks, 64) + 1) if blocks % p == 0]:
            dp, rest = divmod(case.gpus, tp * pp * case.cp)
            dp = case.dp or (dp if rest == 0 else 0)
            if dp and tp * pp * dp * case.cp == case.gpus and (case.global_batch or 0) >= dp:
                yield tp, pp, dp


def _micro_batches(case: PublishedRun, dp: int) -> Sequence[int]:
    if case.micro_batch:
        return (case.micro_batch,)
    lane = (case.global_batch or 1) // dp
    return [size for size in MICRO_BATCHES if lane % size == 0] or [1]


def _chunks(case: PublishedRun, pp: int, waves: int) -> Sequence[int]:
    """Chunks per rank; interleaving needs a multiple of ``pp`` micro-batches (Narayanan et al. 2021, section 2.2)."""
    assert case.model is not None
    if pp == 1:
        return (1,)
    layers = _layers_per_stage(case.model, pp)
    if case.interleave:
        return (case.interleave if waves % pp == 0 and case.interleave <= layers else 1,)
    return [v for v in range(1, layers + 1) if layers % v == 0 and (v == 1 or waves % pp == 0)]


def _layers_per_stage(model: Model, pp: int) -> int:
    blocks = model.num_blocks
    return blocks // pp if blocks % pp == 0 else max(1, model.num_layers // pp)


def cut(model: Model, pp: int) -> list[tuple[int, int]]:
    """Layer ranges of ``pp`` stages as Megatron-LM cuts: equal numbers of blocks, else embedding and head count too."""
    blocks, layers = model.num_blocks, model.num_layers
    if blocks % pp == 0:
        inner = [1 + blocks // pp * stage for stage in range(1, pp)]
    else:
        inner = [round(layers * stage / pp) for stage in range(1, pp)]
    bounds = [0, *inner, layers]
    return list(zip(bounds[:-1], bounds[1:], strict=True))


def _plan(
    case: PublishedRun, degrees: tuple[int, int, int], micro_batch: int, waves: int, chunks: int, recompute: str
) -> Plan:
    assert case.model is not None
    tp, pp, dp = degrees
    domain = cluster_of(case).domains[0]
    ranks = tp * case.cp * dp
    devices = domain.devices
    stages = tuple(
        Stage(DOMAIN, layers, tp, dp, devices[index * ranks : (index + 1) * ranks])
        for index, layers in enumerate(cut(case.model, pp))
    )
    parallel = case.sequence_parallel
    return Plan(
        pipelines=(Pipeline(stages, waves),),
        micro_batch=micro_batch,
        precision=case.precision,
        recompute=recompute,
        sharding=case.sharding,
        sequence_parallel=tp > 1 and case.software.overlap_tp if parallel is None else parallel,
        context_parallel=case.cp,
        expert_parallel=case.ep or 1,
        interleave=chunks,
        schedule=ScheduleChoice("interleaved" if chunks > 1 else "1f1b"),
    )
