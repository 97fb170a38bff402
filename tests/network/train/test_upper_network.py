"""What the upper agent reads, and what it does before it has learned anything."""

from typing import Any

import numpy as np
import pytest
import torch
from tests.network.observations import drawn, stirred
from torch import Tensor

from hippo.errors import InputError
from hippo.network.train.upper_network import WORTH, GlobalAgent, NetworkConfig

torch.set_num_threads(1)
ENCODERS = ("sage", "gatv2", "none")


@pytest.mark.parametrize("encoder", ENCODERS)
def test_before_learning_the_worthiest_option_is_likeliest(encoder: str) -> None:
    torch.manual_seed(0)
    seen = drawn()
    worth = torch.linspace(-1.0, 1.0, 6)[torch.randperm(6)]
    seen.options[..., WORTH] = worth
    logits = GlobalAgent(NetworkConfig(encoder=encoder))(seen).logits
    assert (logits.argsort(-1) == worth.argsort()).all()


@pytest.mark.parametrize("encoder", ENCODERS)
def test_order_of_domains_does_not_matter_and_that_of_options_is_theirs(encoder: str) -> None:
    agent, seen = stirred(encoder), drawn(fewest=9)
    found = agent(seen)
    domains, options = torch.randperm(9), torch.randperm(6)
    turned = seen._replace(
        nodes=seen.nodes[:, domains],
        edges=seen.edges[:, domains][:, :, domains],
        options=seen.options[:, options],
        option_nodes=seen.option_nodes[:, options][:, :, domains],
        option_edges=seen.option_edges[:, options][:, :, domains][:, :, :, domains],
        option_mask=seen.option_mask[:, options],
    )
    other = agent(turned)
    torch.testing.assert_close(other.logits, found.logits[:, options])
    torch.testing.assert_close(other.value, found.value)
    torch.testing.assert_close(other.cost_values, found.cost_values)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_groups_by_size_change_nothing(encoder: str) -> None:
    agent, seen = stirred(encoder), drawn(worlds=40, domains=18)
    for grouped, dense in zip(agent(seen), agent.dense(seen), strict=True):
        torch.testing.assert_close(grouped, dense)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_padding_says_nothing(encoder: str) -> None:
    agent, seen = stirred(encoder), drawn(domains=5, fewest=5)
    wide = drawn(domains=9, fewest=9)
    padded = wide._replace(node_mask=wide.node_mask & (torch.arange(9) < 5), context=seen.context)
    padded = padded._replace(options=seen.options, option_mask=seen.option_mask)
    for narrow, held in (("nodes", 1), ("edges", 2)):
        field = torch.zeros_like(getattr(wide, narrow))
        field[(slice(None), *[slice(5)] * held)] = getattr(seen, narrow)
        padded = padded._replace(**{narrow: field})
    by_node, by_edge = torch.zeros(5, 6, 9), torch.zeros(5, 6, 9, 9)
    by_node[..., :5], by_edge[..., :5, :5] = seen.option_nodes, seen.option_edges
    padded = padded._replace(option_nodes=by_node, option_edges=by_edge)
    small, large = agent.dense(seen), agent.dense(padded)
    torch.testing.assert_close(large.logits, small.logits)
    torch.testing.assert_close(large.value, small.value)
    torch.testing.assert_close(large.attention[:, :5, :5], small.attention)


def test_masked_options_have_no_say_in_the_value() -> None:
    agent, seen = stirred("sage"), drawn()
    wild = seen._replace(options=torch.where(seen.option_mask[..., None], seen.options, 7.0))
    assert not seen.option_mask.all()
    torch.testing.assert_close(agent(wild).value, agent(seen).value)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_every_parameter_has_a_share_in_the_answer(encoder: str) -> None:
    agent, seen = stirred(encoder), drawn()
    heads = agent(seen)
    (heads.logits.square().sum() + heads.value.sum() + heads.cost_values.sum()).backward()
    assert all(each.grad is not None and torch.isfinite(each.grad).all() for each in agent.parameters())
    idle = [name for name, each in agent.named_parameters() if not each.grad.abs().sum() > 0]
    assert idle == []


def accuracy(encoder: str) -> float:
    """After 150 steps, on fresh draws: how often the option on the domain with the shortest queue is found, where a
    domain's queue stands at the domains it has a link to."""
    torch.manual_seed(0)
    agent = GlobalAgent(NetworkConfig(encoder=encoder, hidden=16, worth_scale=0.0))
    optimizer = torch.optim.Adam(agent.parameters(), lr=1e-2)
    for step in range(150):
        seen, answer = riddle(64, step)
        loss = torch.nn.functional.cross_entropy(agent(seen).logits, answer)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    seen, answer = riddle(512, 10_000)
    return float((agent(seen).logits.argmax(-1) == answer).float().mean())


def riddle(worlds: int, seed: int) -> tuple[Any, Tensor]:
    """Domains 0-2 are asked about, each linked to one of 3-5, whose feature answers."""
    rng = np.random.default_rng(seed)
    seen = drawn(worlds, 6, 3, fewest=6)
    said = torch.tensor(rng.random((worlds, 3)), dtype=torch.float32)
    partner = torch.tensor(np.stack([rng.permutation(3) for _ in range(worlds)])) + 3
    nodes, edges = torch.zeros_like(seen.nodes), torch.zeros_like(seen.edges)
    nodes[:, 3:, 2] = said
    rows = torch.arange(worlds)
    for asked in range(3):
        edges[rows, asked, partner[:, asked], 0] = 1.0
    by_node = torch.zeros_like(seen.option_nodes)
    by_node[:, range(3), range(3)] = 1.0
    seen = seen._replace(
        nodes=nodes,
        edges=edges,
        options=torch.zeros_like(seen.options),
        context=torch.zeros_like(seen.context),
        option_nodes=by_node,
        option_edges=torch.zeros_like(seen.option_edges),
        option_mask=torch.ones_like(seen.option_mask),
    )
    return seen, said.gather(1, partner - 3).argmin(-1)


@pytest.mark.parametrize(
    ("encoder", "low", "high"),
    [("sage", 0.85, 1.0), pytest.param("gatv2", 0.85, 1.0, marks=pytest.mark.slow), ("none", 0.0, 0.5)],
)
def test_what_stands_next_door_is_learned_by_messages_alone(encoder: str, low: float, high: float) -> None:
    assert low <= accuracy(encoder) <= high


@pytest.mark.parametrize(
    ("wrong", "named"), [({"encoder": "gcn"}, "sage"), ({"layers": 0}, "layers"), ({"hidden": 0}, "hidden")]
)
def test_a_wrong_configuration_says_what_would_be_right(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named):
        NetworkConfig(**wrong)
