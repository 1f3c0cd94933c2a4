"""What of an ELF file a recording needs: the kernels of a cubin with their parameters' sizes, and what an object wants."""
import struct

SHT_SYMTAB, SHT_NOBITS = 2, 8
EIFMT_SVAL = 4
EIATTR_KPARAM_INFO, EIATTR_REGCOUNT = 0x17, 0x2F
RESERVED_SHARED = 1024  # CUDA's own, from sm_90 on: sections of kernels begin with it, limits of a block do not count it


def sections(data):
    """Yields (name, type, bytes, header) of each section."""
    offset, = struct.unpack_from("<Q", data, 0x28)
    size, count, names = struct.unpack_from("<HHH", data, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, offset + i * size) for i in range(count)]
    strings = headers[names][4]
    for header in headers:
        start = strings + header[0]
        name = data[start:data.index(b"\0", start)].decode()
        body = b"" if header[1] == SHT_NOBITS else data[header[4]:header[4] + header[5]]
        yield name, header[1], body, header


def attributes(body):
    """Yields (attribute, place of its value) of those of .nv.info that have one of some bytes."""
    at = 0
    while at + 4 <= len(body):
        form, attribute, value = struct.unpack_from("<BBH", body, at)
        at += 4
        if form == EIFMT_SVAL:
            yield attribute, at
            at += value


def kernels(cubin):
    """{kernel: [bytes of each parameter, in order]}"""
    found = {}
    for name, _, body, _ in sections(cubin):
        if not name.startswith(".nv.info."):
            continue
        parameters = {}
        for attribute, at in attributes(body):
            if attribute == EIATTR_KPARAM_INFO:
                _, ordinal, _, bits = struct.unpack_from("<IHHI", body, at)
                parameters[ordinal] = (bits >> 18) & 0x3FFF
        found[name[len(".nv.info."):]] = [parameters[i] for i in sorted(parameters)]
    return found


def resources(cubin):
    """{kernel: its registers and static shared memory}"""
    everything = list(sections(cubin))
    named = {name: header for name, _, _, header in everything}
    symbols = next((body for _, kind, body, _ in everything if kind == SHT_SYMTAB), b"")
    strings = next((everything[header[6]][2] for _, kind, _, header in everything if kind == SHT_SYMTAB), b"")
    reserved = RESERVED_SHARED if ".nv.shared.reserved.0" in named else 0
    found = {name: {"registers": 0, "static_shared": max(0, named[".nv.shared." + name][5] - reserved) if ".nv.shared." + name in named else 0}
             for name in kernels(cubin)}
    for attribute, at in attributes(next((body for name, _, body, _ in everything if name == ".nv.info"), b"")):
        if attribute != EIATTR_REGCOUNT:
            continue
        body = next(body for name, _, body, _ in everything if name == ".nv.info")
        symbol, count = struct.unpack_from("<II", body, at)
        start, = struct.unpack_from("<I", symbols, 24 * symbol)
        name = strings[start:strings.index(b"\0", start)].decode()
        if name in found:
            found[name]["registers"] = count
    return found


def undefined(data):
    """The names that an object wants from elsewhere."""
    names, all_sections = set(), list(sections(data))
    for _, kind, body, header in all_sections:
        if kind != SHT_SYMTAB:
            continue
        strings = all_sections[header[6]][2]
        for at in range(24, len(body), 24):
            name, _, _, section = struct.unpack_from("<IBBH", body, at)
            if section == 0:
                names.add(strings[name:strings.index(b"\0", name)].decode())
    return names - {""}
