"""How a run is asked to stop."""


class Stopped(Exception):
    """SIGTERM or Ctrl-C came: the run is saved, and the same call resumes it.

    Attributes:
        signal: the signal's number; None where it came to another worker.
    """

    def __init__(self, message: str, signal: int | None = None):
        super().__init__(message)
        self.signal = signal
