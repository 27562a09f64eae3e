#!/usr/bin/env python3
"""Golden data of the weight formats: blocks and the floats that they stand for.

Blocks are decoded by the `gguf` package; affine rows by the equation itself in numpy. The files
are read by tests/unit/format/golden_test.cpp, which knows their layout:

<NAME>.bin, little-endian: u64 seed, u64 n_hashed, u64 hash, u32 n_blocks, u32 block_bytes,
u32 block_elements, then the blocks, then n_blocks * block_elements float32. `hash` is FNV-1a over
the 32-bit words of the decoded n_hashed blocks whose bytes are the little-endian words of
splitmix64 from `seed` on (far more blocks than a file should hold); a NaN counts as 0x7fc00000.

affine.bin: for each case u32 bits, u32 group_size, u32 scale_type (as GGUF numbers F32, F16, BF16),
u32 n, then codes, scales, biases, and n float32.

Usage: python3 scripts/goldens/formats.py  (with the packages of scripts/goldens/requirements.txt)
"""

import os
import struct

import gguf
import numpy as np
from gguf.quants import dequantize

OUT = os.path.join(os.path.dirname(__file__), "..", "..", "tests", "golden_data", "formats")
HASHED_ELEMENTS = 1 << 20

# Where the binary16 scales of a block lie.
SCALES = {
    "F32": [], "F16": [0], "BF16": [], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2],
    "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
    "IQ4_NL": [0], "IQ4_XS": [0],
}
# Zero, the smallest and largest subnormal, the smallest normal, one, the largest, infinity, NaNs,
# each with either sign.
SPECIAL = [s | v for v in (0x0000, 0x0001, 0x03FF, 0x0400, 0x3C00, 0x7BFF, 0x7C00, 0x7E00, 0x7C01)
           for s in (0, 0x8000)]


def splitmix64(seed, n):
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def fnv1a(words):
    value = 0xCBF29CE484222325
    for word in words.tolist():
        value = ((value ^ word) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def decode(blocks, quant_type):
    with np.errstate(all="ignore"):
        return dequantize(blocks, quant_type).astype(np.float32).reshape(-1)


def sample_blocks(rng, name, block_bytes, n_random):
    """Random bytes, special scales, tame scales, all bytes 0x00 and 0xff."""
    rows = [np.zeros(block_bytes, np.uint8), np.full(block_bytes, 255, np.uint8)]
    rows += [rng.integers(0, 256, block_bytes, dtype=np.uint8) for _ in range(n_random)]
    for i in range(len(SPECIAL) if SCALES[name] else 0):
        block = rng.integers(0, 256, block_bytes, dtype=np.uint8)
        for k, at in enumerate(SCALES[name]):
            value = SPECIAL[(i * (1 + 6 * k)) % len(SPECIAL)]
            block[at:at + 2] = np.frombuffer(struct.pack("<H", value), np.uint8)
        rows.append(block)
    for _ in range(6):
        block = rng.integers(0, 256, block_bytes, dtype=np.uint8)
        for at in SCALES[name]:
            block[at:at + 2] = np.array([rng.normal() * 0.01], np.float16).view(np.uint8)
        rows.append(block)
    return np.stack(rows)


def write_blocks(rng, name):
    quant_type = gguf.GGMLQuantizationType[name]
    block_elements, block_bytes = gguf.GGML_QUANT_SIZES[quant_type]
    n_random = 2000 if block_elements == 1 else 30 if block_elements == 32 else 6
    blocks = sample_blocks(rng, name, block_bytes, n_random)
    expected = decode(blocks, quant_type)

    seed = int(rng.integers(0, 2**63))
    n_hashed = HASHED_ELEMENTS // block_elements
    n_words = (n_hashed * block_bytes + 7) // 8
    hashed = splitmix64(seed, n_words).view(np.uint8)[:n_hashed * block_bytes]
    values = decode(hashed.reshape(n_hashed, block_bytes), quant_type)
    words = np.where(np.isnan(values), np.uint32(0x7FC00000), values.view(np.uint32))
    with open(os.path.join(OUT, name + ".bin"), "wb") as out:
        out.write(struct.pack("<QQQIII", seed, n_hashed, fnv1a(words), len(blocks), block_bytes,
                              block_elements))
        out.write(blocks.tobytes())
        out.write(expected.tobytes())


def scale_plane(rng, n, scale_type):
    """Random bit patterns first, then tame values. Returns the bytes and the floats they mean."""
    values = (rng.normal(size=n) * 0.05).astype(np.float32)
    wild = rng.integers(0, 2**32, n // 2, dtype=np.uint32).view(np.float32)
    values[:len(wild)] = wild
    if scale_type == 0:
        return values.tobytes(), values
    if scale_type == 1:
        with np.errstate(over="ignore"):
            half = values.astype(np.float16)
        half[:len(wild)] = rng.integers(0, 2**16, len(wild), dtype=np.uint16).view(np.float16)
        return half.tobytes(), half.astype(np.float32)
    upper = values.view(np.uint32) >> np.uint32(16)
    return upper.astype(np.uint16).tobytes(), (upper << np.uint32(16)).view(np.float32)


def write_affine(rng):
    with open(os.path.join(OUT, "affine.bin"), "wb") as out:
        for bits in (4, 8):
            for group_size in (32, 64, 128):
                for scale_type in (0, 1, 30):
                    n = group_size * 6
                    codes = rng.integers(0, 2**bits, n, dtype=np.uint32)
                    per_word = 32 // bits
                    shifts = np.arange(per_word, dtype=np.uint32) * np.uint32(bits)
                    packed = (codes.reshape(-1, per_word) << shifts).sum(axis=1, dtype=np.uint32)
                    scale_bytes, scales = scale_plane(rng, n // group_size, scale_type)
                    bias_bytes, biases = scale_plane(rng, n // group_size, scale_type)
                    with np.errstate(all="ignore"):
                        product = np.repeat(scales, group_size) * codes.astype(np.float32)
                        expected = product + np.repeat(biases, group_size)
                    assert expected.dtype == np.float32
                    out.write(struct.pack("<IIII", bits, group_size, scale_type, n))
                    out.write(packed.tobytes() + scale_bytes + bias_bytes + expected.tobytes())


def main():
    os.makedirs(OUT, exist_ok=True)
    rng = np.random.default_rng(20260)
    for name in SCALES:
        write_blocks(rng, name)
    write_affine(rng)


if __name__ == "__main__":
    main()
