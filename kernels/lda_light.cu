// LightLDA's cycle of proposals on a GPU: lda_light.py, whose names and random numbers these are, tells of
// it.
//
// A warp moves the tokens of one block (documents of a group, words of a group) one after the other, in the
// order of the CPU; other warps have blocks that share neither a document nor a word with it. All lanes hold
// the same token: they search its document's list and its word's row side by side, and one of them writes. A
// count that leaves the token out is the count as it stands, less one for its own topic, so that nothing is
// written unless the token moves.
//
// TOPIC is the type of a token's topic. All decisions are made of + * and < of doubles, and no products are
// fused with sums: the topics are those of the CPU bit for bit.
#include "philox.cuh"

typedef unsigned long long cell;  // topic << 32 | count of a word; 0 where there is none

#define EVERY 0xffffffffu
#define LANES 32

struct Token {              // what the lanes know of the token that they move
  const unsigned* entries;  // of its document
  int end;                  // slots of it that may hold something
  int own;                  // the slot of its topic
  unsigned old;             // its topic
  unsigned shift, mask;     // of an entry: topic << shift | count
};

__device__ __forceinline__ unsigned entry_without(const Token& token, int slot) {
  return slot < token.end ? token.entries[slot] - (slot == token.own ? 1u : 0u) : 0u;
}

// Slot of a topic that the document has, else its end.
__device__ __forceinline__ int slot_of(const Token& token, unsigned topic, int lane) {
  const unsigned key = topic << token.shift;
  for (int first = 0; first < token.end; first += LANES) {
    // Other topics differ above the count; what is left of the entry of this one is its count.
    const unsigned count = entry_without(token, first + lane) ^ key;
    const unsigned hits = __ballot_sync(EVERY, first + lane < token.end && count - 1 < token.mask);
    if (hits) return first + __ffs(hits) - 1;
  }
  return token.end;
}

// Slot in which the running sum of counts passes the target.
__device__ __forceinline__ int slot_at(const Token& token, unsigned target, int lane) {
  int first = 0;
  for (;;) {
    unsigned sum = entry_without(token, first + lane) & token.mask;
    for (int step = 1; step < LANES; step <<= 1) {
      const unsigned before = __shfl_up_sync(EVERY, sum, step);
      if (lane >= step) sum += before;
    }
    const unsigned total = __shfl_sync(EVERY, sum, LANES - 1);
    if (target < total) return first + __popc(__ballot_sync(EVERY, sum <= target));
    target -= total;
    first += LANES;
  }
}

__device__ __forceinline__ unsigned count_at(const Token& token, int slot) {
  return slot < token.end ? entry_without(token, slot) & token.mask : 0u;
}

// The row of a word is dense, or a table of cells in which a topic lies at its own place or after it.
struct Row {
  int* dense;  // null where the word has a table
  cell* cells;
  int size;
};

__device__ __forceinline__ int place_of(unsigned topic, int size) {
  return (int)__umulhi(hash32(topic), (unsigned)size);
}

// Cell of a topic in a table, or the empty one where it would be.
__device__ __forceinline__ int cell_of(const Row& row, unsigned topic, int lane) {
  int first = place_of(topic, row.size);
  for (int seen = 0; seen < row.size; seen += LANES) {
    int here = first + lane;
    if (here >= row.size) here -= row.size;
    const bool inside = seen + lane < row.size;
    const cell held = inside ? row.cells[here] : 0;
    const unsigned stop = __ballot_sync(EVERY, inside && (held == 0 || (unsigned)(held >> 32) == topic));
    if (stop) return __shfl_sync(EVERY, here, __ffs(stop) - 1);
    first += LANES;
    if (first >= row.size) first -= row.size;
  }
  return -1;  // a full table without the topic: tables have room for every token
}

__device__ __forceinline__ int count_in(const Row& row, unsigned topic, unsigned old, int lane) {
  const int own = topic == old;
  if (row.dense) return row.dense[topic] - own;
  return (int)(unsigned)row.cells[cell_of(row, topic, lane)] - own;
}

// Empty a cell, and move those behind it that would not be found any more. One lane does it.
__device__ void close_cell(const Row& row, int hole) {
  int next = hole;
  for (;;) {
    if (++next == row.size) next = 0;
    const cell held = row.cells[next];
    if (held == 0) break;
    const int home = place_of((unsigned)(held >> 32), row.size);
    const bool stays = hole <= next ? hole < home && home <= next : hole < home || home <= next;
    if (stays) continue;
    row.cells[hole] = held;
    hole = next;
  }
  row.cells[hole] = 0;
}

// Count a token of a word under another topic.
__device__ __forceinline__ void recount_word(const Row& row, unsigned from, unsigned to, int lane) {
  if (row.dense) {
    if (lane == 0) {
      row.dense[from] -= 1;
      row.dense[to] += 1;
    }
  } else {
    const int leaves = cell_of(row, from, lane);
    __syncwarp();
    if (lane == 0) {
      if ((unsigned)row.cells[leaves] == 1u)
        close_cell(row, leaves);
      else
        row.cells[leaves] -= 1;
    }
    __syncwarp();
    const int enters = cell_of(row, to, lane);
    __syncwarp();
    if (lane == 0) row.cells[enters] = ((cell)to << 32 | (unsigned)row.cells[enters]) + 1;
  }
  __syncwarp();
}

// Count a token of a document under another topic; the slot of that is known, or is the end.
__device__ __forceinline__ void recount_document(Token& token, unsigned* entries, int* n_lines, int slot,
                                                 unsigned to, int lane) {
  if (lane == 0) entries[token.own] -= 1;
  __syncwarp();
  if (slot == token.end) {
    for (int first = 0; first < token.end; first += LANES) {
      const bool empty = first + lane < token.end && (entries[first + lane] & token.mask) == 0;
      const unsigned found = __ballot_sync(EVERY, empty);
      if (found) {
        slot = first + __ffs(found) - 1;
        break;
      }
    }
    if (lane == 0) {
      entries[slot] = (to << token.shift) + 1;
      if (slot == token.end) *n_lines += 1;
    }
  } else if (lane == 0) {
    entries[slot] += 1;
  }
  __syncwarp();
}

__device__ __forceinline__ unsigned below(unsigned bits, unsigned n) { return __umulhi(bits, n); }

struct Draws {
  double choice, u;
  unsigned pick;
};

// A uniform, 32 random bits and another uniform.
__device__ __forceinline__ Draws draws(unsigned x, unsigned key) {
  const unsigned other = 0x5BD1E995u;
  Draws d;
  d.choice = (double)hash32(x ^ key) * 2.3283064365386963e-10;
  d.pick = hash32(x ^ (key + other));
  d.u = (double)hash32(x ^ (key + 2u * other)) * 2.3283064365386963e-10;
  return d;
}

// Move the tokens of the blocks of one step: block (g, (g + step) mod n_groups) by warp g.
//
// places: word of a token and its number among those of the word, in the order in which a block takes them;
// block_start: where those of block (word group h, document group g) begin, at h * n_groups + g;
// lists of documents as in lda_gibbs.py; rows: counts of the words with row_of_word[w] >= 0, by topic;
// cells from cell_start[w] on: tables of the others; totals: of the topics. With `live` there is one warp,
// and it keeps the totals up to date; without, they stand still, and `changes` are summed up.
extern "C" __global__ void __launch_bounds__(LANES)
    sweep(const unsigned* places, const long long* block_start, const long long* word_start,
          const unsigned* token_doc, TOPIC* topics, unsigned* entries, const long long* line_start,
          int* n_lines, int shift, const int* lengths, const int* row_of_word, int* rows, cell* cells,
          const long long* cell_start, long long* totals, int* changes, const double* alpha, double alpha_sum,
          const long long* aliases, const unsigned* limits, int skewed, const double* beta, double beta_sum,
          int n_topics, int n_steps, int n_groups, int step, int live, unsigned long long seed,
          unsigned purpose, unsigned round) {
  const int lane = (int)threadIdx.x, g = (int)blockIdx.x;
  const long long block = (long long)((g + step) % n_groups) * n_groups + g;
  Token token;
  token.shift = (unsigned)shift;
  token.mask = (1u << shift) - 1u;
  unsigned known = 0xffffffffu, key = 0;
  Row row = {0, 0, 0};
  double b = 0, smooth = 0;
  long long word_first = 0;
  unsigned word_others = 0;
  for (long long place = block_start[block]; place < block_start[block + 1]; ++place) {
    const unsigned w = places[2 * place], number = places[2 * place + 1];
    if (w != known) {
      known = w;
      key = philox4x32(w, (unsigned)g, round, purpose, (unsigned)seed, (unsigned)(seed >> 32)).x;
      word_first = word_start[w];
      word_others = (unsigned)(word_start[w + 1] - word_first - 1);
      b = beta[w];
      smooth = (double)n_topics * b;
      const int r = row_of_word[w];
      row.dense = r >= 0 ? rows + (long long)r * n_topics : 0;
      row.cells = cells + cell_start[w];
      row.size = (int)(cell_start[w + 1] - cell_start[w]);
    }
    const long long i = word_first + number;
    const unsigned d = token_doc[i];
    unsigned* list = entries + line_start[d] * 16;
    const unsigned doc_others = (unsigned)lengths[d] - 1u;
    token.entries = list;
    token.end = n_lines[d] * 16;
    token.old = (unsigned)topics[i];
    token.own = -1;
    token.own = slot_of(token, token.old, lane);
    const unsigned x = (unsigned)i * 0x9E3779B9u;
    unsigned s = token.old, stream = key;
    int slot = token.own;
    for (int n = 0; n < n_steps; ++n) {
      // From the word: its part of p cancels, and the document's decides.
      Draws d1 = draws(x, stream);
      stream += 3u * 0x5BD1E995u;
      unsigned t;
      if (d1.choice * ((double)word_others + smooth) < (double)word_others) {
        unsigned other = below(d1.pick, word_others);
        other += other >= number;
        t = (unsigned)topics[word_first + other];
      } else {
        t = below(d1.pick, (unsigned)n_topics);
      }
      if (t != s) {
        const int t_slot = slot_of(token, t, lane);
        const double c_s = (double)count_at(token, slot), c_t = (double)count_at(token, t_slot);
        const double n_s = (double)(totals[s] - (s == token.old)),
                     n_t = (double)(totals[t] - (t == token.old));
        if (d1.u * (c_s + alpha[s]) * (n_t + beta_sum) < (c_t + alpha[t]) * (n_s + beta_sum)) {
          s = t;
          slot = t_slot;
        }
      }
      // From the document: the word's part decides.
      Draws d2 = draws(x, stream);
      stream += 3u * 0x5BD1E995u;
      int t_slot;
      if (d2.choice * ((double)doc_others + alpha_sum) < (double)doc_others) {
        t_slot = slot_at(token, below(d2.pick, doc_others), lane);
        t = token.entries[t_slot] >> token.shift;
      } else {
        const unsigned long long product = (unsigned long long)d2.pick * (unsigned)n_topics;
        t = (unsigned)(product >> 32);
        if (skewed && (unsigned)product >= limits[t]) t = (unsigned)aliases[t];
        t_slot = slot_of(token, t, lane);
      }
      if (t != s) {
        const double c_s = (double)count_in(row, s, token.old, lane);
        const double c_t = (double)count_in(row, t, token.old, lane);
        const double n_s = (double)(totals[s] - (s == token.old)),
                     n_t = (double)(totals[t] - (t == token.old));
        if (d2.u * (c_s + b) * (n_t + beta_sum) < (c_t + b) * (n_s + beta_sum)) {
          s = t;
          slot = t_slot;
        }
      }
    }
    if (s != token.old) {
      __syncwarp();  // all lanes have read what one of them now writes
      if (lane == 0) {
        topics[i] = (TOPIC)s;
        if (live) {
          totals[token.old] -= 1;
          totals[s] += 1;
        } else {
          atomicSub(changes + token.old, 1);
          atomicAdd(changes + s, 1);
        }
      }
      recount_word(row, token.old, s, lane);
      recount_document(token, list, n_lines + d, slot, s, lane);
    }
  }
}

// After a step: take the changes over into the totals.
extern "C" __global__ void __launch_bounds__(256) settle(long long* totals, int* changes, int n_topics) {
  const int k = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (k >= n_topics || changes[k] == 0) return;
  totals[k] += changes[k];
  changes[k] = 0;
}

// After a sweep: close the gaps in the lists of documents, a warp each.
extern "C" __global__ void __launch_bounds__(256)
    compact_lists(unsigned* entries, const long long* line_start, int* n_lines, int shift, int n_documents) {
  const int lane = (int)(threadIdx.x % LANES), d = (int)((blockIdx.x * blockDim.x + threadIdx.x) / LANES);
  if (d >= n_documents) return;
  unsigned* list = entries + line_start[d] * 16;
  const unsigned mask = (1u << shift) - 1u;
  const int end = n_lines[d] * 16;
  int kept = 0;
  for (int first = 0; first < end; first += LANES) {
    const unsigned entry = first + lane < end ? list[first + lane] : 0u;
    const unsigned held = __ballot_sync(EVERY, (entry & mask) != 0);
    __syncwarp();  // all have read before one writes
    if (entry & mask) list[kept + __popc(held & ((1u << lane) - 1u))] = entry;
    kept += __popc(held);
    __syncwarp();
  }
  for (int j = kept + lane; j < end; j += LANES) list[j] = 0;
  if (lane == 0) n_lines[d] = (kept + 15) / 16;
}

// Count the tokens of the words that have tables, a warp each.
extern "C" __global__ void __launch_bounds__(256)
    count_words(const TOPIC* topics, const long long* word_start, cell* cells, const long long* cell_start,
                int n_words) {
  const int lane = (int)(threadIdx.x % LANES), w = (int)((blockIdx.x * blockDim.x + threadIdx.x) / LANES);
  if (w >= n_words) return;
  Row row = {0, cells + cell_start[w], (int)(cell_start[w + 1] - cell_start[w])};
  if (row.size == 0) return;
  for (long long i = word_start[w]; i < word_start[w + 1]; ++i) {
    const unsigned topic = (unsigned)topics[i];
    const int here = cell_of(row, topic, lane);
    __syncwarp();
    if (lane == 0) row.cells[here] = ((cell)topic << 32 | (unsigned)row.cells[here]) + 1;
    __syncwarp();
  }
}
