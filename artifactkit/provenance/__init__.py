"""Where an artifact came from: statements beside it, the chain back to its source, summaries in it."""
