"""Sums over ranks of several domains, in memory: what every rank gets, and what crosses between domains."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch

from hippo.plan.plan import Plan, Sync
from hippo.problem.model import Model
from hippo.run.executor.agree import AllReduce, StandInGradients, buckets, messages
from hippo.run.work import Work, levels
from hippo.simulate.lower import lower

from ..worlds import GPT2, PLANS, pipelines, problem

Levels = Sequence[Sequence[int]]
ELEMENTS = 2520  # whole numbers in every piece of the ways below
WAYS: dict[str, Levels] = {
    "two domains": ((0, 1), (2, 3)),
    "unlike numbers": ((0, 1), (2, 3, 4, 5)),
    "no common divisor": ((0, 1, 2), (3, 4), (5,)),
    "many": ((0, 1, 2, 3, 4, 5, 6), (7, 8, 9, 10, 11), (12,), (13, 14)),
    "flat": ((0,), (1,), (2,), (3,), (4,)),
    "one domain": ((0, 1, 2),),
}


class Post:
    """Messages between ranks of this process."""

    def __init__(self) -> None:
        self.posted: dict[tuple[int, int, int], tuple[torch.Tensor, Callable[[], None]]] = {}
        self.came: deque[Callable[[], None]] = deque()  # who is to be told
        self.sent: Counter[tuple[int, int]] = Counter()  # elements, by sender and receiver

    def group(self, levels: Levels, rank: int) -> AllReduce:
        """A rank's sums."""
        said = messages(levels, rank)
        return AllReduce(said, [Line(self, *message.ends(rank)) for message in said], lambda: None)  # type: ignore[misc]


class Line:
    """The way from one rank to another."""

    def __init__(self, post: Post, source: int, destination: int) -> None:
        self.post, self.ends = post, (source, destination)

    def receive(self, into: torch.Tensor, tag: int, heard: Callable[[], None]) -> None:
        assert (*self.ends, tag) not in self.post.posted, "a tag stands for one message of a step"
        self.post.posted[*self.ends, tag] = into, heard

    def send(self, tensor: torch.Tensor, tag: int) -> None:
        into, heard = self.post.posted.pop((*self.ends, tag))
        into.copy_(tensor)
        self.post.sent[self.ends] += tensor.numel()
        self.post.came.append(heard)


def summed(
    levels: Levels, sums: int = 1, elements: int = ELEMENTS, sent: torch.dtype = torch.float32
) -> tuple[Post, list[dict[int, torch.Tensor]]]:
    """What was sent, and for each sum what the ranks have in the end; every rank gives other numbers."""
    post, ranks = Post(), [rank for members in levels for rank in members]
    groups = {rank: post.group(levels, rank) for rank in ranks}
    generator = torch.Generator().manual_seed(0)
    found = [{rank: torch.randn(elements, generator=generator).to(sent) for rank in ranks} for _ in range(sums)]
    for group in groups.values():
        group.expect([elements] * sums, found[0][ranks[0]])
    for given in found:
        for rank in reversed(ranks):
            groups[rank].allreduce([given[rank]])
    while post.came:
        post.came.pop()()
    assert not post.posted
    return post, found


@pytest.mark.parametrize("sent", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", WAYS)
def test_every_rank_has_the_same_sum(name: str, sent: torch.dtype):
    """An addend is rounded, and so is each partial sum, to half of the type's epsilon of what it is at most."""
    _, found = summed(WAYS[name], sums=3, sent=sent)
    generator = torch.Generator().manual_seed(0)
    for totals in found:
        given = torch.stack([torch.randn(ELEMENTS, generator=generator) for _ in totals]).double()
        one, *others = totals.values()
        assert all(torch.equal(one, other) for other in others)
        most = 0.5 * torch.finfo(sent).eps * len(totals) * given.abs().sum(0)
        assert bool(((one.double() - given.sum(0)).abs() <= most).all())


def test_what_comes_late_for_a_sum_that_was_given_up_changes_nothing():
    """A link that was dead brings it when the gradients are those of another step."""
    post = Post()
    one, two = (post.group([[0], [1]], rank) for rank in range(2))
    for group in (one, two):
        group.expect([4, 4], torch.zeros(0))
    flat = torch.arange(4.0)
    sums = one.allreduce([flat])
    two.allreduce([torch.ones(4)])
    sums.give_up()
    one.give_up()
    while post.came:
        post.came.popleft()()
    assert flat.tolist() == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize("elements", [1, 2, 7])
def test_fewer_elements_than_pieces_are_summed_too(elements: int):
    _, (totals,) = summed(WAYS["many"], elements=elements)
    assert len({tuple(total.tolist()) for total in totals.values()}) == 1


@pytest.mark.parametrize("name", WAYS)
def test_a_domain_sends_what_the_ring_of_domains_asks(name: str):
    """2 (K - 1) / K of the elements to the next of K domains, whatever ranks they hold; inside 2 (n - 1) / n each."""
    levels = WAYS[name]
    post, _ = summed(levels)
    home = {rank: index for index, members in enumerate(levels) for rank in members}
    count = len(levels)
    for index, members in enumerate(levels):
        onward = sum(size for (a, b), size in post.sent.items() if (home[a], home[b]) == (index, (index + 1) % count))
        inside = sum(size for (a, b), size in post.sent.items() if home[a] == home[b] == index)
        if count > 1:
            assert onward == 2 * (count - 1) * ELEMENTS / count
        assert inside == 2 * (len(members) - 1) * ELEMENTS
    assert all(home[a] == home[b] or home[b] == (home[a] + 1) % count for a, b in post.sent)


def test_each_rank_of_equal_domains_talks_to_one_partner_of_each_other():
    for rank in range(8):
        across = {one.partner for one in messages(((0, 1, 2, 3), (4, 5, 6, 7)), rank) if abs(one.partner - rank) >= 4}
        assert across == {(rank + 4) % 8}


def test_the_first_piece_of_a_ring_of_three():
    """Rank 1 sends the piece before its own, which comes back added up as the last of the first lap."""
    said = messages(((0,), (1,), (2,)), 1)
    third = [(message.partner, message.how, int(3 * message.span[0])) for message in said]
    assert third == [
        (2, "send", 0), (0, "add", 2), (2, "send", 2), (0, "add", 1),
        (2, "send", 1), (0, "copy", 0), (2, "send", 0), (0, "copy", 2),
    ]  # fmt: skip


WIDE = Plan(pipelines((1, [("a", 0, 6, 1, 4)]), (2, [("b", 0, 3, 1, 2), ("b", 3, 6, 1, 2)])), 1)
AGREED: dict[str, tuple[Model, Plan]] = {
    **{name: PLANS[name] for name in ("two lanes a domain", "unlike lanes", "unlike shares")},
    "four and two": (GPT2, WIDE),
}


@pytest.mark.parametrize("all_reduce", ["two-level", "ring"])
@pytest.mark.parametrize("name", AGREED)
def test_lanes_that_stand_in_send_over_each_link_what_the_plan_says(name: str, all_reduce: str):
    model, plan = AGREED[name]
    question, plan = problem(model), replace(plan, sync=Sync(all_reduce=all_reduce))
    work = Work(model, plan, whole_stages=True, lanes=True)
    each = question.workload.gradient_bytes_per_parameter
    gradients = StandInGradients(work, bytes_per_parameter=each, sync_s=0.0)
    sent: Counter[tuple[str, str]] = Counter()
    for worker in work.workers:
        for bucket in buckets(work, worker):
            size = sum(piece.nbytes for piece in gradients.pieces(bucket))
            for message in messages(levels(question, work, bucket.ranks), worker.rank):
                other = work.workers[message.partner].domain
                if message.how == "send" and other != worker.domain:
                    sent[worker.domain, other] += size * (message.span[1] - message.span[0])
    planned: Counter[tuple[str, str]] = Counter()
    for group in lower(question, plan).groups:
        for link, size in zip(group.links, group.link_bytes, strict=True):
            planned[question.cluster.links[link].source, question.cluster.links[link].destination] += size
    assert set(sent) == set(planned) == {("a", "b"), ("b", "a")}
    for pair, size in planned.items():
        assert float(sent[pair]) == pytest.approx(size, rel=0.001), pair
