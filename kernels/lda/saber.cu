// SaberLDA's sweep for LDA on a GPU: lda_saber.py tells the algorithm, and gives the same topics bit for bit.
//
// A chunk of documents is at hand, its tokens word by word. place_by_document and list_segments make the
// documents' lists of topic << 16 | count; sample draws every token; count_ranges counts anew the topics of
// frequent words, list_segments those of rare ones; joint_of_* are for the log-likelihood.
//
// A block works on one item after the other: a word, or a part of a frequent one. The word's weights g lie in
// shared memory (IN_SHARED 1) or in a part of a scratch array (0). A warp draws its tokens one by one: its
// lanes add up every 32nd entry of the document's list, a scan of the lanes tells the lane, a walk down the
// lane the entry. A lane keeps its first entries, and all walk at a time: so the walk of most draws reads
// nothing. What a token alone decides is made for 32 tokens at a time, by a lane each.
#include "philox.cuh"
#include "sum_of_warp.cuh"

#define FULL 0xffffffffu
#define ITEM 6   // numbers of an item: word, begin, end, first token, place, out
#define TRIES 8  // draws by lists and trees, before one by all topics
#define HELD 4   // lines of a document's list that a warp keeps
#define GOLDEN 0x9E3779B9u
#define OTHER 0x5BD1E995u
#define THIRD 0x85EBCA6Bu

#if IN_SHARED
#define BLOCKS 4  // of a multiprocessor at a time, for which registers are kept to 64
#else
#define BLOCKS 3
#endif

typedef unsigned short topic_t;

// What a sweep needs of a topic.
struct __align__(16) Topic {
  float alpha, inverse, lift, unused;
};

// What a warp needs to draw a token, each made by a lane: where the list of its document lies, its topic,
// uniforms, and of that topic alpha and g without the token.
struct __align__(16) Token {
  int line, lines, topic;
  float in_parts, in_part, stays, alpha, without;
};

__device__ __forceinline__ int lane_id() { return threadIdx.x & 31; }

__device__ __forceinline__ float count_of(unsigned entry) { return (float)(entry & 0xffffu); }

__device__ __forceinline__ float scan(float v) {
#pragma unroll
  for (int step = 1; step < 32; step <<= 1) {
    const float below = __shfl_up_sync(FULL, v, step);
    if (lane_id() >= step) v += below;
  }
  return v;
}

__device__ __forceinline__ float sum_by_halves(float v) {
#pragma unroll
  for (int half = 16; half; half >>= 1) v += __shfl_xor_sync(FULL, v, half);
  return v;
}

__device__ __forceinline__ float before(float prefix, int lane) {
  const float sum = __shfl_sync(FULL, prefix, (lane + 31) & 31);
  return lane ? sum : 0.f;
}

// Lane in which x falls, of those that hold anything; the last if rounding leaves none.
__device__ __forceinline__ int pick(float sum, float prefix, float x) {
  const unsigned inside = __ballot_sync(FULL, sum > 0.f && x < prefix);
  if (inside) return __ffs(inside) - 1;
  const unsigned held = __ballot_sync(FULL, sum > 0.f);
  return held ? 31 - __clz(held) : 0;
}

// Child in which x falls, the last of n if rounding leaves none; x becomes what is left of it there.
__device__ __forceinline__ int descend(float prefix, int n, float& x) {
  const unsigned inside = __ballot_sync(FULL, lane_id() < n && x < prefix);
  const int child = inside ? __ffs(inside) - 1 : n - 1;
  x -= before(prefix, child);
  return child;
}

// This lane's part of the sum of count * weight(topic) over the lines first:lines of a list, on top of `sum`.
template <class Weight>
__device__ __forceinline__ float lane_sum(const unsigned* __restrict__ entries, int first, int lines,
                                          float sum, Weight weight) {
  const unsigned* entry = entries + first * 32 + lane_id();
  for (int i = first; i < lines; ++i, entry += 32) sum += count_of(*entry) * weight(*entry >> 16);
  return sum;
}

// A document's list, and what its entries weigh under a word.
struct Document {
  const unsigned* entries;
  int lines;
  unsigned held[HELD];  // this lane's entries of the first lines, 0 where there is none
  float weight[HELD];
  float before, upto;  // sums of all lanes before this one, and with it; -1 upto a lane that holds nothing
  float total;
};

template <class Weight>
__device__ __forceinline__ void weigh(Document& d, Weight weight) {
  const unsigned* const entry = d.entries + lane_id();
#pragma unroll
  for (int i = 0; i < HELD; ++i) d.held[i] = i < d.lines ? entry[i * 32] : 0u;
  float sum = 0.f;
#pragma unroll
  for (int i = 0; i < HELD; ++i) {
    d.weight[i] = count_of(d.held[i]) * weight(d.held[i] >> 16);
    sum += d.weight[i];
  }
  if (d.lines > HELD) sum = lane_sum(d.entries, HELD, d.lines, sum, weight);
  const float prefix = scan(sum), below = __shfl_up_sync(FULL, prefix, 1);
  d.before = lane_id() ? below : 0.f;
  d.upto = sum > 0.f ? prefix : -1.f;
  d.total = __shfl_sync(FULL, prefix, 31);
}

// Entry of a document's list in which x, below the sum, falls: what `draw_list` would draw.
template <class Weight>
__device__ __forceinline__ unsigned draw_document(const Document& d, float x, Weight weight) {
  const unsigned inside = __ballot_sync(FULL, x < d.upto);
  int lane = __ffs(inside) - 1;
  if (inside == 0u) lane = 31 - __clz(__ballot_sync(FULL, d.upto >= 0.f) | 1u);
  x -= d.before;
  unsigned found = d.held[0];
  x -= d.weight[0];
#pragma unroll
  for (int i = 1; i < HELD; ++i) {
    if (x < 0.f || d.held[i] == 0u) continue;
    found = d.held[i];
    x -= d.weight[i];
  }
  found = __shfl_sync(FULL, found, lane);
  if (d.lines <= HELD) return found;
  x = __shfl_sync(FULL, x, lane);
  const unsigned* entry = d.entries + HELD * 32 + lane;
  for (int i = HELD; i < d.lines && x >= 0.f && *entry != 0u; ++i, entry += 32) {
    found = *entry;
    x -= count_of(found) * weight(found >> 16);
  }
  return found;
}

// Entry of a list in which x, below the sum, falls.
template <class Weight>
__device__ __forceinline__ unsigned draw_list(const unsigned* __restrict__ entries, int lines, float sum,
                                              float prefix, float x, Weight weight) {
  const int lane = pick(sum, prefix, x);
  x -= before(prefix, lane);
  const unsigned* entry = entries + lane;
  unsigned found = *entry;
  for (int i = 1; i < lines; ++i) {
    x -= count_of(found) * weight(found >> 16);
    entry += 32;
    if (x < 0.f || *entry == 0u) break;
    found = *entry;
  }
  return found;
}

// Leaf of a tree in which x, below the sum, falls. `top` is this lane's part of the upmost level.
template <class Leaf>
__device__ __forceinline__ int draw_tree(float top, const float* groups, int n_topics, float x, Leaf leaf) {
  const int n_groups = (n_topics + 31) / 32;
  const int first = descend(top, (n_groups + 31) / 32, x) * 32;
  const int n = min(32, n_groups - first);
  const int group = first + descend(lane_id() < n ? groups[first + lane_id()] : 0.f, n, x);
  const int m = min(32, n_topics - group * 32);
  const float prefix = scan(lane_id() < m ? leaf(group * 32 + lane_id()) : 0.f);
  return group * 32 + descend(prefix, m, x);
}

// Draw with the weight `own` for `old`, and the others' as they are, topic by topic. Few tokens come here.
__device__ __attribute__((noinline)) int draw_without(int old, float own, const unsigned* entries, int lines,
                                                      int n_topics, float u, float v, const Topic* known,
                                                      const float* weights) {
  const float sum =
      lane_sum(entries, 0, lines, 0.f, [=](unsigned k) { return (int)k == old ? 0.f : weights[k]; });
  const float prefix = scan(sum);
  float rest = 0.f;
  for (int k = lane_id(); k < n_topics; k += 32)
    if (k != old) rest += known[k].alpha * weights[k];
  const float rest_prefix = scan(rest);
  const float document = __shfl_sync(FULL, prefix, 31), all = __shfl_sync(FULL, rest_prefix, 31);
  float x = u * ((own + document) + all);
  if (x < own || document + all == 0.f) return old;
  int found = old;
  if (x < own + document) {
    x -= own;
    const int lane = pick(sum, prefix, x);
    x -= before(prefix, lane);
    for (int i = 0; i < lines; ++i) {
      const unsigned entry = entries[i * 32 + lane];
      if (entry == 0u || (int)(entry >> 16) == old) continue;
      found = (int)(entry >> 16);
      x -= count_of(entry) * weights[found];
      if (x < 0.f) break;
    }
    return found;
  }
  x = v * all;
  const int lane = pick(rest, rest_prefix, x);
  x -= before(rest_prefix, lane);
  for (int k = lane; k < n_topics; k += 32) {
    if (k == old) continue;
    found = k;
    x -= known[k].alpha * weights[k];
    if (x < 0.f) break;
  }
  return found;
}

// Draw the tokens of a chunk from the counts as they are, and write their topics in place.
extern "C" __global__ void __launch_bounds__(256, BLOCKS)
    sample(const long long* __restrict__ items, int n_items, int* __restrict__ next,
           const unsigned* __restrict__ token_doc, topic_t* __restrict__ topics,
           const unsigned* __restrict__ entries, const int* __restrict__ line_start,
           const int* __restrict__ n_lines, const int* __restrict__ rows, const unsigned* __restrict__ lists,
           const int* __restrict__ list_start, const int* __restrict__ list_lines,
           topic_t* __restrict__ listed_topics, const float* __restrict__ of_topics,
           const float* __restrict__ groups, const float* __restrict__ tops,
           const float* __restrict__ per_beta, float* __restrict__ scratch, int n_topics, unsigned seed_low,
           unsigned seed_high, unsigned round, unsigned purpose) {
  extern __shared__ __align__(16) unsigned char smem[];
  __shared__ int fetched;
  __shared__ Token tokens[256];
  const int n_groups = (n_topics + 31) / 32, n_tops = (n_groups + 31) / 32;
  float* const own_tops = (float*)smem;
  float* const own_groups = own_tops + 32;
#if IN_SHARED
  float* const weights = own_groups + n_groups;
#else
  float* const weights = scratch + (long long)blockIdx.x * n_topics;
#endif
  const Topic* const __restrict__ known = (const Topic*)of_topics;
  const int lane = lane_id(), warp = threadIdx.x >> 5, n_warps = blockDim.x >> 5;
  const auto g = [=](unsigned k) { return weights[k]; };
  const auto base = [=](unsigned k) { return known[k].alpha * known[k].inverse; };

  const unsigned* listed = lists;
  int listed_lines = 0;
  bool full = true;  // g has an entry of a frequent word, or nothing yet, for each topic
  for (;;) {
    __syncthreads();  // the item before is done
    for (int i = threadIdx.x; i < listed_lines * 32; i += blockDim.x)
      if (listed[i]) weights[listed[i] >> 16] = known[listed[i] >> 16].inverse;
    if (threadIdx.x == 0) fetched = atomicAdd(next, 1);
    __syncthreads();
    if (fetched >= n_items) break;
    const long long* const item = items + (long long)fetched * ITEM;
    const int begin = (int)item[1], end = (int)item[2], place = (int)item[4];
    const float factor = per_beta[item[0]];
    const bool rare = place < 0;
    float list_sum = 0.f, list_prefix = 0.f, list_total = 0.f, top;
    listed_lines = 0;
    if (rare) {
      if (full) {
        for (int k = threadIdx.x; k < n_topics; k += blockDim.x) weights[k] = known[k].inverse;
        full = false;
        __syncthreads();
      }
      listed = lists + (long long)list_start[-1 - place] * 32;
      listed_lines = list_lines[-1 - place];
      for (int i = threadIdx.x; i < listed_lines * 32; i += blockDim.x) {
        const unsigned k = listed[i] >> 16;
        if (listed[i]) weights[k] = known[k].inverse * (1.f + count_of(listed[i]) * factor);
      }
      list_sum = lane_sum(listed, 0, listed_lines, 0.f, base);
      list_prefix = scan(list_sum);
      list_total = factor * __shfl_sync(FULL, list_prefix, 31);
      top = tops[lane];
    } else {
      const int* const row = rows + (long long)place * n_topics;
      for (int group = warp; group < n_groups; group += n_warps) {
        const int k = group * 32 + lane;
        float sum = 0.f;
        if (k < n_topics) {
          const Topic t = known[k];
          weights[k] = t.inverse * (1.f + (float)row[k] * factor);
          sum = t.alpha * weights[k];
        }
        sum = sum_by_halves(sum);
        if (lane == 0) own_groups[group] = sum;
      }
      __syncthreads();
      for (int t = warp; t < n_tops; t += n_warps) {
        const int group = t * 32 + lane;
        const float prefix = scan(group < n_groups ? own_groups[group] : 0.f);
        if (group < n_groups) own_groups[group] = prefix;
        if (lane == 31) own_tops[t] = prefix;
      }
      __syncthreads();
      top = scan(lane < n_tops ? own_tops[lane] : 0.f);
      full = true;
    }
    __syncthreads();
    const float tree_total = __shfl_sync(FULL, top, 31);
    const auto leaf = [=](int k) { return known[k].alpha * (rare ? known[k].inverse : weights[k]); };

    const int each = min(32, (end - begin + n_warps - 1) / n_warps);  // few tokens are shared by all warps
    for (int first = begin + warp * each; first < end; first += n_warps * each) {
      const int m = min(each, end - first);
      unsigned doc = 0u;
      int old = 0, drawn = 0;
      if (lane < m) {
        doc = token_doc[first + lane];
        old = topics[first + lane];
      }
      const unsigned long long number = item[3] + (first - begin) + lane;
      const Philox r =
          philox4x32((unsigned)number, (unsigned)(number >> 32), round, purpose, seed_low, seed_high);
      const Topic t = known[old];
      const float less = weights[old] - factor * t.inverse;
      const float without = (less > 0.f ? less : 0.f) * t.lift;
      const Token made = {line_start[doc], n_lines[doc],    old,     unit_float(r.x),
                          unit_float(r.y), unit_float(r.z), t.alpha, without};
      __syncwarp();  // those before are drawn
      tokens[threadIdx.x] = made;
      __syncwarp();
      const unsigned other = __shfl_up_sync(FULL, doc, 1);
      unsigned changes = __ballot_sync(FULL, lane == 0 || doc != other);  // bit 0: that of token j
      Document d;
      float all = 0.f;
      for (int j = 0; j < m; ++j, changes >>= 1) {
        const Token& token = tokens[warp * 32 + j];
        if (changes & 1u) {
          d.entries = entries + (long long)token.line * 32;
          d.lines = token.lines;
          weigh(d, g);
          all = (d.total + list_total) + tree_total;
        }
        const int o = token.topic;
        float u = token.in_parts;
        unsigned more = 0u;
        int topic;
        for (int attempt = 0;; u = unit_float(hash32(more))) {
          float x = u * all, count = 0.f;
          if (x < d.total) {
            const unsigned entry = draw_document(d, x, g);
            topic = (int)(entry >> 16);
            count = count_of(entry);
          } else {
            const float y = attempt ? unit_float(hash32(more ^ OTHER)) : token.in_part;
            if (x < d.total + list_total) {
              x = y * __shfl_sync(FULL, list_prefix, 31);
              topic = (int)(draw_list(listed, listed_lines, list_sum, list_prefix, x, base) >> 16);
            } else {
              topic = draw_tree(top, rare ? groups : own_groups, n_topics, y * tree_total, leaf);
            }
          }
          if (topic != o) break;
          // Leave the token itself out.
          for (int i = 0; i < d.lines && count == 0.f; ++i) {
            const unsigned entry = d.entries[i * 32 + lane];
            const unsigned found = __ballot_sync(FULL, entry != 0u && (int)(entry >> 16) == o);
            if (found) count = count_of(__shfl_sync(FULL, entry, __ffs(found) - 1));
          }
          const float left = ((count - 1.f) + token.alpha) * token.without;
          float v = token.stays;
          if (attempt) v = unit_float(hash32(more ^ THIRD));
          if (v * ((count + token.alpha) * weights[o]) < left) break;
          more = __shfl_sync(FULL, r.w, j) + ++attempt * GOLDEN;
          if (attempt == TRIES) {
            const float w = unit_float(hash32(more ^ OTHER));
            topic = draw_without(o, left, d.entries, d.lines, n_topics, unit_float(hash32(more)), w, known,
                                 weights);
            break;
          }
        }
        if (lane == j) drawn = topic;
      }
      if (lane < m) {
        topics[first + lane] = (topic_t)drawn;
        if (rare) listed_topics[item[5] + (first - begin) + lane] = (topic_t)drawn;
      }
    }
  }
}

// Set the cursor of each document to where its topics begin.
extern "C" __global__ void __launch_bounds__(256)
    begin_documents(const long long* __restrict__ start, int n, int* __restrict__ cursor) {
  for (int d = blockIdx.x * blockDim.x + threadIdx.x; d < n; d += gridDim.x * blockDim.x)
    cursor[d] = (int)start[d];
}

// Copy the tokens' topics to where their documents' begin, in any order.
extern "C" __global__ void __launch_bounds__(256)
    place_by_document(const unsigned* __restrict__ token_doc, const topic_t* __restrict__ topics,
                      int n_tokens, int* __restrict__ cursor, topic_t* __restrict__ placed) {
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n_tokens;
       i += (long long)gridDim.x * blockDim.x)
    placed[atomicAdd(&cursor[token_doc[i]], 1)] = topics[i];
}

// List the topics of segments of `topics`, a warp a segment: topic << 16 | count, ascending, zeros to the end
// of a line of 32. Counts of a window of topics at a time, two in a word, lie in shared memory.
extern "C" __global__ void __launch_bounds__(256)
    list_segments(const topic_t* __restrict__ topics, const long long* __restrict__ start, int n_segments,
                  const int* __restrict__ line_start, int n_topics, int window,
                  unsigned* __restrict__ entries, int* __restrict__ n_lines) {
  extern __shared__ __align__(16) unsigned char smem[];
  const int lane = lane_id(), warp = threadIdx.x >> 5, n_warps = blockDim.x >> 5;
  const unsigned below = (1u << lane) - 1u;
  unsigned* const counts = (unsigned*)smem + warp * (window / 2);
  for (int i = lane; i < window / 2; i += 32) counts[i] = 0u;
  __syncwarp();
  for (int s = blockIdx.x * n_warps + warp; s < n_segments; s += gridDim.x * n_warps) {
    const long long begin = start[s], end = start[s + 1];
    unsigned* const out = entries + (long long)line_start[s] * 32;
    int n = 0;
    for (int low = 0; low < n_topics; low += window) {
      for (long long i = begin + lane; i < end; i += 32) {
        const int k = topics[i] - low;
        if (k >= 0 && k < window) atomicAdd(&counts[k >> 1], k & 1 ? 0x10000u : 1u);
      }
      __syncwarp();
      for (int pair = 0; pair < window / 2; pair += 32) {
        const unsigned both = counts[pair + lane];
        counts[pair + lane] = 0u;
        const unsigned even = __ballot_sync(FULL, both & 0xffffu), odd = __ballot_sync(FULL, both >> 16);
        const unsigned topic = low + 2 * (pair + lane);
        int to = n + __popc(even & below) + __popc(odd & below);
        if (both & 0xffffu) out[to++] = topic << 16 | (both & 0xffffu);
        if (both >> 16) out[to] = (topic + 1u) << 16 | both >> 16;
        n += __popc(even) + __popc(odd);
      }
      __syncwarp();
    }
    const int lines = (n + 31) / 32;
    if (n + lane < lines * 32) out[n + lane] = 0u;
    if (lane == 0) n_lines[s] = lines;
  }
}

// Add the topics of the tokens begin:end of each range, (row, begin, end), to that row of counts.
extern "C" __global__ void __launch_bounds__(256)
    count_ranges(const int* __restrict__ ranges, const topic_t* __restrict__ topics, int n_topics, int window,
                 int* __restrict__ rows) {
  extern __shared__ __align__(16) unsigned char smem[];
  int* const counts = (int*)smem;
  const int* const range = ranges + 3LL * blockIdx.x;
  int* const row = rows + (long long)range[0] * n_topics;
  for (int low = 0; low < n_topics; low += window) {
    for (int k = threadIdx.x; k < window; k += blockDim.x) counts[k] = 0;
    __syncthreads();
    for (int i = range[1] + threadIdx.x; i < range[2]; i += blockDim.x) {
      const int k = topics[i] - low;
      if (k >= 0 && k < window) atomicAdd(&counts[k], 1);
    }
    __syncthreads();
    for (int k = threadIdx.x; k < window; k += blockDim.x)
      if (counts[k]) atomicAdd(&row[low + k], counts[k]);
    __syncthreads();
  }
}

// Sum of lnG(count + prior) - lnG(prior), `base`, over each list; the prior is the topic's or the list's.
extern "C" __global__ void __launch_bounds__(256)
    joint_of_lists(const unsigned* __restrict__ entries, const int* __restrict__ line_start,
                   const int* __restrict__ n_lines, int n_lists, bool by_topic,
                   const double* __restrict__ prior, const double* __restrict__ base,
                   double* __restrict__ out) {
  const int lane = lane_id(), n_warps = gridDim.x * (blockDim.x >> 5);
  for (int s = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5); s < n_lists; s += n_warps) {
    const unsigned* const list = entries + (long long)line_start[s] * 32;
    double sum = 0.;
    for (int i = 0; i < n_lines[s]; ++i) {
      const unsigned entry = list[i * 32 + lane];
      const unsigned of = by_topic ? entry >> 16 : s;
      if (entry) sum += lgamma((double)(entry & 0xffffu) + prior[of]) - base[of];
    }
    sum = sum_of_warp(sum);
    if (lane == 0) out[s] = sum;
  }
}

// The same over each row of counts.
extern "C" __global__ void __launch_bounds__(256)
    joint_of_rows(const int* __restrict__ rows, int n_rows, int n_topics, const double* __restrict__ prior,
                  const double* __restrict__ base, double* __restrict__ out) {
  const int lane = lane_id(), n_warps = gridDim.x * (blockDim.x >> 5);
  for (int r = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5); r < n_rows; r += n_warps) {
    const int* const row = rows + (long long)r * n_topics;
    double sum = 0.;
    for (int k = lane; k < n_topics; k += 32)
      if (row[k]) sum += lgamma((double)row[k] + prior[r]) - base[r];
    sum = sum_of_warp(sum);
    if (lane == 0) out[r] = sum;
  }
}

// Set the first numbers of an array to zero.
extern "C" __global__ void __launch_bounds__(256) clear(int* __restrict__ array, long long n) {
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n;
       i += (long long)gridDim.x * blockDim.x)
    array[i] = 0;
}
