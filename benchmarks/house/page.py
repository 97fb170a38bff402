"""The page that sets two records side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.house.answers import Questions, differences, reworded
from benchmarks.house.first_use import COMMANDS
from benchmarks.house.speeds import rows

NONE = "not recorded"
LINES = 3  # of what differs that are shown per answer
NEAR = 0.1  # rows of tables no number of which is further apart are counted, not shown


def page(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Markdown; what one of the records lacks is said to be missing."""
    lines = ["# The tree before and after", "", "Made by `python -m benchmarks.house compare`.", ""]
    lines += ["| part | before | after |", "|---|---|---|"]
    for part in dict.fromkeys((*before, *after)):
        lines.append(f"| {part} | {_origin(before.get(part))} | {_origin(after.get(part))} |")
    for part, title in TITLES.items():
        if part not in before and "beside" not in after.get(part, {}):
            continue
        lines += ["", f"## {title}", ""]
        lines += SECTIONS[part](before.get(part, {}), after[part]) if part in after else [f"{NONE.capitalize()} after."]
    return "\n".join(lines) + "\n"


def _origin(part: Mapping[str, Any] | None) -> str:
    if part is None:
        return NONE
    if part.get("given"):
        return f"{part['commit']}, figures handed down, not measured by this command"
    machine = part["machine"]
    return f"{part['commit']}, {machine['processor']}, {machine['cores']} cores, load {machine['load']}"


def _answers(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    old, new, questions = before["answers"], after["answers"], Questions.read()
    missing = [name for name in old if name not in new]
    apart = {name: differences(old[name], new[name]) for name in old if name in new}
    plans = [name for name in old if "plan" in old[name]]
    same = sum(new.get(name, {}).get("plan") == old[name]["plan"] for name in plans)
    words = sum(bool(reworded(old[name], new[name])) for name in apart)
    yield f"- {same} of {len(plans)} plans are equal bit for bit, with a limit of 600 s on one thread."
    meant = {name: each for name, each in apart.items() if each and not questions.unexpected(name, each)}
    equal = sum(not each for each in apart.values())
    yield f"- {equal} of {len(old)} answers are equal; {len(meant)} differ on purpose; {words} in other words."
    yield from (f"- `{name}`: {NONE} after." for name in missing)
    for name, each in apart.items():
        yield from (f"- `{name}`: {line}" for line in questions.unexpected(name, each)[:LINES])
    if questions.changed:
        yield from ("", "| what may differ on purpose | where | why |", "|---|---|---|")
    for name, places in questions.changed.items():
        for why in dict.fromkeys(places.values()):
            where = ", ".join(f"`{place}`" for place, told in places.items() if told == why)
            yield f"| `{name}` | {where} | {why} |"


def _numbers(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    yield "| what | before | after | after / before |"
    yield "|---|---|---|---|"
    for name, value in before.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            other = after.get(name)
            yield f"| {name} | {value:,} | {NONE if other is None else f'{other:,}'} | {ratio(value, other)} |"


def _processes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    before = after.get("beside", before)  # where both were run in turns
    yield "| whole process, CPU seconds: median (least to most) | before | after | after / before |"
    yield "|---|---|---|---|"
    for name, old in before.items():
        if isinstance(old, Mapping) and "cpu_s" in old:
            new = after.get(name)
            cells = [NONE if e is None else f"{e['cpu_s']} ({e['least_s']} to {e['most_s']})" for e in (old, new)]
            yield f"| `{name}` | {cells[0]} | {cells[1]} | {ratio(old['cpu_s'], new and new['cpu_s'])} |"


def _tables(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for name, old in before["tables"].items():
        told, found = rows(old["lines"]), rows(after["tables"].get(name, {"lines": []})["lines"])
        apart = [words for words, numbers in told.items() if not _near(numbers, found.get(words, []))]
        same = sum(numbers == found.get(words) for words, numbers in told.items())
        yield from (f"### {name}", "")
        yield f"{same} of {len(told)} rows are equal, {len(apart)} more than {100 * NEAR:g} % apart:"
        yield from ("", "| row | before | after |", "|---|---|---|")
        for words in apart:
            others = " ".join(f"{number:g}" for number in found[words]) if words in found else NONE
            yield f"| {words.replace('|', '/')} | {' '.join(f'{number:g}' for number in told[words])} | {others} |"
        yield ""


def _near(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether as many numbers stand in both, each within ``NEAR`` of the one before."""
    return len(one) == len(other) and all(abs(b - a) <= NEAR * abs(a) for a, b in zip(one, other, strict=True))


def _first_use(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    flat = [
        {
            "`make run`, clock, s": each["make run"]["clock_s"],
            "`make run`, CPU, s": each["make run"]["cpu_s"],
            "installed by it, MB": each["installed_mb"],
            **{f"first `{name}` after it, CPU, s": each[name]["first_cpu_s"] for name in COMMANDS},
        }
        for each in (before, after)
    ]
    yield from _numbers(flat[0], flat[1])


def ratio(before: float, after: float | None) -> str:
    """After over before, in words where there is none."""
    return "" if after is None or not before else f"{after / before:.2f}"


TITLES = {
    "answers": "Plans and other answers",
    "counts": "Counts",
    "rooms": "The way of `hippo plan`: room changes, climbs to a higher floor, returns to a room left before",
    "processes": "Whole processes",
    "tables": "Tables of `hippo bench`, the numbers of each row",
    "first-use": "A fresh machine",
}
SECTIONS = {
    "answers": _answers,
    "counts": _numbers,
    "rooms": _numbers,
    "processes": _processes,
    "tables": _tables,
    "first-use": _first_use,
}
