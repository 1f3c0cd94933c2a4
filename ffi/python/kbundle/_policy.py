"""Process-wide wishes and counters. Forcing and denying a variant is the bundle's to say."""

from kbundle._library import call_json, library

# Whether frameworks may have formulas, and whether someone wants variants by name.
_formulas, _by_name = True, False


def clear_policy():
    """Forgets every forced and denied variant, and the switches below."""
    global _formulas, _by_name
    _formulas, _by_name = True, False
    library().kb_policy_clear()


def strict(on=True):
    """Refuse portable variants and those that conformance never ran on the device."""
    library().kb_policy_strict(1 if on else 0)


def allow_portable(on=True):
    """Whether code that the driver has to compile may be used where nothing else fits."""
    library().kb_policy_allow_portable(1 if on else 0)


def allow_formulas(on=True):
    """Whether a call of a family's wrapper may be left to the framework's own compiler where the problem is so small that it does as well
    (kbundle.jax on a GPU: the families' README.md say for what). Nothing is left while a variant is forced or denied, nor in modes."""
    global _formulas
    _formulas = bool(on)


def formulas():
    """Whether calls may be left to the framework now."""
    return _formulas and not _by_name


def by_name():
    """A variant is forced or denied: kernels are asked for."""
    global _by_name
    _by_name = True


def generation():
    """A number that grows with every change of these wishes, whoever makes it: what was derived from them before is old."""
    return library().kb_policy_generation()


def stats():
    """What the process did so far: plans made and shared, code objects loaded, and for each op and
    variant chosen, why and how often. A row's "bundle" is the name inside the file, "content_id" its content."""
    return call_json(library().kb_stats)
