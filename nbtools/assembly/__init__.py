"""Assembly: the only place that wires the parts together."""
