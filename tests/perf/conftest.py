"""The bundles and the stand-in driver of tests/cli."""

from cli.conftest import bundle, driver, gpu_bundle  # noqa: F401
