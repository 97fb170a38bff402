"""The page results/evaluation.md, made from the evidence of the standard suite and nothing else.

Every number on it is a mean over worlds with its 95 % interval; the page says so where a requirement is not met.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hippo.decide.wording import count, number
from hippo.report.text import NOTHING

Document = Mapping[str, Any]
ORDER = (
    *("hindsight", "hi_ppo", "receding_horizon", "flat_ppo", "hysteresis", "robust_static", "static_levers"),
    *("static", "greedy", "sailor", "crosspipe", "mast", "diloco"),
)
"""Columns, as far as they were played; others follow."""


def page(found: Document, figures: Sequence[Document], suite: Document, *, pictures: Iterable[str] = ()) -> str:
    """The whole page. ``pictures``: names of files beside it."""
    drawn = {name.split("-")[-1].split(".")[0]: name for name in pictures}
    parts = [
        _head(suite),
        "## What was asked, and what was measured\n\n" + _asked(figures),
        "## All methods\n\n" + _overall(found),
        "## Family by family\n\n" + _picture(drawn, "families", "share of hindsight by family") + _families(found),
        "## Against the others, world by world\n\n" + _paired(found),
        "## Against plans that are kept\n\n" + _held(found, suite),
        "## Movement and load\n\n" + _picture(drawn, "movement", "loss by movement") + _moving(found),
        "## Many domains\n\n" + _large(found),
        "## Pareto front\n\n" + _picture(drawn, "front", "front and what was reached") + _front(found),
        "## What each part is worth\n\n" + _ablations(found),
        "## Time of a decision\n\n" + _decisions(found),
        _how(suite, found),
    ]
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def _head(suite: Document) -> str:
    terms = suite["terms"]
    allowed = f"Plans are made and timed for the runtime `{terms['runtime']}`."
    if terms["compression_worth"] is not None:
        worth = f"a token trained so counts {terms['compression_worth']:g}"
        allowed += f" **What crosses domains may be compressed to eight bits, by everybody; {worth}.**"
    return (
        "# Evaluation of Hi-PPO\n\n"
        "Made by `hippo evaluate --write results`; nothing on this page is written by hand. How the method works: "
        "[moving networks](../docs/networks.md).\n\n"
        f"Every family of networks is drawn {count(suite['seeds'], 'time')} from the test split: other models, other "
        "networks and other seeds than those that policies learned from and that settings were tuned on. All methods "
        "see the same telemetry, gaps included, and the same forecast; all begin with the same plans in hand, and are "
        "played by the same rules (`network/rules/move.py`). *Work* is tokens trained less egress, priced at what "
        "a token costs in rent. *Hindsight* knows the whole trace and may use every configuration that all had at the "
        "start, and plans made, with their levers, for the states that the network truly comes to; who competes does "
        "not matter, and a run that finds what it lacks can do more. What changes a plan and moves no weights (order, "
        "micro-batch, shares) is priced as the stop in which processes start anew, for everybody. *Captured* is "
        "(method - static) / (hindsight - static), where hindsight gains at least 3 %. Means over worlds with 95 % "
        f"intervals (Student's t); differences are taken world by world. {allowed}\n\n{_settings(suite['settings'])}"
    )


def _settings(found: Document) -> str:
    """What methods without learning were given: the best of as many settings on the same training worlds."""
    budget, told = found["budget"], []
    for name, each in found["methods"].items():
        setting = ", ".join(f"{key} {value:g}" for key, value in each["setting"].items())
        told.append(f"`{name}` {setting} ({100 * each['of_hindsight']:.1f} %)")
    return (
        f"Methods without learning have the best of {budget['settings']} settings each, searched on the same "
        f"{len(budget['families'])} worlds of the train split (`{found['made_by']}`), with the share of hindsight's "
        f"work there: {'; '.join(told)}."
    )


def _asked(figures: Sequence[Document]) -> str:
    rows = [[row["what"], row["asked"], measured(row["measured"]), _met(row)] for row in figures]
    return table(("figure", "asked", "measured", "met"), rows) + (
        "\n\n*In the mean*: the mean meets it, or does not, and the 95 % interval reaches to the other side."
    )


def _met(row: Document) -> str:
    word = met_word(row)
    return f"**{word}**" if row["met"] is False else word


def met_word(row: Document) -> str:
    """Whether a figure that was asked for is met, and whether its interval says so too."""
    if row["met"] is None:
        return ""
    return ("yes" if row["met"] else "no") + ("" if row["firm"] else ", in the mean")


def measured(value: Any) -> str:
    """A figure as it was measured: a spread, words, or a share."""
    return value if isinstance(value, str) else spread(value) if isinstance(value, Mapping) else signed(value)


def _overall(found: Document) -> str:
    rows = []
    for name in ordered(found["methods"]):
        told = found["overall"][name]
        elsewhere = told["worst_elsewhere"]
        rows.append(
            [
                f"`{name}`",
                spread(told["of_hindsight"]),
                spread(told["captured"], digits=1),
                spread(told["of_adapting"], digits=1),
                NOTHING if elsewhere is None else signed(elsewhere),
                NOTHING if told["moves"] is None else number(told["moves"]["mean"]),
                spread(told["interrupted"]),
            ]
        )
    head = (
        "method",
        "share of hindsight",
        "captured",
        "captured of adapting",
        "worst elsewhere",
        "moves",
        "stood still",
    )
    return table(head, rows) + (
        "\n\n*Captured of adapting* measures from `static_levers`, the best start under the forecast with its levers "
        "pulled: what is left is gained by changing something on the way. *Worst elsewhere*: the worst world against "
        "`static` among those where hindsight gains less than 3 %. *Stood still*: share of the time without training."
        + "".join(f"\n\nNot judged, because nothing could begin: {each}" for each in found["skipped"])
    )


def _families(found: Document) -> str:
    names = [name for name in ordered(found["methods"]) if name != "hindsight"]
    rows = []
    for family, told in found["families"].items():
        shares = [spread(told["methods"].get(name, {}).get("of_hindsight"), short=True) for name in names]
        rows.append([family, f"{told['worth_capturing']} of {told['worlds']}", *shares])
    captured = []
    for family, told in found["families"].items():
        if told["worth_capturing"]:
            shares = [spread(told["methods"].get(name, {}).get("captured"), short=True, digits=1) for name in names]
            captured.append([family, *shares])
    head = tuple(f"`{name}`" for name in names)
    return (
        "Share of hindsight's work, in per cent; the second column says in how many worlds hindsight gains 3 % or more "
        f"over `static`.\n\n{table(('family', 'worth it', *head), rows)}\n\n"
        f"Share of the gain captured, in per cent, in those worlds.\n\n{table(('family', *head), captured)}"
    )


def _paired(found: Document) -> str:
    rows = [
        [
            f"`{name}`" + (" (best without learning)" if name == found["best_rival"] else ""),
            spread(told["worth_capturing"], sign=True),
            spread(told["elsewhere"], sign=True),
            NOTHING if told["worst_elsewhere"] is None else signed(told["worst_elsewhere"]),
        ]
        for name, told in found["paired"].items()
    ]
    return (
        "`hi_ppo` less the other, in shares of hindsight's work.\n\n"
        + table(("against", "where hindsight gains 3 %", "elsewhere", "worst elsewhere"), rows)
        + "\n\nThe same differences where hindsight gains 3 %, counted: worlds are equal within 0.1 % of hindsight's "
        "work; the sign test says how likely so uneven a count of won and lost worlds is by chance; the bootstrap "
        "interval of the mean (10,000 draws) does not need differences to be normal.\n\n"
        + table(("against", "median", "won", "lost", "equal", "sign test", "bootstrap"), _counted(found))
        + "\n\n"
        + _verdict(found)
    )


def _counted(found: Document) -> list[list[str]]:
    """Rows of the differences by world."""
    told = {name: each.get("worlds") for name, each in found["paired"].items()}
    return [
        [
            f"`{name}`",
            signed(each["median"]),
            *(str(each[key]) for key in ("won", "lost", "equal")),
            "p < 0.001" if each["sign_test"] < 0.001 else f"p = {each['sign_test']:.3f}",
            spread(each["bootstrap"], sign=True),
        ]
        for name, each in told.items()
        if each is not None
    ]


def _verdict(found: Document) -> str:
    """The claim, or that it does not stand."""
    rival = found["best_rival"]
    told = found["paired"].get(rival, {}).get("worth_capturing") if rival else None
    if told is None:
        return "No method without learning was played."
    if told["low"] > 0:
        return f"Hi-PPO does more work than `{rival}`, the best method without learning; the interval is above zero."
    if told["high"] < 0:
        return (
            f"**Hi-PPO does less work than `{rival}`**, the best method without learning; the interval is below zero."
        )
    return f"The interval holds zero: **no difference from `{rival}`**, the best method without learning, is shown."


def _held(found: Document, suite: Document) -> str:
    keys = ("training_time", "utilization", "utilization_all", "egress")
    rows = [
        [f"`{name}`", str(told["worlds"]), *(spread(told[key], sign=True, digits=1) for key in keys)]
        for name, told in found["held"].items()
    ]
    busy, whole = (
        next((told[key] for told in found["held"].values()), None)
        for key in ("utilization_absolute", "utilization_all_absolute")
    )
    return (
        f"One policy at one preference (time, utilisation, egress: {', '.join(map(number, suite['preference']))}) "
        "against the plan of each planner, made for the network at rest and kept; change in per cent for the same "
        "tokens, geometric mean over worlds.\n\n"
        + table(("kept plan of", "worlds", "training time", "utilisation, in use", "of all domains", "egress"), rows)
        + f"\n\nUtilisation itself: {spread(busy)} of the domains in use, {spread(whole)} of all. {NOTHING}: the plan "
        "sends nothing over priced links."
    )


def _moving(found: Document) -> str:
    names = ordered(dict.fromkeys(name for told in found["movement"].values() for name in told))
    rows = [
        [
            f"±{100 * float(swing):.0f} %",
            str(max((each["count"] for each in told.values() if each), default=0)),
            *(spread(told.get(name)) for name in names),
        ]
        for swing, told in _by_swing(found["movement"])
    ]
    others = [name for name in names if name != "hindsight"]
    own = [
        [f"±{100 * float(swing):.0f} %", *(spread(told.get(name), sign=True) for name in others)]
        for swing, told in _by_swing(found["movement_own"])
        if float(swing) > 0
    ]
    load = [
        [f"`{name}`", LOADS[kind], spread(told["lost"]), spread(told["own"], sign=True), signed(told["most"])]
        for kind, methods in found["load"].items()
        for name, told in methods.items()
    ]
    return (
        "Loss of work against the same network at rest, by the swing of its links (Ornstein-Uhlenbeck, clipped).\n\n"
        + table(("swing", "worlds", *(f"`{name}`" for name in names)), rows)
        + "\n\nOf that, a method's own part, world by world: its loss less that of perfect hindsight. The rest is what "
        "slower links cost whoever knows them all beforehand.\n\n"
        + table(("swing", *(f"`{name}`" for name in others)), own)
        + "\n\nStability: progress lost against the same world without load of others, links at rest; of it the "
        "method's own part, its loss less that of perfect hindsight. An evicted domain keeps a fiftieth of its pace."
        "\n\n" + table(("method", "load", "lost", "own part", "worst world"), load)
    )


LOADS = {"slows": "swings by ±20 %", "evicts": "swings, and takes half of the domains in turn"}


def _by_swing(told: Document) -> list[tuple[str, Document]]:
    return sorted(told.items(), key=lambda item: float(item[0]))


def _large(found: Document) -> str:
    names = [name for name in ordered(found["methods"]) if name != "hindsight"]
    rows = [
        [
            k,
            str(told["worlds"]),
            *(spread(told["methods"].get(name, {}).get("of_hindsight"), short=True) for name in names),
        ]
        for k, told in sorted(found["large"].items(), key=lambda item: int(item[0]))
    ]
    head = ("domains", "worlds", *(f"`{name}`" for name in names))
    return "Share of hindsight's work, in per cent, by the number of domains.\n\n" + table(head, rows)


COVERAGE = (
    "problem",
    "domains",
    "points",
    "plans begun",
    "covered",
    "by the agents' proposals alone",
    "by all plans in hand",
    "with levers",
)


def _front(found: Document) -> str:
    front = found["front"]
    if not front:
        return "Not played."
    rows = [
        [
            each["world"],
            str(each["domains"]),
            str(each["points"]),
            str(each["reached"]),
            percent(each["covered"]),
            percent(each["proposed"]),
            percent(each["known"]),
            percent(each["covered_levers"]),
        ]
        for each in front["problems"]
    ]
    return (
        "The policy begins under 66 preferences on the network at rest. A point of the exact front (step time, egress, "
        "utilisation; plans without levers, so none are pulled) is covered when one of these plans is within 1 % of it "
        "in each. What the agents propose is verified: where another plan is closer to the preference, that one is "
        "taken. With levers the front is that of all configurations in hand.\n\n"
        + table(COVERAGE, rows)
        + f"\n\nCovered: {spread(front['covered'])} by problem, {percent(front['covered_points'])} of all "
        f"{front['points']} points."
    )


def _ablations(found: Document) -> str:
    if not found["ablations"]:
        return "Not played."
    rows = [
        [f"`{name}`", spread(told["worth_capturing"], sign=True), spread(told["all"], sign=True), _least(told)]
        for name, told in found["ablations"].items()
    ]
    return (
        "Each variant less the whole, in shares of hindsight's work, on the same worlds: below zero, the part is worth "
        "something. `no_gnn`, `no_masks` (which still hold in use) and `no_multipliers` learned without that part, for "
        "60 updates instead of 120; curves are flat after 10. `flat`: the agents construct no plans of their own.\n\n"
        + table(("without", "where hindsight gains 3 %", "all worlds", "worst elsewhere"), rows)
    )


def _least(told: Document) -> str:
    return NOTHING if told["worst_elsewhere"] is None else signed(told["worst_elsewhere"])


def _decisions(found: Document) -> str:
    rows = [
        [f"`{name}`", *(number(told[key]) for key in ("p50", "p99", "most", "thinking"))]
        for name, told in found["decisions"].items()
    ]
    return (
        "Milliseconds of CPU, one thread, K 2 to 8, until the answer that counts was there. *Re-planning*: p99 of what "
        "a method computes once it has answered (plans and levers for a network that has moved far); where it then "
        "answers again, the decision has waited for that, and its figure includes it.\n\n"
        + table(("method", "p50", "p99", "longest", "re-planning"), rows)
        + "\n\nT_coord: seconds from a trigger to the executed change, decision, stop and processes starting anew "
        "included (of a move in the background up to the end of its last epoch).\n\n"
        + table(("method", "changes", "p50", "p99", "longest"), _coordinated(found))
    )


def _coordinated(found: Document) -> list[list[str]]:
    return [
        [f"`{name}`", str(told["changes"]), *(number(told[key]) for key in ("p50", "p99", "most"))]
        for name, told in found["coordination"].items()
    ]


def _how(suite: Document, found: Document) -> str:
    return (
        "## How to repeat it\n\n"
        f"    hippo evaluate --write results{suite['options']}\n\n"
        f"plays {count(suite['tasks'], 'world')} on {_processes(suite['processes'])} in "
        f"{number(suite['cpu_s'] / 60)} minutes of CPU, {number(suite['wall_s'] / 60)} by the clock. Seeds "
        f"{suite['first_seed']} to {suite['first_seed'] + suite['seeds'] - 1} of each family; forecast: "
        f"{suite['forecast']}. Played on fewer worlds than all: {_fewer(suite)}. CPU by part, in minutes: "
        f"{', '.join(f'{part} {number(spent / 60)}' for part, spent in found['cpu_by_part'].items())}. Plans and step "
        "times that several methods ask for are computed once, except on the worlds where decisions are timed. "
        "`--seeds`, `--families` and `--methods` play less; `--out DIR` writes every world's figures as JSON and the "
        "charts as one HTML file. A network of your own: `hippo evaluate --model .. --cluster .. --trace NET.csv`."
    )


def _processes(several: int) -> str:
    return "one process" if several == 1 else f"{several} processes"


def _fewer(suite: Document) -> str:
    """Parts and the number of their worlds."""
    words = (
        ("held", "plans that are kept ({} of each family)"),
        ("ablated", "ablations ({} of each family)"),
        ("timed", "times of decisions ({} of each family)"),
        ("large", "many domains ({} of each number)"),
        ("movement", "movement ({} networks at rest and at ±30 %"),
        ("load", "load ({} networks)"),
        ("fronts", "Pareto fronts ({} networks)"),
    )
    told = [text.format(suite[key]) for key, text in words]
    told[4] += f", {suite['swings']} at every swing)"
    return ", ".join(told)


# ------------------------------------------------------------------------------------------------------------- parts
def ordered(names: Iterable[str]) -> list[str]:
    """Methods as the page lists them."""
    given = list(names)
    return [*(name for name in ORDER if name in given), *(name for name in given if name not in ORDER)]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; a word instead of an empty one."""
    if not rows:
        return "Not played."
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def spread(told: Document | None, *, digits: int = 2, sign: bool = False, short: bool = False) -> str:
    """Mean and 95 % interval in per cent; ``short``: without the unit, the half-width behind. One world has none."""
    if told is None:
        return NOTHING
    mark = "+" if sign else ""
    mean, low, high = (100 * told[key] for key in ("mean", "low", "high"))
    if told.get("count") == 1:
        return f"{mean:{mark}.{digits}f}" if short else f"{mean:{mark}.{digits}f} % (one world)"
    if short:
        return f"{mean:{mark}.{digits}f} ±{(high - low) / 2:.{digits}f}"
    return f"{mean:{mark}.{digits}f} % ({low:{mark}.{digits}f} to {high:{mark}.{digits}f})"


def signed(value: float) -> str:
    """A share in per cent with its sign."""
    return f"{100 * value:+.2f} %"


def percent(value: float) -> str:
    """A share in whole per cent."""
    return f"{100 * value:.0f} %"


def _picture(drawn: Mapping[str, str], name: str, words: str) -> str:
    return f"![{words}](img/{drawn[name]})\n\n" if name in drawn else ""
