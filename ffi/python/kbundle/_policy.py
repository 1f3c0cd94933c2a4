"""Process-wide wishes and counters. Forcing and denying a variant is the bundle's to say."""

from kbundle._library import call_json, library


def clear_policy():
    """Forgets every forced and denied variant, and the two switches below."""
    library().kb_policy_clear()


def strict(on=True):
    """Refuse portable variants and those that conformance never ran on the device."""
    library().kb_policy_strict(1 if on else 0)


def allow_portable(on=True):
    """Whether code that the driver has to compile may be used where nothing else fits."""
    library().kb_policy_allow_portable(1 if on else 0)


def generation():
    """A number that grows with every change of these wishes, whoever makes it: what was derived from them before is old."""
    return library().kb_policy_generation()


def stats():
    """What the process did so far: plans made and shared, code objects loaded, and for each op and
    variant chosen, why and how often. A row's "bundle" is the name inside the file, "content_id" its content."""
    return call_json(library().kb_stats)
