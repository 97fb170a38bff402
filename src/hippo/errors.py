"""One tree of errors.

    HippoError
    |-- InputError (ValueError)        the user's input is wrong: exit code 2
    |   |-- UnknownNameError           a name that no table holds; lists the names it holds
    |   `-- MissingExtraError          a library of an extra is not installed; says how to install it
    `-- InfeasibleError                no plan satisfies the constraints: exit code 3
        `-- InexpressibleError          a plan or schedule that its target cannot express: exit code 2

``assert`` guards our own mistakes; these classes are for the user's.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path


class HippoError(Exception):
    """Root of everything hippo raises on purpose."""


class InputError(HippoError, ValueError):
    """The user's input is wrong: says where, what value, and what to do.

    Parameters
    ----------
    problem
        What is wrong, one sentence without a full stop.
    source
        File (or command-line option) that holds the value.
    key
        Path of the value inside the source, for instance ``links[2].bandwidth_gbps``.
    value
        The offending value as it was given.
    remedy
        What to do about it, an imperative sentence without a full stop.
    """

    def __init__(
        self,
        problem: str,
        *,
        source: str | None = None,
        key: str | None = None,
        value: object = None,
        remedy: str | None = None,
    ) -> None:
        self.problem, self.source, self.key, self.value, self.remedy = problem, source, key, value, remedy
        super().__init__(self._sentence())

    def _sentence(self) -> str:
        where = ": ".join(part for part in (self.source, self.key) if part)
        text = f"{where}: {self.problem}" if where else self.problem
        if self.value is not None:
            text += f" (got {_short(self.value)})"
        return f"{text}. To fix: {self.remedy}." if self.remedy else f"{text}."

    def in_python(self) -> InputError:
        """The same error for one who called a function: arguments (``global_batch``) where it names options."""

        def told(text: str) -> str:
            return re.sub(r"--([a-z][a-z-]*)", lambda found: found[1].replace("-", "_"), text)

        self.problem = told(self.problem)
        self.source, self.remedy = (text and told(text) for text in (self.source, self.remedy))
        self.args = (self._sentence(),)
        return self


class UnknownNameError(InputError):
    """A name that its table does not hold; the message lists close and known names.

    ``close``: the close ones, where more than spelling tells (None: by spelling).
    """

    def __init__(
        self,
        kind: str,
        name: str,
        known: Iterable[str],
        *,
        source: str | None = None,
        key: str | None = None,
        value: object = None,
        other: str = "",
        close: Sequence[str] | None = None,
    ):
        names = sorted(known)
        close = get_close_matches(name, names, n=3) if close is None else close
        hint = f"did you mean {' or '.join(repr(match) for match in close)}? " if close else ""
        super().__init__(
            f"unknown {kind} '{name}'",
            source=source,
            key=key,
            value=value,
            remedy=f"{hint}use one of {', '.join(names)}{other}",
        )


class MissingExtraError(InputError):
    """A library that belongs to an extra and is not installed; the message holds the command that installs it."""

    def __init__(self, library: str, extra: str, *, source: str | None = None) -> None:
        super().__init__(
            f"needs {library}, which is not installed", source=source, remedy=f"install it: {_installs(extra)}"
        )


class InfeasibleError(HippoError):
    """No plan satisfies the constraints; ``reasons`` say which, and the nearest way out."""

    def __init__(self, reasons: Iterable[str]) -> None:
        self.reasons = tuple(reasons)
        super().__init__(" ".join(self.reasons))


class InexpressibleError(InfeasibleError):
    """A target (a runtime, a launcher, a file form) cannot express a plan or schedule, whatever memory or links allow:
    another plan or another target is needed."""


def _installs(extra: str) -> str:
    """The command that installs an extra beside the hippo that runs: from its checkout, or from the package index."""
    from shutil import which

    checkout = Path(__file__).resolve().parents[2]
    pip = "pip"
    if Path(which("pip") or "").parent != Path(sys.executable).parent:  # the first pip at hand is another Python's
        pip = f"{sys.executable} -m pip"
    if not (checkout / "pyproject.toml").is_file():
        return f"{pip} install 'hippo-planner[{extra}]'"
    return f"{pip} install -e '{'.' if checkout == Path.cwd() else checkout}[{extra}]'"


def _short(value: object, limit: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."
