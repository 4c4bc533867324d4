// Counter-based random numbers: Philox4x32-10, word for word those of
// random.py.
struct Philox {
  unsigned x, y, z, w;
};

// Ten rounds over a counter of four words under a key of two.
__device__ __forceinline__ Philox philox4x32(unsigned c0, unsigned c1, unsigned c2, unsigned c3, unsigned k0,
                                             unsigned k1) {
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const unsigned high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
    const unsigned high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  Philox out = {c0, c1, c2, c3};
  return out;
}

// The upper 24 bits of a word as a number on [0, 1): no rounding.
__device__ __forceinline__ float unit_float(unsigned bits) {
  return (float)(bits >> 8) * 5.9604644775390625e-8f;
}

// Scramble a word: a few operations where a draw needs no more (Wellons'
// lowbias32, 2018).
__device__ __forceinline__ unsigned hash32(unsigned x) {
  x ^= x >> 16;
  x *= 0x7FEB352Du;
  x ^= x >> 15;
  x *= 0x846CA68Bu;
  return x ^ (x >> 16);
}
