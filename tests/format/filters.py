"""Checks the filters of a segment by docs/format.md: each is built anew from the segment's records."""

import struct

from hashes import M64, xxh3
from segment import chain

PIECE = 16384


def filter_block(key_hash, prefix_bits, blocks):
    return (key_hash << 18 + prefix_bits & M64) * blocks >> 64


def filter_bits(algorithm, k, key_hash):
    """Which of a block's 512 bits a key sets."""
    x = (key_hash ^ key_hash >> 30) * 0xBF58476D1CE4E5B9 & M64
    x = (x ^ x >> 27) * 0x94D049BB133111EB & M64
    x ^= x >> 31
    return [i << 6 | x >> 6 * i & 63 if algorithm == 1 else x >> 9 * i & 511 for i in range(k)]


def check_filters(segment):
    """Compares every filter whose algorithm is known with one of the segment's hashes."""
    for section in segment.filters:
        check_filter(segment, *section)


def check_filter(segment, algorithm, k, at, length, blocks, checksum):
    file, bits, end, sums = segment.file, bytearray(64 * blocks), at + 64 * blocks, []
    for key_hash in segment.hashes:
        first = 512 * filter_block(key_hash, segment.prefix_bits, blocks)
        for bit in filter_bits(algorithm, k, key_hash):
            bits[(first + bit) // 8] |= 1 << bit % 8
    file.need(bits == file.data[at:end], at, "not the filter of the records")
    for place in range(at, end, PIECE):
        sums.append(xxh3(file.data[place:min(place + PIECE, end)], segment.seeds.seed(4, place)))
    stored = struct.pack(f"<{len(sums)}Q", *sums)
    right = file.data[end:at + length] == stored and chain(sums) == checksum
    file.need(right, end, "checksums of filter pieces")
