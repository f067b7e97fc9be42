"""The rooms of a run: its stages and controls, its folder, its start and its end."""
