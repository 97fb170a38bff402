"""The cluster file with measured links: hardware as given, figures measured, and beside each how it was made."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hippo.errors import InputError
from hippo.measure.probe.links import LinkSeen, Spread
from hippo.problem.cluster import Cluster, Link
from hippo.problem.cluster_yaml import cluster_from_document, cluster_to_document
from hippo.problem.document import parse_yaml
from hippo.units import bytes_per_s_from_gbps, gbps_from_bytes_per_s, ms_from_s, s_from_ms

Seen = Mapping[tuple[str, str], LinkSeen]
_DIGITS = 4
_PLAIN = re.compile(r"[A-Za-z][\w-]*")
_WORDS = frozenset({"true", "false", "null"})


@dataclass(frozen=True)
class MeasuredCluster:
    """A cluster whose links are as measured, and a sentence about each link."""

    cluster: Cluster
    remarks: Mapping[tuple[str, str], str]  # of links in the cluster, and of those left out


def bare_cluster(domains: Sequence[str], *, gpu: str, nodes: int, gpus_per_node: int) -> Cluster:
    """Domains of equal hardware, no links; ``InputError`` for a GPU that the catalogue does not hold."""
    rows = [{"name": name, "nodes": nodes, "gpus_per_node": gpus_per_node} for name in domains]
    document = {"name": "measured", "gpu": gpu, "domains": rows, "links": []}
    return cluster_from_document(document, source="--gpu", name="measured")


def measured_cluster(base: Cluster, seen: Seen, *, source: str) -> MeasuredCluster:
    """``base`` with the figures of what was seen; the two directions of a pair stay apart.

    Latency is half the round trip. A link of which nothing was seen stays as it was; one without figures from either
    side is left out. Where the cluster file gives a link by ``per_node_gbps`` alone, one pair of hosts has measured
    that. Prices are those of ``base``.

    Raises
    ------
    InputError
        A rate was measured but no latency, and ``base`` has none.
    """
    links: list[Link] = []
    remarks: dict[tuple[str, str], str] = {}
    pairs = dict.fromkeys((*base.link_index, *seen))
    for pair in pairs:
        link, own = base.link(*pair), seen.get(pair)
        found = None if own is None else _measured(link, own)
        if found is not None:
            links.append(found)
        elif link is not None:
            links.append(link)
        remarks[pair] = _remark(own, kept=link is not None)
        if link is None and found is not None and base.links:
            remarks[pair] += ", not in the cluster file given: its price is not known"
    return MeasuredCluster(replace(base, links=tuple(links), source=source), remarks)


def _measured(link: Link | None, seen: LinkSeen) -> Link | None:
    """The link with what was seen of it; None: it was never seen to carry anything, and is in no file."""
    rate, trip = seen.rate_bytes_per_s, seen.round_trip_s
    if link is None and rate is None:
        return None
    if link is None and trip is None:
        raise InputError(
            f"{seen.source}->{seen.destination} has a rate but no latency",
            source="hippo probe",
            remedy="give the latency in a cluster file (--cluster), or measure it too (--latency-query)",
        )
    latency_s = None if trip is None else s_from_ms(_round(ms_from_s(trip.median / 2)))
    if link is None:
        assert rate is not None
        assert latency_s is not None
        return Link(seen.source, seen.destination, _rounded(rate), latency_s, 0.0)
    changed = link if latency_s is None else replace(link, latency_s=latency_s)
    if rate is None:
        return changed
    if link.bandwidth_bytes_per_s is None:
        return replace(changed, per_node_bytes_per_s=_rounded(rate))
    return replace(changed, bandwidth_bytes_per_s=_rounded(rate), per_node_bytes_per_s=None)


def _rounded(rate: Spread) -> float:
    return bytes_per_s_from_gbps(_round(gbps_from_bytes_per_s(rate.median)))


def _round(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _remark(seen: LinkSeen | None, *, kept: bool) -> str:
    otherwise = "as in the cluster file given" if kept else "left out"
    if seen is None:
        return f"not measured: {otherwise}"
    parts = []
    if seen.rate_bytes_per_s is None:
        parts.append(f"no rate seen: {otherwise}")
    else:
        parts.append(f"rate {_percentiles(seen.rate_bytes_per_s, 8e-6)} Mbit/s")
    if seen.round_trip_s is not None:
        parts.append(f"round trip {_percentiles(seen.round_trip_s, 1e3)} ms")
    parts.append("1 sample" if seen.samples == 1 else f"{seen.samples} samples")
    if seen.outages:
        parts.append(f"no answer in {seen.outages} of them")
    return ", ".join(parts)


def _percentiles(spread: Spread, unit: float) -> str:
    middle = f"{spread.median * unit:.4g}"
    if spread.count == 1:
        return middle
    return f"{middle} (5 to 95 %: {spread.p5 * unit:.4g} to {spread.p95 * unit:.4g})"


# ----------------------------------------------------------------------------------------------------------------- text
def cluster_text(measured: MeasuredCluster, *, how: Sequence[str]) -> str:
    """The YAML of a measured cluster; ``how``: sentences at its top."""
    document = cluster_to_document(measured.cluster)
    lines = [f"# {_one_line(sentence)}" for sentence in how]
    lines += [f"{key}: {_flow(document[key])}" for key in ("name", "source", "gpu")]
    for key in ("domains", "links"):
        rows = document[key]
        assert isinstance(rows, list)
        lines.append(f"{key}:" if rows else f"{key}: []")
        for row in rows:
            if key == "links":
                lines.append(f"  # {_one_line(measured.remarks[row['from'], row['to']])}")
            lines.append(f"  - {_flow(row)}")
    left_out = [pair for pair in measured.remarks if measured.cluster.link(*pair) is None]
    lines += [f"  # {_one_line(f'{one} -> {two}: {measured.remarks[one, two]}')}" for one, two in left_out]
    lines.append(f"dynamics: {_flow(document['dynamics'])}")
    text = "\n".join(lines) + "\n"
    assert cluster_from_document(parse_yaml(text, "own"), source="own", name="own") == measured.cluster
    return text


def _flow(value: object) -> str:
    """YAML 1.2 on one line; text is quoted unless it is a plain word."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_flow(key)}: {_flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, str) and not (_PLAIN.fullmatch(value) and value.isascii() and value.lower() not in _WORDS):
        return json.dumps(value, ensure_ascii=not value.isprintable())
    return value if isinstance(value, str) else json.dumps(value)


def _one_line(text: str) -> str:
    """A comment cannot hold line breaks or control characters."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
