"""How a run is asked to stop."""


class Stopped(Exception):
    """SIGTERM came: the run is saved, and the same call resumes it."""
