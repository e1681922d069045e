"""The hash functions of the format, written out: CRC-32C, SipHash-1-3, XXH3-64.

Plain and slow. They are those that docs/format.md names; vectors.py checks them against its vectors.
"""

import struct

M32, M64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF


def _crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_CRC = _crc_table()


def crc32c(data, start=0):
    """CRC-32C of data, going on from the CRC of what came before."""
    crc = start ^ M32
    for byte in data:
        crc = crc >> 8 ^ _CRC[(crc ^ byte) & 0xFF]
    return crc ^ M32


def _rotl(x, n, bits=64):
    return (x << n | x >> (bits - n)) & ((1 << bits) - 1)


def siphash13(key, data):
    """SipHash with one round a word and three at the end; a key of 16 bytes."""
    k0, k1 = struct.unpack("<QQ", key)
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D,
         k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def rounds(count):
        a, b, c, d = v
        for _ in range(count):
            a = (a + b) & M64
            b = _rotl(b, 13) ^ a
            a = _rotl(a, 32)
            c = (c + d) & M64
            d = _rotl(d, 16) ^ c
            a = (a + d) & M64
            d = _rotl(d, 21) ^ a
            c = (c + b) & M64
            b = _rotl(b, 17) ^ c
            c = _rotl(c, 32)
        v[:] = a, b, c, d

    tail = len(data) % 8
    last = data[len(data) - tail:] + bytes(7 - tail) + bytes([len(data) & 0xFF])
    for (word,) in struct.iter_unpack("<Q", data[:len(data) - tail] + last):
        v[3] ^= word
        rounds(1)
        v[0] ^= word
    v[2] ^= 0xFF
    rounds(3)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e")
_P32 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_P64 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9,
        0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
_MX1, _MX2 = 0x165667919E3779F9, 0x9FB21C651E98DF25


def _u32(data, at):
    return struct.unpack_from("<I", data, at)[0]


def _u64(data, at):
    return struct.unpack_from("<Q", data, at)[0]


def _fold(a, b):
    product = a * b
    return product & M64 ^ product >> 64


def _avalanche(h):
    h = (h ^ h >> 37) * _MX1 & M64
    return h ^ h >> 32


def _avalanche_xxh64(h):
    h = (h ^ h >> 33) * _P64[1] & M64
    h = (h ^ h >> 29) * _P64[2] & M64
    return h ^ h >> 32


def _mix(data, at, secret_at, seed):
    low = _u64(data, at) ^ (_u64(_SECRET, secret_at) + seed & M64)
    high = _u64(data, at + 8) ^ (_u64(_SECRET, secret_at + 8) - seed & M64)
    return _fold(low, high)


def _short(data, seed):
    n, s = len(data), _SECRET
    if n == 0:
        return _avalanche_xxh64(seed ^ _u64(s, 56) ^ _u64(s, 64))
    if n <= 3:
        combined = data[-1] | n << 8 | data[0] << 16 | data[n // 2] << 24
        return _avalanche_xxh64(combined ^ ((_u32(s, 0) ^ _u32(s, 4)) + seed & M64))
    if n <= 8:
        seed ^= int.from_bytes((seed & M32).to_bytes(4, "little"), "big") << 32
        flip = (_u64(s, 8) ^ _u64(s, 16)) - seed & M64
        h = _u32(data, n - 4) + (_u32(data, 0) << 32) ^ flip
        h ^= _rotl(h, 49) ^ _rotl(h, 24)
        h = h * _MX2 & M64
        h = (h ^ (h >> 35) + n) * _MX2 & M64
        return h ^ h >> 28
    low = _u64(data, 0) ^ ((_u64(s, 24) ^ _u64(s, 32)) + seed & M64)
    high = _u64(data, n - 8) ^ ((_u64(s, 40) ^ _u64(s, 48)) - seed & M64)
    swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
    return _avalanche(n + swapped + high + _fold(low, high) & M64)


def _middle(data, seed):
    n = len(data)
    h = n * _P64[0]
    if n <= 128:
        for i in range((n - 1) // 32, -1, -1):
            h += _mix(data, 16 * i, 32 * i, seed)
            h += _mix(data, n - 16 * (i + 1), 32 * i + 16, seed)
        return _avalanche(h & M64)
    for i in range(8):
        h += _mix(data, 16 * i, 16 * i, seed)
    h = _avalanche(h & M64)
    for i in range(8, n // 16):
        h += _mix(data, 16 * i, 16 * (i - 8) + 3, seed)
    return _avalanche(h + _mix(data, n - 16, 119, seed) & M64)


def _long(data, seed):
    n = len(data)
    words = struct.unpack("<24Q", _SECRET)
    secret = struct.pack("<24Q", *[(w - seed if i % 2 else w + seed) & M64
                                   for i, w in enumerate(words)])
    acc = [_P32[2], _P64[0], _P64[1], _P64[2], _P64[3], _P32[1], _P64[4], _P32[0]]

    def stripe(at, secret_at):
        values = struct.unpack_from("<8Q", data, at)
        keys = struct.unpack_from("<8Q", secret, secret_at)
        for i in range(8):
            key = values[i] ^ keys[i]
            acc[i ^ 1] = acc[i ^ 1] + values[i] & M64
            acc[i] = acc[i] + (key & M32) * (key >> 32) & M64

    stripes = (n - 1) // 64
    for i in range(stripes):
        stripe(64 * i, 8 * (i % 16))
        if i % 16 == 15:
            keys = struct.unpack_from("<8Q", secret, 128)
            acc[:] = [(a ^ a >> 47 ^ k) * _P32[0] & M64 for a, k in zip(acc, keys)]
    stripe(n - 64, 121)
    h = n * _P64[0]
    for i in range(0, 8, 2):
        h += _fold(acc[i] ^ _u64(secret, 11 + 8 * i), acc[i + 1] ^ _u64(secret, 19 + 8 * i))
    return _avalanche(h & M64)


def xxh3(data, seed=0):
    """XXH3-64 with a seed."""
    if len(data) <= 16:
        return _short(data, seed)
    return _middle(data, seed) if len(data) <= 240 else _long(data, seed)
