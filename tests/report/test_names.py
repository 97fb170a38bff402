"""Names with their figures at any width: sentences wrap, the source is given up first, the name never."""

from __future__ import annotations

from tests.report.test_terminal import printed

from hippo.report.names import names_view

ROWS = [
    {"name": "toy", "domains": 2, "usd_per_hour": 1.5, "source": "made by hand for ``tests``, so that it fits a page"},
    {"name": "four-hubs", "domains": 4, "usd_per_hour": 1.8, "source": "a report"},
]

WIDE = """\
clusters
name        domains   usd per hour   source
────────────────────────────────────────────────────────────────────────────
toy               2            1.5   made by hand for tests, so that it fits
                                     a page
four-hubs         4            1.8   a report
"""


def test_sentences_wrap_where_there_is_room() -> None:
    assert printed(names_view("clusters", ROWS), 76) == WIDE


def test_the_source_goes_first_the_name_never() -> None:
    assert "left out for want of width: source\n" in printed(names_view("clusters", ROWS), 60)
    narrow = printed(names_view("clusters", ROWS), 12)
    assert narrow.splitlines()[1].strip() == "name"
    assert "four-hubs" in narrow


def test_what_a_name_is_about_stays() -> None:
    rows = [{"name": "exact", "about": "The exact search."}]
    assert "The exact search." in printed(names_view("planners", rows), 40)
