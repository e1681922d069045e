#!/usr/bin/env python3
"""Checks the test vectors of docs/format.md with the functions of the readers: vectors.py FORMAT.MD"""

import struct
import sys

from filters import filter_bits, filter_block
from hashes import M64, crc32c, siphash13, xxh3
from segment import Seeds, chain, index_entry, separator, size_class


def data(text):
    """Hex digits; - for none, xx*n for repetition, + between parts."""
    if text == "-":
        return b""
    parts = [(part + "*1").split("*")[:2] for part in text.split("+")]
    return b"".join(bytes.fromhex(digits) * int(count) for digits, count in parts)


def padded(content, align, least=0):
    return content + bytes(max(-len(content) % align, least - len(content)))


def number(text):
    return int(text, 0)


def key_hash(seed, bits, keyspace, key):
    top = siphash13(data(seed), struct.pack("<I", number(keyspace)) + data(key)) >> 18
    return f"{top >> 46 - int(bits) << 46 - int(bits):012x}"


def page_checksum(identity, place, entries):
    body = struct.pack("<H6x", len(data(entries)) // 12) + data(entries)
    return f"{xxh3(padded(body, 4088), Seeds(data(identity)).seed(3, int(place))):016x}"


def key_fence(previous, previous_key, this, this_key):
    first, second = ((struct.pack(">I", number(keyspace)) + data(key)) for keyspace, key in
                     ((previous, previous_key), (this, this_key)))
    inexact, text = separator(first, second)
    return f"{int(inexact)} {text.hex()}"


def block(algorithm, k, *hashes):
    bits = 0
    for key in hashes:
        for bit in filter_bits(int(algorithm), int(k), number(key)):
            bits |= 1 << bit
    return bits.to_bytes(64, "little").hex()


def head(magic, rest):
    start = magic + struct.pack("<I", 1)
    return start + struct.pack("<I", crc32c(rest, crc32c(start))) + rest


def log_frame(store, file, incarnation, offset, sequence, durable, keyspace, kind, key, value):
    header = struct.pack("<BBHIIHH", int(kind), 0, len(data(key)), len(data(value)), number(keyspace), 0, 0)
    payload = padded(header + data(key) + data(value), 8)
    rest = struct.pack("<BBHQQIIII", 1, 0, 0, int(sequence), int(durable), len(payload), 1,
                       crc32c(payload), 0)
    bound = data(store) + struct.pack("<QQQ", int(file), int(incarnation), int(offset))
    return (struct.pack("<I", crc32c(bound, crc32c(rest))) + rest + payload).hex()


def segment_record(identity, offset, keyspace, sequence, kind, key, value):
    body = struct.pack("<IQIHBB", number(keyspace), int(sequence), len(data(value)), len(data(key)),
                       int(kind), 0) + data(key) + data(value)
    crc = crc32c(body, Seeds(data(identity)).record_start(int(offset)))
    return padded(struct.pack("<I", crc) + body, 8, 32).hex()


def manifest(store, seed, bits, incarnation):
    def frame(at, edit, payload):
        payload, length = padded(payload, 8), len(payload)
        bound = struct.pack("<IQ16sQQ", length, edit, data(store), int(incarnation), at)
        return struct.pack("<IIQ", length, crc32c(payload, crc32c(bound)), edit) + payload

    base = data(seed) * 2 + struct.pack("<BBQQQQ", int(bits), 0, int(incarnation), 1, 0, 1)
    file = head(b"SEALMANI", bytes(16) + data(store) + struct.pack("<QQ", int(incarnation), 0))
    file += frame(64, 0, struct.pack("<HI", 1, len(base)) + base)
    return (file + frame(len(file), 1, struct.pack("<HIQ", 9, 8, 5))).hex()


VECTORS = {
    "crc32c": lambda start, text: f"{crc32c(data(text), number(start)):08x}",
    "siphash13": lambda key, text: f"{siphash13(data(key), data(text)):016x}",
    "xxh3": lambda seed, text: f"{xxh3(data(text), number(seed)):016x}",
    "key-hash": key_hash,
    "seed": lambda of, domain, place: f"{Seeds(data(of)).seed(int(domain), int(place)):016x}",
    "record-start": lambda of, offset: f"{Seeds(data(of)).record_start(int(offset)):08x}",
    "chain": lambda *sums: f"{chain(map(number, sums)):016x}",
    "size-class": lambda length: str(size_class(int(length))),
    "index-entry": lambda of, offset, record_class, tombstone: index_entry(
        number(of), int(offset), int(record_class), int(tombstone)).hex(),
    "page-checksum": page_checksum,
    "page-fence": lambda of, prefix: f"{(number(of) << 18 + int(prefix) & M64) >> 32:08x}",
    "key-fence": key_fence,
    "filter-place": lambda of, prefix, blocks: str(
        filter_block(number(of), int(prefix), int(blocks))),
    "filter-block": block,
    "log-head": lambda store, file, incarnation: head(
        b"SEALLOG1", data(store) + struct.pack("<QQ16x", int(file), int(incarnation))).hex(),
    "log-frame": log_frame,
    "segment-record": segment_record,
    "manifest": manifest,
}


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        blocks = file.read().split("```vectors\n")[1:]
    wrong = count = 0
    for line in "".join(text.split("```")[0] for text in blocks).splitlines():
        question, _, answer = line.partition(" = ")
        name, *arguments = question.split()
        computed = VECTORS[name](*arguments)
        count += 1
        if computed != answer:
            wrong += 1
            print(f"{question} = {computed}")
    print(f"{count} vectors, {wrong} wrong")
    return wrong > 0 or count == 0


if __name__ == "__main__":
    sys.exit(main())
