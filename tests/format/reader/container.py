"""The file around the index: FORMAT.md, sections 1 to 3 and 6. Hashes and frames are the system's libxxhash and libzstd."""

import ctypes
import ctypes.util
import hashlib
import struct

from format.reader import decode, schema

_xxhash = ctypes.CDLL(ctypes.util.find_library("xxhash"))
_xxhash.XXH3_64bits.restype = ctypes.c_uint64
_xxhash.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
_zstd = ctypes.CDLL(ctypes.util.find_library("zstd"))
for _name in ("ZSTD_createDCtx", "ZSTD_DCtx_setParameter", "ZSTD_DCtx_refPrefix", "ZSTD_decompressDCtx"):
    getattr(_zstd, _name).restype = ctypes.c_void_p if _name == "ZSTD_createDCtx" else ctypes.c_size_t
_WINDOW_LOG_MAX = 100  # ZSTD_d_windowLogMax
NONE = 0xffffffff
PAGE = 2048


class Damaged(Exception):
    pass


def xxh3(data):
    return _xxhash.XXH3_64bits(bytes(data), len(data))


def inflate(frame, size, prefix=None):
    context = ctypes.c_void_p(_zstd.ZSTD_createDCtx())
    try:
        _zstd.ZSTD_DCtx_setParameter(context, _WINDOW_LOG_MAX, 27)
        if prefix is not None:
            _zstd.ZSTD_DCtx_refPrefix(context, prefix, ctypes.c_size_t(len(prefix)))
        out = ctypes.create_string_buffer(size)
        count = _zstd.ZSTD_decompressDCtx(context, out, ctypes.c_size_t(size), frame, ctypes.c_size_t(len(frame)))
        return out.raw if count == size else b""
    finally:
        _zstd.ZSTD_freeDCtx(context)


def require(condition, what):
    if not condition:
        raise Damaged(what)


def check_pages(index, outline):
    """Each page behind the outline has the SHA-256 that stands for it at the outline's end."""
    count = -(-(len(index) - outline) // PAGE)
    hashes = outline - 32 * count
    require(hashes >= 0, "pages_size")
    for number in range(count):
        page = index[outline + number * PAGE:outline + (number + 1) * PAGE]
        require(hashlib.sha256(page).digest() == index[hashes + 32 * number:hashes + 32 * number + 32], f"page {number}")


def check_header(data, known_features=31):
    """(index offset, index size), all of the header found as section 2 has it."""
    require(len(data) >= 128, "shorter than a header")
    require(data[:8] == b"\x89KBNDL\r\n", "magic")
    major, _, header_size, features, file_size, offset, size, index_hash, header_hash = struct.unpack_from("<HHIQQQQQQ", data, 8)
    require(major == 1, "format_major")
    require(xxh3(data[:56] + bytes(8) + data[64:128]) == header_hash, "header_xxh3")
    require(features & ~known_features == 0 and file_size == len(data) and header_size == 128, "features, file_size, header_size")
    pages = struct.unpack_from("<Q", data, 96)[0]
    require(data[104:128] == bytes(24) and offset == 128 and 128 + size <= len(data), "reserved, index")
    require(pages < size and (pages != 0) == (features >> 4 & 1), "pages_size and its bit")
    index = data[128:128 + size]
    outline = index[:size - pages]
    require(xxh3(outline) == index_hash and hashlib.sha256(outline).digest() == data[64:96], "the index's hashes")
    check_pages(index, len(outline))
    require(index[4:8] == b"KBI1", "identifier")
    return offset, size


class File:
    """A bundle, its header and index checked. Blobs are checked when they are read."""

    def __init__(self, path, fbs):
        self.data = path.read_bytes()
        offset, size = check_header(self.data)
        self.index = decode.View(self.data[offset:offset + size], schema.parse(fbs)).root("Index")
        self.check_places(offset + size)
        self.check_parts(size)

    def check_places(self, end):
        for number, blob in enumerate(self.index.blobs):
            require(blob.offset == -(-end // 64) * 64 and not any(self.data[end:blob.offset]), f"place of blob {number}")
            end = blob.offset + blob.stored_size
        require(end == len(self.data), "bytes after the last blob")

    def check_parts(self, size):
        """Rows of an op lie where its part says, as section 5.8 has it."""
        index, parts = self.index, [*self.index.parts]
        require([*index.op_names] == [op.name for op in index.ops][:len(parts)] and len(parts) in (0, len(index.ops)), "parts")
        for number, part in enumerate(parts):
            require(part.tables % 8 == 0 and part.tables + part.tables_size <= size, f"tables of part {number}")
            require(part.templates == index.ops[number].first_template, f"templates of part {number}")
            for rows in ("entries", "variants", "tuned"):
                first = sum(row.op < number for row in getattr(index, rows))
                require(getattr(part, rows) == first, f"{rows} of part {number}")

    def blob(self, number):
        row = self.index.blobs[number]
        prefix = self.blob(row.base) if row.base != NONE else None
        data = inflate(self.data[row.offset:row.offset + row.stored_size], row.size, prefix)
        require(len(data) == row.size and xxh3(data) == row.xxh3, f"blob {number}")
        require(hashlib.sha256(data).digest() == row.sha256.bytes, f"SHA-256 of blob {number}")
        return data
