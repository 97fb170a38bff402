"""What a tree answers: committed questions asked of its command line, and two trees' answers side by side.

A question is a line of ``questions.json``. ``plans`` are searches that end long before their limit of 600 s, so they
have one answer; ``answers`` are the other commands, some of which read ``plans/NAME.json``, the plan found before.
An answer is kept as columns: all values at one place of its document, whatever the position in lists, are one column
(``rows[].score.step_time_s``). A short one is kept as it is, a long one as a digest of its values in full digits. Keys
may be added by a later tree and change no column; one that is missing or has other values differs. Text that people
read is kept apart: its words may change, and then it is said, but it is no difference.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from shutil import copytree
from typing import Any

from benchmarks.house.tree import Tree

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parents[1] / "examples"
LIMIT_S = "600"
LONGEST = 32  # characters of a column that is kept as it is
CLOCKS = re.compile(r"(?:^|\.)(?:planning_s|replay_s|events_per_s|decision_ms\w*|taken_s|seconds)$")  # of this run
GIVEN = ("plan.problem.", "problem.")  # the question, said again

Columns = dict[str, str]


@dataclass(frozen=True)
class Questions:
    """All that is asked; ``plans`` and ``answers`` are names to the words behind ``hippo``."""

    clusters: Mapping[str, Any]
    cases: Sequence[Mapping[str, Any]]
    plans: Mapping[str, str]
    answers: Mapping[str, str]
    quick: Sequence[str]

    @classmethod
    def read(cls, path: Path = HERE / "questions.json") -> Questions:
        """Those of the file."""
        return cls(**json.loads(path.read_text()))

    def words(self, name: str) -> list[str]:
        """The arguments of a question; ``KeyError`` where there is none of that name."""
        words = (self.answers[name] if name in self.answers else f"plan {self.plans[name]}").split()
        if name in self.plans:
            words += ["--time-limit", LIMIT_S]
        return [*(f"clusters/{word}.json" if word in self.clusters else word for word in words), "--json"]

    def lay(self, folder: Path) -> None:
        """Writes the files that questions name into ``folder``."""
        copytree(EXAMPLES, folder / "examples", dirs_exist_ok=True)
        for sub in ("clusters", "plans"):
            (folder / sub).mkdir(exist_ok=True)
        for name, short in self.clusters.items():
            (folder / "clusters" / f"{name}.json").write_text(json.dumps(cluster(name, short)))
        (folder / "cases.json").write_text(json.dumps(self.cases))


def cluster(name: str, short: Mapping[str, Any]) -> dict[str, Any]:
    """A cluster file: domains are (nodes, GPUs per node), links (from, to, Gbit/s, ms, USD per GB).

    A link has the same way back, unless that stands in a line of its own.
    """
    ways = {(source, destination) for source, destination, *_ in short["links"]}
    domains = [{"name": at, "nodes": nodes, "gpus_per_node": gpus} for at, (nodes, gpus) in short["domains"].items()]
    links = [
        {
            "from": a,
            "to": b,
            "bandwidth_gbps": rate,
            "latency_ms": ms,
            "price_usd_per_gb": usd,
            "both": (b, a) not in ways,
        }
        for a, b, rate, ms, usd in short["links"]
    ]
    return {"name": name, "gpu": short["gpu"], "domains": domains, "links": links}


def ask(tree: Tree, questions: Questions, name: str, folder: Path) -> dict[str, Any]:
    """A tree's answer to one question, asked in ``folder``, where ``Questions.lay`` has been."""
    words = questions.words(name)
    for needed in re.findall(r"plans/([\w.-]+)\.json", " ".join(words)):
        if not (folder / "plans" / f"{needed}.json").exists():
            ask(tree, questions, needed, folder)
    out = folder / "files" / name
    ran = tree.hippo([str(out) if word == "files" else word for word in words], where=folder)
    if ran.code not in (0, 3):
        raise RuntimeError(f"hippo {' '.join(words)}: exit code {ran.code}: {ran.stderr.strip()[-500:]}")
    document = json.loads(ran.stdout.replace(str(out), "files") or json.dumps({"refused": ran.stderr.strip()}))
    found, texts = columns(document)
    for path in sorted(out.rglob("*")) if out.exists() else []:
        if path.is_file():
            found[f"file {path.relative_to(out)}"] = sha256(path.read_bytes()).hexdigest()[:12]
    answer = {"command": " ".join(["hippo", *words]), "code": ran.code, "cpu_s": round(ran.cpu_s, 2)}
    if name in questions.plans:
        plan, score = document["plan"], document["score"] or {}
        answer |= {key: repr(document[key]) for key in ("gap", "lower_bound_s")}
        answer |= {"step_time_s": repr(score.get("step_time_s")), "plan": _digest([json.dumps(plan)])}
        (folder / "plans" / f"{name}.json").write_text(json.dumps(plan))
    return {**answer, "columns": found, "texts": texts}


def columns(document: Any) -> tuple[Columns, Columns]:
    """The columns of a document, and those of them that hold text that people read."""
    values: dict[str, list[str]] = {}
    spoken = set()
    for place, value in _leaves(document, ""):
        if CLOCKS.search(place) or place.startswith(GIVEN):
            continue
        if isinstance(value, str) and " " in value:
            spoken.add(place)
        values.setdefault(place, []).append(repr(value))
    kept = {place: _column(found) for place, found in values.items()}
    return (
        {place: column for place, column in kept.items() if place not in spoken},
        {place: column for place, column in kept.items() if place in spoken},
    )


def _leaves(node: Any, place: str) -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _leaves(value, f"{place}.{key}" if place else key)
    elif isinstance(node, list):
        yield f"{place}#", len(node)
        for value in node:
            yield from _leaves(value, f"{place}[]")
    else:
        yield place, node


def _column(values: Sequence[str]) -> str:
    whole = ", ".join(values)
    return whole if len(whole) <= LONGEST else f"{len(values)}: {_digest(values)}"


def _digest(values: Sequence[str]) -> str:
    return sha256("\n".join(values).encode()).hexdigest()[:12]


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What differs between two answers to one question, a line each; empty: they are equal."""
    lines = [
        f"{key}: {before[key]} before, {after.get(key)} after"
        for key in ("code", "step_time_s", "gap", "lower_bound_s", "plan")
        if key in before and before[key] != after.get(key)
    ]
    return lines + list(_apart(before["columns"], after["columns"]))


def reworded(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Where the words differ between two answers to one question."""
    return list(_apart(before["texts"], after["texts"]))


def _apart(before: Columns, after: Columns) -> Iterator[str]:
    for place, column in before.items():
        if after.get(place) != column:
            yield f"{place}: {column} before, {after.get(place, 'missing')} after"
