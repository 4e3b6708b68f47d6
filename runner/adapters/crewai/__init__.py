"""CrewAI: crews, flows and programs of its users, as their files have them."""
