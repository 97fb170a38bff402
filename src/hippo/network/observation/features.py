"""What the upper agent sees and what it may answer, as arrays of one batch; the same in training and in production.

Letters: W worlds of a batch, K domains (padded), M options (padded), H horizons of the forecast.

The answer of the upper agent is one of at most M *options*: keep; pull a lever (another configuration of the same
place); move to another place, by stopping or in the background; cancel the move under way. Plans of the agents' own
(``hi_ppo.constructor``) stand among those that the planners propose. A masked option cannot be chosen: out of memory, a
barred link, a move that can never arrive.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Masks = NDArray[np.bool_]

MOST_OPTIONS = 24

NODE_FEATURES = (
    "utilization",  # of the domain's GPUs in the running configuration
    "memory_use",  # peak over usable memory of its fullest GPU
    "queue",  # load of others: factor on the length of operations, less 1
    "queue_forecast",  # the same at the longest horizon
    "gpu_share",  # of the problem's GPUs
    "used",  # by the running configuration
    "used_by_target",  # of the move under way
    "layer_share",  # of the model held there
)
EDGE_FEATURES = (
    "exists",
    "bandwidth",  # log of bandwidth now over base; -3 for an outage
    "bandwidth_next",  # the same at each later horizon
    "bandwidth_soon",
    "bandwidth_later",
    "bandwidth_at_last",
    "doubt",  # standard deviation of the forecast at the longest horizon
    "age",  # of the present excursion below 70 % of base: log1p of epochs
    "latency",  # log of latency now over 0.03 s
    "price",  # USD per GB over 0.1
    "traffic",  # share of the bandwidth that training takes now
    "moving",  # bytes a move still sends, over what the link carries in an epoch: log1p
    "base",  # log10 of base bandwidth in Gbit/s
)
CONTEXT_FEATURES = (
    "left",  # share of the run that is left
    "epochs_left",  # log of epochs left over 100
    "epoch",  # log10 of the epoch's seconds over 100
    "still",  # phases of the run
    "stopped",
    "streaming",
    "arrived",  # share of a move
    "pace",  # tokens/s of what runs now over the best configuration known, now
    "pace_usual",  # tokens/s of what runs now over its own in the base state
    "pace_at_last",  # the first at the longest horizon
    "egress",  # share of the worth of the running configuration's tokens that egress eats
    "quiet",  # epochs since the last decision that changed something: log1p over 5
    "w_eff",  # preferences
    "w_util",
    "w_cost",
    "first",  # nothing runs yet: where shall the run begin
)
OPTION_FEATURES = (
    "keep",  # kinds
    "lever",
    "stop",
    "background",
    "cancel",
    "constructed",  # by the agents themselves
    "gain_now",  # log of net tokens/s (egress off) over those of keeping, now and at each later horizon
    "gain_next",
    "gain_soon",
    "gain_later",
    "gain_at_last",
    "downtime",  # of the move, epochs: log1p
    "duration",  # until it has arrived, epochs: log1p
    "usd",  # egress of the move, as epochs of the running configuration's work: log1p
    "worth_soon",  # net work of the option less that of keeping over 4, 16, 64 epochs and the rest of the run, epochs
    "worth_later",  # of the running configuration's usual work, signed log1p; under the forecast
    "worth_at_last",
    "worth_rest",
    "worth_doubt",  # the last with every link of the option one standard deviation lower and the others higher
    "utilization",  # of the option, now
    "egress",  # share of its tokens' worth that egress eats
    "imbalance",  # (max - min) / mean of the domains' compute
    "weak",  # share of its traffic over links below the bandwidth floor
    "robust",  # log of net tokens/s over those of keeping, mean over states met on this network
    "ahead",  # net work if the best sequence of moves under the forecast follows, 64 epochs, less that of keeping
)

NODES, EDGES, CONTEXT, OPTIONS = (
    len(names) for names in (NODE_FEATURES, EDGE_FEATURES, CONTEXT_FEATURES, OPTION_FEATURES)
)


class Observation(NamedTuple):
    """One batch of what upper agents see. Masked rows are zero."""

    nodes: Floats  # (W, K, NODES)
    edges: Floats  # (W, K, K, EDGES) from row to column
    node_mask: Masks  # (W, K)
    context: Floats  # (W, CONTEXT)
    options: Floats  # (W, M, OPTIONS)
    option_nodes: Floats  # (W, M, K) share of the model's layers that the option holds in each domain
    option_edges: Floats  # (W, M, K, K) share of the option's traffic on each link
    option_mask: Masks  # (W, M) True: may be chosen; the first option is to keep
