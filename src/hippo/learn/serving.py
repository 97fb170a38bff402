"""What trained networks answer, in numpy: torch is needed to learn, not to serve.

A network is its arrays by the names that torch gives them (``encoder.layers.0.own.weight``): the names say which layers
there are. The modules that are trained (``network.train``) compute the same; tests hold the two side by side.

Letters: W worlds or drafts of a batch, K domains (padded), M options or rows (padded), S claims, F features of a node,
P features of a pair, D features made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Masks = NDArray[np.bool_]
Network = Mapping[str, Floats]

NEVER = np.float32(-1e8)
"""Log probability of what cannot be chosen: finite."""
MOST_FEATURE = np.float32(20.0)
"""Features of options beyond this are cut: all are logarithms or shares, so nothing real lies there."""
SLOPE = np.float32(0.2)  # of the leaky rectifier in GATv2, as in its paper


# --------------------------------------------------------------------------------------------------------------- layers
def linear(network: Network, name: str, values: Floats) -> Floats:
    """A layer of that name over the last axis."""
    weight, bias = network[f"{name}.weight"], network.get(f"{name}.bias")
    made = (values.reshape(-1, weight.shape[1]) @ weight.T).reshape(*values.shape[:-1], weight.shape[0])
    return made if bias is None else made + bias


def relu(values: Floats) -> Floats:
    """What is below zero becomes zero."""
    return np.maximum(values, np.float32(0.0))


def mean(values: Floats, mask: Masks) -> Floats:
    """Mean over the rows that count: (W, K, D) and (W, K) make (W, D); zero where none counts."""
    weights = _shares(mask)
    found: Floats = (weights[:, None] @ values)[:, 0]
    return found


def pool(values: Floats, mask: Masks) -> Floats:
    """Mean and maximum over the rows that count: (W, K, D) and (W, K) make (W, 2 D); zero where none counts."""
    most = np.where(mask[..., None], values, np.float32(-np.inf)).max(axis=1)
    return np.concatenate(
        [mean(values, mask), np.where(np.any(mask, axis=1, keepdims=True), most, np.float32(0.0))], axis=1
    )


def encoder(network: Network, nodes: Floats, pairs: Floats, near: Masks) -> tuple[Floats, Floats]:
    """Message passing over nodes (W, K, F) and pairs (W, K, K, P) as row hears column; ``near``: who hears whom.

    Returns embeddings (W, K, D) and the attention (W, K, K) of the last layer. GraphSAGE (Hamilton et al. 2017) or
    GATv2 (Brody et al. 2022) layers; without any, nodes go through as they are.
    """
    attention, index = np.zeros(near.shape, np.float32), 0
    while f"{(name := f'encoder.layers.{index}')}.sender.weight" in network:
        layer = _gatv2 if f"{name}.attention" in network else _sage
        nodes, attention = layer(network, name, nodes, pairs, near)
        nodes, index = relu(nodes), index + 1
    return nodes, attention


def _sage(network: Network, name: str, nodes: Floats, pairs: Floats, near: Masks) -> tuple[Floats, Floats]:
    """``A h_i + B mean_j m_ij`` with ``m_ij = relu(U h_j + V p_ij)``; a node without neighbours hears zero."""
    weights = _shares(near)
    messages = relu(linear(network, f"{name}.pair", pairs) + linear(network, f"{name}.sender", nodes)[:, None])
    heard = (weights[:, :, None] @ messages)[:, :, 0]
    return linear(network, f"{name}.heard", heard) + linear(network, f"{name}.own", nodes), weights


def _gatv2(network: Network, name: str, nodes: Floats, pairs: Floats, near: Masks) -> tuple[Floats, Floats]:
    """``sum_j a_ij L h_j``, ``a_ij = softmax_j(w . leaky_relu(L h_j + R h_i + E p_ij))``, heads averaged; every node
    hears itself, through the mean of the pairs that it hears."""
    vectors = network[f"{name}.attention"]  # (heads, D)
    oneself = np.eye(nodes.shape[1], dtype=bool)
    heard = (_shares(near)[:, :, None] @ pairs)[:, :, 0]
    pairs = np.where(oneself[..., None], heard[:, :, None], pairs)
    sent = linear(network, f"{name}.sender", nodes)
    mixed = linear(network, f"{name}.pair", pairs) + sent[:, None]
    mixed = mixed + linear(network, f"{name}.hearer", nodes)[:, :, None]
    mixed = np.where(mixed > 0, mixed, SLOPE * mixed).reshape(*near.shape, *vectors.shape)
    scores = np.where((near | oneself)[..., None], (mixed * vectors).sum(axis=-1), np.float32(-np.inf))
    attention = np.exp(scores - scores.max(axis=2, keepdims=True))
    attention = attention / attention.sum(axis=2, keepdims=True)  # (W, K, K, heads)
    sent = sent.reshape(*sent.shape[:2], *vectors.shape).swapaxes(1, 2)  # (W, heads, K, D)
    made = (np.moveaxis(attention, 3, 1) @ sent).mean(axis=1)
    return made + network[f"{name}.bias"], attention.mean(axis=-1)


def _shares(mask: Masks) -> Floats:
    """Equal shares of what counts along the last axis; zero where nothing does."""
    weights = mask.astype(np.float32)
    found: Floats = weights / np.maximum(weights.sum(axis=-1, keepdims=True), np.float32(1.0))
    return found


# ------------------------------------------------------------------------------------------------------------- networks
def upper(network: Network, seen: Mapping[str, NDArray[Any]]) -> tuple[Floats, Floats, Floats]:
    """The upper agent's log probabilities (W, M) of its options (``NEVER`` where masked), the reward to come (W,) and
    the attention (W, K, K). ``seen``: the fields of its observation; a link's first feature says that there is one."""
    edges, mask = seen["edges"], seen["node_mask"]
    worlds, domains = mask.shape
    exists = edges[..., 0] > 0
    linked = exists & mask[:, :, None] & mask[:, None]
    pairs = np.concatenate([edges, edges.swapaxes(1, 2)], axis=-1)
    nodes, attention = encoder(network, seen["nodes"], pairs, linked | linked.swapaxes(1, 2))
    links: Floats = edges
    if "link.own.weight" in network:
        links = linear(network, "link.own", edges) + linear(network, "link.source", nodes)[:, :, None]
        links = relu(links + linear(network, "link.destination", nodes)[:, None])
    links = links.reshape(worlds, domains * domains, -1)
    around = (seen["context"], pool(nodes, mask), mean(links, exists.reshape(worlds, -1)))
    common = relu(linear(network, "common", np.concatenate(around, axis=1)))
    options: Floats = np.clip(seen["options"], -MOST_FEATURE, MOST_FEATURE)
    traffic: Floats = seen["option_edges"].reshape(worlds, options.shape[1], -1)
    shares: Floats = seen["option_nodes"]
    own = linear(network, "option", options) + linear(network, "by_common", common)[:, None]
    own = own + shares @ linear(network, "by_domain", nodes) + linear(network, "by_link", traffic @ links)
    made = relu(linear(network, "mixed", relu(own)))
    allowed = seen["option_mask"]
    logits = (linear(network, "residual", made) + linear(network, "prior", options))[..., 0]
    judged = relu(linear(network, "judge.0", np.concatenate([common, pool(made, allowed)], axis=1)))
    value = linear(network, "judge.2", judged)[:, 0]
    logits = np.where(allowed, logits, NEVER)
    logits = logits - logits.max(axis=1, keepdims=True)
    log_probs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return np.where(allowed, log_probs, NEVER), value, attention * mask[:, :, None]


def constructor(network: Network, seen: Mapping[str, NDArray[Any]]) -> tuple[Floats]:
    """Logits (W, 2 K S + 1) of who joins a draft next, at which end and with which claim, and of stopping."""
    nodes, edges, mask, context = (seen[name] for name in ("nodes", "edges", "node_mask", "context"))
    joins, stop = seen["joins"], seen["stop"]
    drafts, domains = mask.shape
    candidates = np.concatenate([joins.reshape(drafts, 2 * domains, -1), stop], axis=1)
    near = (np.maximum(edges[..., 0], edges[..., 0].swapaxes(1, 2)) > 0) & mask[:, None]
    state = encoder(network, nodes, np.concatenate([edges, edges.swapaxes(1, 2)], axis=-1), near)[0]
    state = state * mask[..., None]
    used = nodes[..., 2:3]
    chain = (state * used).sum(axis=1) / np.maximum(used.sum(axis=1), np.float32(1.0))
    around = np.concatenate([mean(state, mask), chain, context], axis=1)
    each = np.concatenate([np.repeat(state, 2, axis=1), np.zeros_like(state[:, :1])], axis=1)
    around = np.broadcast_to(around[:, None], (*each.shape[:2], around.shape[1]))
    inner = relu(linear(network, "inner", np.concatenate([each, around, candidates], axis=2)))
    greedy = network["greed"] * candidates[..., 0]
    claims = linear(network, "score", inner[:, :-1]) + greedy[:, :-1, None] + network["usual"]
    halt = linear(network, "halt", inner[:, -1]) + greedy[:, -1:]
    return (np.concatenate([claims.reshape(drafts, -1), halt], axis=1),)


def chooser(network: Network, seen: Mapping[str, NDArray[Any]]) -> tuple[Floats]:
    """Logits (W, M) of rows: recipes for the upper agent, layouts for the lower one."""
    rows = seen["rows"]
    inner = relu(linear(network, "rows", rows) + linear(network, "around", seen["context"])[:, None])
    inner = relu(linear(network, "inner", inner))
    return (linear(network, "score", inner)[..., 0] + network["greed"] * rows[..., 0],)


def perceptron(network: Network, values: Floats) -> Floats:
    """Layers ``0``, ``1``, .. with the hyperbolic tangent between them: (W, F) make (W, D)."""
    for index in range(sum(name.endswith(".weight") for name in network)):
        values = linear(network, f"{index}", np.tanh(values) if index else values)
    return values
