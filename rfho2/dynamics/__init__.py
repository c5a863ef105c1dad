"""Inner optimisers, each a pure step that is differentiable with respect to all its settings."""
