"""May this text of SQL run? Pure: the text is judged, nothing of it is executed."""
