"""Signals are handled between any two bytecodes, in a thread that may hold any lock: handlers wait for none."""

import subprocess
import sys
import textwrap

CODE = """
    import faulthandler, sys
    faulthandler.dump_traceback_later(60, exit=True)
    from redis.exceptions import ConnectionError
    from runner.core.settings import WorkerSettings
    from runner.tasks.supervisor import Supervisor

    def away():
        raise ConnectionError("away")

    for line in range(1, 60):
        one, left = Supervisor(away, "s", WorkerSettings()), line

        def handler_here(frame, event, arg):
            global left
            if event == "line":
                left -= 1
                if left == 0:
                    one.stop()
            return handler_here

        sys.settrace(handler_here)
        one.run()
        sys.settrace(None)
"""


def test_a_handler_may_stop_a_supervisor_wherever_it_is() -> None:
    subprocess.run([sys.executable, "-c", textwrap.dedent(CODE)], check=True)
