"""What a run is: its stages and controls, its folder, its start and its end."""
