"""What a search takes and proves: CPU seconds and gaps of whole plans, of `exact` alone, and of large clusters.

    hippo bench planning                     regions: `exact` alone, 2 to 16 domains and up to 2048 GPUs in one
    python benchmarks/planning.py drawn      whole `hippo plan --no-why` on twenty drawn clusters of 2 to 9 domains
    python benchmarks/planning.py large      2048 GPUs in one domain, 16 and 64 domains of 64, DeepSeek-V3 on 2048
    python benchmarks/planning.py listed     the answer beside Megatron's layouts: 405B with 131,072 tokens, DeepSeek-V3
    python benchmarks/planning.py legal      3,000 legal plans of drawn problems, and how many lie below a bound
    python benchmarks/planning.py PART 5 8   cases 5 to 7 of a part: one that was stopped goes on where it was

Regions: two nodes of eight A100-SXM-80GB in the first K of the catalogue's twelve cloud regions, with their
measured links (a cap per sending node, half the round trip). Sixteen and sixty-four domains of 64 GPUs: every pair has
the links of two of these regions, drawn with a fixed seed. Batches of 2048 sequences (Sailor's evaluation of GPT-Neo
2.7B) or 1024. Drawn clusters: half of such regions with 16 to 128 GPUs each, half of domains of 32 to 128 GPUs, alike
or not, links of 1 to 100 Gbit/s and 2 to 60 ms; each has a seed of its own.
Listed: every tensor, context and pipeline degree, data width, recomputation, micro-batch and sharding, with even cuts
and 1F1B, over one, two or three domains in any order, filled one after the other, or a replica in each, all judged as
answers are. Legal: layouts drawn like that on drawn problems, dense and mixtures, with chunks and cuts of their own.
CPU seconds of the process beyond start-up: compiled kernels are loaded beforehand by another problem, every run gets a
new one; the least of three runs (regions), else of one. Sailor's figures: its planner, measured on its own inputs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, groupby, permutations, product
from random import Random
from time import process_time

from hippo.decide.what_if import scaled_link
from hippo.errors import InfeasibleError, InputError
from hippo.front_door.planning import plan
from hippo.plan.plan import Plan
from hippo.planners.answers import answer_of, context_degrees, expert_degrees, with_degrees
from hippo.planners.base import Proposal, Stop
from hippo.planners.by_hand import site
from hippo.planners.cuts import even_cuts
from hippo.planners.exact.candidates import Candidate
from hippo.planners.exact.search import Exact
from hippo.planners.orders import ordered
from hippo.planners.placement import PipelineSketch, StageSketch
from hippo.planners.recipe import recomputations
from hippo.problem.catalogue.clusters import cluster
from hippo.problem.catalogue.models import model
from hippo.problem.cluster import Cluster, Domain, Link
from hippo.problem.gpus import gpu
from hippo.problem.problem import Problem
from hippo.problem.runtimes import RECOMPUTE
from hippo.problem.workload import Workload
from hippo.score.judge import Judged, flaw, judge
from hippo.simulate.costs import cost_model
from hippo.units import bytes_per_s_from_gbps

SEED, DRAWN = 0, 20
SAILOR_S = {2: 0.05, 4: 0.54, 6: 2.5, 8: 15.4, 9: 53.0}  # CPU seconds of Sailor's planner at K domains
MODELS = ("llama-3-8b", 4096), ("llama-3-70b", 4096), ("gpt3-175b", 2048)


@dataclass(frozen=True)
class Case:
    """A problem, what is asked of the planner, and what the best planner elsewhere needs."""

    name: str
    problem: Callable[[], Problem]
    asked_s: float
    asked_gap: float | None
    elsewhere_s: float | None = None


def regions(count: int) -> Cluster:
    """The first ``count`` of the twelve cloud regions with 16 GPUs each."""
    whole = cluster("twelve-cloud-regions")
    return among(whole, [domain.name for domain in whole.domains[:count]], nodes=2)


def among(whole: Cluster, names: list[str], *, nodes: int) -> Cluster:
    """Some regions, with so many nodes each."""
    domains = tuple(replace(domain, nodes=nodes) for domain in whole.domains if domain.name in names)
    links = tuple(link for link in whole.links if {link.source, link.destination} <= set(names))
    return replace(whole, name=f"{len(names)} regions x {8 * nodes}", domains=domains, links=links)


def linked(count: int) -> Cluster:
    """``count`` domains of 64 GPUs; each pair has the links of a pair of the twelve regions drawn at random."""
    whole, random = cluster("twelve-cloud-regions"), Random(SEED)
    domains = tuple(replace(whole.domains[0], name=f"domain-{index}") for index in range(count))
    links: list[Link] = []
    for a, b in combinations(domains, 2):
        one, other = random.sample(whole.domains, 2)
        for source, destination, like in ((a, b, (one, other)), (b, a, (other, one))):
            measured = whole.link(like[0].name, like[1].name)
            assert measured is not None, "the regions are a full mesh"
            links.append(replace(measured, source=source.name, destination=destination.name))
    return Cluster(f"{count} domains", whole.gpu, domains, tuple(links))


def unlike(random: Random, count: int) -> Cluster:
    """``count`` domains of 32, 64 or 128 GPUs, alike or not, with links of 1 to 100 Gbit/s and 2 to 60 ms."""
    kind = gpu(random.choice(("A100-SXM-80GB", "H100-SXM-80GB")))
    like, alike, fabric = random.choice((4, 8, 16)), random.random() < 0.5, 4e11 if "H100" in kind.name else 2e11
    sizes = [like if alike else random.choice((4, 8, 16)) for _ in range(count)]
    domains = tuple(
        Domain(f"d{index}", size, 8, kind.nvlink_bytes_per_s, fabric, 5e-6) for index, size in enumerate(sizes)
    )
    links: list[Link] = []
    for one, two in combinations(domains, 2):
        rate, late = bytes_per_s_from_gbps(10 ** random.uniform(0, 2)), random.uniform(2e-3, 60e-3)
        links += [Link(one.name, two.name, rate, late, 0.02), Link(two.name, one.name, rate, late, 0.02)]
    return Cluster(f"{'|'.join(str(8 * size) for size in sizes)} {kind.name}", kind, domains, tuple(links))


def draw(number: int) -> Problem:
    """Drawn problem by its number: 2 to 9 domains, one of three models, 256 to 1024 sequences."""
    random, count, whole = Random(SEED + number), 2 + number % 8, cluster("twelve-cloud-regions")
    if random.random() < 0.5:
        names = [domain.name for domain in random.sample(whole.domains, count)]
        where = among(whole, names, nodes=random.choice((2, 4, 8, 16)))
    else:
        where = unlike(random, count)
    name, seq = random.choice(MODELS)
    return problem(name, where, batch=random.choice((256, 512, 1024)), seq=seq)


def problem(model_name: str, where: Cluster, *, batch: int, seq: int, runtime: str = "hippo") -> Problem:
    """A new problem: nothing that was worked out for an earlier one is known about it."""
    return Problem(model(model_name), where, Workload(global_batch=batch, seq=seq), runtime=runtime)


def of_regions() -> Iterator[Case]:
    """The rows of the first table."""
    for name in ("gpt3-2.7b", "gpt3-175b"):
        for count, elsewhere_s in SAILOR_S.items():
            asked = _asker(name, regions(count), 2048, 2048)
            yield Case(f"{name}, {count} domains x 16 GPUs", asked, 0.5, 0.01, elsewhere_s)
    yield Case("llama-3-70b, 16 domains x 64 GPUs", _asker("llama-3-70b", linked(16), 1024, 4096), 5.0, None)
    for name, seq, elsewhere in (("gpt3-2.7b", 2048, 0.48), ("llama-3-70b", 4096, None)):
        one = site("A100-SXM-80GB", 2048)
        yield Case(f"{name}, one domain of 2048 GPUs", _asker(name, one, 2048, seq), 0.5, None, elsewhere)


def of_drawn() -> Iterator[Case]:
    """The drawn clusters."""
    for number in range(DRAWN):
        asked = draw(number)
        name = f"{number}: {asked.model.name}, {asked.cluster.name}, {asked.workload.global_batch}"
        yield Case(name, partial(draw, number), 1.5, 0.10)


def of_large() -> Iterator[Case]:
    """Large clusters, and DeepSeek-V3 with all degrees."""
    for name, seq in (("gpt3-2.7b", 2048), ("llama-3-70b", 4096), ("gpt3-175b", 2048)):
        one = site("A100-SXM-80GB", 2048)
        yield Case(f"{name}, one domain of 2048 GPUs", _asker(name, one, 2048, seq), 1.0, 0.01)
    yield Case("llama-3-70b, 16 domains x 64 GPUs", _asker("llama-3-70b", linked(16), 1024, 4096), 5.0, 0.08)
    yield Case("llama-3.1-405b, 64 domains x 64 GPUs", _asker("llama-3.1-405b", linked(64), 1024, 8192), 10.0, 0.20)
    four = Cluster("4 x 512", gpu("H100-SXM-80GB"), *_hubs(64, 4))
    yield Case("deepseek-v3, 4 domains x 512 GPUs", _asker("deepseek-v3", four, 4096, 4096, "megatron"), 10.0, None)


def _hubs(nodes: int, count: int) -> tuple[tuple[Domain, ...], tuple[Link, ...]]:
    """Domains of H100 with 400 Gbit/s a GPU, and links as between ``four-hubs``."""
    whole, kind = cluster("four-hubs"), gpu("H100-SXM-80GB")
    names = [domain.name for domain in whole.domains[:count]]
    domains = tuple(Domain(name, nodes, 8, kind.nvlink_bytes_per_s, 4e11, 5e-6) for name in names)
    return domains, tuple(link for link in whole.links if {link.source, link.destination} <= set(names))


def three_sites(times: float) -> Cluster:
    """320 H100 in three domains of 128, 128 and 64, linked as three of ``four-hubs``, so many times as quick."""
    (one, two, three), links = _hubs(16, 3)
    domains = one, two, replace(three, nodes=8)
    return Cluster(
        "128|128|64", gpu("H100-SXM-80GB"), domains, tuple(scaled_link(each, bandwidth=times) for each in links)
    )


def megatron_layouts(asked: Problem, micro_batches: tuple[int, ...] = (1, 2)) -> Iterator[Plan]:
    """Every layout that Megatron-LM's options say, with even cuts and 1F1B: see the module's docstring."""
    domains, layers, batch = asked.cluster.domains, asked.model.num_layers, asked.workload.global_batch
    names = [domain.name for domain in domains]
    orders = [order for n in range(1, len(domains) + 1) for order in permutations(range(len(domains)), n)]
    degrees = product((1, 2, 4, 8), context_degrees(asked), range(1, max(domain.gpus for domain in domains) + 1))
    for tp, cp, dp in degrees:
        room = [domain.gpus // (tp * cp * dp) for domain in domains]
        shapes: set[tuple[tuple[tuple[int, int], ...], ...]] = set()  # of each pipeline (domain, stages) in a row
        for order in orders:
            for pp in range(1, min(layers - 2, sum(room[at] for at in order)) + 1):
                before = [min(pp, sum(room[at] for at in order[:n])) for n in range(len(order) + 1)]
                dealt = tuple((at, b - a) for at, a, b in zip(order, before[:-1], before[1:], strict=True))
                if all(stages for _, stages in dealt):
                    shapes.add((dealt,))
                if len(order) > 1 and pp <= min(room[at] for at in order):
                    shapes.add(tuple(((at, pp),) for at in sorted(order)))
        for shape, micro_batch in product(sorted(shapes), micro_batches):
            waves, rest = divmod(batch, micro_batch * dp * len(shape))
            if rest or not waves:
                continue
            lines = []
            for row in shape:
                cuts = even_cuts(layers, sum(stages for _, stages in row))
                homes = [names[at] for at, stages in row for _ in range(stages)]
                spans = zip(homes, cuts[:-1], cuts[1:], strict=True)
                lines.append(PipelineSketch(tuple(StageSketch(at, (a, b), tp, dp) for at, a, b in spans), waves))
            made, several = with_degrees(asked, (cp, 1, None)), dp * cp * len(shape) > 1
            for recompute, sharding in product(RECOMPUTE, ("none", "optimizer") if several else ("none",)):
                try:
                    yield Candidate(tuple(lines), micro_batch, recompute, sharding).plan(made)
                except InfeasibleError:  # no room for the tensor-parallel groups
                    continue


def published_layouts(asked: Problem) -> Iterator[Plan]:
    """DeepSeek-V3 as it is published on 1,024 H100: ``Et|t|(tt|)*29,tL``, four chunks on each of 8 ranks, tp 2, ep 64;
    with every choice of what is computed again, which is not: of the two layers of a chunk, the first alone, too."""
    held = [8, 7, *[8] * 6]  # E and seven layers; seven; eight each; the last with the head
    cuts = [sum(held[:rank]) for rank in range(len(held) + 1)]
    name, lanes = asked.cluster.domains[0].name, asked.cluster.domains[0].gpus // (2 * len(held))
    stages = tuple(StageSketch(name, (a, b), 2, lanes) for a, b in zip(cuts, cuts[1:], strict=False))
    made, line = with_degrees(asked, (1, 64, 1)), PipelineSketch(stages, asked.workload.global_batch // lanes)
    for recompute in (*recomputations(cost_model(made)), "full:1"):
        yield Candidate((line,), 1, recompute, "optimizer", chunks=4).plan(made)


def best_listed(asked: Problem, layouts: Iterable[Plan]) -> tuple[Judged | None, int, int]:
    """The quickest of the layouts that fit; how many those are, and of how many."""
    best, fit, seen = None, 0, 0
    for layout in layouts:
        seen += 1
        if flaw(asked, layout) is None:
            fit += 1
            found = judge(asked, layout)
            best = found if best is None or found.step_time_s < best.step_time_s else best
    return best, fit, seen


def listed() -> None:
    """Answers beside what can be listed by hand."""
    long, quick = (
        problem("llama-3.1-405b", three_sites(times), batch=64, seq=131_072, runtime="megatron") for times in (1, 10)
    )
    deep = problem("deepseek-v3", site("H100-SXM-80GB", 1024), batch=8192, seq=4096, runtime="megatron")
    for name, asked, layouts in (
        ("deepseek-v3, 1,024 H100, its published layout", deep, published_layouts(deep)),
        ("llama-3.1-405b, 131,072 tokens, 320 H100, links x 10", quick, megatron_layouts(quick)),
        ("llama-3.1-405b, 131,072 tokens, 320 H100", long, megatron_layouts(long)),
    ):
        start = process_time()
        decision = plan(asked, why=False)
        answer, seconds = decision.judged, process_time() - start
        best, fit, seen = best_listed(asked, layouts)
        assert answer is not None, "something fits"
        assert best is not None, "some layout fits"
        share = 100 * (answer.step_time_s / best.step_time_s - 1)
        print(f"{name}: answer {answer.step_time_s:.2f} s by {decision.planner} in {seconds:.1f} s of CPU", flush=True)
        print(f"  best of {fit} layouts that fit, of {seen}: {best.step_time_s:.2f} s; the answer takes {share:+.2f} %")
        print(f"  answer {way(answer.plan)}; listed {way(best.plan)}", flush=True)


LEGAL, OF_A_PROBLEM = 3000, 100  # plans in all, and of each problem
MIXTURES = ("mixtral-8x7b", 4096), ("qwen3-30b-a3b", 4096), ("deepseek-v2-lite", 4096)


def legal(first: int, last: int | None) -> None:
    """Legal plans of drawn problems against the bound that `exact` proves; every third problem is a mixture."""
    below = plans = 0
    for number in range(LEGAL // OF_A_PROBLEM)[first:last]:
        random, asked = Random(SEED + 1000 + number), draw(number % DRAWN)
        name, seq = MIXTURES[number // 3 % 3] if number % 3 == 0 else (asked.model.name, asked.workload.seq)
        runtime, batch = ("megatron", "hippo")[number % 2], min(asked.workload.global_batch, 256)
        asked = problem(name, asked.cluster, batch=batch, seq=seq, runtime=runtime)
        bound_s = answer_of(Exact(), asked, Stop(10.0)).lower_bound_s or 0.0
        found: list[float] = []
        for _ in range(400 * OF_A_PROBLEM):
            made = drawn_plan(asked, random)
            if len(found) < OF_A_PROBLEM and made is not None and flaw(asked, made) is None:
                own = made if made.interleave > 1 or runtime != "hippo" else ordered(asked, made) or made
                found.append(judge(asked, own).step_time_s)
                if found[-1] < bound_s * (1 - 1e-9):
                    below += 1
                    print(f"  {found[-1]:.4f} s lies below {bound_s:.4f} s: {way(own)}", flush=True)
        plans += len(found)
        least = min(found, default=float("inf")) / bound_s if bound_s else float("inf")
        told = f"{len(found)} legal plans, the quickest takes {least:.3f} of the bound"
        print(f"{number}: {name}, {asked.cluster.name}, {runtime}: {told}", flush=True)
    print(f"{below} of {plans} legal plans lie below a bound")


def drawn_plan(asked: Problem, random: Random) -> Plan | None:
    """A layout drawn at random: degrees, domains in some order, their stages, cuts near even ones, replicas, chunks."""
    domains, layers, batch = asked.cluster.domains, asked.model.num_layers, asked.workload.global_batch
    tp, cp = random.choice((1, 2, 4, 8)), random.choice(context_degrees(asked))
    ep, dp, chunks = random.choice(expert_degrees(asked, cp)), random.choice((1, 1, 2, 4, 8, 16)), 1
    order = random.sample(range(len(domains)), random.randint(1, min(len(domains), 4)))
    groups = len(order) if random.random() < 0.3 else 1
    room = [domains[at].gpus // (tp * cp * dp) for at in order]
    if not min(room):
        return None
    rows = [[(at, random.randint(1, min(room)))] for at in order] if groups > 1 else []
    rows = [[(at, rows[0][0][1])] for at in order] if rows else []
    rows = rows or [[(at, random.randint(1, most)) for at, most in zip(order, room, strict=True)]]
    pp, micro_batch = sum(stages for _, stages in rows[0]), random.choice((1, 1, 2, 4))
    waves, rest = divmod(batch, micro_batch * dp * groups)
    if rest or not waves or pp > layers - 2:
        return None
    cuts = even_cuts(layers, pp)
    for _ in range(random.choice((0, 0, 1, 2, 4))):  # layers that move over a border
        at, by = random.randrange(pp + 1), random.choice((-1, 1))
        if 0 < at < pp and cuts[at - 1] < cuts[at] + by < cuts[at + 1]:
            cuts = (*cuts[:at], cuts[at] + by, *cuts[at + 1 :])
    if asked.rules.interleave and groups == 1 and pp > 1 and random.random() < 0.4:
        chunks = random.randint(2, 4)
    lines = []
    for row in rows:
        homes = [domains[at].name for at, stages in row for _ in range(stages)]
        spans = zip(homes, cuts[:-1], cuts[1:], strict=True)
        lines.append(PipelineSketch(tuple(StageSketch(home, (a, b), tp, dp) for home, a, b in spans), waves))
    again = (*RECOMPUTE, "full:1", "full:2", "full:5") if asked.rules.recompute_modules else RECOMPUTE
    shape = micro_batch, random.choice(again), random.choice(("none", "optimizer", "gradients"))
    try:
        return Candidate(tuple(lines), *shape, chunks=chunks).plan(with_degrees(asked, (cp, ep, None)))
    except (InfeasibleError, InputError):  # no room for the groups, or no link
        return None


def way(found: Plan) -> str:
    """Degrees of a plan in a row."""
    stages = [stage for line in found.pipelines[:1] for stage in line.stages]
    homes = ", ".join(f"{len(list(alike))} in {name}" for name, alike in groupby(stage.domain for stage in stages))
    degrees = f"tp{stages[0].tp} cp{found.context_parallel} ep{found.expert_parallel} dp{stages[0].dp}"
    kept = f"micro-batch {found.micro_batch}, recompute {found.recompute}, sharding {found.sharding}"
    return f"{len(found.pipelines)} x ({homes}) {degrees} x {found.interleave} chunks, {kept}"


def _asker(name: str, where: Cluster, batch: int, seq: int, runtime: str = "hippo") -> Callable[[], Problem]:
    return lambda: problem(name, where, batch=batch, seq=seq, runtime=runtime)


def alone(case: Case, runs: int = 3) -> tuple[float, Proposal]:
    """Least CPU seconds of a few runs of `exact`, and its answer."""
    seconds = []
    for _ in range(runs):
        asked = case.problem()
        start = process_time()
        found = Exact().propose(asked, Stop(60.0, gap=case.asked_gap or 0.0))
        seconds.append(process_time() - start)
    return min(seconds), found


@dataclass(frozen=True)
class Row:
    """What a case came to."""

    seconds: float
    gap: float | None
    step_s: float | None
    by: str


def measured(case: Case, part: str) -> Row:
    """`exact` alone for the regions, else the whole command."""
    if part == "regions":
        seconds, found = alone(case)
        return Row(seconds, found.gap, found.score.step_time_s if found.score else None, "exact")
    asked = case.problem()
    start = process_time()
    decision = plan(asked, why=False)
    seconds = process_time() - start
    step_s = decision.judged.step_time_s if decision.judged else None
    return Row(seconds, decision.gap, step_s, decision.planner if step_s else "nothing fits")


PARTS = {"regions": of_regions, "drawn": of_drawn, "large": of_large}


def main() -> None:
    """Prints the table of a part."""
    part, *bounds = sys.argv[1:] or ["regions"]
    if part == "listed":
        return listed()
    if part == "legal":
        return legal(int(bounds[0]) if bounds else 0, int(bounds[1]) if bounds else None)
    first, last = (int(bounds[0]), int(bounds[1])) if bounds else (0, None)
    plan(problem("gpt2", cluster("toy"), batch=64, seq=1024), why=False)  # loads the compiled kernels
    print(f"{'CPU seconds':52s} {'Sailor':>8s} {'asked':>16s} {'measured':>9s} {'gap':>7s} {'step':>9s}  by")
    rows: list[Row] = []
    for case in list(PARTS[part]())[first:last]:
        row = measured(case, part)
        rows.append(row)
        elsewhere = "-" if case.elsewhere_s is None else f"{case.elsewhere_s:g} s"
        gap, step = ("-" if row.gap is None else f"{100 * row.gap:.2f} %"), f"{row.step_s or 0:.2f} s"
        asked = f"<= {case.asked_s:g} s" + ("" if case.asked_gap is None else f", {100 * case.asked_gap:g} %")
        print(
            f"{case.name:52s} {elsewhere:>8s} {asked:>16s} {row.seconds:7.2f} s {gap:>7s} {step:>9s}  {row.by}",
            flush=True,
        )
    seconds, gaps = [row.seconds for row in rows], [row.gap for row in rows if row.gap is not None]
    if len(gaps) > 1:
        spent = f"mean {sum(seconds) / len(rows):.2f} s, most {max(seconds):.2f} s"
        open_ = f"gap mean {100 * sum(gaps) / len(gaps):.2f} %, most {100 * max(gaps):.2f} %"
        print(f"{spent}; {open_}, {len(rows) - len(gaps)} without a bound")


if __name__ == "__main__":
    main()
