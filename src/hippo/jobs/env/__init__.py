"""The job queue as environments: one agent, and agents that pull jobs (spec C4, C5)."""
