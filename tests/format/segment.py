"""Reads and verifies a segment by docs/format.md: records, key fences, index, page fences."""

import struct
from functools import reduce
from os.path import commonprefix
from pathlib import Path

from hashes import M32, M64, crc32c, xxh3

PAGE = 4096


class Refused(Exception):
    """What is wrong, and the exit status."""


class File:
    """A file of a store in memory, with what all formats have in common."""

    def __init__(self, directory, name):
        self.name = name
        try:
            self.data = Path(directory, name).read_bytes()
        except FileNotFoundError:
            raise Refused(f"{name} is missing", 2 if name == "MANIFEST" else 1) from None

    def need(self, right, at, what, status=1):
        if not right:
            raise Refused(f"{self.name} at byte {at}: {what}", status)

    def take(self, form, at):
        self.need(0 <= at <= len(self.data) - struct.calcsize("<" + form), at, "the file ends")
        return struct.unpack_from("<" + form, self.data, at)

    def version(self, magic, version, expected, at):
        self.need(magic == expected, at, "magic")
        self.need(version == 1, at, f"version {version}", 2)

    def head(self, magic, features_at):
        """Magic, version, checksum, feature bits: in this order."""
        *found, crc = self.take("8sII", 0)
        self.version(*found, magic, 0)
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


def size_class(length):
    """The smallest class that holds a record of this length, padding included."""
    return next((c for c in range(63) if (4 + c % 4 << c // 4) * 8 >= length), 63)


def index_entry(key_hash, offset, record_class, tombstone):
    return (key_hash << 50 | offset // 8 << 7 | record_class << 1 | tombstone).to_bytes(12, "big")


def separator(previous, this):
    """What the key fence of a block says: (inexact, bytes)."""
    shared = len(commonprefix([previous, this]))
    return shared == len(this) or shared >= 32, this[:shared + 1][:32]


class Seeds:
    def __init__(self, identity):
        self.base = xxh3(identity)

    def seed(self, domain, place):
        return xxh3(struct.pack("<QQ", domain, place), self.base)

    def record_start(self, offset):
        high = offset // 8 >> 32
        return (self.seed(1, 0) ^ offset // 8 ^ (high << 16 | high >> 16)) & M32


def chain(sums):
    """The checksum of a section made of many checked pieces."""
    return reduce(lambda last, piece_sum: xxh3(struct.pack("<Q", piece_sum), last), sums, 0)


class Segment:
    """A segment as its manifest entry describes it. `records` are (offset, keyspace, key, sequence,
    kind, value); `key_hash` hashes a key of a keyspace."""

    def __init__(self, file, entry, hash_bits, key_hash):
        identity, length, self.tail, tail_len, self.footer_sum, *self.counts = entry
        self.file, self.identity = file, identity + bytes(4)
        file.need(len(file.data) == length == self.tail + tail_len, 0, "the file's length")
        self.footer(length, hash_bits)
        file.head(b"SEALSEGM", 56)
        file.need(file.data[16:56] == self.identity, 16, "identity")
        self.seeds, self.entries, self.fences, self.records = Seeds(self.identity), [], [], []
        self.read_records(key_hash)
        self.entries.sort()
        self.hashes = [int.from_bytes(entry[:6], "big") >> 2 for entry in self.entries]
        self.check_key_fences()
        self.check_pages()

    def footer(self, length, hash_bits):
        file = self.file
        footer_len, version, magic = file.take("II8s", length - 16)
        file.version(magic, version, b"SEALSEGM", length - 16)
        at = self.footer_at = length - footer_len
        file.need(at >= self.tail and footer_len >= 144, at, "the footer's length")
        right = file.take("Q", length - 24)[0] == self.footer_sum == xxh3(file.data[at:length - 24])
        file.need(right, at, "the footer's checksum, or another footer")
        (identity, _, features, *counts, bits, self.prefix_bits, ordinal_bits, offset_bits, page,
         self.fence_bytes, sections, field_bytes) = file.take("40s8Q4BIIHH", at)
        file.need(features == 0 and ordinal_bits == 0 and page == PAGE, at, "unknown features", 2)
        right = identity == self.identity and counts == self.counts
        file.need(right and bits == hash_bits and offset_bits == 43, at, "not as the manifest says")
        fields_at = at + 120 + 40 * sections
        file.need(fields_at + field_bytes == length - 24, at, "the footer's parts")
        file.skip_fields(fields_at, length - 24)
        self.sections, self.filters = {}, []
        for place in range(at + 120, fields_at, 40):
            number, algorithm, k, bits, _, *section = file.take("HBBHHQQQQ", place)
            file.need(number <= 5 or number & 0x8000, place, "unknown section", 2)
            file.need(sum(section[:2]) <= length, place, "a section outside the file")
            if number != 4:
                self.sections[number] = section
            elif (algorithm, k) == (1, 8) or algorithm == 2 and 1 <= k <= 7:
                self.filters.append((algorithm, k, *section))

    def read_records(self, key_hash):
        file, (at, length, items, checksum) = self.file, self.sections[1]
        file.need(at == 64, at, "the records' place")
        sums, last, block, end = [], None, 0, at + length
        while at < end:
            crc, keyspace, sequence, value_len, key_len, kind, flags = file.take("IIQIHBB", at)
            key = at + 24 + (2 + file.take("H", at + 24)[0] if flags & 1 else 0)
            value, stop = key + key_len, key + key_len + value_len
            after = max(at + 32, stop + 7 & ~7)
            right = after <= end and crc == crc32c(file.data[at + 4:stop], self.seeds.record_start(at))
            file.need(right and not any(file.data[stop:after]), at, "a record's checksum or padding")
            file.need(flags <= 1, at, "unknown record flags", 2)
            this = struct.pack(">I", keyspace) + file.data[key:value]
            file.need(last is None or last < (this, -sequence), at, "order of records")
            if last is None or at - block >= self.fence_bytes:
                block = at
                self.fences.append((at, *(separator(last[0], this) if last else (False, b""))))
            self.records.append((at, keyspace, this[4:], sequence, kind, file.data[value:stop]))
            entry = index_entry(key_hash(keyspace, this[4:]), at, size_class(after - at), kind == 2)
            self.entries.append(entry)
            sums.append(crc)
            last, at = (this, -sequence), after
        right = len(sums) == items == self.counts[0] and chain(sums) == checksum
        file.need(right, 64, "not the records that the footer counts")

    def pieces(self, at, end, domain, what):
        """The pieces of a section that begin with their checksums, and those checksums."""
        for number, place in enumerate(range(at, end, PAGE)):
            piece, (stored,) = self.file.data[place:min(place + PAGE, end)], self.file.take("Q", place)
            right = xxh3(piece[8:], self.seeds.seed(domain, number)) == stored
            self.file.need(right, place, f"checksum of {what}")
            yield stored, piece

    def check_key_fences(self):
        at, length, items, checksum = self.sections[2]
        sums, found = [], []
        for stored, piece in self.pieces(at, at + length, 2, "key fences"):
            count, used, place = *struct.unpack_from("<HH", piece, 8), 16
            for _ in range(count):
                head, = struct.unpack_from("<Q", piece, place)
                text = piece[place + 8:place + 8 + (head & 0xFF)]
                found.append(((head >> 16) * 8, bool(head >> 8 & 1), text))
                place += 8 + (head & 0xFF)
            self.file.need(place == used, at, "bytes used by key fences")
            sums.append(stored)
        right = found == self.fences and len(found) == items and chain(sums) == checksum
        self.file.need(right, at, "not the key fences of the records")

    def check_pages(self):
        at, length, items, checksum = self.sections[3]
        before = sum(self.sections[2][:2])
        right = at == -(-before // PAGE) * PAGE and not any(self.file.data[before:at])
        self.file.need(right, before, "padding in front of the pages")
        sums, found, fences = [], b"", b""
        for stored, page in self.pieces(at, at + length, 3, "an index page"):
            found += page[16:16 + 12 * struct.unpack_from("<H", page, 8)[0]]
            sums.append(stored)
            last = self.hashes[len(found) // 12 - 1]
            fences += struct.pack("<I", (last << 18 + self.prefix_bits & M64) >> 32)
        right = found == b"".join(self.entries) and chain(sums) == checksum
        self.file.need(right and items == len(self.entries), at, "not the entries of the records")
        at, length, items, checksum = self.sections[5]
        self.file.need(at == self.tail and at + length == self.footer_at, at, "the fences' place")
        right = fences == self.file.data[at:at + length] and items == len(sums)
        self.file.need(right and xxh3(fences, self.seeds.seed(5, 0)) == checksum, at, "page fences")
