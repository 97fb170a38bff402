"""What a search takes and proves: CPU seconds and gaps of whole plans, of `exact` alone, and of large clusters.

    hippo bench planning                     regions: `exact` alone, 2 to 16 domains and up to 2048 GPUs in one
    python benchmarks/planning.py drawn      whole `hippo plan --no-why` on twenty drawn clusters of 2 to 9 domains
    python benchmarks/planning.py large      2048 GPUs in one domain, 16 and 64 domains of 64, DeepSeek-V3 on 2048
    python benchmarks/planning.py PART 5 8   cases 5 to 7 of a part: one that was stopped goes on where it was

Regions: two nodes of eight A100-SXM-80GB in the first K of the catalogue's twelve cloud regions, with their
measured links (a cap per sending node, half the round trip). Sixteen and sixty-four domains of 64 GPUs: every pair has
the links of two of these regions, drawn with a fixed seed. Batches of 2048 sequences (Sailor's evaluation of GPT-Neo
2.7B) or 1024. Drawn clusters: half of such regions with 16 to 128 GPUs each, half of domains of 32 to 128 GPUs, alike
or not, links of 1 to 100 Gbit/s and 2 to 60 ms; each has a seed of its own.
CPU seconds of the process beyond start-up: compiled kernels are loaded beforehand by another problem, every run gets a
new one; the least of three runs (regions), else of one. Sailor's figures: its planner, measured on its own inputs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from random import Random
from time import process_time

from hippo.front_door.planning import plan
from hippo.planners.base import Proposal, Stop
from hippo.planners.by_hand import site
from hippo.planners.exact.search import Exact
from hippo.problem.catalogue.clusters import cluster
from hippo.problem.catalogue.models import model
from hippo.problem.cluster import Cluster, Domain, Link
from hippo.problem.gpus import gpu
from hippo.problem.problem import Problem
from hippo.problem.workload import Workload
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
        yield Case(name, lambda number=number: draw(number), 1.5, 0.10)


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
        print(f"{case.name:52s} {elsewhere:>8s} {asked:>16s} {row.seconds:7.2f} s {gap:>7s} {step:>9s}  {row.by}", flush=True)
    seconds, gaps = [row.seconds for row in rows], [row.gap for row in rows if row.gap is not None]
    if len(gaps) > 1:
        print(
            f"mean {sum(seconds) / len(rows):.2f} s, most {max(seconds):.2f} s; gap mean "
            f"{100 * sum(gaps) / len(gaps):.2f} %, most {100 * max(gaps):.2f} %, {len(rows) - len(gaps)} without a bound"
        )


if __name__ == "__main__":
    main()
