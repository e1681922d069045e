#!/usr/bin/env python3
"""Reads a store by docs/format.md alone and prints it in the dump text of LMDB: reader.py DIRECTORY

Every checksum is verified; index, fences and filters are compared with the records. The headers name
no map size, so that Berkeley DB's loader takes the text, too. Cut tails are told on standard error.
Exit status: 0 read, 1 damaged, 2 not readable here (a newer format, no store).
"""

import struct
import sys

from filters import check_filters
from hashes import crc32c, siphash13
from segment import File, Refused, Segment


def used(file):
    """Logs and manifests are allocated ahead: zeros follow what was written."""
    return len(file.data.rstrip(b"\0"))


def report_cut(file, at):
    if used(file) > at:
        print(f"{file.name} at byte {at}: the rest is cut", file=sys.stderr)


class Store:
    """Reads everything: `newest` has the newest version of every key, None for a deleted one."""

    def __init__(self, directory):
        self.newest, self.keyspaces, self.logs, self.segments = {}, {}, {}, {}
        self.manifest(File(directory, "MANIFEST"))
        for number, entry in self.segments.items():
            file = File(directory, f"{number:016x}.seg")
            segment = Segment(file, entry, self.hash_bits, self.hash)
            check_filters(segment)
            for at, *record in segment.records:
                self.put(file, at, *record)
        logs, sealed = {n: File(directory, f"{n:016x}.log") for n in self.logs}, True
        while sealed:
            following = [n for n in logs if self.starts(logs[n], n) == self.through + 1]
            sealed = following and self.log(logs.pop(following[0]), following[0])
        for number, file in logs.items():
            file.need(self.starts(file, number) is None, 64, "commits before it are missing")
            self.log(file, number)

    def hash(self, keyspace, key):
        top = siphash13(self.seed, struct.pack("<I", keyspace) + key) >> 18
        return top >> 46 - self.hash_bits << 46 - self.hash_bits

    def put(self, file, at, keyspace, key, sequence, kind, value):
        file.need(keyspace in self.keyspaces, at, "a keyspace that the manifest does not name")
        file.need(kind == 1 or kind == 2 and not value, at, "kind of record")
        if sequence > self.newest.get((keyspace, key), (0,))[0]:
            self.newest[keyspace, key] = sequence, value if kind == 1 else None

    def manifest(self, file):
        file.head(b"SEALMANI", 24)
        self.id, at, last = file.data[32:48], 64, None

        def frame(at):
            length, crc, number = struct.unpack("<IIQ", file.data[at:at + 16].ljust(16, b"\0"))
            end = at + 16 + (length + 7 & ~7)
            bound = struct.pack("<IQ24sQ", length, number, file.data[32:56], at)
            whole = 0 < length + crc + number and end <= len(file.data)
            if whole and crc == crc32c(file.data[at + 16:end], crc32c(bound)):
                return number, at + 16, at + 16 + length, end

        while found := frame(at):
            file.need(last is None or found[0] == last + 1, at, "edit number")
            for tag, start, end in file.fields(*found[1:3]):
                self.change(file, tag, start, end)
            last, at = found[0], found[3]
        later = [found for found in map(frame, range(at, used(file), 8)) if found]
        right = last is not None and all(found[0] <= last for found in later)
        file.need(right, at, "damage before a whole edit, or in the state")
        report_cut(file, at)

    def change(self, file, tag, at, end):
        if not 1 <= tag <= 11:
            return file.need(tag & 0x8000, at, f"unknown field {tag}", 2)
        form = {1: "16s16sBBQQQQ", 2: "IBH", 3: "QQQQ", 4: "Q36s10Q", 7: "QQ", 11: ""}.get(tag, "Q")
        v = file.take(form, at)
        rest = at + struct.calcsize("<" + form) + (v[2] if tag == 2 else 0)
        file.need(rest <= end, at, "a field is cut")
        file.skip_fields(rest, end)
        if tag == 1:
            self.seed, self.hash_bits, self.through = v[1], v[2], v[6]
        elif tag == 2:
            self.keyspaces[v[0]] = file.data[rest - v[2]:rest]
        elif tag in (3, 4):
            (self.logs if tag == 3 else self.segments)[v[0]] = v[1:]
        elif tag in (5, 6):
            (self.logs if tag == 5 else self.segments).pop(v[0])
        elif tag == 7:
            self.logs[v[0]] = self.logs[v[0]][0], v[1]
        elif tag == 8:
            self.through = v[0]

    def frame(self, file, number, at):
        """The frame header that was written at this place of this log, if there is one."""
        slot = file.data[at:at + 40]
        bound = struct.pack("<16sQQQ", self.id, number, self.logs[number][0], at)
        if len(slot) == 40 and any(slot[:8]) and file.take("I", at)[0] == crc32c(bound, crc32c(slot[4:])):
            return struct.unpack("<IBBHQQIIII", slot)

    def starts(self, file, number):
        """The sequence of the first frame, None without one."""
        return (self.frame(file, number, 64) or [None] * 5)[4]

    def log(self, file, number):
        """Replays a log on top of commit `through`; whether its seal is there."""
        file.head(b"SEALLOG1", 56)
        own = struct.pack("<16sQQ", self.id, number, self.logs[number][0])
        file.need(file.data[16:48] == own, 16, "the head of another log")
        at, mark, records, total, first, last = 64, self.logs[number][1], 0, 0, 0, 0
        while header := self.frame(file, number, at):
            _, kind, flags, zero, sequence, durable, length, count, crc, more = header
            file.need(kind in (1, 2) and not flags | zero | more, at, "unknown frame", 2)
            right = sequence == (self.through + 1 if kind == 1 else last)
            file.need(right and durable <= self.through and length % 8 == 0, at, "frame header")
            payload = file.data[at + 40:at + 40 + length]
            if len(payload) < length or crc32c(payload) != crc:
                break
            if kind == 2:
                file.need(payload == struct.pack("<4Q", records, total, first, last), at, "seal")
                file.need(mark <= self.through, at, "commits that were durable are missing")
                return True
            file.need(self.commit(file, at + 40, at + 40 + length, sequence) == count, at, "count")
            records, total, first, last = records + count, total + length, first or sequence, sequence
            at, self.through = at + 40 + length, sequence
        later = filter(None, (self.frame(file, number, i) for i in range(at + 8, used(file), 8)))
        highest = max([mark, *(header[5] for header in later)])
        file.need(highest <= self.through, at, "damage where commits were durable")
        report_cut(file, at)

    def commit(self, file, at, end, sequence):
        count = 0
        while at < end:
            kind, flags, key_len, value_len, keyspace, skip, zero = file.take("BBHIIHH", at)
            file.need(not flags | zero, at, "unknown record flags", 2)
            key, value = at + 16 + skip, at + 16 + skip + key_len
            file.need(value + value_len <= end, at, "a record is cut")
            self.put(file, at, keyspace, file.data[key:value], sequence, kind,
                     file.data[value:value + value_len])
            at, count = value + value_len + 7 & ~7, count + 1
        return count

    def dump(self, output):
        for keyspace, name in sorted(self.keyspaces.items(), key=lambda item: item[1]):
            output.write(b"VERSION=3\nformat=bytevalue\ndatabase=" + name + b"\ntype=btree\nHEADER=END\n")
            for (_, key), (_, value) in sorted(i for i in self.newest.items() if i[0][0] == keyspace):
                if value is not None:
                    output.write(f" {key.hex()}\n {value.hex()}\n".encode())
            output.write(b"DATA=END\n")


def main():
    try:
        Store(sys.argv[1]).dump(sys.stdout.buffer)
    except Refused as refused:
        what, status = refused.args
        print(what, file=sys.stderr)
        return status


if __name__ == "__main__":
    sys.exit(main())
