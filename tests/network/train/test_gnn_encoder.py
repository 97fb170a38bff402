"""Dense layers against PyG's, which works on lists of edges."""

from __future__ import annotations

import warnings
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hippo.network.train.gnn_encoder import Encoder, Gatv2Layer, SageLayer, mean, pool

torch.set_num_threads(1)
W, K, F, P, D = 3, 6, 5, 4, 7


@pytest.fixture(scope="module")
def pyg() -> ModuleType:
    """Its layers; to import them takes seconds, which who collects tests need not wait for."""
    with warnings.catch_warnings():  # PyG's own, at import
        warnings.simplefilter("ignore")
        from torch_geometric import nn as layers
    return layers


def drawn(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Nodes, pairs, and who hears whom: some nodes hear nobody."""
    rng = np.random.default_rng(seed)
    near = (rng.random((W, K, K)) < 0.5) & ~np.eye(K, dtype=bool)
    near[0, 2] = False
    pairs = rng.normal(size=(W, K, K, P)) * near[..., None]
    nodes = rng.normal(size=(W, K, F))
    return torch.tensor(nodes).float(), torch.tensor(pairs).float(), torch.tensor(near)


def as_list(near: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor]:
    """PyG's form of one world: (sender, hearer) and features, edge by edge."""
    hearer, sender = torch.nonzero(near, as_tuple=True)
    return torch.stack([sender, hearer]), pairs[hearer, sender]


def test_sage_without_features_of_pairs_is_pygs(pyg: ModuleType) -> None:
    torch.manual_seed(1)
    nodes, pairs, near = drawn()
    ours, theirs = SageLayer(F, 0, D), pyg.SAGEConv(F, D, aggr="mean")
    ours.heard.load_state_dict(theirs.lin_l.state_dict())
    ours.own.load_state_dict(theirs.lin_r.state_dict())
    for world in range(W):
        edges, _ = as_list(near[world], pairs[world])
        torch.testing.assert_close(ours(nodes, None, near)[0][world], theirs(nodes[world], edges))


def test_sage_with_features_of_pairs_is_the_mean_of_their_messages(pyg: ModuleType) -> None:
    class Heard(pyg.MessagePassing):
        """Mean of messages that see the edge, by PyG's machinery."""

        def __init__(self, layer: SageLayer) -> None:
            super().__init__(aggr="mean")
            self.layer = layer

        def forward(self, x, edge_index, edge_attr):
            return self.layer.heard(self.propagate(edge_index, x=x, edge_attr=edge_attr)) + self.layer.own(x)

        def message(self, x_j, edge_attr):
            return torch.relu(self.layer.sender(x_j) + self.layer.pair(edge_attr))

    torch.manual_seed(1)
    nodes, pairs, near = drawn()
    layer = SageLayer(F, P, D)
    for world in range(W):
        expected = Heard(layer)(nodes[world], *as_list(near[world], pairs[world]))
        torch.testing.assert_close(layer(nodes, pairs, near)[0][world], expected)


@pytest.mark.parametrize("heads", [1, 3])
def test_gatv2_is_pygs_attention_included(pyg: ModuleType, heads: int) -> None:
    torch.manual_seed(1)
    nodes, pairs, near = drawn()
    ours = Gatv2Layer(F, P, D, heads=heads)
    theirs = pyg.GATv2Conv(F, D, heads=heads, concat=False, edge_dim=P)
    nn.init.normal_(theirs.bias)
    ours.sender.load_state_dict(theirs.lin_l.state_dict())
    ours.hearer.load_state_dict(theirs.lin_r.state_dict())
    ours.pair.load_state_dict(theirs.lin_edge.state_dict())
    with torch.no_grad():
        ours.attention.copy_(theirs.att[0])
        ours.bias.copy_(theirs.bias)
    found, attention = ours(nodes, pairs, near)
    for world in range(W):
        edges, features = as_list(near[world], pairs[world])
        expected, (edges, weights) = theirs(nodes[world], edges, features, return_attention_weights=True)
        torch.testing.assert_close(found[world], expected)
        dense = torch.zeros(K, K)
        dense[edges[1], edges[0]] = weights.mean(-1)
        torch.testing.assert_close(attention[world], dense)


@pytest.mark.parametrize("kind", ["sage", "gatv2", "none"])
def test_domains_in_another_order_have_the_same_embeddings(kind: str) -> None:
    torch.manual_seed(1)
    nodes, pairs, near = drawn()
    encoder, order = Encoder(kind, F, P, hidden=D, layers=2), torch.randperm(K)
    found, attention = encoder(nodes, pairs, near)
    other, turned = encoder(nodes[:, order], pairs[:, order][:, :, order], near[:, order][:, :, order])
    torch.testing.assert_close(other, found[:, order])
    torch.testing.assert_close(turned, attention[:, order][:, :, order])


@pytest.mark.parametrize("kind", ["sage", "gatv2"])
def test_who_is_no_neighbour_is_not_heard_and_weights_sum_to_one(kind: str) -> None:
    torch.manual_seed(1)
    nodes, pairs, near = drawn()
    near[:, :, 5] = False
    encoder = Encoder(kind, F, P, hidden=D, layers=2)
    found, attention = encoder(nodes, pairs, near)
    louder, wild = nodes.clone(), pairs.clone()
    louder[:, 5], wild[:, :, 5] = 100.0, 100.0
    torch.testing.assert_close(encoder(louder, wild, near)[0][:, :5], found[:, :5])
    heard = near.any(-1) | (kind == "gatv2")
    torch.testing.assert_close(attention.sum(-1), heard.float())


def test_a_message_is_heard_through_as_many_links_as_there_are_layers() -> None:
    """On a chain 0 - 1 - 2 - 3 two layers carry what 0 says to 2, and no further."""
    torch.manual_seed(1)
    near = torch.zeros(1, 4, 4, dtype=torch.bool)
    for one in range(3):
        near[0, one, one + 1] = near[0, one + 1, one] = True
    encoder, pairs = Encoder("sage", F, P, hidden=32, layers=2), torch.ones(1, 4, 4, P)
    nodes = torch.ones(1, 4, F)
    other = nodes.clone()
    other[0, 0] = -3.0
    changed = (encoder(nodes, pairs, near)[0] - encoder(other, pairs, near)[0]).abs().amax(-1)[0] > 0
    assert changed.tolist() == [True, True, True, False]


def test_pooling_by_hand() -> None:
    values = torch.tensor([[[1.0, -1.0], [3.0, -5.0], [100.0, 100.0]]])
    mask = torch.tensor([[True, True, False]])
    assert pool(values, mask).tolist() == [[2.0, -3.0, 3.0, -1.0]]
    assert mean(values, mask).tolist() == [[2.0, -3.0]]
    assert pool(values, torch.zeros(1, 3, dtype=torch.bool)).tolist() == [[0.0] * 4]
