"""Defers imports at the head of a command until one of the imported modules is first used.

``--help`` and a mistake in the flags answer in a blink, since TensorFlow is loaded only when the work begins.
"""

import contextlib
import importlib.util
import sys
from collections.abc import Iterator


class _LazyFinder:
    """Finds modules of tf_bert as the other finders do, and has them executed at the first access to an attribute."""

    def __init__(self, finders):
        self.finders = finders

    def find_spec(self, name: str, path=None, target=None):
        if not name.startswith("tf_bert."):
            return None
        for finder in self.finders:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.submodule_search_locations is None:  # a module; rooms themselves are docstrings
                    spec.loader = importlib.util.LazyLoader(spec.loader)
                return spec
        return None


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Defers the imports in its block. They have to be imports of modules: a name taken out of one would load it.

    Example:
        >>> with deferred():
        ...     from tf_bert.training import curves
        >>> curves.plot_curves.__name__  # loads the module
        'plot_curves'
    """
    finder = _LazyFinder(list(sys.meta_path))
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
