"""On what it was measured, and how busy that was."""

import os
import platform
import time
from pathlib import Path


def calibration() -> float:
    """Milliseconds that a fixed Python loop takes: to compare runs on unlike or unlike busy machines."""
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        total = 0
        for i in range(1_000_000):
            total += i
        best = min(best, time.perf_counter() - began)
    return best * 1000


def describe() -> str:
    """One line."""
    model = "unknown processor"
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        model = platform.processor() or model
    return f"{os.cpu_count()} x {model}, {platform.system()} {platform.release()}, Python {platform.python_version()}"


def load() -> str:
    """The load averages."""
    return " ".join(f"{value:.1f}" for value in os.getloadavg())
