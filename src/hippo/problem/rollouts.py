"""Reinforcement learning over regions: what a ``--rollouts FILE`` asks for.

    replica: {gpus: 8, tokens_per_s: 12000, sequences: 128, load_s: 4}
    generated_tokens: 1024
    push: {kinds: [whole, delta], every: [1, 2, 4], delta_share: 0.03}
    staleness: 4

A *replica* is one inference engine; a *sample* is a prompt with what was generated for it; a *push* brings the
trainer's weights to the replicas of a domain. How many samples an optimizer step takes, and how long they are, says the
question (``--global-batch``, ``--seq``). Every key, unit and default: ``docs/contracts.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hippo.errors import InputError, UnknownNameError
from hippo.files import read_text
from hippo.problem.document import parse_json, parse_yaml
from hippo.problem.problem import Problem
from hippo.problem.table import Table, open_table

PUSHES = ("whole", "delta")
"""What a push may carry: all weights, or those that changed."""

DELTA_SHARE = 0.03
"""Bytes of what one step changes, of the whole: the upper end of the 1 to 3 % that users of deltas report."""

BYTES_PER_TOKEN = 12.0
"""What a sample carries back for each of its tokens: the token, its log-probability and its mask, four bytes each."""

MOST_EVERY, MOST_STALENESS, MOST_REPLICAS = 256, 256, 100_000

_TOP = ("replica", "generated_tokens", "bytes_per_token", "push", "staleness", "trainers", "pools")
_REPLICA = ("gpus", "tokens_per_s", "sequences", "load_s")
_PUSH = ("kinds", "every", "bits", "delta_share")
_HINTS = {
    "samples": "leave it out: --global-batch says how many samples a step takes",
    "trainer": "write trainers, a list of domains",
    "max_staleness": "write staleness, in steps",
    "period": "write push: {every: [..]}, in steps",
}


@dataclass(frozen=True)
class RolloutReplica:
    """One inference engine."""

    gpus: int
    tokens_per_s: float  # that it generates, all its sequences together
    sequences: int  # that it generates at a time, from the first token to the last
    load_s: float = 0.0  # that it stands still while it takes new weights


@dataclass(frozen=True)
class WeightPushes:
    """What may be chosen of how weights come to the replicas."""

    kinds: tuple[str, ...] = PUSHES
    every: tuple[int, ...] = (1, 2, 4, 8)  # steps between two pushes
    bits: float = 16.0  # of a weight
    delta_share: float = DELTA_SHARE  # of the whole: what one step changes

    def share(self, kind: str, every: int) -> float:
        """Bytes of a push, of all weights: a delta of k steps is as if each step changed weights by chance."""
        return 1.0 if kind == "whole" else float(1.0 - (1.0 - self.delta_share) ** every)


@dataclass(frozen=True)
class Rollouts:
    """What generates the samples of each step, and how old the weights may be with which it does."""

    replica: RolloutReplica
    generated_tokens: int  # of a sample, in the mean; the prompt comes on top
    staleness: int = 1  # most optimizer steps between the weights of a sample and those that it trains
    pushes: WeightPushes = WeightPushes()
    bytes_per_token: float = BYTES_PER_TOKEN
    trainers: tuple[str, ...] = ()  # domains in which the trainer may stand; empty: any
    pools: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))  # most replicas; absent: what fits
    source: str = ""

    @property
    def batch_s(self) -> float:
        """Seconds in which a replica generates the sequences that it holds at a time."""
        return self.replica.sequences * self.generated_tokens / self.replica.tokens_per_s

    def most_replicas(self, problem: Problem, domain: str, *, taken_nodes: int = 0) -> int:
        """Replicas that a domain has room for beside a trainer on so many of its nodes."""
        place = problem.cluster.domain(domain)
        per_node = place.gpus_per_node // self.replica.gpus
        nodes = place.nodes - taken_nodes
        room = nodes * per_node if per_node else nodes // -(-self.replica.gpus // place.gpus_per_node)
        return max(0, min(room, self.pools.get(domain, room)))


def load_rollouts(path: str | Path, problem: Problem) -> Rollouts:
    """The rollouts of a YAML or JSON file, checked against the problem. ``InputError`` names what is wrong."""
    text = read_text(path, what="rollouts file")
    document = parse_json(text, str(path)) if Path(path).suffix.lower() == ".json" else parse_yaml(text, str(path))
    return rollouts_from_document(document, problem, source=str(path))


def rollouts_from_document(document: object, problem: Problem, *, source: str) -> Rollouts:
    """The same of what such a file holds."""
    table = open_table(document, source=source, known=_TOP, hints=_HINTS)
    found = Rollouts(
        replica=_replica(table.table("replica", known=_REPLICA)),
        generated_tokens=table.integer("generated_tokens", most=1 << 24),
        staleness=table.integer("staleness", default=1, least=0, most=MOST_STALENESS),
        pushes=_pushes(table.table("push", known=_PUSH)) if table.has("push") else WeightPushes(),
        bytes_per_token=table.number("bytes_per_token", default=BYTES_PER_TOKEN, least=0, most=1e6),
        trainers=_trainers(table, problem),
        pools=_pools(table, problem),
        source=source,
    )
    _check(table, found, problem)
    return found


def _replica(table: Table) -> RolloutReplica:
    if not table.has("tokens_per_s"):
        remedy = "measure it with your engine's own benchmark at that many sequences, and write it"
        raise InputError("is missing", source=table.source, key=table.key("tokens_per_s"), remedy=remedy)
    return RolloutReplica(
        gpus=table.integer("gpus", most=4096),
        tokens_per_s=table.number("tokens_per_s", above=0, most=1e12),
        sequences=table.integer("sequences", most=1 << 20),
        load_s=table.number("load_s", default=0.0, least=0, most=86_400),
    )


def _pushes(table: Table) -> WeightPushes:
    usual = WeightPushes()
    kinds = tuple(str(kind)[:60] for kind in table.items("kinds", default=list(usual.kinds), most=len(PUSHES)))
    for kind in kinds:
        if kind not in PUSHES:
            raise UnknownNameError("push", kind, PUSHES, source=table.source, key=table.key("kinds"))
    every = table.items("every", default=list(usual.every), most=MOST_EVERY)
    if any(isinstance(each, bool) or not isinstance(each, int) or not 1 <= each <= MOST_EVERY for each in every):
        table.refuse("every", "must be a list of numbers of steps", f"write whole numbers from 1 to {MOST_EVERY}")
    for name, given in (("kinds", kinds), ("every", every)):
        if not given:
            table.refuse(name, "is empty", "write at least one, or leave the key out", value=[])
    return WeightPushes(
        kinds=tuple(dict.fromkeys(kinds)),
        every=tuple(sorted({int(str(each)) for each in every})),
        bits=table.number("bits", default=usual.bits, least=1, most=64),
        delta_share=table.number("delta_share", default=usual.delta_share, above=0, most=1),
    )


def _trainers(table: Table, problem: Problem) -> tuple[str, ...]:
    names = [domain.name for domain in problem.cluster.domains]
    found = tuple(str(name) for name in table.items("trainers", default=(), most=len(names)))
    for name in found:
        if name not in names:
            raise UnknownNameError("domain", name[:60], names, source=table.source, key="trainers")
    return tuple(dict.fromkeys(found))


def _pools(table: Table, problem: Problem) -> Mapping[str, int]:
    if not table.has("pools"):
        return MappingProxyType({})
    names = [domain.name for domain in problem.cluster.domains]
    pools = table.table("pools", known=names)
    return MappingProxyType({name: pools.integer(name, least=0, most=MOST_REPLICAS) for name in pools.values})


def _check(table: Table, found: Rollouts, problem: Problem) -> None:
    """What file and question must agree on."""
    work, gpu = problem.workload, problem.cluster.gpu
    if found.generated_tokens > work.seq:
        remedy = f"write at most {work.seq}, or ask for a longer --seq"
        table.refuse("generated_tokens", f"exceeds the {work.seq} tokens of a sample (--seq)", remedy)
    least = min(found.pushes.every)
    if least > found.staleness + 1:
        told = f"cannot be kept where weights come every {least} steps: the next push would wait for samples of its own"
        table.refuse("staleness", told, f"write at least {least - 1}, or push more often", value=found.staleness)
    place = table.table("replica", known=_REPLICA)
    weights = problem.model.parameters * found.pushes.bits / 8
    if weights > found.replica.gpus * gpu.memory_bytes:
        room = found.replica.gpus * gpu.memory_bytes
        told = f"hold {room / 1e9:.0f} GB, {problem.model.name} takes {weights / 1e9:.0f} GB"
        place.refuse("gpus", told, "give a replica more GPUs, or write push: {bits: 8}")
    nodes = [domain.gpus_per_node for domain in problem.cluster.domains]
    if all(found.replica.gpus % per and per % found.replica.gpus for per in nodes):
        place.refuse("gpus", "does not divide into nodes", f"write a divisor or a multiple of {max(nodes)}")


def rollouts_from(given: str | Path | Mapping[str, Any] | Rollouts, problem: Problem) -> Rollouts:
    """Of a file, of a mapping of its form, or the value."""
    if isinstance(given, Rollouts):
        return given
    if isinstance(given, Mapping):
        return rollouts_from_document(dict(given), problem, source="rollouts")
    return load_rollouts(given, problem)
