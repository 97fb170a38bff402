"""Hypothesis strategies for problems and plans: ``problems()``, and ``planned()`` for pairs that pass every check."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from hippo.plan.plan import Compression, Pipeline, Plan, Relay, ScheduleChoice, Stage, Sync
from hippo.problem.catalogue.models import MODELS
from hippo.problem.cluster import Cluster, Domain, Dynamics, Gpu, Link
from hippo.problem.gpus import GPUS
from hippo.problem.model import Experts, Model, gpt_model
from hippo.problem.objective import Objective
from hippo.problem.problem import Problem
from hippo.problem.profile import Profile, ProfileRow
from hippo.problem.runtimes import RECOMPUTE, SHARDING, runtime_of, tp_refusal
from hippo.problem.workload import Workload
from hippo.units import bytes_per_s_from_gbps, s_from_ms, s_from_us

NAMES = ("east", "west", "north-1", "south 2", "贵安", "no", "1e3")
GBPS = st.floats(0.01, 5000.0)


@st.composite
def gpus(draw: st.DrawFn) -> Gpu:
    """A type of the catalogue, at times with another rent or another name."""
    gpu = GPUS[draw(st.sampled_from(sorted(GPUS)))]
    if draw(st.booleans()):
        return gpu
    memory_gb, nvlink_gb_per_s = draw(st.integers(8, 300)), draw(st.floats(1.0, 1000.0))
    return replace(
        gpu,
        name=draw(st.sampled_from(["home-made", gpu.name])),
        price_usd_per_hour=draw(st.floats(0.0, 50.0)),
        memory_bytes=memory_gb * 1e9,
        nvlink_bytes_per_s=nvlink_gb_per_s * 1e9,
        node_bytes_per_s=draw(st.none() | GBPS.map(bytes_per_s_from_gbps)),
    )


@st.composite
def domains(draw: st.DrawFn, name: str) -> Domain:
    """A small data centre of that name."""
    return Domain(
        name=name,
        nodes=draw(st.integers(1, 3)),
        gpus_per_node=draw(st.sampled_from([1, 2, 4, 8])),
        intra_node_bytes_per_s=bytes_per_s_from_gbps(draw(GBPS)),
        inter_node_bytes_per_s=bytes_per_s_from_gbps(draw(GBPS)),
        inter_node_latency_s=s_from_us(draw(st.floats(0.0, 1000.0))),
    )


@st.composite
def links(draw: st.DrawFn, source: str, destination: str) -> Link:
    """A directed link: shared bandwidth, a cap per node, or both."""
    shared = draw(st.none() | GBPS.map(bytes_per_s_from_gbps))
    per_node = draw(GBPS.map(bytes_per_s_from_gbps) if shared is None else st.none() | GBPS.map(bytes_per_s_from_gbps))
    latency_s = s_from_ms(draw(st.floats(0.0, 300.0)))
    return Link(source, destination, shared, latency_s, draw(st.floats(0.0, 1.0)), per_node)


@st.composite
def clusters(draw: st.DrawFn, *, mesh: bool = False) -> Cluster:
    """One to four domains; ``mesh``: every pair is joined both ways, otherwise some are."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    pairs = [(a, b) for a in names for b in names if a != b]
    chosen = [pair for pair in pairs if mesh or draw(st.booleans())]
    return Cluster(
        name=draw(st.sampled_from(["c", "four hubs"])),
        gpu=draw(gpus()),
        domains=tuple(draw(domains(name)) for name in names),
        links=tuple(draw(links(*pair)) for pair in chosen),
        dynamics=Dynamics(swing=draw(st.floats(0.0, 0.9)), outages_per_day=draw(st.floats(0.0, 24.0))),
        source=draw(st.sampled_from(["", "invented"])),
    )


@st.composite
def models(draw: st.DrawFn) -> Model:
    """A small model, dense or not, or one of the catalogue."""
    if draw(st.booleans()):
        return MODELS[draw(st.sampled_from(sorted(MODELS)))]
    experts = draw(st.none() | st.just(Experts(8, 2, 64, shared=1)))
    return gpt_model(
        "small",
        layers=draw(st.integers(1, 12)),
        hidden=64,
        heads=8,
        kv_heads=draw(st.sampled_from([8, 4])),
        ffn=draw(st.sampled_from([128, 192])),
        vocab=draw(st.integers(100, 1000)),
        seq=draw(st.sampled_from([64, 128])),
        gated=draw(st.booleans()),
        tied=draw(st.booleans()),
        experts=experts,
    )


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    """Rows by kind for a few layouts; not checked against a model."""
    seconds = st.floats(0.0, 1.0)
    rows = [
        ProfileRow(
            layer_kind=kind,
            layer_index=None,
            gpu="A100-SXM-80GB",
            tp=tp,
            micro_batch=draw(st.sampled_from([1, 2])),
            forward_s=draw(seconds),
            backward_s=draw(seconds),
            weight_gradient_s=draw(st.none() | seconds),
            parameter_bytes=draw(st.floats(0.0, 1e12)),
            activation_bytes=draw(st.floats(0.0, 1e12)),
            output_bytes=draw(st.floats(0.0, 1e12)),
        )
        for kind in ("embedding", "block", "head")
        for tp in (1, 2)
    ]
    return Profile("bf16", draw(st.floats(2.0, 20.0)), tuple(rows), source="measured")


@st.composite
def problems(draw: st.DrawFn, *, mesh: bool = False) -> Problem:
    """Any problem that the loaders could have made (profiles aside, which are not checked here)."""
    model = draw(models())
    objective = draw(
        st.sampled_from([Objective(), Objective("cost", 0.0, 0.0, 1.0), Objective("weighted", 0.5, 0.25, 0.25)])
    )
    return Problem(
        model=model,
        cluster=draw(clusters(mesh=mesh)),
        workload=Workload(
            global_batch=draw(st.integers(1, 4096)),
            seq=min(model.max_seq, 4096),
            precision=draw(st.sampled_from(["bf16", "fp16"])),
            state_bytes_per_parameter=draw(st.sampled_from([16.0, 18.0])),
        ),
        objective=replace(objective, balance_delta=draw(st.none() | st.floats(0.0, 1.0))),
        profile=draw(st.none() | profiles()),
        runtime=draw(st.sampled_from(["any", "megatron", "torch", "deepspeed"])),
        uniform_cuts=draw(st.booleans()),
        allow_local_sgd=draw(st.booleans()),
        allow_compression=draw(st.booleans()),
    )


@st.composite
def planned(draw: st.DrawFn) -> tuple[Problem, Plan]:
    """A problem and a plan for it that passes every check (runtime any, no profile; the batch follows the plan)."""
    problem = replace(draw(problems(mesh=True)), profile=None, runtime="any", uniform_cuts=False, objective=Objective())
    free = {domain.name: list(domain.devices) for domain in problem.cluster.domains}
    pipelines = [draw(_pipelines(problem, free)) for _ in range(draw(st.integers(1, 3)))]
    kept = tuple(pipeline for pipeline in pipelines if pipeline is not None)
    schedule = draw(st.sampled_from(["gpipe", "1f1b", "cross-domain"]))
    if schedule == "cross-domain" and draw(st.booleans()):
        kept = tuple(draw(_warmed_up(pipeline)) for pipeline in kept)
    replicas = len(kept) > 1
    local = replicas and problem.allow_local_sgd and draw(st.booleans())
    pressed = problem.cluster.links[:1] if problem.allow_compression else ()
    sharding, sync = draw(st.sampled_from(SHARDING)), Sync("local_sgd", 8) if local else Sync()
    plan = Plan(
        pipelines=kept,
        micro_batch=draw(st.sampled_from([1, 2, 4])),
        precision=problem.workload.precision,
        recompute=draw(st.sampled_from((*RECOMPUTE, "full:2", "layernorm+mlp"))),
        sharding=sharding,
        sequence_parallel=draw(st.booleans()),
        schedule=ScheduleChoice(schedule, draw(st.none() | st.integers(1, 9))),
        relays=_relays(problem.cluster),
        compression=tuple(Compression(link.source, link.destination, "fp8") for link in pressed),
        sync=replace(sync, all_reduce=problem.rules.all_reduces(sharding)[0]),
    )
    workload = replace(problem.workload, global_batch=plan.global_batch)
    return replace(problem, workload=workload), plan


@st.composite
def _pipelines(draw: st.DrawFn, problem: Problem, free: dict[str, list[str]]) -> Pipeline | None:
    """Stages over devices that are still free; None when there are none left. All stages have the same tp and dp."""
    stages: list[Stage] = []
    wanted = draw(st.integers(1, min(4, problem.model.num_layers)))
    tp, dp = draw(st.sampled_from([(1, 1), (2, 1), (1, 2), (2, 2)]))
    if tp_refusal(problem.model, tp, runtime_of("any")):
        tp = 1
    for domain in draw(st.permutations(sorted(free))):
        while len(free[domain]) >= tp * dp and len(stages) < wanted:
            devices, free[domain] = free[domain][: tp * dp], free[domain][tp * dp :]
            stages.append(Stage(domain, (0, 0), tp, dp, tuple(devices)))
    if not stages:  # too few devices for this width anywhere
        domain = next((name for name in sorted(free) if free[name]), None)
        if domain is None:
            return None
        stages = [Stage(domain, (0, 0), 1, 1, (free[domain].pop(0),))]
    inner = draw(
        st.lists(
            st.integers(1, problem.model.num_layers - 1),
            min_size=len(stages) - 1,
            max_size=len(stages) - 1,
            unique=True,
        )
    )
    cuts = [0, *sorted(inner), problem.model.num_layers]
    placed = tuple(replace(stage, layers=(cuts[s], cuts[s + 1])) for s, stage in enumerate(stages))
    return Pipeline(placed, draw(st.integers(1, 16)))


@st.composite
def _warmed_up(draw: st.DrawFn, pipeline: Pipeline) -> Pipeline:
    """The pipeline with a number of forwards per stage before the first backward, never rising."""
    counts = draw(st.lists(st.integers(1, pipeline.num_micro_batches), min_size=len(pipeline.stages)))
    return replace(pipeline, warm_up=tuple(sorted(counts[: len(pipeline.stages)], reverse=True)))


def _relays(cluster: Cluster) -> tuple[Relay, ...]:
    """One relay where there are three domains."""
    names = [domain.name for domain in cluster.domains]
    return (Relay(names[0], names[1], names[2]),) if len(names) > 2 else ()
