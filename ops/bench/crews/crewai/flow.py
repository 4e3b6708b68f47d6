"""A flow of CrewAI that is measured: ten methods that do nothing. What it notes of itself goes to ``NOTES``."""

import json
import os
import time
from pathlib import Path

from crewai.flow import Flow, listen, router, start

TIMES = 10


class Counting(Flow):
    """Goes round."""

    @start("again")
    def count(self):
        self.state["n"] = self.state.get("n", 0) + 1
        with Path(os.environ["NOTES"]).open("a") as out:
            print(json.dumps({"busy": time.process_time()}), file=out)

    @router(count)
    def whether(self):
        return "again" if self.state["n"] < TIMES // 2 else "enough"

    @listen("enough")
    def end(self):
        return self.state["n"]
