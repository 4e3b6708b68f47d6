"""A flow that grows by a loop, has two methods side by side, and asks a person once."""

import simulated

from runner import CheckpointConfig, Flow, and_, listen, or_, router, start


class Flowing(Flow[dict]):
    @start()
    def begin(self):
        self.state["n"] = self.state.get("n", 0)

    @router(or_(begin, "again"))
    def look(self):
        self.state["n"] += 1
        self.step("pay", simulated.pay, f"look/{self.state['n']}")
        return "again" if self.state["n"] < 3 else "enough"

    @listen("enough")
    def asked(self):
        self.step("pay", simulated.pay, "asked/1")
        self.state["colour"] = self.pause("Which colour?")

    @listen("enough")
    def beside(self):
        self.step("pay", simulated.pay, "beside/1")
        self.state["beside"] = True

    @listen(and_(asked, beside))
    def end(self):
        self.step("pay", simulated.pay, "end/1")
        return dict(sorted(self.state.items()))


crew = Flowing(checkpoint=CheckpointConfig(on_events=["method_execution_finished"], max_checkpoints=3))
