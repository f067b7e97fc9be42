"""Demonstrations for tasks of reasoning-gym: functions `writer(row, seed) -> str`, named by `demonstrations.writer`."""
