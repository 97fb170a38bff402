"""docs/index.md and docs/planning.md, run: what a block of code prints must stand in the block of text below it.

Words must be the same; figures may differ by 5 % (or by 1), so that a new calibration need not rewrite the page.
``python tests/test_example.py`` writes the outputs anew.
"""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

PAGES = tuple(Path(__file__).resolve().parents[1] / "docs" / name for name in ("index.md", "planning.md"))
BLOCK = re.compile(r"```python\n(?P<code>.*?)```\n\n```text\n(?P<output>.*?)```", re.DOTALL)
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


def written_anew(page: str, *, but: str | None = None) -> str:
    """The page with every output as the code above it prints it; names carry over from block to block. Blocks whose
    code holds ``but`` stay as they are."""
    names: dict[str, object] = {}

    def run(block: re.Match[str]) -> str:
        if but is not None and but in block["code"]:
            return block[0]
        said = StringIO()
        with redirect_stdout(said):
            exec(block["code"], names)
        return f"```python\n{block['code']}```\n\n```text\n{said.getvalue()}```"

    return BLOCK.sub(run, page)


def words(text: str) -> list[str]:
    """Its lines with every number as #; the width of columns does not count."""
    return [" ".join(NUMBER.sub("#", line).split()) for line in text.splitlines()]


def numbers(text: str) -> list[float]:
    """Its numbers."""
    return [float(number.replace(",", "")) for number in NUMBER.findall(text)]


def differ(written: str, said: str) -> bool:
    """Whether two texts differ in a word, or in a number by more than 5 % and more than 1."""
    close = [pytest.approx(number, rel=0.05, abs=1.0) for number in numbers(said)]
    return words(written) != words(said) or numbers(written) != close


@pytest.mark.parametrize(
    ("path", "least", "but"),
    [
        (PAGES[0], 5, "hippo.pareto("),  # which takes longer than all else
        pytest.param(PAGES[0], 5, None, marks=pytest.mark.slow),
        pytest.param(PAGES[1], 1, None, marks=pytest.mark.slow),
    ],
    ids=lambda each: str(each)[-11:],
)
def test_every_output_of_the_worked_example_is_what_its_code_prints(path: Path, least: int, but: str | None):
    page = path.read_text()
    assert but is None or len(re.findall(re.escape(but), page)) == 1
    assert len(BLOCK.findall(page)) == page.count("```python") == page.count("```text") >= least
    wanted = [block["output"] for block in BLOCK.finditer(page)]
    said = [block["output"] for block in BLOCK.finditer(written_anew(page, but=but))]
    assert [pair for pair in zip(wanted, said, strict=True) if differ(*pair)] == []


@pytest.mark.parametrize(
    ("written", "said", "different"),
    [
        ("12.0 s a step", "12.4 s a step", False),
        ("120 s a step", "140 s a step", True),
        ("layers (0, 6)", "layers (0, 5)", False),
        ("stay in a", "stay in b", True),
        ("one 1", "one 1 2", True),
    ],
)
def test_words_count_and_figures_nearly(written, said, different):
    assert differ(written, said) is different


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(written_anew(page.read_text()))
