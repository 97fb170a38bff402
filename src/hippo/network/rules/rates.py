"""What configurations do under the state of the network now, or where it is forecast to be. C configurations."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from hippo.network.rules.configuration import Book
from hippo.network.rules.view import View

Floats = NDArray[np.float64]
_KNOWN: WeakKeyDictionary[Book, tuple[float, Floats]] = WeakKeyDictionary()


def net_now(view: View) -> Floats:
    """Tokens/s less egress in tokens of every configuration of the book, (C,); 0: it cannot run now."""
    book, now = view.book, view.forecast
    state = now.bandwidth_bytes_per_s[:1], now.latency_s[:1], now.compute[:1]
    steps = np.array([1.0 / book.step_time_s(index, *state)[0] for index in range(len(book))])
    return steps * net_tokens_per_step(book, view.usd_per_token)


def net_tokens_per_step(book: Book, usd_per_token: float) -> Floats:
    """Tokens of a step as they count, less its egress in tokens, (C,); kept until the book grows."""
    known = _KNOWN.get(book)
    if known is None or known[0] != usd_per_token or len(known[1]) != len(book):
        price = 1.0 / usd_per_token if usd_per_token > 0 else 0.0
        counted = [
            book.tokens_per_step * each.worth - price * book.egress_usd_per_step(index)
            for index, each in enumerate(book.configurations)
        ]
        known = _KNOWN[book] = usd_per_token, np.array(counted)
        known[1].setflags(write=False)
    return known[1]


def best_of_place(book: Book, rates: Floats, place: int) -> int:
    """The configuration of the highest rate, (C,), of a place; ties: the first."""
    mine = book.of_place(place)
    return mine[int(np.argmax(rates[mine]))]
