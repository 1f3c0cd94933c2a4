"""What to say of a libkbundle.so that this machine cannot load: pip refuses a wheel of another platform, but a folder that was copied, an
image for another machine or --platform brings one all the same. Imported always, so what it needs is imported when it is asked."""

MACHINES = {3: "i686", 40: "armv7", 62: "x86_64", 183: "aarch64", 243: "riscv64"}  # e_machine of ELF


def wrong_library(path, error):
    """The message of an error: the file and its wheel, what both are for, what this machine is, what to install."""
    return "loading %s%s: %s; %s, this is %s: %s" % (path, _wheel(), error, _made_for(path), _here(), _advice())


def _distribution():
    from importlib import metadata
    try:
        return metadata.distribution("kbundle")
    except metadata.PackageNotFoundError:
        return None


def _wheel():
    """" of the wheel kbundle 0.1.0 (py3-none-manylinux_2_28_x86_64)", where one is installed."""
    found = _distribution()
    tags = [line[5:] for line in ((found and found.read_text("WHEEL")) or "").splitlines() if line.startswith("Tag: ")]
    return " of the wheel kbundle %s (%s)" % (found.version, ", ".join(tags)) if tags else ""


def _made_for(path):
    try:
        with open(path, "rb") as file:
            head = file.read(20)
    except OSError:
        return "it cannot be read"
    if head[:4] != b"\x7fELF" or len(head) < 20:
        return "it is no library of Linux"
    machine = int.from_bytes(head[18:20], "big" if head[5] == 2 else "little")
    return "it is for Linux on %s" % MACHINES.get(machine, "machine %d of ELF" % machine)


def _here():
    import platform
    libc, version = platform.libc_ver()
    return "%s on %s%s" % (platform.system(), platform.machine(), " with %s %s" % (libc, version) if libc else "")


def _advice():
    if _distribution():
        return "install the wheel of this platform (pip install --force-reinstall kbundle), or where there is none, build kbundle here"
    return "build it here, or take it from the wheel of this platform (pip install kbundle)"
