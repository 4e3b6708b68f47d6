"""The terminal browser for checkpoints. The only package that imports textual; it is imported when it is asked for."""
