"""FlatBuffers read in place: tables with a vtable, structs and vectors where they lie. Fields are attributes."""

import struct

from format.reader.schema import SCALARS, SIZES


class Struct:
    def __init__(self, view, layout, at):
        for field in layout.fields:
            setattr(self, field.name, view.inline(field.type, at + field.offset))

    def __repr__(self):
        return f"Struct({vars(self)})"


class Table:
    def __init__(self, view, name, at):
        self._view, self._name, self._at = view, name, at

    def __getattr__(self, name):
        view, at = self._view, self._at
        slot, field = view.slots[self._name][name]
        vtable = at - view.read("i", at)
        place = 4 + 2 * slot
        offset = view.read("H", vtable + place) if place < view.read("H", vtable) else 0
        value = view.value(field, at + offset) if offset else view.absent(field)
        self.__dict__[name] = value  # the next access finds it here
        return value


class Vector:
    def __init__(self, view, kind, at):
        self._view, self._kind, self._first, self._count = view, kind, at + 4, view.read("I", at)
        self._step = view.element_size(kind)

    def __len__(self):
        return self._count

    def __getitem__(self, index):
        if not 0 <= index < self._count:
            raise IndexError(index)
        return self._view.element(self._kind, self._first + index * self._step)

    def __iter__(self):
        return (self[i] for i in range(self._count))


class View:
    """A buffer and its schema."""

    def __init__(self, data, schema):
        self.data, self.schema = data, schema
        self.slots = {name: {field.name: (i, field) for i, field in enumerate(layout.fields)}
                      for name, layout in schema.items()}

    def read(self, code, at):
        return struct.unpack_from("<" + code, self.data, at)[0]

    def root(self, name):
        return Table(self, name, self.read("I", 0))

    def inline(self, kind, at):
        if kind in SCALARS:
            return self.read(SCALARS[kind], at)
        if kind.startswith("["):  # an array of bytes in a struct
            return bytes(self.data[at:at + int(kind[1:-1].split(":")[1])])
        return Struct(self, self.schema[kind], at)

    def is_inline(self, kind):
        return kind in SCALARS or (kind in self.schema and self.schema[kind].struct)

    def element_size(self, kind):
        if kind in SCALARS:
            return SIZES[SCALARS[kind]]
        return self.schema[kind].size if self.is_inline(kind) else 4

    def element(self, kind, at):
        return self.inline(kind, at) if self.is_inline(kind) else self.behind(kind, at + self.read("I", at))

    def behind(self, kind, at):
        """What an offset leads to."""
        if kind == "string":
            return bytes(self.data[at + 4:at + 4 + self.read("I", at)]).decode()
        return Vector(self, kind[1:-1], at) if kind.startswith("[") else Table(self, kind, at)

    def value(self, field, at):
        return self.element(field.type, at)

    def absent(self, field):
        if field.type in SCALARS:
            return bool(field.default) if field.type == "bool" else field.default
        return () if field.type.startswith("[") else None
