// LightLDA's cycle of proposals on a GPU: lda_light.py, whose names and random numbers these are, tells of
// it.
//
// A warp moves the tokens of one block (documents of a group, words of a group) one after the other, in the
// order of the CPU; other warps have blocks that share neither a document nor a word with it. All lanes hold
// the same token: they search its document's list and its word's row side by side, and one of them writes. A
// count that leaves the token out is the count as it stands, less one for its own topic, so that nothing is
// written unless the token moves.
//
// Documents lie in sections, one after the other at hand: numbers of documents and of their tokens are those of the
// section. Topics of tokens and counts of words are those of the corpus.
//
// TOPIC is the type of a token's topic. All decisions are made of + * and < of doubles, and no products are
// fused with sums: the topics are those of the CPU bit for bit.
#include "philox.cuh"
#include "sum_of_warp.cuh"

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
__device__ __forceinline__ void recount_document(const Token& token, unsigned* entries, int* n_lines,
                                                 int slot, unsigned to, int lane) {
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
    __syncwarp();
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

// What a warp reads of the model, the same for all of its tokens.
struct Model {
  const TOPIC* topics;
  const long long* totals;
  const double* alpha;
  const long long* aliases;
  const unsigned* limits;  // null where alpha is symmetric
  double alpha_sum, beta_sum;
  int n_topics, n_steps;
};

struct Word {
  long long first;  // of its tokens
  unsigned others;  // tokens other than the one that moves
  unsigned key;
  double beta, smooth;
  Row row;
};

struct Place {
  unsigned topic;
  int slot;
};

__device__ __forceinline__ bool accepts(const Model& model, const Token& token, double u, unsigned s,
                                        unsigned t, double from, double to) {
  const double n_s = (double)(model.totals[s] - (s == token.old)),
               n_t = (double)(model.totals[t] - (t == token.old));
  return u * from * (n_t + model.beta_sum) < to * (n_s + model.beta_sum);
}

// Expose the topic of a token, number `number` of its word, to n_steps pairs of proposals. With the topic
// that it has, the slot that comes back means nothing.
__device__ __forceinline__ Place move(const Model& model, const Word& word, const Token& token,
                                      unsigned number, unsigned doc_others, int lane) {
  const unsigned x = (unsigned)(word.first + number) * 0x9E3779B9u, per_step = 3u * 0x5BD1E995u;
  unsigned stream = word.key;
  Place at = {token.old, token.own};
  for (int n = 0; n < model.n_steps; ++n) {
    // From the word: its part of p cancels, and the document's decides.
    Draws d = draws(x, stream);
    stream += per_step;
    unsigned t = below(d.pick, (unsigned)model.n_topics);
    if (d.choice * ((double)word.others + word.smooth) < (double)word.others) {
      unsigned other = below(d.pick, word.others);
      other += other >= number;
      t = (unsigned)model.topics[word.first + other];
    }
    if (t != at.topic) {
      const int slot = slot_of(token, t, lane);
      const double from = (double)count_at(token, at.slot) + model.alpha[at.topic];
      const double to = (double)count_at(token, slot) + model.alpha[t];
      if (accepts(model, token, d.u, at.topic, t, from, to)) at = {t, slot};
    }
    // From the document: the word's part decides.
    d = draws(x, stream);
    stream += per_step;
    int slot;
    if (d.choice * ((double)doc_others + model.alpha_sum) < (double)doc_others) {
      slot = slot_at(token, below(d.pick, doc_others), lane);
      t = token.entries[slot] >> token.shift;
    } else {
      const unsigned long long product = (unsigned long long)d.pick * (unsigned)model.n_topics;
      t = (unsigned)(product >> 32);
      if (model.limits && (unsigned)product >= model.limits[t]) t = (unsigned)model.aliases[t];
      slot = slot_of(token, t, lane);
    }
    if (t != at.topic) {
      const double from = (double)count_in(word.row, at.topic, token.old, lane) + word.beta;
      const double to = (double)count_in(word.row, t, token.old, lane) + word.beta;
      if (accepts(model, token, d.u, at.topic, t, from, to)) at = {t, slot};
    }
  }
  return at;
}

// The arrays over words and over documents that kernels share.
struct Words {
  const long long* start;
  const int* row_of_word;
  int* rows;
  cell* cells;
  const long long* cell_start;
  const double* beta;
};

__device__ __forceinline__ Row row_of(const Words& words, unsigned w, int n_topics) {
  const int r = words.row_of_word[w];
  Row row = {r >= 0 ? words.rows + (long long)r * n_topics : 0, words.cells + words.cell_start[w],
             (int)(words.cell_start[w + 1] - words.cell_start[w])};
  return row;
}

__device__ __forceinline__ Word word_of(const Words& words, unsigned w, const Model& model, unsigned index,
                                        unsigned long long seed, unsigned purpose, unsigned round) {
  Word word;
  word.key = philox4x32(w, index, round, purpose, (unsigned)seed, (unsigned)(seed >> 32)).x;
  word.first = words.start[w];
  word.others = (unsigned)(words.start[w + 1] - word.first - 1);
  word.beta = words.beta[w];
  word.smooth = (double)model.n_topics * word.beta;
  word.row = row_of(words, w, model.n_topics);
  return word;
}

__device__ __forceinline__ Token token_of(const unsigned* list, int n_lines, unsigned topic, int shift,
                                          int lane) {
  Token token = {list, n_lines * 16, -1, topic, (unsigned)shift, (1u << shift) - 1u};
  token.own = slot_of(token, topic, lane);
  return token;
}

// Move the tokens of the blocks of one step: of document group g and word group (g + step) mod n_groups by warp g.
//
// places: three numbers a token, its word, its number among those of the word, and its document, in the order in
// which a block takes them; block_start: where those of a step and document group begin, at step * n_groups + g;
// first_group: number of the first document group in the corpus; lists of documents as in lda_gibbs.py;
// rows: counts of the words with row_of_word[w] >= 0, by topic; cells from cell_start[w] on: tables of the others;
// totals: of the topics. With `live` there is one warp, and it keeps the totals up to date; without, they stand
// still, and `changes` are summed up.
extern "C" __global__ void __launch_bounds__(LANES)
    sweep(const unsigned* places, const long long* block_start, int n_groups, int step, int first_group, int live,
          const long long* word_start, TOPIC* topics, unsigned* entries, const long long* line_start, int* n_lines,
          int shift, const int* lengths, const int* row_of_word, int* rows, cell* cells,
          const long long* cell_start, long long* totals, int* changes, const double* alpha, double alpha_sum,
          const long long* aliases, const unsigned* limits, int skewed, const double* beta, double beta_sum,
          int n_topics, int n_steps, unsigned long long seed, unsigned purpose, unsigned round) {
  const int lane = (int)threadIdx.x, g = (int)blockIdx.x;
  const long long block = (long long)step * n_groups + g;
  const Model model = {topics,    totals,   alpha,    aliases, skewed ? limits : 0,
                       alpha_sum, beta_sum, n_topics, n_steps};
  const Words words = {word_start, row_of_word, rows, cells, cell_start, beta};
  unsigned known = 0xffffffffu;
  Word word = {};
  for (long long place = block_start[block]; place < block_start[block + 1]; ++place) {
    const unsigned w = places[3 * place], number = places[3 * place + 1], d = places[3 * place + 2];
    if (w != known) word = word_of(words, w, model, (unsigned)(first_group + g), seed, purpose, round);
    known = w;
    const long long i = word.first + number;
    unsigned* list = entries + line_start[d] * 16;
    const Token token = token_of(list, n_lines[d], (unsigned)topics[i], shift, lane);
    const Place to = move(model, word, token, number, (unsigned)lengths[d] - 1u, lane);
    if (to.topic == token.old) continue;
    __syncwarp();  // all lanes have read what one of them now writes
    if (lane == 0) {
      topics[i] = (TOPIC)to.topic;
      if (live) {
        totals[token.old] -= 1;
        totals[to.topic] += 1;
      } else {
        atomicSub(changes + token.old, 1);
        atomicAdd(changes + to.topic, 1);
      }
    }
    recount_word(word.row, token.old, to.topic, lane);
    recount_document(token, list, n_lines + d, to.slot, to.topic, lane);
  }
}

// Move the tokens of the common words in a range of documents, a warp each; the counts and topics of the
// words stand still meanwhile.
//
// places: word and number of a token, document by document; coming: the topics that the tokens move to, those of
// word w from coming_start[w] on; index: of the random streams.
extern "C" __global__ void __launch_bounds__(128, 8)
    sweep_common(const unsigned* places, const long long* doc_start, int first_doc, int last_doc,
                 const long long* coming_start, TOPIC* coming, unsigned index, const long long* word_start,
                 const TOPIC* topics, unsigned* entries, const long long* line_start, int* n_lines, int shift,
                 const int* lengths, const int* row_of_word, int* rows, cell* cells,
                 const long long* cell_start, const long long* totals, const double* alpha, double alpha_sum,
                 const long long* aliases, const unsigned* limits, int skewed, const double* beta,
                 double beta_sum, int n_topics, int n_steps, unsigned long long seed, unsigned purpose,
                 unsigned round) {
  const int lane = (int)(threadIdx.x % LANES);
  const int d = first_doc + (int)(blockIdx.x * (blockDim.x / LANES) + threadIdx.x / LANES);
  if (d >= last_doc) return;
  const Model model = {topics,    totals,   alpha,    aliases, skewed ? limits : 0,
                       alpha_sum, beta_sum, n_topics, n_steps};
  const Words words = {word_start, row_of_word, rows, cells, cell_start, beta};
  unsigned* list = entries + line_start[d] * 16;
  unsigned known = 0xffffffffu;
  Word word = {};
  for (long long place = doc_start[d]; place < doc_start[d + 1]; ++place) {
    const unsigned w = places[2 * place], number = places[2 * place + 1];
    if (w != known) word = word_of(words, w, model, index, seed, purpose, round);
    known = w;
    const Token token = token_of(list, n_lines[d], (unsigned)topics[word.first + number], shift, lane);
    const Place to = move(model, word, token, number, (unsigned)lengths[d] - 1u, lane);
    if (lane == 0) coming[coming_start[w] + number] = (TOPIC)to.topic;
    if (to.topic == token.old) continue;
    __syncwarp();
    recount_document(token, list, n_lines + d, to.slot, to.topic, lane);
  }
}

// After sweep_common: the tokens of the same documents take over their new topics, and the words' counts with
// them, a warp a range (word, begin, end) of numbers. A word without a row is in one range.
extern "C" __global__ void __launch_bounds__(128)
    take_over(const int* ranges, int first_range, int last_range, const long long* coming_start,
              const TOPIC* coming, const long long* word_start, TOPIC* topics, const int* row_of_word, int* rows,
              cell* cells, const long long* cell_start, int* changes, int n_topics) {
  const int lane = (int)(threadIdx.x % LANES);
  const int r = first_range + (int)(blockIdx.x * (blockDim.x / LANES) + threadIdx.x / LANES);
  if (r >= last_range) return;
  const unsigned w = (unsigned)ranges[3LL * r];
  const int end = ranges[3LL * r + 2];
  const Words words = {word_start, row_of_word, rows, cells, cell_start, 0};
  const Row row = row_of(words, w, n_topics);
  TOPIC* const held = topics + word_start[w];
  const TOPIC* const next = coming + coming_start[w];
  for (int first = ranges[3LL * r + 1]; first < end; first += LANES) {
    const int j = first + lane;
    const unsigned from = j < end ? (unsigned)held[j] : 0u, to = j < end ? (unsigned)next[j] : 0u;
    if (from != to) {
      held[j] = (TOPIC)to;
      atomicSub(changes + from, 1);
      atomicAdd(changes + to, 1);
      if (row.dense) {
        atomicSub(row.dense + from, 1);
        atomicAdd(row.dense + to, 1);
      }
    }
    if (row.dense) continue;
    for (unsigned moved = __ballot_sync(EVERY, from != to); moved; moved &= moved - 1) {
      const int mover = __ffs(moved) - 1;
      recount_word(row, __shfl_sync(EVERY, from, mover), __shfl_sync(EVERY, to, mover), lane);
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
  const int lane = (int)(threadIdx.x % LANES),
            d = (int)(blockIdx.x * (blockDim.x / LANES) + threadIdx.x / LANES);
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

// Count the tokens of words, whose rows and tables are empty, a warp each.
extern "C" __global__ void __launch_bounds__(256)
    count_words(const TOPIC* topics, const long long* word_start, const int* row_of_word, int* rows, cell* cells,
                const long long* cell_start, int n_words, int n_topics) {
  const int lane = (int)(threadIdx.x % LANES),
            w = (int)(blockIdx.x * (blockDim.x / LANES) + threadIdx.x / LANES);
  if (w >= n_words) return;
  const Words words = {word_start, row_of_word, rows, cells, cell_start, 0};
  const Row row = row_of(words, (unsigned)w, n_topics);
  if (row.dense) {
    for (long long i = word_start[w] + lane; i < word_start[w + 1]; i += LANES) atomicAdd(row.dense + topics[i], 1);
    return;
  }
  for (long long i = word_start[w]; i < word_start[w + 1]; ++i) {
    const unsigned topic = (unsigned)topics[i];
    const int here = cell_of(row, topic, lane);
    __syncwarp();
    if (lane == 0) row.cells[here] = ((cell)topic << 32 | (unsigned)row.cells[here]) + 1;
    __syncwarp();
  }
}

// Sum of lnG(count + alpha) - lnG(alpha) over the topics of each document, a warp each; `base` is lnG(alpha).
extern "C" __global__ void __launch_bounds__(256)
    joint_of_documents(const unsigned* entries, const long long* line_start, const int* n_lines, int shift,
                       int n_documents, const double* alpha, const double* base, double* out) {
  const int lane = (int)(threadIdx.x % LANES),
            d = (int)(blockIdx.x * (blockDim.x / LANES) + threadIdx.x / LANES);
  if (d >= n_documents) return;
  const unsigned* list = entries + line_start[d] * 16;
  const unsigned mask = (1u << shift) - 1u;
  double sum = 0.;
  for (int j = lane; j < n_lines[d] * 16; j += LANES) {
    const unsigned topic = list[j] >> shift, count = list[j] & mask;
    if (count) sum += lgamma((double)count + alpha[topic]) - base[topic];
  }
  sum = sum_of_warp(sum);
  if (lane == 0) out[d] = sum;
}

// The same over the topics of each word, with the word's beta.
extern "C" __global__ void __launch_bounds__(256)
    joint_of_words(const long long* word_start, const int* row_of_word, int* rows, cell* cells,
                   const long long* cell_start, int n_words, int n_topics, const double* beta, const double* base,
                   double* out) {
  const int lane = (int)(threadIdx.x % LANES),
            w = (int)(blockIdx.x * (blockDim.x / LANES) + threadIdx.x / LANES);
  if (w >= n_words) return;
  const Words words = {word_start, row_of_word, rows, cells, cell_start, beta};
  const Row row = row_of(words, (unsigned)w, n_topics);
  const int n = row.dense ? n_topics : row.size;
  double sum = 0.;
  for (int k = lane; k < n; k += LANES) {
    const int count = row.dense ? row.dense[k] : (int)(unsigned)row.cells[k];
    if (count) sum += lgamma((double)count + beta[w]) - base[w];
  }
  sum = sum_of_warp(sum);
  if (lane == 0) out[w] = sum;
}
