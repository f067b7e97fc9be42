"""The thread that calls rewards."""

from __future__ import annotations

import asyncio
import threading

from groupwise.reward.scoring.process import Worker


def test_calls_run_one_after_the_other_in_one_daemon_thread_with_one_loop() -> None:
    worker = Worker("test")

    async def loop() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    jobs = [worker.start(call) for call in (threading.current_thread, threading.current_thread, loop, loop)]
    assert all(job.done.wait(60) for job in jobs)
    assert jobs[0].value is jobs[1].value
    assert jobs[0].value.daemon
    assert jobs[2].value is jobs[3].value
    worker.leave()
    jobs[0].value.join(60)
    assert not jobs[0].value.is_alive()


def test_errors_are_kept_and_the_thread_goes_on() -> None:
    worker = Worker("test")
    bad, good = worker.start(lambda: 1 / 0), worker.start(lambda: 1)
    assert good.done.wait(60)
    assert isinstance(bad.error, ZeroDivisionError)
    assert (good.value, good.error) == (1, None)
    worker.leave()
