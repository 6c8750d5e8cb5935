"""A Jupyter kernel seen from its owner."""
