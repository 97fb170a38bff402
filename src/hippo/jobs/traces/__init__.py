"""Job traces: readers of public formats, hippo's own form, and generators fitted to a trace."""
