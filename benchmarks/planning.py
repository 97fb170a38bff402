"""CPU seconds and proven gaps of `exact`, from 2 to 16 domains and up to 2048 GPUs in one.

Domains of 16 GPUs: two nodes of eight A100-SXM-80GB in the first K of the catalogue's twelve cloud regions, with their
measured links (a cap per sending node, half the round trip). Sixteen domains of 64 GPUs: every pair has the links of
two of these regions, drawn with a fixed seed. Batches of 2048 sequences (Sailor's evaluation of GPT-Neo 2.7B) or 1024.
CPU seconds of the process beyond start-up: compiled kernels are loaded beforehand by another problem, every run gets a
new one; the least of three runs. Sailor's figures: its planner, measured on its own inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from random import Random
from time import process_time

from hippo.planners.base import Proposal, Stop
from hippo.planners.by_hand import site
from hippo.planners.exact.search import Exact
from hippo.problem.catalogue.clusters import cluster
from hippo.problem.catalogue.models import model
from hippo.problem.cluster import Cluster, Link
from hippo.problem.problem import Problem
from hippo.problem.workload import Workload

SEED = 0
SAILOR_S = {2: 0.05, 4: 0.54, 6: 2.5, 8: 15.4, 9: 53.0}  # CPU seconds of Sailor's planner at K domains


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
    names = [domain.name for domain in whole.domains[:count]]
    domains = tuple(replace(domain, nodes=2) for domain in whole.domains[:count])
    links = tuple(link for link in whole.links if {link.source, link.destination} <= set(names))
    return replace(whole, name=f"{count} regions", domains=domains, links=links)


def drawn(count: int) -> Cluster:
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


def problem(model_name: str, where: Cluster, *, batch: int, seq: int) -> Problem:
    """A new problem: nothing that was worked out for an earlier one is known about it."""
    return Problem(model(model_name), where, Workload(global_batch=batch, seq=seq))


def cases() -> Iterator[Case]:
    """The rows of the table."""
    for name in ("gpt3-2.7b", "gpt3-175b"):
        for count, elsewhere_s in SAILOR_S.items():
            asked = _asker(name, regions(count), 2048, 2048)
            yield Case(f"{name}, {count} domains x 16 GPUs", asked, 0.5, 0.01, elsewhere_s)
    yield Case("llama-3-70b, 16 domains x 64 GPUs", _asker("llama-3-70b", drawn(16), 1024, 4096), 5.0, None)
    for name, seq, elsewhere in (("gpt3-2.7b", 2048, 0.48), ("llama-3-70b", 4096, None)):
        one = site("A100-SXM-80GB", 2048)
        yield Case(f"{name}, one domain of 2048 GPUs", _asker(name, one, 2048, seq), 0.5, None, elsewhere)


def _asker(name: str, where: Cluster, batch: int, seq: int) -> Callable[[], Problem]:
    return lambda: problem(name, where, batch=batch, seq=seq)


def measure(case: Case, runs: int = 3) -> tuple[float, Proposal]:
    """Least CPU seconds of a few runs, and the answer."""
    seconds = []
    for _ in range(runs):
        asked = case.problem()
        start = process_time()
        found = Exact().propose(asked, Stop(60.0, gap=case.asked_gap or 0.0))
        seconds.append(process_time() - start)
    return min(seconds), found


def main() -> None:
    """Prints the table."""
    Exact().propose(problem("gpt2", cluster("toy"), batch=64, seq=1024), Stop(60.0))  # loads the compiled kernels
    print(f"{'CPU seconds of exact':38s} {'Sailor':>8s} {'asked':>8s} {'measured':>9s} {'gap':>7s} {'step':>9s}")
    for case in cases():
        seconds, found = measure(case)
        elsewhere = "-" if case.elsewhere_s is None else f"{case.elsewhere_s:g} s"
        gap = "-" if found.gap is None else f"{100 * found.gap:.2f} %"
        step = found.status.value if found.score is None else f"{found.score.step_time_s:.1f} s"
        asked = f"<= {case.asked_s:g} s"
        print(f"{case.name:38s} {elsewhere:>8s} {asked:>8s} {seconds:7.2f} s {gap:>7s} {step:>9s}", flush=True)


if __name__ == "__main__":
    main()
