"""The best plan at the start, kept to the end, no lever pulled: what keeping is worth."""

from __future__ import annotations

from hippo.decide.online.candidates import best_under, fill, plan_under
from hippo.decide.online.view import Action, View


class Static:
    """Begins with the plan that is quickest on the network as it is at the start, and never changes anything."""

    name = "static"

    def begin(self, view: View) -> int:
        """The quickest plan of the book, and of those made for this very state."""
        return start(view)

    def decide(self, view: View) -> Action:
        """Keep."""
        return Action()


def start(view: View) -> int:
    """The quickest configuration now without a lever pulled; plans for this state are added to the book. -1: nothing
    can run now."""
    now, book = view.forecast, view.book
    if len(book) == 0:
        fill(book)
    plan_under(book, now.bandwidth_bytes_per_s[0], now.latency_s[0])
    plain = [index for index, each in enumerate(book.configurations) if not each.lever]
    return best_under(book, now.bandwidth_bytes_per_s[0], now.latency_s[0], now.compute[0], among=plain)
