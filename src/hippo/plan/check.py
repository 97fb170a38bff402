"""Whether a plan is one: layers, devices, batch, links, profile, the user's limits, what the runtime can express.

No performance model is asked: a plan that passes may still need more memory than there is (``score.judge.fits``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, pairwise
from types import MappingProxyType

import numpy as np

from hippo.plan.plan import WITH_ORDER, Pipeline, Plan, Stage
from hippo.problem.outer_step import flaws
from hippo.problem.problem import Problem
from hippo.problem.runtimes import cuts_are_uniform, not_overlapped, tp_refusal

# ----------------------------------------------------------------------------------------------------------- own order
# Whether the order that a plan writes out for a pipeline is one: every wave once, each kind after what it needs.


def order_flaws(plan: Plan, pipeline: Pipeline) -> Iterator[tuple[str, str]]:
    """Where in ``Pipeline.order`` something is wrong (``""`` or ``"[stage]"``), and a sentence.

    Whether stages wait for each other in a circle is told when the order is made a schedule.
    """
    given, waves, name = pipeline.order, pipeline.num_micro_batches, plan.schedule.name
    if bool(given) != (name == WITH_ORDER):
        yield "", "is missing" if not given else f"the schedule '{name}' has an order of its own"
        return
    if given and (len(given) != len(pipeline.stages) or plan.interleave > 1):
        yield "", f"{len(given)} texts for {len(pipeline.stages)} stages with one chunk each"
        return
    kinds = "FBW" if any("W" in each for each in given) else "FB"
    for stage, letters in enumerate(given):
        if any(letters.count(kind) != waves for kind in kinds):
            yield f"[{stage}]", f"{', '.join(f'{letters.count(kind)} {kind}' for kind in kinds)} for {waves} waves"
        elif not _in_turn(letters, kinds):
            yield f"[{stage}]", "a B before its F, or a W before its B"


def _in_turn(letters: str, kinds: str) -> bool:
    """Whether no B comes before its F, and no W before its B; there are as many of each of ``kinds``."""
    given = np.frombuffer(letters.encode(), dtype=np.uint8)
    places = [np.flatnonzero(given == ord(kind)) for kind in kinds]
    return all(bool((one < two).all()) for one, two in pairwise(places))


MOST = 100
"""Violations that are reported at most; the first ones say it all."""


@dataclass(frozen=True)
class Violation:
    """One broken rule: its name, the place in the plan file, and a sentence."""

    rule: str
    where: str
    message: str

    @property
    def remedy(self) -> str:
        """What to do about it, an imperative sentence without a full stop."""
        return REMEDIES[self.rule]

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


Rule = Callable[[Problem, Plan], Iterator[Violation]]


def check(problem: Problem, plan: Plan) -> tuple[Violation, ...]:
    """Every rule that the plan breaks (at most ``MOST``); empty: it is a plan for the problem.

    Rules about batch, links and runtime are asked only of a plan whose layers and devices are right.
    """
    for rules in (_SHAPE, _REST):
        found = tuple(islice((violation for rule in rules for violation in rule(problem, plan)), MOST))
        if found:
            return found
    return ()


def _stages(plan: Plan) -> Iterator[tuple[str, Pipeline, Stage]]:
    for p, pipeline in enumerate(plan.pipelines):
        for s, stage in enumerate(pipeline.stages):
            yield f"pipelines[{p}].stages[{s}]", pipeline, stage


# --------------------------------------------------------------------------------------------------- layers and devices
def _degrees(problem: Problem, plan: Plan) -> Iterator[Violation]:
    """All degrees and counts are positive, and there is something to run."""
    if not plan.pipelines or not all(pipeline.stages for pipeline in plan.pipelines):
        yield Violation("empty", "pipelines", "a plan needs a pipeline, and every pipeline a stage")
    for name in ("micro_batch", "context_parallel", "expert_parallel", "expert_tensor_parallel", "interleave"):
        if (value := getattr(plan, name)) is not None and value < 1:
            yield Violation("degree", name, f"{getattr(plan, name)} is not positive")
    for p, pipeline in enumerate(plan.pipelines):
        if pipeline.num_micro_batches < 1:
            yield Violation(
                "degree", f"pipelines[{p}].num_micro_batches", f"{pipeline.num_micro_batches} is not positive"
            )
    for where, _, stage in _stages(plan):
        if min(stage.tp, stage.dp) < 1:
            yield Violation("degree", where, f"tp {stage.tp} and dp {stage.dp} must be positive")


def _layers(problem: Problem, plan: Plan) -> Iterator[Violation]:
    """Every pipeline holds each layer once, in order."""
    total = problem.model.num_layers
    for p, pipeline in enumerate(plan.pipelines):
        expected = 0
        for s, stage in enumerate(pipeline.stages):
            where, (start, stop) = f"pipelines[{p}].stages[{s}].layers", stage.layers
            if start != expected:
                fault = f"layer {expected} is on no stage" if start > expected else f"layer {start} is on two stages"
                yield Violation("layers", where, f"starts at {start}, not {expected}: {fault}")
            if stop <= start:
                yield Violation("layers", where, f"[{start}, {stop}) holds no layer")
            elif stage.num_layers < plan.interleave:
                short = f"{stage.num_layers} layers cannot be split into {plan.interleave} chunks"
                yield Violation("interleave", where, short)
            expected = stop
        if expected != total:
            where = f"pipelines[{p}].stages[{len(pipeline.stages) - 1}].layers"
            yield Violation("layers", where, f"ends at {expected}; the model has {total} layers")


def _devices(problem: Problem, plan: Plan) -> Iterator[Violation]:
    """Devices exist, lie in the stage's domain, are used once, and are as many as the degrees say."""
    cluster, used = problem.cluster, dict[str, str]()
    for where, _, stage in _stages(plan):
        if stage.domain not in cluster.domain_index:
            names = ", ".join(list(cluster.domain_index)[:10])
            yield Violation("domain", f"{where}.domain", f"unknown domain '{stage.domain}' (the cluster has {names})")
            continue
        wanted = stage.tp * plan.context_parallel * stage.dp
        if len(stage.devices) != wanted:
            product = f"tp {stage.tp} x cp {plan.context_parallel} x dp {stage.dp} = {wanted}"
            yield Violation("devices", f"{where}.devices", f"{len(stage.devices)} devices, but {product}")
        domain, mine = cluster.domain(stage.domain), dict.fromkeys(stage.devices, where)
        sound = _are_devices(stage.devices, domain.name, domain.nodes, domain.gpus_per_node)
        for device in () if sound and used.keys().isdisjoint(mine) else stage.devices:
            if not _is_device(device, domain.name, domain.nodes, domain.gpus_per_node):
                size = f"{domain.nodes} nodes of {domain.gpus_per_node} GPUs"
                message = f"'{device}' is no device of domain '{domain.name}' ({size})"
                yield Violation("devices", f"{where}.devices", message)
            elif device in used:
                yield Violation("devices", f"{where}.devices", f"'{device}' is also used by {used[device]}")
            used[device] = where
        used |= mine


@lru_cache(maxsize=4096)
def _are_devices(devices: tuple[str, ...], domain: str, nodes: int, gpus_per_node: int) -> bool:
    """Whether each is a device of the domain, and another one."""
    return len(set(devices)) == len(devices) and all(_is_device(each, domain, nodes, gpus_per_node) for each in devices)


def _is_device(device: str, domain: str, nodes: int, gpus_per_node: int) -> bool:
    name, _, rest = device.partition("/")
    node, _, gpu = rest.partition("/")
    return name == domain and _is_index(node, nodes) and _is_index(gpu, gpus_per_node)


def _is_index(text: str, count: int) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10 and str(int(text)) == text and int(text) < count


# -------------------------------------------------------------------------------------------------- degrees and batches
def _batch(problem: Problem, plan: Plan) -> Iterator[Violation]:
    """The waves add up to the global batch, split over the lanes of every stage, and bound the warm-up."""
    wanted = problem.workload.global_batch
    if plan.global_batch != wanted:
        shares = " + ".join(
            f"{p.num_micro_batches} x {plan.micro_batch} x {p.stages[0].dp}" for p in plan.pipelines[:4]
        )
        more = " + ..." if len(plan.pipelines) > 4 else ""
        message = f"num_micro_batches x micro_batch x dp: {shares}{more} = {plan.global_batch}, not {wanted}"
        yield Violation("batch", "pipelines", f"{message}, the global batch")
    for p, pipeline in enumerate(plan.pipelines):
        given, where = pipeline.warm_up, f"pipelines[{p}].warm_up"
        if given and len(given) != len(pipeline.stages):
            yield Violation("warm-up", where, f"{len(given)} numbers for {len(pipeline.stages)} stages")
        elif any(a < b for a, b in zip(given[:-1], given[1:], strict=True)) or pipeline.num_micro_batches < max(
            given, default=0
        ):
            yield Violation("warm-up", where, "must not rise from stage to stage, nor exceed num_micro_batches")
        if given and plan.schedule.name != "cross-domain":
            yield Violation("warm-up", where, f"the schedule '{plan.schedule.name}' takes no warm-up of its own")
        for at, message in order_flaws(plan, pipeline):
            yield Violation("order", f"pipelines[{p}].order{at}", message)
    for where, pipeline, stage in _stages(plan):
        wave = plan.micro_batch * pipeline.stages[0].dp
        if wave % stage.dp:
            yield Violation("wave", f"{where}.dp", f"dp {stage.dp} does not divide a wave of {wave} sequences")


def _splits(problem: Problem, plan: Plan) -> Iterator[Violation]:
    """Tensor, context and expert parallelism divide what they split."""
    rules = problem.rules
    refusals = {tp: tp_refusal(problem.model, tp, rules) for tp in {stage.tp for _, _, stage in _stages(plan)}}
    for where, _, stage in _stages(plan):
        if refusals[stage.tp]:
            yield Violation("tensor parallel", f"{where}.tp", str(refusals[stage.tp]))
    cp, seq = plan.context_parallel, problem.workload.seq
    if cp > 1 and seq % (2 * cp):
        message = f"{cp} does not split the sequence of {seq} tokens: each rank takes two pieces, early and late"
        yield Violation("context parallel", "context_parallel", message)
    if cp > 1 and problem.model.has_linear_attention:
        message = f"{cp}, but how linear attention hands its state on between ranks is not modelled"
        yield Violation("context parallel", "context_parallel", message)
    widest = max(stage.tp for _, _, stage in _stages(plan))
    if plan.sequence_parallel and widest > 1 and seq % (cp * widest):
        message = f"tp {widest} x cp {cp} does not divide the sequence of {seq} tokens"
        yield Violation("sequence parallel", "sequence_parallel", message)
    yield from _expert_split(problem, plan)


def _expert_split(problem: Problem, plan: Plan) -> Iterator[Violation]:
    ep = plan.expert_parallel
    if ep == 1 and plan.expert_tensor_parallel is None:
        return
    where, rule = "expert_parallel", "expert parallel"
    feeds = (layer.feed_forward for layer in dict.fromkeys(problem.model.layers))
    counts = sorted({feed.experts.count for feed in feeds if feed is not None and feed.experts is not None})
    if not counts:
        key, degree = (where, ep) if ep > 1 else ("expert_tensor_parallel", plan.expert_tensor_parallel)
        yield Violation(rule, key, f"{degree}, but {problem.model.name} has no experts")
    for count in counts:
        if count % ep:
            yield Violation(rule, where, f"{ep} does not divide the {count} experts")
    for stage_where, _, stage in _stages(plan):
        lanes, etp = plan.context_parallel * stage.dp, plan.expert_tensor_parallel
        if etp is None and lanes % ep:  # each expert is cut by tp, as everything is
            yield Violation(rule, stage_where, f"expert_parallel {ep} does not divide the stage's {lanes} lanes")
        elif etp is not None and (stage.tp % etp or (etp < stage.tp and not plan.sequence_parallel)):
            message = f"expert_tensor_parallel {etp} of tp {stage.tp}: whole parts of it, with sequence_parallel"
            yield Violation(rule, stage_where, message)
        elif etp is not None and stage.tp * lanes % (etp * ep):
            message = f"expert_parallel {ep} x expert_tensor_parallel {etp} does not divide the stage's "
            yield Violation(rule, stage_where, f"{message}{stage.tp * lanes} ranks")


def _choices(problem: Problem, plan: Plan) -> Iterator[Violation]:
    """Precision, schedule, and what the user allowed."""
    if plan.overlap_exchange:
        stages = max(len(pipeline.stages) for pipeline in plan.pipelines)
        told = not_overlapped(plan.recompute, plan.precision, chunks=plan.interleave, stages=stages)
        told = "expert_parallel 1, nothing to exchange" if plan.expert_parallel == 1 else told
        if told is not None:
            yield Violation("overlap", "overlap_exchange", f"no exchange can run beside other work with {told}")
    rates = problem.cluster.gpu.peak_flops
    if plan.precision not in rates:
        message = f"{problem.cluster.gpu.name} has no rate for {plan.precision}, only for {', '.join(rates)}"
        yield Violation("precision", "precision", message)
    if plan.interleave > 1 and plan.schedule.name != "interleaved":
        message = f"schedule '{plan.schedule.name}' has one chunk per rank, interleave is {plan.interleave}"
        yield Violation("interleave", "interleave", message)
    if plan.sync.method == "local_sgd" and not problem.allow_local_sgd:
        message = "local SGD changes the optimizer and was not allowed (--allow-local-sgd)"
        yield Violation("local SGD", "sync.method", message)
    if not problem.allow_compression and any(pair.kind != "none" for pair in plan.compression):
        message = "compression changes what is trained and was not allowed (--allow-compression)"
        yield Violation("not allowed", "compression", message)
    if len(plan.pipelines) > 1 and problem.all_reduce not in ("auto", plan.sync.all_reduce):
        message = f"sums go {plan.sync.all_reduce}, not {problem.all_reduce} (--all-reduce)"
        yield Violation("all-reduce", "sync.all_reduce", message)
    if plan.sync.method == "allreduce" and plan.sync.every != 1:
        message = f"replicas that sum gradients agree every step, not every {plan.sync.every}"
        yield Violation("sync", "sync.every", message)
    streamed = plan.sync.fragments, plan.sync.delay, plan.sync.bits
    if plan.sync.method == "allreduce" and any(streamed[1:] + (streamed[0] > 1,)):
        yield Violation("sync", "sync", "fragments, delay and bits belong to the method local_sgd")
    elif plan.sync.method == "local_sgd":
        for message, _ in flaws(plan.sync.every, *streamed):
            yield Violation("outer step", "sync", message)
        if plan.sync.fragments > problem.model.num_layers:
            message = f"{plan.sync.fragments} fragments of {problem.model.num_layers} layers"
            yield Violation("outer step", "sync.fragments", message)
    if problem.uniform_cuts:
        for p, pipeline in enumerate(plan.pipelines):
            cuts = [stage.layers for stage in pipeline.stages]
            if not cuts_are_uniform(cuts, problem.model.num_layers):
                message = "stages hold different numbers of blocks (--uniform-cuts)"
                yield Violation("uniform cuts", f"pipelines[{p}].stages", message)


def _profile(problem: Problem, plan: Plan) -> Iterator[Violation]:
    """With a profile, only what was measured may be used."""
    if problem.profile is None:
        return
    if plan.precision != problem.profile.precision:
        message = f"the profile measures {problem.profile.precision}, not {plan.precision}"
        yield Violation("profile", "precision", message)
    measured = {(r.tp, r.micro_batch, r.recompute) for r in problem.profile.rows if r.gpu == problem.cluster.gpu.name}
    for where, pipeline, stage in _stages(plan):
        size = plan.micro_batch * pipeline.stages[0].dp // stage.dp
        if (stage.tp, size, plan.recompute) not in measured:
            message = f"the profile has no rows for tp {stage.tp}, micro_batch {size}, recompute {plan.recompute}"
            yield Violation("profile", where, message)
    for name, usual in (("context_parallel", 1), ("expert_parallel", 1), ("expert_tensor_parallel", None)):
        if getattr(plan, name) != usual:
            yield Violation("profile", name, "the profile measures neither context nor expert parallelism")


# ---------------------------------------------------------------------------------------------------------------- links
def _relays(problem: Problem, plan: Plan) -> Iterator[Violation]:
    """Relays go over two links that exist; compression names pairs of domains."""
    cluster, seen = problem.cluster, set[tuple[str, str]]()
    for r, relay in enumerate(plan.relays):
        where = f"relays[{r}]"
        if len({relay.source, relay.destination, relay.via}) < 3:
            yield Violation("relay", where, "from, to and via must be three domains")
        for hop in ((relay.source, relay.via), (relay.via, relay.destination)):
            if cluster.link(*hop) is None:
                yield Violation("relay", where, f"there is no link from '{hop[0]}' to '{hop[1]}'")
        if (relay.source, relay.destination) in seen:
            yield Violation("relay", where, f"a second relay from '{relay.source}' to '{relay.destination}'")
        seen.add((relay.source, relay.destination))
    for c, pair in enumerate(plan.compression):
        for name in (pair.source, pair.destination):
            if name not in cluster.domain_index:
                yield Violation("compression", f"compression[{c}]", f"unknown domain '{name}'")


def _links(problem: Problem, plan: Plan) -> Iterator[Violation]:
    """Neighbouring stages and agreeing replicas are joined, directly or by a relay, and fast enough."""
    own = problem.cluster.link_index.keys()
    relayed = {(each.source, each.destination): each.via for each in plan.relays}
    for p, pipeline in enumerate(plan.pipelines):
        way = [stage.domain for stage in pipeline.stages]
        way += way[:1] if plan.interleave > 1 else []
        for one, other in pairwise(way):
            for pair in ((one, other), (other, one)) if one != other else ():
                yield from _hop(problem, relayed, pair, where=f"pipelines[{p}].stages")
    for domains in _agreeing(problem, plan):
        if not _has_ring([[(a, b) in own or (a, b) in relayed for b in domains] for a in domains]):
            message = f"{', '.join(domains)} share weights but cannot agree: no ring of links or relays joins them"
            yield Violation("sync links", "pipelines", message)


Pair = tuple[str, str]


def _hop(problem: Problem, relayed: Mapping[Pair, str], pair: Pair, *, where: str) -> Iterator[Violation]:
    """The pair is joined by its own link or the two of its relay, no slower than the objective's floor."""
    via = relayed.get(pair)
    if via is None and pair not in problem.cluster.link_index:
        message = f"the stages send from '{pair[0]}' to '{pair[1]}', but neither a link nor a relay joins them"
        yield Violation("links", where, message)
        return
    floor = problem.objective.bandwidth_floor_bytes_per_s
    if floor is None:
        return
    for source, destination in (pair,) if via is None else ((pair[0], via), (via, pair[1])):
        link = problem.cluster.link(source, destination)
        if link is not None and link.rate_bytes_per_s(problem.cluster.domain(source).nodes) < floor:
            message = f"the link from '{source}' to '{destination}' is slower than the bandwidth floor"
            yield Violation("bandwidth floor", where, message)


def _agreeing(problem: Problem, plan: Plan) -> Sequence[tuple[str, ...]]:
    """Sets of two and more domains that hold the same weights, each set once: replicas of a layer, a tied matrix."""
    sets: list[set[str]] = []
    if problem.model.tied:  # first and last stages sum the gradients of one matrix, of each pipeline or all at once
        ends = [{pipeline.stages[0].domain, pipeline.stages[-1].domain} for pipeline in plan.pipelines]
        apart = problem.rules.copies_tied or plan.sync.method == "local_sgd"
        sets += ends if apart or all(len(pipeline.stages) == 1 for pipeline in plan.pipelines) else [set().union(*ends)]
    if len(plan.pipelines) > 1 and plan.sharding == "full" and plan.sync.method == "allreduce":
        sets.append(set(plan.domains))  # everyone gathers from everyone
    elif len(plan.pipelines) > 1:
        homes = [[each.domain for each in line.stages for _ in range(each.num_layers)] for line in plan.pipelines]
        sets += map(set, dict.fromkeys(zip(*homes, strict=True)))
    return tuple(dict.fromkeys(tuple(sorted(domains)) for domains in sets if len(domains) > 1))


def _has_ring(joined: Sequence[Sequence[bool]]) -> bool:
    """Whether a directed ring visits all of n domains, of which the first of a pair reaches the second where
    ``joined`` (subsets by bits; beyond 12 domains only a way in and out of each)."""
    n = len(joined)
    if n > 12 or sum(map(sum, joined)) >= n * (n - 1):
        return all(any(row) for row in joined) and all(any(column) for column in zip(*joined, strict=True))
    ends = {(1, 0)}  # (visited, last): paths from the first domain
    for _ in range(n - 1):
        ends = {(visited | 1 << b, b) for visited, a in ends for b in range(n) if joined[a][b] and not visited & 1 << b}
    return any(joined[last][0] for _, last in ends)


# -------------------------------------------------------------------------------------------------------------- runtime
def _runtime(problem: Problem, plan: Plan) -> Iterator[Violation]:
    """What the runtime can express."""
    rules = problem.rules
    name = rules.name
    deep = any(len(pipeline.stages) > 1 for pipeline in plan.pipelines)
    shardings = rules.shardings_with_pipeline if deep else rules.shardings
    cannot = {
        "schedule.name": rules.schedules is not None and plan.schedule.name not in rules.schedules,
        "schedule.live_limit": not rules.live_limit and plan.schedule.live_limit is not None,
        "interleave": not rules.interleave and plan.interleave > 1,
        "sharding": plan.sharding not in shardings,
        "recompute": not rules.recomputes(plan.recompute),
        "context_parallel": not rules.context_parallel and plan.context_parallel > 1,
        "expert_parallel": not rules.expert_parallel and plan.expert_parallel > 1,
        "expert_tensor_parallel": not rules.whole_experts and plan.expert_tensor_parallel is not None,
        "overlap_exchange": not rules.overlaps_exchange and plan.overlap_exchange,
        "sync.method": not rules.local_sgd and plan.sync.method == "local_sgd",
    }
    for key, broken in cannot.items():
        if broken:
            head, _, tail = key.partition(".")
            value = getattr(getattr(plan, head), tail) if tail else getattr(plan, head)
            beside = " beside a pipeline" if key == "sharding" and deep and value in rules.shardings else ""
            named = {
                "schedule.live_limit": f"live limit {value!r}",
                "overlap_exchange": "an exchange of experts beside another micro-batch",
            }
            what = named.get(key, f"{head.replace('_', ' ')} {value!r}")
            able = {"schedule.name": rules.schedules or (), "sharding": shardings, "recompute": rules.recompute}
            can = f", only {' or '.join(sorted(able[key]))}" if key in able else ""
            yield Violation("runtime", key, f"{name} cannot express {what}{beside}{can}")
    if any(pipeline.warm_up for pipeline in plan.pipelines) and not rules.live_limit:
        yield Violation("runtime", "pipelines.warm_up", f"{name} runs no further ahead than 1F1B does")
    if plan.relays and not rules.relays:
        yield Violation("runtime", "relays", f"{name} sends nothing through a third domain")
    several = len(plan.domains) > 1 and len(plan.pipelines) > 1
    if several and plan.sync.all_reduce not in rules.all_reduces(plan.sharding):
        message = f"{name} sums on two levels with sharding {' or '.join(rules.two_level)} alone, not {plan.sharding}"
        if not rules.two_level:
            message = f"{name} sums over one flat ring, not on two levels"
        elif plan.sync.all_reduce == "ring":
            message = f"{name} sums on two levels with sharding {plan.sharding}, not over one ring"
        yield Violation("runtime", "sync.all_reduce", message)
    if plan.compression and not rules.compression:
        yield Violation("runtime", "compression", f"{name} cannot compress activations")
    yield from _runtime_shapes(problem, plan)


def _runtime_shapes(problem: Problem, plan: Plan) -> Iterator[Violation]:
    """What the runtime wants to be the same in all stages and pipelines."""
    rules = problem.rules
    first, name = plan.pipelines[0], rules.name
    if rules.uniform_tp_dp:
        widths = sorted({(stage.tp, stage.dp) for _, _, stage in _stages(plan)})
        if len(widths) > 1:
            shown = ", ".join(f"tp {tp} dp {dp}" for tp, dp in widths[:4])
            yield Violation("runtime", "pipelines", f"{name} has one tp and dp for all stages, not {shown}")
        depths = sorted({len(pipeline.stages) for pipeline in plan.pipelines})
        if len(depths) > 1:
            yield Violation(
                "runtime", "pipelines", f"{name} has one number of stages, not {depths[0]} and {depths[-1]}"
            )
    for p, pipeline in enumerate(plan.pipelines):
        cuts = [stage.layers for stage in pipeline.stages]
        if rules.uniform_cuts_across_replicas and cuts != [stage.layers for stage in first.stages]:
            yield Violation("runtime", f"pipelines[{p}].stages", f"{name} cuts every replica at the same layers")
        if rules.equal_shares and pipeline.num_micro_batches != first.num_micro_batches:
            where = f"pipelines[{p}].num_micro_batches"
            yield Violation("runtime", where, f"{name} deals every replica equally many micro-batches")
        if rules.interleave_in_rounds and plan.interleave > 1:
            if len(pipeline.stages) == 1:
                yield Violation("runtime", "interleave", f"{name} interleaves chunks of several stages, not of one")
            if pipeline.num_micro_batches % len(pipeline.stages):
                where = f"pipelines[{p}].num_micro_batches"
                message = (
                    f"{name} interleaves in rounds: the micro-batches must be a multiple of {len(pipeline.stages)}"
                )
                yield Violation("runtime", where, message)


_SHAPE: tuple[Rule, ...] = (_degrees, _layers, _devices)
_REST: tuple[Rule, ...] = (_batch, _splits, _choices, _profile, _relays, _links, _runtime)


# ------------------------------------------------------------------------------------------------------------ remedies
# What to do about a broken rule of ``plan/check.py``, by the rule's name.

REMEDIES: Mapping[str, str] = MappingProxyType(
    {
        "empty": "describe at least one pipeline, and a stage in each",
        "degree": "write a whole number of at least 1",
        "layers": "let the stages of a pipeline follow on from one another and hold every layer once",
        "interleave": "use the schedule 'interleaved' and no more chunks than a stage has layers, or interleave 1",
        "domain": "use a domain of the cluster",
        "devices": "list tp x cp x dp devices of the stage's domain, each used once in the plan",
        "batch": "change num_micro_batches, micro_batch or dp, or ask for that global batch",
        "wave": "give the stage a dp that divides the wave",
        "order": "with schedule best write one text of letters F, B and W per stage; with any other leave it out",
        "warm-up": "with schedule cross-domain write one number per stage, never rising, at most num_micro_batches",
        "tensor parallel": "use a tp that divides heads and widths",
        "context parallel": "use a degree that divides the sequence twice, or 1",
        "sequence parallel": "use degrees that divide the sequence, or switch sequence_parallel off",
        "expert parallel": "use a degree that divides the experts and dp x cp of every stage (with "
        "expert_tensor_parallel tp x dp x cp over it), or 1",
        "overlap": "leave overlap_exchange out, or use one stage or several chunks, expert_parallel above 1, 16-bit or "
        "fp8 numbers, and recompute no whole mixtures",
        "precision": "use a precision that the GPU has",
        "local SGD": "allow it, or write sync: {method: allreduce}",
        "not allowed": "allow it, or write compression: []",
        "all-reduce": "write what was asked for, or ask for --all-reduce auto",
        "sync": "write every: 1, or the method local_sgd",
        "outer step": "let fragments divide every, delay stay below every / fragments, and bits be 4, 8, 16 or 32",
        "uniform cuts": "cut into stages of equally many blocks, or do not ask for uniform cuts",
        "profile": "use what the profile measures, or measure more",
        "relay": "relay between two domains through a third that has links from the one and to the other",
        "compression": "name two domains of the cluster",
        "links": "add the link to the cluster, relay the pair, or put the stages elsewhere",
        "bandwidth floor": "cut across faster links, or lower the floor",
        "sync links": "add links or relays until a ring joins these domains, or put the stages elsewhere",
        "runtime": "keep to what the runtime can express, or plan for another --runtime",
    }
)
"""Remedies as imperative sentences without a full stop."""
