"""The job queue as environments: one agent, and agents that pull jobs."""
