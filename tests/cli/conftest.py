"""The command with a cache and a home of its own, a tiny op family, and a bundle of it."""

import pytest
from cli.command import Command
from cli.tiny import write_tiny


@pytest.fixture
def kbundle(command, tmp_path):
    """The command with a cache and a home of this test's own."""
    (tmp_path / "home").mkdir()
    return Command(command, tmp_path / "cache", tmp_path / "home")


@pytest.fixture
def tiny(tmp_path):
    """The manifest of a fresh copy of the tiny family."""
    return write_tiny(tmp_path / "tiny")


@pytest.fixture(scope="session")
def bundle(command, tmp_path_factory):
    """A bundle of the tiny family, built by the command. Not to be written to."""
    folder = tmp_path_factory.mktemp("tiny")
    run = Command(command, folder / "cache", folder)
    done = run.build(write_tiny(folder / "tiny"), folder / "tiny.kb")
    assert done.code == 0, done.err
    return folder / "tiny.kb"
