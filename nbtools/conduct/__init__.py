"""What a run is, for agents and workflows alike: its folder, its log, who drives it, and how long it stays."""
