"""Between `flat_ring` and the files of docs/contracts.md: clusters, models and measured layers go out, plans in."""

from collections.abc import Mapping
from typing import Any

from tests.judges.flat_ring import Cluster, Layout, Model, Node
from tests.judges.grid import MICRO_BATCHES, WIDTHS, Case

KEPT = 34  # bytes that a layer keeps per token and hidden unit, before what an allocator loses
BEYOND = {
    "interleave": 1,
    "context_parallel": 1,
    "expert_parallel": 1,
    "relays": [],
    "compression": [],
    "recompute": "none",
}


def cluster_document(case: Case) -> dict[str, Any]:
    regions, links = case.cluster
    domains = [
        {"name": r.name, "nodes": r.nodes, "gpus_per_node": r.gpus_per_node, "intra_node_gbps": 8 * r.intra_gb_per_s}
        | {"inter_node_gbps": r.nic_gbps}
        for r in regions
    ]
    ways = [
        {"from": regions[a].name, "to": regions[b].name, "per_node_gbps": to.per_node_gbps, "latency_ms": to.latency_ms}
        for (a, b), to in links.items()
    ]
    return {"name": "case", "gpu": case.gpu, "domains": domains, "links": ways}


def model_document(model: Model) -> dict[str, Any]:
    sizes = {"n_embd": model.hidden, "n_layer": model.layers, "n_head": model.heads, "n_positions": model.sequence}
    return {"model_type": "gpt2", "vocab_size": model.vocabulary, "tie_word_embeddings": False, **sizes}


def profile_document(case: Case) -> dict[str, Any]:
    """The seconds of a case, and what its layers keep, as measured layers; what holds them alone is planned with."""
    model, rows = case.model, list[dict[str, Any]]()
    for tp in (each for each in WIDTHS if model.heads % each == 0):
        for micro_batch in MICRO_BATCHES:
            times, tokens = case.times(tp, micro_batch), micro_batch * model.sequence
            kinds = {
                "embedding": (0.0, 0.0, model.parameters(0, first=True, last=False), 0.0),
                "block": (times.forward_s, times.backward_s, model.parameters(1, first=False, last=False), KEPT),
                "head": (times.head_forward_s, times.head_backward_s, model.parameters(0, first=False, last=True), 0.0),
            }
            rows += [
                {"layer_kind": kind, "gpu": case.gpu, "tp": tp, "micro_batch": micro_batch}
                | {"forward_s": forward_s, "backward_s": backward_s, "parameter_bytes": 2 * parameters / tp}
                | {"activation_bytes": kept * tokens * model.hidden / tp, "output_bytes": 2 * tokens * model.hidden}
                for kind, (forward_s, backward_s, parameters, kept) in kinds.items()
            ]
    return {"precision": "bf16", "state_bytes_per_parameter": model.state_bytes, "rows": rows}


def read_plan(plan: Mapping[str, Any], cluster: Cluster, model: Model) -> Layout:
    """Its layout, ranks in the order of pipelines and their lanes; refuses what this simulator does not know."""
    for key, plain in BEYOND.items():
        if plan.get(key, plain) not in (plain, None):
            raise ValueError(f"{key} is {plan[key]!r}: only {plain!r} is known here")
    if plan.get("schedule", {}).get("name", "1f1b") != "1f1b" or plan.get("sharding", "none") not in (
        "none",
        "optimizer",
    ):
        raise ValueError("only 1F1B, and no more than the optimizer sharded, is known here")
    regions, rows, waves = {r.name: i for i, r in enumerate(cluster.regions)}, list[list[Node]](), list[int]()
    stages = [[(s["tp"], s["dp"], *s["layers"]) for s in pipeline["stages"]] for pipeline in plan["pipelines"]]
    tp, cuts = stages[0][0][0], [shape[2:] for shape in stages[0]]
    for pipeline, shapes in zip(plan["pipelines"], stages, strict=True):
        lanes = shapes[0][1]
        if [shape[2:] for shape in shapes] != cuts or {shape[:2] for shape in shapes} != {(tp, lanes)}:
            raise ValueError("pipelines differ in cuts or tp, or the stages of one in dp")
        rows = rows or [[] for _ in cuts]
        waves += [pipeline["num_micro_batches"]] * lanes
        for row, stage in zip(rows, pipeline["stages"], strict=True):
            places = [device.split("/") for device in stage["devices"]]
            nodes = [(regions[domain], int(node)) for domain, node, _ in places]  # tp fastest
            if any(len(set(nodes[i : i + tp])) > 1 for i in range(0, len(nodes), tp)):
                raise ValueError("tensor parallelism over several nodes")
            row += nodes[::tp]
    blocks = tuple(min(stop, model.layers + 1) - max(start, 1) for start, stop in cuts)  # 0 is the embedding
    units, sharded = tuple(map(tuple, rows)), plan.get("sharding") == "optimizer"
    return Layout(tp, plan["micro_batch"], blocks, tuple(waves), units, sharded)
