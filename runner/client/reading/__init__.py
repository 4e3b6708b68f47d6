"""A crew file is read in a process of its own: what it imports, sets and changes there is not in who submits it."""
