"""Schedule problems from JSON: one problem, a list, or an object with ``problems`` (docs/contracts.md).

    {"id": "mid WAN", "p": 4, "m": 16, "f": 1, "b": 1.05, "w": 0.75, "comm": [0.05, 5, 0.05], "K": 8}

What is needed: p, m, f, b, w (a number, or one per rank; w also ``{"fixed": a, "per_sample": b}``). All else has a
default: no delay (``comm``), no limit (``K`` null), messages that occupy no link (``transfer``), the same links up as
down (``comm_up``, ``transfer_up``), one unit of memory from F to W (``memory``), no time to agree gradients after a
rank's last operation (``reduction``), one chunk per rank (``placement``, ``chunks``), any number of layers
(``layers``), one sample per micro-batch (``micro_batch_size``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import Any

from hippo.errors import InputError
from hippo.problem.document import parse_json
from hippo.problem.table import Table, open_table
from hippo.schedule.problem import PLACEMENTS, MicroBatchMemory, RankLink, ScheduleProblem
from hippo.schedule.sizes import Sized

KEYS = (
    *("id", "p", "m", "f", "b", "w", "comm", "comm_up", "transfer", "transfer_up", "K", "memory"),
    *("reduction", "placement", "chunks", "layers", "micro_batch_size", "samples"),
)

PUBLISHED = frozenset(
    {
        *("profile", "comm_kind", "K_label", "best_known", "best_of_all", "jps_bound", "cp_sat", "cpsat_optimum"),
        *("zb_auto", "zb_auto_by_generation_comm", "one_f_one_b", "other", "two_chunks_per_rank", "gap", "optimum"),
    }
)
"""Keys of published problems that say how others did; passed over without a word."""

_OTHER_NAMES = {
    **dict.fromkeys(("stages", "ranks", "num_stages"), "write it as 'p'"),
    **dict.fromkeys(("micro_batches", "microbatches", "num_micro_batches"), "write it as 'm'"),
    **dict.fromkeys(("forward", "F"), "write it as 'f'"),
    **dict.fromkeys(("backward", "B"), "write it as 'b': the gradient of the input alone"),
    **dict.fromkeys(("weight", "W"), "write it as 'w': the gradient of the weights"),
    **dict.fromkeys(("links", "delay", "latency"), "write it as 'comm'"),
    **dict.fromkeys(("reduce", "reductions", "sync", "grad_sync"), "write it as 'reduction'"),
    **dict.fromkeys(("limit", "memory_limit", "live_limit", "k"), "write it as 'K'"),
}

WIDEST = 1e9
"""Times and delays may differ by this factor."""

TIMES: dict[str, Any] = {"least": 1e-9, "most": 1e12}
DELAYS: dict[str, Any] = {"least": 0.0, "most": 1e12}


MOST_PROBLEMS, MOST_RANKS, MOST_OPERATIONS = 100_000, 512, 100_000

_NOTHING: Mapping[str, object] = MappingProxyType({})


@dataclass(frozen=True)
class ProblemFile:
    """What a file holds."""

    problems: tuple[Sized, ...]
    listed: bool  # whether it is a list, or one problem alone
    ignored: tuple[str, ...] = ()  # unknown keys that were passed over


def problems_of_text(text: str, *, source: str, changes: Mapping[str, object] = _NOTHING) -> ProblemFile:
    """The problems of a JSON text; ``InputError`` names file, key, value and remedy.

    ``changes`` are keys that take the place of the file's in every problem.
    """
    document = parse_json(text, source)
    listed, name = True, ""
    if isinstance(document, dict) and "problems" in document:
        document, name = Table(document, source).items("problems", most=MOST_PROBLEMS), "problems"
    elif isinstance(document, list):
        document = Table({"": document}, source, "").items("", most=MOST_PROBLEMS)
    else:
        document, listed = [document], False
    if not document:
        raise InputError("holds no problem", source=source, key=name or None, remedy="write at least one")
    tables = [
        _changed(open_table(item, source=source, place=f"{name}[{index}]" if listed else ""), changes)
        for index, item in enumerate(document)
    ]
    return ProblemFile(tuple(problem_of(table) for table in tables), listed, _ignored(tables))


def _changed(table: Table, changes: Mapping[str, object]) -> Table:
    """The problem with keys of its own taken over; another placement has the usual number of chunks."""
    kept = {key: value for key, value in table.values.items() if key != "chunks" or "placement" not in changes}
    return Table({**kept, **changes}, table.source, table.place)


def _ignored(tables: Sequence[Table]) -> tuple[str, ...]:
    """Unknown keys, each once, in the order they are met."""
    return tuple(dict.fromkeys(key for each in tables for key in each.values if key not in (*KEYS, *PUBLISHED)))


def problem_of(table: Table) -> Sized:
    """One problem, with its size."""
    for key, remedy in _OTHER_NAMES.items():
        if key in table.values:
            table.refuse(key, "unknown key", remedy)
    table.refuse_misspelt(KEYS)
    p = table.integer("p", most=MOST_RANKS)
    size = table.integer("micro_batch_size", default=1, most=1_000_000)
    fixed = tuple(_part(table, key, p, "fixed", {"least": 0.0, "most": 1e12}) for key in "fbw")
    forward, backward, weight = (_times(table, key, p, size) for key in "fbw")
    down, up = _links(table, p)
    placement = table.choice("placement", PLACEMENTS, default="plain")
    chunks = table.integer("chunks", default=1 if placement == "plain" else 2, most=10_000)
    m = _micro_batches(table, p * chunks, size)
    limit, memory = _limit(table, p), _memory(table, p)
    reduction = _numbers(table, "reduction", p, DELAYS, "rank") if table.has("reduction") else ()
    name = str(table.values.get("id", ""))
    try:
        problem = ScheduleProblem(
            m, forward, backward, weight, down, up, limit, memory, placement, chunks, name, reduction
        )
    except InputError as error:  # what only the whole problem shows
        key = table.key(error.key or "")
        raise InputError(error.problem, source=table.source, key=key, value=error.value, remedy=error.remedy) from None
    _check_layers(table, problem)
    _check_range(table, problem)
    return Sized(problem, size, fixed if any(map(any, fixed)) else (), _ident(table))


def _ident(table: Table) -> str | int | None:
    """The id as it is written: text or a whole number."""
    value = table.values.get("id")
    if isinstance(value, int) and not isinstance(value, bool):
        return int(table.integer("id", least=-(2**53), most=2**53))
    text: str | None = table.text("id", default=None)
    return text


def _micro_batches(table: Table, slots: int, size: int) -> int:
    """m, or samples / size; not more than can be played."""
    most = MOST_OPERATIONS // (3 * slots)
    if most < 1:
        table.refuse("p", "and chunks make too many virtual stages", f"use at most {MOST_OPERATIONS // 3}")
    if not table.has("samples"):
        return int(table.integer("m", most=most))
    samples = table.integer("samples", most=2**31)
    if samples % size:
        table.refuse("samples", f"is no multiple of micro_batch_size ({size})", "give a multiple of it")
    m = samples // size
    if table.has("m") and table.integer("m", most=most) != m:
        table.refuse("m", f"is not samples / micro_batch_size ({m})", "leave out m, or samples")
    if m > most:
        table.refuse("samples", f"makes {m} micro-batches", f"use at most {most * size} for this many stages")
    return int(m)


# -------------------------------------------------------------------------------------------------- numbers and lists
def _numbers(table: Table, name: str, count: int, bounds: dict[str, Any], per: str) -> tuple[float, ...]:
    """One number for all, or a list of ``count``."""
    value = table.values.get(name)
    if not isinstance(value, list):
        return (float(table.number(name, **bounds)),) * count
    if len(value) != count:
        what = f"{count} number{'s' if count != 1 else ''}, one per {per}"
        table.refuse(name, f"holds {len(value)} numbers, not {count}", f"write {what}, or one for all")
    return tuple(_item(table, name, index, bounds) for index in range(count))


def _item(table: Table, name: str, index: int, bounds: dict[str, Any]) -> float:
    value = table.values[name]
    assert isinstance(value, list)
    place = f"{name}[{index}]"
    return float(Table({place: value[index]}, table.source, table.place).number(place, **bounds))


def _part(table: Table, key: str, p: int, part: str, bounds: dict[str, Any]) -> tuple[float, ...]:
    """The fixed part, or that per sample, of a time given as both; 0 where it is given as one."""
    if not isinstance(table.values.get(key), dict):
        return (0.0,) * p
    return _numbers(table.table(key, known=("fixed", "per_sample")), part, p, bounds, "rank")


def _times(table: Table, key: str, p: int, size: int) -> tuple[float, ...]:
    """Times of one pass on each rank at this micro-batch size, (p,)."""
    if not isinstance(table.values.get(key), dict):
        return _numbers(table, key, p, TIMES, "rank")
    fixed = _part(table, key, p, "fixed", {"least": 0.0, "most": 1e12})
    each = _part(table, key, p, "per_sample", TIMES)
    return tuple(a + size * b for a, b in zip(fixed, each, strict=True))


def _links(table: Table, p: int) -> tuple[tuple[RankLink, ...], tuple[RankLink, ...]]:
    """Down and up the ranks, (p - 1,) each; up is as down where nothing else is said."""
    count = p - 1
    found: dict[str, tuple[float, ...]] = {}
    for name, other in (("comm", ""), ("transfer", ""), ("comm_up", "comm"), ("transfer_up", "transfer")):
        given = table.has(name)
        usual = found[other] if other else (0.0,) * count
        found[name] = _numbers(table, name, count, DELAYS, "link") if given else usual
    down = tuple(RankLink(*each) for each in zip(found["comm"], found["transfer"], strict=True))
    up = tuple(RankLink(*each) for each in zip(found["comm_up"], found["transfer_up"], strict=True))
    return down, up


def _limit(table: Table, p: int) -> tuple[float, ...]:
    """K of each rank, (p,); null is no limit."""
    bounds: dict[str, Any] = {"above": 0.0, "most": 1e30}
    value = table.values.get("K")
    if value is None:
        return (inf,) * p
    if isinstance(value, list) and len(value) == p:
        return tuple(inf if each is None else _item(table, "K", index, bounds) for index, each in enumerate(value))
    return _numbers(table, "K", p, bounds, "rank")


def _memory(table: Table, p: int) -> tuple[MicroBatchMemory, ...]:
    """What a micro-batch keeps on each rank, (p,); empty: one unit."""
    if not table.has("memory"):
        return ()
    known = ("at_forward", "at_backward")
    if isinstance(table.values["memory"], list):
        rows = table.tables("memory", known=known)
        if len(rows) != p:
            table.refuse("memory", f"holds {len(rows)} entries, not {p}", f"write {p}, one per rank, or one for all")
        return tuple(_kept(row) for row in rows)
    return (_kept(table.table("memory", known=known)),) * p


def _kept(row: Table) -> MicroBatchMemory:
    taken = row.number("at_forward", above=0.0, most=1e30)
    return MicroBatchMemory(taken, row.number("at_backward", default=0.0, least=0.0, most=taken))


def _check_layers(table: Table, problem: ScheduleProblem) -> None:
    """Not more virtual stages than layers."""
    stages = problem.ranks * (problem.chunks if problem.placement in ("looped", "v") else 1)
    layers = table.integer("layers", default=None, most=10**9)
    if layers is not None and stages > layers:
        remedy = f"give at least {stages} layers, or fewer stages or chunks"
        table.refuse("layers", f"are fewer than the {stages} virtual stages", remedy)


def _check_range(table: Table, problem: ScheduleProblem) -> None:
    """Sums of times must still tell the shortest operation."""
    times = {"f": problem.forward, "b": problem.backward, "w": problem.weight}
    shortest = min(min(each) for each in times.values())
    for name, links in (("", problem.down), ("_up", problem.up)):
        times |= {f"comm{name}": tuple(each.latency for each in links)}
        times |= {f"transfer{name}": tuple(each.transfer for each in links)}
    times["reduction"] = problem.reduction
    for key, values in times.items():
        longest = max(values, default=0.0)
        if longest > WIDEST * shortest:
            what = f"is more than {WIDEST:g} times the shortest time ({shortest:g})"
            table.refuse(key, what, "give times and delays in one unit", value=longest)
