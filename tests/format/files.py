"""A file of a store in memory, with what all formats have in common."""

import os
import struct

from hashes import crc32c


class Refused(Exception):
    """What is wrong, and the exit status."""


class File:
    def __init__(self, directory, name):
        self.name = name
        try:
            with open(os.path.join(directory, name), "rb") as file:
                self.data = file.read()
        except FileNotFoundError:
            raise Refused(f"{name} is missing", 2 if name == "MANIFEST" else 1) from None
        # Logs and manifests are allocated ahead: zeros follow what was written.
        self.used = len(self.data.rstrip(b"\0"))

    def need(self, right, at, what, status=1):
        if not right:
            raise Refused(f"{self.name} at byte {at}: {what}", status)

    def take(self, form, at):
        self.need(0 <= at <= len(self.data) - struct.calcsize("<" + form), at, "the file ends")
        return struct.unpack_from("<" + form, self.data, at)

    def version(self, magic, expected, version, at):
        self.need(magic == expected, at, "magic")
        self.need(version == 1, at, f"version {version}", 2)

    def head(self, magic, features_at):
        """Magic, version, checksum, feature bits: in this order."""
        found, version, crc = self.take("8sII", 0)
        self.version(found, magic, version, 0)
        right = len(self.data) >= 64 and crc == crc32c(self.data[16:64], crc32c(self.data[:12]))
        self.need(right, 12, "checksum of the head")
        self.need(self.take("Q", features_at) == (0,), features_at, "unknown features", 2)

    def fields(self, at, end):
        """Tagged fields: tag, first byte, end."""
        while at < end:
            tag, length = self.take("HI", at)
            self.need(at + 6 + length <= end, at, "a field is cut")
            yield tag, at + 6, at + 6 + length
            at += 6 + length

    def skip_fields(self, at, end):
        for tag, *_ in self.fields(at, end):
            self.need(tag & 0x8000, at, f"unknown field {tag}", 2)
