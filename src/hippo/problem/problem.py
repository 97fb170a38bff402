"""The whole question: model, cluster, workload, objective, and what the user allows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hippo.errors import InputError, UnknownNameError
from hippo.problem.cluster import Cluster, Link
from hippo.problem.cluster_yaml import MAX_GBPS
from hippo.problem.model import Model
from hippo.problem.objective import Objective
from hippo.problem.outer_step import OuterStep
from hippo.problem.profile import Profile
from hippo.problem.runtimes import RUNTIMES, Runtime, name_of, runtime_of
from hippo.problem.workload import Workload
from hippo.units import bytes_per_s_from_gbps, s_from_ms


@dataclass(frozen=True)
class Problem:
    """Given: everything a planner may look at. Frozen; two equal problems get equal plans."""

    model: Model
    cluster: Cluster
    workload: Workload
    objective: Objective = field(default_factory=Objective)
    profile: Profile | None = None
    runtime: str = "ideal"  # hippo, megatron, torch, deepspeed, ideal: what runs the plan (``runtimes.RUNTIMES``)
    uniform_cuts: bool = False
    allow_local_sgd: bool = False
    allow_compression: bool = False  # what crosses domains may be sent in eight bits, which changes what is trained
    compression_worth: float | None = None  # of a token trained so, where work is counted; None: nobody said it
    all_reduce: str = "auto"  # two-level, ring, auto: how replicas of several domains sum
    outer_step: OuterStep = OuterStep()  # of local SGD, where it is allowed
    context_parallel: int = 1  # degree of every stage of the plans that are looked for; ``planners.answers`` tries all
    expert_parallel: int = 1  # the same
    expert_tensor_parallel: int | None = None  # ranks that an expert is cut over; None: tp

    def __post_init__(self) -> None:
        object.__setattr__(self, "runtime", name_of(self.runtime))
        check_worth(self.allow_compression, self.compression_worth)
        object.__setattr__(self, "cluster", self.cluster.under(self.rules.transport))

    @property
    def rules(self) -> Runtime:
        """What runs the plan."""
        return runtime_of(self.runtime)

    @property
    def compresses(self) -> bool:
        """Whether plans may compress what crosses domains: the user allows it, and the runtime can."""
        return self.allow_compression and self.rules.compression

    def spreads_experts(self, tp: int, dp: int) -> bool:
        """Whether the ranks of such a stage can share out the experts evenly."""
        return tp * self.context_parallel * dp % ((self.expert_tensor_parallel or tp) * self.expert_parallel) == 0

    def all_reduce_with(self, sharding: str) -> str:
        """How replicas of several domains sum: as asked for, else the way with fewer bytes that the runtime has."""
        return self.rules.all_reduces(sharding)[0] if self.all_reduce == "auto" else self.all_reduce

    def with_link(
        self,
        source: str,
        destination: str,
        *,
        bandwidth_gbps: float | None = None,
        latency_ms: float | None = None,
        both: bool = True,
    ) -> Problem:
        """The same problem with another link between two domains, and back where ``both``; what is None stays.

        ``bandwidth_gbps`` is shared by all flows (Gbit/s), ``latency_ms`` one way. A link that was not there needs both
        figures and costs nothing a GB. Raises ``InputError`` for an unknown domain or a figure out of range.
        """
        names = [domain.name for domain in self.cluster.domains]
        for key, name in (("source", source), ("destination", destination)):
            if name not in names:
                raise UnknownNameError("domain", str(name)[:60], names, key=key)
        if source == destination:
            raise InputError("joins a domain to itself", key="destination", value=source, remedy="name another domain")
        for key, value, least in (("bandwidth_gbps", bandwidth_gbps, 1e-9), ("latency_ms", latency_ms, 0.0)):
            if value is not None and not least <= value <= MAX_GBPS:
                raise InputError("is out of range", key=key, value=value, remedy=f"give a number up to {MAX_GBPS:g}")
        links = {(link.source, link.destination): link for link in self.cluster.links}
        for pair in ((source, destination), (destination, source))[: 1 + both]:
            link = links.get(pair)
            if link is None:
                if bandwidth_gbps is None or latency_ms is None:
                    remedy = "give bandwidth_gbps and latency_ms"
                    raise InputError(f"there is no link from '{pair[0]}' to '{pair[1]}' yet", remedy=remedy)
                link = Link(*pair, None, 0.0, 0.0)
            if bandwidth_gbps is not None:
                link = replace(link, bandwidth_bytes_per_s=bytes_per_s_from_gbps(bandwidth_gbps))
            links[pair] = link if latency_ms is None else replace(link, latency_s=s_from_ms(latency_ms))
        return replace(self, cluster=replace(self.cluster, links=tuple(links.values())))

    def with_workload(self, *, global_batch: int | None = None, seq: int | None = None) -> Problem:
        """The same problem with other sequences per step or tokens per sequence; what is None stays. ``InputError`` for
        a number below 1, or more tokens than the model has learned positions for."""
        given = {"global_batch": global_batch, "seq": seq}
        for key, value in given.items():
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise InputError("must be a positive whole number", key=key, value=value, remedy="write one")
        most = self.model.layers[0].positions
        if seq is not None and most and seq > most:
            problem = f"exceeds the {most} learned positions of {self.model.name}"
            raise InputError(problem, key="seq", value=seq, remedy=f"write at most {most}")
        work = self.workload
        batch = work.global_batch if global_batch is None else global_batch
        return replace(self, workload=replace(work, global_batch=batch, seq=work.seq if seq is None else seq))

    def __repr__(self) -> str:
        cluster, work = self.cluster, self.workload
        where = f"{cluster.name[:60]} ({cluster.gpus} {cluster.gpu.name[:40]} GPUs in {len(cluster.domains)} domains)"
        told = (
            f"{work.global_batch} sequences of {work.seq} tokens, {work.precision}, objective={self.objective.name!r}"
        )
        return f"Problem({self.model.name[:60]} on {where}, {told})"


def check_worth(allowed: bool, worth: float | None) -> None:
    """``InputError`` for what a compressed token is worth that is out of range, or where nothing may be compressed."""
    if worth is not None and (isinstance(worth, bool) or not 0.0 < worth <= 1.0):
        remedy = "give the share that a token trained so is worth, above 0 and at most 1"
        raise InputError("is out of range", source="--compression-worth", value=worth, remedy=remedy)
    if worth is not None and not allowed:
        remedy = "add --allow-compression, or leave it out"
        raise InputError("nothing may be compressed", source="--compression-worth", value=worth, remedy=remedy)


def check_compresses(rules: Runtime, allowed: bool) -> None:
    """``InputError`` where what crosses domains may be compressed and the runtime cannot."""
    if allowed and not rules.compression:
        able = " or ".join(name for name, each in RUNTIMES.items() if each.compression)
        problem = f"{rules.told} cannot compress what crosses domains"
        raise InputError(problem, source="--allow-compression", remedy=f"leave it out, or ask for --runtime {able}")


def check_agrees(rules: Runtime, *, allow_local_sgd: bool = False, all_reduce: str = "auto") -> None:
    """``InputError`` for a way to let replicas agree that the runtime does not have."""
    if allow_local_sgd and not rules.local_sgd:
        able = " or ".join(name for name, each in RUNTIMES.items() if each.local_sgd)
        problem = f"{rules.told} agrees every step and has no local SGD"
        raise InputError(problem, source="--allow-local-sgd", remedy=f"leave it out, or ask for --runtime {able}")
    if all_reduce == "two-level" and not rules.two_level:
        able = " or ".join(name for name, each in RUNTIMES.items() if each.two_level)
        problem = f"{rules.told} cannot sum on two levels, only around one ring"
        remedy = f"write ring or auto, or ask for --runtime {able}"
        raise InputError(problem, source="--all-reduce", value=all_reduce, remedy=remedy)


def told_runtime(problem: Problem) -> dict[str, object]:
    """Under which runtime the times of an answer hold, and what was allowed, as every document says it."""
    rules = problem.rules
    told: dict[str, object] = {"runtime": problem.runtime, "runtime_is": rules.told, "assumed": list(rules.assumed)}
    return told | ({"compression_worth": problem.compression_worth} if problem.allow_compression else {})
