"""Models: which one a name means, the scripted one, and what goes wrong with them as errors of ours."""
