"""How formats write arguments that are not one JSON value: a tool's schema → a grammar of what is read back as a value
that satisfies it. The readers are in ``stages.parse.engines``."""
