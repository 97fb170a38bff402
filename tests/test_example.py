"""docs/example.md, run: what a block of code prints must stand in the block of text below it.

``python tests/test_example.py`` writes the outputs anew.
"""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "example.md"
BLOCK = re.compile(r"```python\n(?P<code>.*?)```\n\n```text\n(?P<output>.*?)```", re.DOTALL)


def written_anew(page: str) -> str:
    """The page with every output as the code above it prints it; names carry over from block to block."""
    names: dict[str, object] = {}

    def run(block: re.Match[str]) -> str:
        said = StringIO()
        with redirect_stdout(said):
            exec(block["code"], names)
        return f"```python\n{block['code']}```\n\n```text\n{said.getvalue()}```"

    return BLOCK.sub(run, page)


def test_every_output_of_the_worked_example_is_what_its_code_prints():
    page = PAGE.read_text()
    assert len(BLOCK.findall(page)) == page.count("```python") == page.count("```text") >= 5
    assert written_anew(page).splitlines() == page.splitlines()


if __name__ == "__main__":
    PAGE.write_text(written_anew(PAGE.read_text()))
