"""Clusters by name, as documents of the cluster file's form. Each says what is measured and what is assumed."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from hippo.errors import UnknownNameError
from hippo.problem.cluster import Cluster
from hippo.problem.cluster_yaml import cluster_from_document

# ------------------------------------------------------------------------------------------------------------ four hubs
_HUBS = {
    "zhangjiakou": "Beijing-Tianjin-Hebei hub, east",
    "wuhu": "Yangtze River Delta hub, east",
    "guian": "Guizhou hub, west",
    "zhongwei": "Ningxia hub, west",
}

# pair: (great-circle distance in km between the cities, assumed bandwidth in Gbit/s)
_HUB_PAIRS = {
    ("zhangjiakou", "wuhu"): (1100, 5.0),
    ("zhangjiakou", "zhongwei"): (910, 4.0),
    ("wuhu", "guian"): (1270, 4.0),
    ("guian", "zhongwei"): (1240, 3.0),
    ("wuhu", "zhongwei"): (1390, 2.5),
    ("zhangjiakou", "guian"): (1760, 2.0),
}

_FOUR_HUBS_SOURCE = (
    "Hubs and clusters: East-Data-West-Compute (huaxin.phei.com.cn/gain/222.html), which asks for about 20 ms between "
    "east and west. Assumed: one-way latency 10 ms + 10 us per km of great-circle distance (fibre of twice that "
    "length); 1-5 Gbit/s by distance, the range such networks offer one tenant; 0.02 USD/GB, an inter-region price of "
    "public clouds; 8 nodes of 8 A100-SXM-80GB with 8 x 200 Gbit/s each per hub"
)


def _hub_latency_ms(distance_km: float) -> float:
    """Assumption: 5 us/km of fibre, twice the great-circle distance, 10 ms for access and switching."""
    return round(10.0 + 2 * 5e-3 * distance_km, 1)


def _four_hubs() -> dict[str, object]:
    """East-Data-West-Compute with two hubs in the east and two in the west."""
    return {
        "name": "four-hubs",
        "source": _FOUR_HUBS_SOURCE,
        "gpu": "A100-SXM-80GB",
        "domains": [{"name": hub, "nodes": 8, "gpus_per_node": 8} for hub in _HUBS],
        "links": [
            {
                "from": source,
                "to": destination,
                "bandwidth_gbps": bandwidth,
                "latency_ms": _hub_latency_ms(distance),
                "price_usd_per_gb": 0.02,
                "both": True,
            }
            for (source, destination), (distance, bandwidth) in _HUB_PAIRS.items()
        ],
    }


# -------------------------------------------------------------------------------------------------------- cloud regions
_REGIONS = (
    *("aws-us-east-1", "aws-us-west-2", "aws-eu-central-1", "aws-ap-northeast-1"),
    *("azure-eastus", "azure-westus", "azure-westeurope", "azure-japaneast"),
    *("gcp-us-central1", "gcp-europe-west4", "gcp-asia-northeast1", "gcp-asia-southeast1"),
)

# Rows send, columns receive, in the order of _REGIONS. One VM pair, 64 TCP flows, 5 s: a cap per sending node.
_BANDWIDTH_GBPS = (
    (0.0, 4.352, 4.12, 3.653, 4.782, 4.335, 4.197, 3.535, 4.652, 4.261, 3.745, 3.193),
    (4.347, 0.0, 3.652, 4.073, 4.241, 4.681, 3.516, 4.072, 4.43, 3.66, 4.134, 3.63),
    (4.112, 3.661, 0.0, 2.871, 4.163, 3.553, 4.754, 2.737, 4.093, 4.753, 3.061, 3.319),
    (3.657, 4.077, 2.899, 0.0, 3.567, 4.0, 2.893, 4.775, 3.952, 3.137, 4.778, 4.383),
    (9.556, 6.773, 3.985, 3.658, 0.0, 14.148, 13.468, 10.623, 13.257, 5.812, 7.608, 4.109),
    (6.052, 9.183, 2.085, 2.053, 22.035, 0.0, 15.663, 13.172, 8.418, 2.657, 7.571, 3.594),
    (3.325, 4.024, 9.469, 3.199, 13.46, 11.562, 0.0, 8.623, 4.87, 15.591, 5.229, 5.514),
    (1.85, 3.573, 1.624, 9.537, 10.605, 12.697, 8.68, 0.0, 5.198, 3.485, 15.614, 8.102),
    (6.829, 5.464, 5.352, 4.412, 6.3, 5.957, 5.635, 5.512, 0.0, 5.357, 5.045, 4.122),
    (5.388, 4.948, 7.001, 4.205, 5.211, 5.114, 6.95, 4.399, 5.719, 0.0, 4.414, 3.154),
    (2.491, 4.201, 3.353, 7.094, 4.924, 5.456, 4.325, 7.108, 5.407, 3.485, 0.0, 5.639),
    (4.376, 4.802, 4.421, 5.928, 4.472, 4.954, 4.944, 6.16, 4.805, 4.681, 5.865, 0.0),
)  # fmt: skip

_RTT_MS = (
    (0.0, 68.27, 89.82, 167.81, 1.9, 66.72, 80.43, 157.93, 28.54, 84.5, 153.58, 216.63),
    (68.48, 0.0, 146.62, 97.51, 79.71, 21.18, 159.98, 97.86, 64.71, 161.56, 104.67, 168.81),
    (89.78, 148.22, 0.0, 223.19, 88.66, 158.79, 7.29, 243.0, 107.14, 9.31, 229.79, 206.32),
    (169.09, 97.66, 222.51, 0.0, 155.44, 107.01, 233.34, 4.17, 131.35, 226.16, 4.7, 71.95),
    (1.86, 79.57, 88.66, 163.34, 0.0, 61.71, 80.33, 156.06, 35.54, 84.54, 157.08, 221.21),
    (67.31, 21.27, 156.23, 106.16, 61.6, 0.0, 138.92, 105.47, 51.59, 147.61, 105.96, 171.72),
    (80.48, 158.57, 7.37, 229.17, 80.33, 140.84, 0.0, 224.09, 106.36, 5.62, 226.43, 177.45),
    (162.07, 97.88, 242.85, 4.02, 156.29, 105.47, 224.23, 0.0, 145.04, 225.13, 3.83, 70.36),
    (41.95, 61.97, 108.0, 142.69, 35.71, 51.66, 107.66, 145.21, 0.0, 103.12, 124.34, 149.88),
    (84.6, 160.27, 42.75, 224.03, 84.44, 147.48, 4.95, 225.5, 103.16, 0.0, 200.17, 205.9),
    (92.62, 165.72, 230.72, 4.42, 154.51, 107.23, 225.21, 4.36, 154.89, 220.17, 0.0, 70.63),
    (143.56, 195.0, 204.35, 72.46, 221.35, 172.87, 177.46, 119.22, 190.58, 198.11, 70.4, 0.0),
)  # fmt: skip

_EGRESS_USD_PER_GB = (
    (0.0, 0.02, 0.02, 0.02, 0.09, 0.09, 0.09, 0.09, 0.09, 0.09, 0.09, 0.09),
    (0.02, 0.0, 0.02, 0.02, 0.09, 0.09, 0.09, 0.09, 0.09, 0.09, 0.09, 0.09),
    (0.02, 0.02, 0.0, 0.02, 0.09, 0.09, 0.09, 0.09, 0.09, 0.09, 0.09, 0.09),
    (0.09, 0.09, 0.09, 0.0, 0.114, 0.114, 0.114, 0.114, 0.114, 0.114, 0.114, 0.114),
    (0.0875, 0.0875, 0.0875, 0.0875, 0.0, 0.02, 0.05, 0.05, 0.0875, 0.0875, 0.0875, 0.0875),
    (0.0875, 0.0875, 0.0875, 0.0875, 0.02, 0.0, 0.05, 0.05, 0.0875, 0.0875, 0.0875, 0.0875),
    (0.0875, 0.0875, 0.0875, 0.0875, 0.05, 0.05, 0.0, 0.05, 0.0875, 0.0875, 0.0875, 0.0875),
    (0.12, 0.12, 0.12, 0.12, 0.08, 0.08, 0.08, 0.0, 0.12, 0.12, 0.12, 0.12),
    (0.12, 0.12, 0.12, 0.12, 0.12, 0.12, 0.12, 0.12, 0.0, 0.08, 0.08, 0.08),
    (0.12, 0.12, 0.12, 0.12, 0.12, 0.12, 0.12, 0.12, 0.08, 0.0, 0.08, 0.08),
    (0.14, 0.14, 0.14, 0.14, 0.14, 0.14, 0.14, 0.14, 0.08, 0.08, 0.0, 0.05),
    (0.19, 0.19, 0.19, 0.19, 0.19, 0.19, 0.19, 0.19, 0.08, 0.08, 0.05, 0.0),
)  # fmt: skip

_REGIONS_SOURCE = (
    "Measured between VM pairs, Jan-May 2022: skyplane-project/skyplane, git history before 3efc9769 (throughput.csv, "
    "latency.csv, cost.csv; Apache-2.0). One-way latency is half the measured round trip. What one VM reached is the "
    "cap per node; several nodes add up (a provider's cap on all of them was not measured). Assumed: 8 nodes of 8 "
    "A100-SXM-80GB per region with 400 Gbit/s and 15 us between nodes (as AWS p4de)"
)


def _cloud(name: str, regions: tuple[str, ...]) -> dict[str, object]:
    """Full mesh of directed links between some of the regions."""
    index = {region: _REGIONS.index(region) for region in regions}
    return {
        "name": name,
        "source": _REGIONS_SOURCE,
        "gpu": "A100-SXM-80GB",
        "domains": [
            {"name": region, "nodes": 8, "gpus_per_node": 8, "inter_node_gbps": 400, "inter_node_latency_us": 15}
            for region in regions
        ],
        "links": [
            {
                "from": source,
                "to": destination,
                "per_node_gbps": _BANDWIDTH_GBPS[index[source]][index[destination]],
                "latency_ms": _RTT_MS[index[source]][index[destination]] / 2,
                "price_usd_per_gb": _EGRESS_USD_PER_GB[index[source]][index[destination]],
            }
            for source in regions
            for destination in regions
            if source != destination
        ],
    }


# ------------------------------------------------------------------------------------------------------------------ toy
def _toy() -> dict[str, object]:
    """Small enough to check by hand: two domains of one node, one link each way."""
    return {
        "name": "toy",
        "source": "invented, with round numbers",
        "gpu": "A100-SXM-80GB",
        "domains": [{"name": name, "nodes": 1, "gpus_per_node": 8} for name in ("east", "west")],
        "links": [
            {
                "from": "east",
                "to": "west",
                "bandwidth_gbps": 8,
                "latency_ms": 20,
                "price_usd_per_gb": 0.02,
                "both": True,
            }
        ],
    }


_DOCUMENTS = (
    _four_hubs(),
    _cloud("three-aws-regions", ("aws-us-east-1", "aws-us-west-2", "aws-eu-central-1")),
    _cloud("twelve-cloud-regions", _REGIONS),
    _toy(),
)

CLUSTERS: Mapping[str, Cluster] = MappingProxyType(
    {found.name: found for found in (cluster_from_document(each, source="catalogue", name="") for each in _DOCUMENTS)}
)
"""Every cluster of the catalogue by its name."""


def cluster(name: str) -> Cluster:
    """The cluster of that name, whatever its case; ``UnknownNameError`` lists the known names."""
    found = CLUSTERS.get(name.strip().lower())
    if found is None:
        raise UnknownNameError("cluster", name[:60], CLUSTERS)
    return found
