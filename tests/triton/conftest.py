from cli.python_provider import kbundle, library, python, shared_cache  # noqa: F401
