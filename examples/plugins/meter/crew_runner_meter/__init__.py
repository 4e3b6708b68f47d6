"""Figures of each task and call, one JSON object a line in the file that ``METER_FILE`` names."""
