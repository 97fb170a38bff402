"""Deciding on live state, and learning from what came of it."""
