"""What a tree answers: committed questions asked of its command line, and two trees' answers side by side.

A question is a line of ``questions.json``. ``plans`` are searches that end long before their limit of 600 s, so they
have one answer; ``answers`` are the other commands, some of which read ``plans/NAME.json``, the plan found before.
An answer is kept as columns: all values at one place of its document, whatever the position in lists, are one column
(``rows[].score.step_time_s``). A short one is kept as it is, a long one as a digest of its values in full digits. Keys
may be added by a later tree and change no column; one that is missing or has other values differs. A key that not every
row has gets a column of the rows that do. Text that people read is kept apart: its words may change, and then it is
said, but it is no difference. The numbers in it, and what stands beside it without a blank, are a column like others.
What differs on purpose is listed in ``changed`` of ``questions.json``, place by place, each with why.
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
CLOCKS = re.compile(  # whole places, of the time that this run took
    r"(?:rows\[\]\.)?(?:planning_s|replay_s|events_per_s)|(?:compare\[\]\.)?seconds"
    r"|(?:methods\.\w+\.)?decision_ms_p(?:50|99)|decisions\[\]\.decision_ms"
)
GIVEN = ("plan.problem.", "problem.")  # the question, said again

VERBATIM = ("refused", "command")  # every word counts: why nothing is answered, and what is to be run
NUMBER = re.compile(r"(?:(?<![\w)])-)?(?:\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d*\.?\d+)(?:e[+-]?\d+)?")

Columns = dict[str, str]


@dataclass(frozen=True)
class Questions:
    """All that is asked; ``plans`` and ``answers`` are names to the words behind ``hippo``."""

    clusters: Mapping[str, Any]
    cases: Sequence[Mapping[str, Any]]
    plans: Mapping[str, str]
    answers: Mapping[str, str]
    quick: Sequence[str]
    changed: Mapping[str, Mapping[str, str]]  # of a name: the places that differ from the record on purpose, and why

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

    def unexpected(self, name: str, lines: Sequence[str]) -> list[str]:
        """Those of the lines of ``differences`` that no change explains."""
        return [line for line in lines if line.partition(": ")[0] not in self.changed.get(name, {})]

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
    values: dict[str, list[Any]] = {}
    rows: dict[str, list[tuple[int, ...]]] = {}
    for place, row, value in _leaves(document, "", ()):
        if not CLOCKS.fullmatch(place) and not place.startswith(GIVEN):
            values.setdefault(place, []).append(value)
            rows.setdefault(place, []).append(row)
    elements = {
        f"{place[:-1]}[]": [
            (*row, at) for row, many in zip(rows[place], values[place], strict=True) for at in range(many)
        ]
        for place in values
        if place.endswith("#")
    }
    found, texts = {}, {}
    for place, each in values.items():
        column = _column([repr(value) for value in each])
        if any(map(_is_text, each)):
            texts[place] = column
            found[f"{place} (figures)"] = _column([str(numbers(v)) if _is_text(v) else repr(v) for v in each])
        else:
            found[place] = column
        inner, listed, _ = place.rpartition("[]")
        if listed and rows[place] != elements[inner + listed]:
            found[f"{place} (rows)"] = _column([".".join(map(str, row)) for row in rows[place]])
    return found, texts


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and " " in value


def numbers(text: str) -> list[float]:
    """All numbers in a text, as they are written or not: ``.5`` is 0.5, ``1,024`` is 1024."""
    return [float(found.replace(",", "")) for found in NUMBER.findall(text)]


def _leaves(node: Any, place: str, row: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...], Any]]:
    """Place, position in each of the lists around it, and value."""
    if isinstance(node, dict) and node:
        for key, value in node.items():
            yield from _leaves(value, f"{place}.{key}" if place else key, row)
    elif isinstance(node, list):
        yield f"{place}#", row, len(node)
        for number, value in enumerate(node):
            yield from _leaves(value, f"{place}[]", (*row, number))
    else:
        yield (f"{place}{{}}", row, {}) if node == {} else (place, row, node)


def _column(values: Sequence[str]) -> str:
    whole = ", ".join(values)
    return whole if len(whole) <= LONGEST else f"{len(values)}: {_digest(values)}"


def _digest(values: Sequence[str]) -> str:
    return sha256("\n".join(values).encode()).hexdigest()[:12]


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What differs between two answers to one question, a line each that begins with the place; empty: equal."""
    lines = [
        f"{key}: {before[key]} before, {after.get(key)} after"
        for key in ("code", "step_time_s", "gap", "lower_bound_s", "plan")
        if key in before and before[key] != after.get(key)
    ]
    verbatim = {place: text for place, text in before["texts"].items() if place in VERBATIM}
    return lines + list(_apart({**before["columns"], **verbatim}, {**after["texts"], **after["columns"]}))


def reworded(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Where the words differ between two answers to one question."""
    prose = {place: text for place, text in before["texts"].items() if place not in VERBATIM}
    return list(_apart(prose, {**after["columns"], **after["texts"]}))


def _apart(before: Columns, after: Columns) -> Iterator[str]:
    for place, column in before.items():
        if after.get(place) != column:
            yield f"{place}: {column} before, {after.get(place, 'missing')} after"
