"""Published steps over several places: rows in the form of ``geo_open.json``, and the plans that they ran.

The rows say the method, the case and the seconds; what joins the GPUs of a case stands once, in ``wan_dtfm.json``
beside them: the delay and the bandwidth between two instances, as the authors' emulation sets them and their scheduler
reads them (DS3Lab/DT-FM, ``scheduler/generate_heterogeneous_tc.py``: ``netem delay D ms rate B Gbit`` on the sender's
side, so that D passes one way). Nothing of it comes from the steps. Rates are of one instance to each other one. Inside
an instance the emulation changes nothing: its GPUs are joined as their data sheet says.

Ranks are numbered as Megatron-LM does, tensor-parallel first, then data-parallel, then stages, and lie on the GPUs in
that order, or shuffled (``random``), or with the places in the order of the cheapest open tour (``scheduled``:
DT-FM, section 3; where the authors' scheduler put each GPU is not in the rows).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np

from hippo.errors import InputError, UnknownNameError
from hippo.files import read_text
from hippo.plan.plan import Pipeline, Plan, ScheduleChoice, Stage, Sync
from hippo.problem.cluster import Cluster, Domain, Gpu, Link
from hippo.problem.cluster_yaml import MAX_GPUS
from hippo.problem.config_json import MAX_BLOCKS, MAX_HEADS, MAX_HIDDEN, MAX_WIDTH
from hippo.problem.document import parse_json
from hippo.problem.gpus import gpu
from hippo.problem.load import MAX_BATCH
from hippo.problem.model import Model, gpt_model
from hippo.problem.workload import Software
from hippo.score.cases import USUAL_VOCAB, PublishedRun
from hippo.units import bytes_per_s_from_gbps, s_from_ms

NETWORKS = "wan_dtfm.json"
DRAWS = 100
SEED = 16
"""Of the random placements: the mean over so many draws."""

_NEEDED = (
    *("id", "case", "method", "layers", "hidden", "heads", "seq", "micro_batch", "global_batch", "gpus", "gpu_type"),
    *("precision", "recompute", "mean_s", "layout"),
)
_BESIDE = ("seconds_per_iter", "pflop", "pflops")
_LIMITS = {
    **{"layers": MAX_BLOCKS, "hidden": MAX_HIDDEN, "heads": MAX_HEADS, "seq": MAX_WIDTH},
    **{"micro_batch": MAX_BATCH, "global_batch": MAX_BATCH, "gpus": MAX_GPUS},
}
_MEGATRON = "megatron"
_OURS = "ours"  # of the rows' authors: GPipe, activations sent and received beside computation
_REACHED = ("bus_efficiency_inter",)


def is_wan(document: Any) -> bool:
    """Whether a document holds rows of this form."""
    rows = document.get("rows") if isinstance(document, dict) else None
    return isinstance(rows, list) and bool(rows) and isinstance(rows[0], dict) and {"case", "method"} <= set(rows[0])


def cases(document: Mapping[str, Any], path: Path) -> tuple[PublishedRun, ...]:
    """The rows as cases; what a row lacks is its refusal. ``InputError`` where the networks are not beside the file."""
    beside = path.parent / NETWORKS
    if not beside.exists():
        remedy = f"put {NETWORKS} beside {path.name}"
        raise InputError("the networks of these rows are missing", source=str(beside), remedy=remedy)
    found = parse_json(read_text(beside, what="file of the networks of these rows"), str(beside))
    networks = found.get("cases") if isinstance(found, dict) else None
    if not isinstance(networks, dict):
        raise InputError("the networks of the cases are missing", source=str(beside), key="cases", remedy="give them")
    for index, row in enumerate(document["rows"]):
        if not isinstance(row, dict):
            remedy = "give objects with the keys of docs/contracts.md"
            raise InputError(
                "a row must be an object", source=str(path), key=f"rows[{index}]", value=row, remedy=remedy
            )
    return tuple(_case(row, networks, f"{path}[{index}]") for index, row in enumerate(document["rows"]))


def _case(row: Mapping[str, Any], networks: Mapping[str, Any], where: str) -> PublishedRun:
    holes = [key for key in _NEEDED if row.get(key) is None]
    degrees = {key: int(number) for key, number in re.findall(r"\b(tp|pp|dp)(\d+)\b", str(row.get("layout")))}
    method, device = str(row.get("method")), gpu("V100")
    refusal, cluster = None, None
    if not holes:
        refusal = _wrong(row, degrees)
        with suppress(UnknownNameError):
            device = gpu(str(row["gpu_type"]))
        cluster = _cluster(str(row["case"]), networks.get(str(row["case"])), device)
    if holes:
        refusal = f"the row does not give {', '.join(holes)}"
    elif refusal is None and (cluster is None or cluster.gpus != row["gpus"]):
        refusal = f"{NETWORKS} does not say what joins the {row['gpus']} GPUs of case {row['case']}"
    ours = method.startswith(_OURS)
    layout = str(row.get("layout"))
    sizes: dict[str, Any] = {} if refusal else {key: int(row[key]) for key in ("seq", "micro_batch", "global_batch")}
    return PublishedRun(
        id=str(row.get("id", where)),
        family=f"geo-{row.get('case')}{'-' + _OURS if ours else ''}",
        model=None if refusal else _model(row),
        gpu=device,
        gpus=int(row["gpus"]) if not refusal else 1,
        dp=degrees.get("dp"),
        tp=degrees.get("tp", 1),
        pp=degrees.get("pp"),
        cp=1,
        ep=None,
        interleave=1,
        micro_batch=sizes.get("micro_batch"),
        global_batch=sizes.get("global_batch"),
        seq=sizes.get("seq", 1),
        recompute="full",
        sequence_parallel=False,
        precision="fp16",
        sharding="none",
        software=Software("unfused", overlap_dp=False, overlap_tp=False, logit_bytes=10.0),
        node_bytes_per_s=None,
        fp32_gradients=False,
        measured_s=None if refusal else float(row["mean_s"]),
        out_of_memory=False,
        memory_gb=None,
        refusal=refusal,
        cluster=cluster,
        placement=next((word for word in ("random", "scheduled") if word in layout), "in order"),
        schedule="gpipe" if ours else "1f1b",
        runtime="ideal" if ours else "megatron",
        achieved=_REACHED,
        apart=ours,
        unknown=tuple(key for key in row if key not in (*_NEEDED, *_BESIDE)),
    )


def _wrong(row: Mapping[str, Any], degrees: Mapping[str, int]) -> str | None:
    """What of a row without holes cannot be read as this form has it."""
    if not str(row["method"]).startswith((_OURS, _MEGATRON)):
        return f"method {row['method']} is neither {_MEGATRON} nor {_OURS}"
    try:
        gpu(str(row["gpu_type"]))
    except UnknownNameError:
        return f"gpu_type {row['gpu_type']} is not known"
    for key, most in _LIMITS.items():
        if not isinstance(row[key], int) or isinstance(row[key], bool) or not 0 < row[key] <= most:
            return f"{key} is not a whole number from 1 to {most}"
    if not isinstance(row["mean_s"], (int, float)) or not 0 < row["mean_s"] < np.inf:
        return "mean_s is not a positive number of seconds"
    logged = row.get("seconds_per_iter", [row["mean_s"]])
    if not isinstance(logged, list) or not all(isinstance(each, (int, float)) for each in logged) or not logged:
        return "seconds_per_iter is no list of seconds"
    if not np.isclose(np.mean(logged), row["mean_s"], rtol=0.01):  # as where one of them is in milliseconds
        return "mean_s is not the mean of seconds_per_iter"
    if (row["precision"], str(row["recompute"])[:4]) != ("fp16", "full"):
        return "is neither fp16 nor with full recomputation"
    tp, pp, dp = degrees.get("tp", 1), degrees.get("pp", 0), degrees.get("dp", 0)
    if tp * pp * dp != row["gpus"] or row["global_batch"] % (dp * row["micro_batch"]):
        return "the layout does not divide the GPUs and the batch"
    return None


def _model(row: Mapping[str, Any]) -> Model:
    sizes = {key: row[key] for key in ("layers", "hidden", "heads", "seq")}
    return gpt_model(f"GPT of {row['layers']} layers", **sizes, vocab=USUAL_VOCAB, source=str(row["id"]))


def _cluster(name: str, case: Any, device: Gpu) -> Cluster | None:
    """The places of a case and what joins them; None where it does not say."""
    try:
        domains, links = _regions(case, device) if "regions" in case else _instances(case, device)
    except (KeyError, TypeError, ValueError, IndexError):
        return None
    return Cluster(f"case {name}", device, tuple(domains), tuple(links), source=NETWORKS)


def _regions(case: Mapping[str, Any], device: Gpu) -> tuple[list[Domain], list[Link]]:
    """Regions of instances of one GPU each; matrices between regions, their diagonal inside one."""
    names, rates, delays = case["regions"], case["bw_gbps"], case["delay_ms"]
    rate = [[bytes_per_s_from_gbps(float(each)) for each in row] for row in rates]
    delay = [[s_from_ms(float(each)) for each in row] for row in delays]
    count = int(case["gpus_per_region"])
    domains = [
        Domain(name, count, 1, device.nvlink_bytes_per_s, rate[at][at], delay[at][at]) for at, name in enumerate(names)
    ]
    pairs = permutations(range(len(names)), 2)
    return domains, [Link(names[a], names[b], None, delay[a][b], 0.0, rate[a][b]) for a, b in pairs]


def _instances(case: Mapping[str, Any], device: Gpu) -> tuple[list[Domain], list[Link]]:
    """Instances of several GPUs in one data centre, of one or two sizes; rates are those of a GPU to another one's."""
    between = bytes_per_s_from_gbps(float(case["bw_gbps_between"]))
    inside, outside = (s_from_ms(float(case[f"delay_ms_{where}"])) for where in ("within", "between"))
    sizes = [(int(case["blocks"]), int(case["gpus_per_block"]))] if "gpus_per_block" in case else _stated(case)
    domains = [
        Domain(f"instances of {gpus}", count, gpus, device.nvlink_bytes_per_s, between * gpus, max(inside, outside))
        for count, gpus in sizes
    ]
    pairs = permutations(domains, 2)
    return domains, [Link(a.name, b.name, None, outside, 0.0, between * a.gpus_per_node) for a, b in pairs]


def _stated(case: Mapping[str, Any]) -> list[tuple[int, int]]:
    """ "8 instances of 4 GPUs, then 32 of 1 GPU" as (8, 4), (32, 1)."""
    found = re.findall(r"(\d+)(?: instances?)? of (\d+) GPUs?", case["blocks"])
    return [(int(count), int(gpus)) for count, gpus in found]


# -------------------------------------------------------------------------------------------------------- placements


def plans(case: PublishedRun, stages: Sequence[tuple[int, int]]) -> Iterator[Plan]:
    """The plan of a case with these layers a stage; of a random placement, the plans of its draws."""
    cluster = case.cluster
    assert cluster is not None
    devices = [(domain.name, device) for domain in cluster.domains for device in domain.devices]
    if case.placement == "random":
        shuffled = np.random.default_rng(SEED)
        for _ in range(DRAWS):
            yield _plan(case, stages, [devices[at] for at in shuffled.permutation(len(devices))])
    elif case.placement == "scheduled":
        tour = _tour(cluster, case)
        yield _plan(case, stages, sorted(devices, key=lambda each: tour.index(each[0])))
    else:
        yield _plan(case, stages, devices)


def _plan(case: PublishedRun, stages: Sequence[tuple[int, int]], devices: Sequence[tuple[str, str]]) -> Plan:
    """Ranks on the devices in this order; lanes that visit the same places form one pipeline."""
    tp, dp, micro_batch = case.tp or 1, case.dp or 1, case.micro_batch or 1
    lanes: dict[tuple[str, ...], list[list[tuple[str, ...]]]] = {}
    for lane in range(dp):
        groups = [devices[(s * dp + lane) * tp : (s * dp + lane + 1) * tp] for s in range(len(stages))]
        lanes.setdefault(tuple(group[0][0] for group in groups), []).append(
            [tuple(device for _, device in group) for group in groups]
        )
    waves = (case.global_batch or 1) // (dp * micro_batch)
    pipelines = tuple(
        Pipeline(
            tuple(
                Stage(place, layers, tp, len(group), tuple(device for lane in group for device in lane[s]))
                for s, (place, layers) in enumerate(zip(places, stages, strict=True))
            ),
            waves,
        )
        for places, group in lanes.items()
    )
    return Plan(
        pipelines,
        micro_batch,
        precision=case.precision,
        recompute=case.recompute or "none",
        sharding=case.sharding,
        sequence_parallel=False,
        schedule=ScheduleChoice(case.schedule),
        sync=Sync(all_reduce="ring"),  # NCCL's
    )


def _tour(cluster: Cluster, case: PublishedRun) -> list[str]:
    """The places in the order in which handing an activation on from each to the next takes least, in all."""
    assert case.model is not None
    names = [domain.name for domain in cluster.domains]
    message = 2.0 * (case.micro_batch or 1) * case.seq * case.model.hidden
    cost = np.zeros((len(names), len(names)))
    for link in cluster.links:
        at = names.index(link.source), names.index(link.destination)
        cost[at] = link.latency_s + message / link.rate_bytes_per_s(1)
    orders = np.array(list(permutations(range(len(names)))))
    best = orders[np.argmin(cost[orders[:, :-1], orders[:, 1:]].sum(axis=1))]
    return [names[at] for at in best]
