"""The search for settings: spaces, proposals, trials, pruning; it knows models, and no tables."""
