"""A replay of many sessions: units of work, worker processes, a results file, running totals."""
