"""The frozen models whose answers the demonstrations are to improve."""
