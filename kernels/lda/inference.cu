// Topics of documents under fixed topics on a GPU: topic_inference.py tells of fold_in, topic_sparse.py of
// completion, and the names are theirs.
//
// fold_in gives a document a warp, and each of its two chains a half of the warp, whose 16 lanes are those of
// the CPU: the chains draw the same topics bit for bit. Sums over topics of what they have drawn are taken in
// another order, so that shares agree to rounding. completion gives a document a warp too.
//
// IN_SHARED tells whether what the chains read and write at every draw lies in shared memory.
#include "philox.cuh"
#include "sum_of_warp.cuh"

#define FULL 0xffffffffu
#define LANES 16
#define CHAINS 2
#define QUARTER 1024  // blocks of random numbers that are made at a time: DRAWS / 4 of lda_gibbs.py
#define SETTLING_STEPS 5
#define FIRST_CHECK 4  // these two as in inference.py
#define GROWTH 4.

// The topics: counts of words as CSR, and what phi_wk = (C_wk + beta_w) * inverse_k needs.
struct Topics {
  const long long* start;
  const int* topic;
  const double *count, *beta, *inverse;
  const float* alpha;
  int n;
};

// A document of which one warp has all that it needs, by row (a word of it) and by topic.
struct Document {
  const int* times;
  const float* phi;
  double *settled, *rest, *mean, *total;
  int n_words, width;
};

__device__ __forceinline__ double most_of_warp(double v) {
#pragma unroll
  for (int half = 16; half; half >>= 1) {
    const double other = __shfl_xor_sync(FULL, v, half);
    v = other > v ? other : v;
  }
  return v;
}

// Write a word's probabilities divided by their maximum: word_row.
__device__ void word_row(const Topics& topics, int word, int width, float* row) {
  const int lane = (int)threadIdx.x;
  const double b = topics.beta[word];
  double top = 0.;
  for (int k = lane; k < topics.n; k += 32) {
    const double p = b * topics.inverse[k];
    top = p > top ? p : top;
  }
  for (long long e = topics.start[word] + lane; e < topics.start[word + 1]; e += 32) {
    const double p = (topics.count[e] + b) * topics.inverse[topics.topic[e]];
    top = p > top ? p : top;
  }
  top = most_of_warp(top);
  const double base = b / top;
  for (int k = lane; k < width; k += 32) row[k] = k < topics.n ? (float)(base * topics.inverse[k]) : 0.f;
  __syncwarp();
  for (long long e = topics.start[word] + lane; e < topics.start[word + 1]; e += 32) {
    const int k = topics.topic[e];
    row[k] = (float)((topics.count[e] + b) / top * topics.inverse[k]);
  }
}

// Draw number `q` of a document's stream, where the CPU finds it (fill_uniform).
__device__ __forceinline__ float uniform(unsigned long long q, unsigned long long key, unsigned purpose,
                                         unsigned seed_low, unsigned seed_high) {
  const unsigned place = (unsigned)(q % (4 * QUARTER));
  const unsigned block = (unsigned)(q / (4 * QUARTER) * QUARTER) + place % QUARTER;
  const Philox r = philox4x32(block, (unsigned)key, (unsigned)(key >> 32), purpose, seed_low, seed_high);
  const unsigned which = place / QUARTER;
  return unit_float(which == 0 ? r.x : which == 1 ? r.y : which == 2 ? r.z : r.w);
}

// Bits of a vote of this half of the warp.
__device__ __forceinline__ int votes_of_half(int vote) {
  return __popc(__ballot_sync(FULL, vote) >> (threadIdx.x & LANES) & 0xffffu);
}

// Weight of topic k for a token of topic `old`, itself left out.
__device__ __forceinline__ float weight_of(const int* held, const float* alpha, const float* row, int k, int old) {
  float count = (float)held[k];
  if (k == old) count -= 1.f;
  return (count + alpha[k]) * row[k];
}

// Draw a topic for a token: draw_dense. `sums` is left with the lanes' running sums.
__device__ int draw_dense(const int* held, const float* alpha, const float* row, int width, int n_topics, int old,
                          float u, float* sums) {
  const int l = (int)threadIdx.x % LANES, n_vectors = width / LANES;
  float sum = 0.f;
  for (int k = l; k < width; k += LANES) {
    sum += weight_of(held, alpha, row, k, old);
    sums[k] = sum;
  }
  float prefix = sum;
#pragma unroll
  for (int step = 1; step < LANES; step <<= 1) {
    const float below = __shfl_up_sync(FULL, prefix, step, LANES);
    if (l >= step) prefix += below;
  }
  const float target = u * __shfl_sync(FULL, prefix, LANES - 1, LANES);
  const int inside = min(votes_of_half(prefix <= target), LANES - 1);
  const float left = target - __shfl_sync(FULL, prefix - sum, inside, LANES);
  __syncwarp();
  int before = 0;
  for (int first = 0; first < n_vectors - 1; first += LANES) {
    const int j = first + l;
    before += votes_of_half(j < n_vectors - 1 && sums[j * LANES + inside] <= left);
  }
  return min(before * LANES + inside, n_topics - 1);
}

// Sum of the weights of a topic given mean counts without a token's `own`, over all topics.
__device__ __forceinline__ double conditional_weight(const Document& doc, const Topics& topics, const double* own,
                                                     const float* row, int k) {
  const double others = doc.mean[k] - own[k];
  return ((others > 0. ? others : 0.) + (double)topics.alpha[k]) * (double)row[k];
}

__device__ double conditional_sum(const Document& doc, const Topics& topics, const double* own, const float* row) {
  double sum = 0.;
  for (int k = (int)threadIdx.x; k < topics.n; k += 32) sum += conditional_weight(doc, topics, own, row, k);
  return sum_of_warp(sum);
}

// Turn averages over a chain into topic shares: _settle. A topic is one lane's alone.
__device__ void settle(const Document& doc, const Topics& topics, double n_kept, const double* all_chosen,
                       const double* all_member, double* theta) {
  const int lane = (int)threadIdx.x;
  for (int k = lane; k < topics.n; k += 32) doc.mean[k] = doc.total[k] = 0.;
  for (int r = 0; r < doc.n_words; ++r) {
    const double scale = 1. / ((double)doc.times[r] * n_kept), n = (double)doc.times[r];
    const long long row = (long long)r * doc.width;
#pragma unroll 1
    for (int k = lane; k < topics.n; k += 32) {
      doc.settled[row + k] = all_chosen[row + k] * scale;
      doc.rest[row + k] = all_member[row + k] * scale;
      doc.total[k] += n * doc.settled[row + k];
      doc.mean[k] += n * doc.rest[row + k];
    }
  }
  for (int r = 0; r < doc.n_words; ++r) {
    const float* const row = doc.phi + (long long)r * doc.width;
    double *const settled = doc.settled + (long long)r * doc.width, *const rest = doc.rest + (long long)r * doc.width;
    const double sum = conditional_sum(doc, topics, rest, row);
#pragma unroll 1
    for (int k = lane; k < topics.n; k += 32)
      rest[k] = settled[k] - conditional_weight(doc, topics, rest, row, k) / sum;
  }
  for (int step = 0; step < SETTLING_STEPS; ++step) {
#pragma unroll 1
    for (int k = lane; k < topics.n; k += 32) {
      doc.mean[k] = doc.total[k];
      doc.total[k] = 0.;
    }
    for (int r = 0; r < doc.n_words; ++r) {
      const float* const row = doc.phi + (long long)r * doc.width;
      double *const settled = doc.settled + (long long)r * doc.width,
                    *const rest = doc.rest + (long long)r * doc.width;
      const double sum = conditional_sum(doc, topics, settled, row);
#pragma unroll 1
      for (int k = lane; k < topics.n; k += 32) {
        const double share = conditional_weight(doc, topics, settled, row, k) / sum + rest[k];
        settled[k] = share > 0. ? share : 0.;
        doc.total[k] += (double)doc.times[r] * settled[k];
      }
    }
  }
  double sum = 0.;
#pragma unroll 1
  for (int k = lane; k < topics.n; k += 32) sum += doc.total[k] + (double)topics.alpha[k];
  sum = sum_of_warp(sum);
  for (int k = lane; k < topics.n; k += 32) theta[k] = (doc.total[k] + (double)topics.alpha[k]) / sum;
}

// A 64-bit hash of each row's content.
extern "C" __global__ void __launch_bounds__(256)
    content_keys(const long long* __restrict__ indptr, const int* __restrict__ columns, const int* __restrict__ data,
                 int n, unsigned long long* __restrict__ keys) {
  const int d = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (d >= n) return;
  unsigned long long h = 0x9E3779B97F4A7C15ull;
  for (long long j = indptr[d]; j < indptr[d + 1]; ++j) {
    h ^= (unsigned long long)(unsigned)columns[j] << 32 | (unsigned)data[j];
    h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9ull;
    h = (h ^ (h >> 27)) * 0x94D049BB133111EBull;
    h ^= h >> 31;
  }
  keys[d] = h;
}

// Posterior mean of the topic shares of some documents; block b has document documents[b].
//
// row_start, token_start: where what it keeps by word and by token begins; phi, settled, rest: by word and topic,
// in rows of `width`; chosen, member: the same for one chain and then for the other; sums: four rows a document;
// chains: two rows of counts and of running sums a document, where they do not lie in shared memory; drawn: two
// topics a token.
extern "C" __global__ void __launch_bounds__(32, 16)
    fold_in(const int* __restrict__ documents, const long long* __restrict__ indptr, const int* __restrict__ columns,
            const int* __restrict__ data, const unsigned long long* __restrict__ keys,
            const long long* __restrict__ counts_indptr, const int* __restrict__ counts_topics,
            const double* __restrict__ counts, const double* __restrict__ beta, const double* __restrict__ inverse,
            const float* __restrict__ alpha, int n_topics, int width, const long long* __restrict__ row_start,
            const long long* __restrict__ token_start, float* phi, double* all_chosen, double* all_member,
            double* settled, double* rest, double* sums, int* chains, int* drawn, unsigned seed_low,
            unsigned seed_high, unsigned purpose, int burn_in, int kept, double tolerance,
            double* __restrict__ theta) {
  extern __shared__ __align__(16) unsigned char smem[];
  const Topics topics = {counts_indptr, counts_topics, counts, beta, inverse, alpha, n_topics};
  const int lane = (int)threadIdx.x, c = lane / LANES, l = lane % LANES;
  const long long place = blockIdx.x, first = row_start[place] * width;
  const int d = documents[place];
  const unsigned long long key = keys[d];
  const Document doc = {data + indptr[d],       phi + first,
                        settled + first,        rest + first,
                        sums + 4 * place * width, sums + (4 * place + 1) * width,
                        (int)(indptr[d + 1] - indptr[d]), width};
  double* const shares = sums + (4 * place + 2) * width;
  const long long of_chain = (long long)doc.n_words * width;
  double *const chosen = all_chosen + CHAINS * first, *const member = all_member + CHAINS * first;
#if IN_SHARED
  int* const all_held = (int*)smem;
#else
  int* const all_held = chains + 2 * CHAINS * place * width;
#endif
  int* const held = all_held + c * width;
  float* const running = (float*)(all_held + CHAINS * width) + c * width;
  int* const topic_of = drawn + CHAINS * token_start[place];
  for (int r = 0; r < doc.n_words; ++r)
    word_row(topics, columns[indptr[d] + r], width, phi + first + (long long)r * width);
  for (int k = lane; k < CHAINS * width; k += 32) all_held[k] = 0;
  for (long long k = lane; k < CHAINS * of_chain; k += 32) chosen[k] = member[k] = 0.;
  __syncwarp();

  unsigned long long step = 0;
  float mine = 0.f;
  int check = tolerance > 0. ? min(kept, FIRST_CHECK) : kept;
  double noise = 0.;
  for (int sweep = 0; sweep <= burn_in + kept; ++sweep) {
    long long i = 0;
    for (int r = 0; r < doc.n_words; ++r) {
      const float* const row = doc.phi + (long long)r * width;
      for (int n = 0; n < doc.times[r]; ++n, ++i, ++step) {
        if (step % LANES == 0) mine = uniform(CHAINS * (step + l) + c, key, purpose, seed_low, seed_high);
        const float u = __shfl_sync(FULL, mine, (int)(step % LANES), LANES);
        const int old = sweep ? topic_of[CHAINS * i + c] : -1;
        const int topic = draw_dense(held, alpha, row, width, n_topics, old, u, running);
        if (sweep > burn_in) {
          float total = 0.f;
          for (int other = 0; other < LANES; ++other) total += running[width - LANES + other];
          const float scale = 1.f / total;
          double* const out = chosen + c * of_chain + (long long)r * width;
          for (int k = l; k < width; k += LANES) out[k] += (double)(weight_of(held, alpha, row, k, old) * scale);
          if (l == 0) {
            double* const visited = member + c * of_chain + (long long)r * width;
            visited[old] += 0.5;
            visited[topic] += 0.5;
          }
        }
        __syncwarp();  // all have read what one lane of a chain now writes
        if (l == 0) {
          if (old >= 0) held[old] -= 1;
          held[topic] += 1;
          topic_of[CHAINS * i + c] = topic;
        }
        __syncwarp();
      }
    }
    if (sweep - burn_in < check) continue;
    __syncwarp();
    for (int chain = 0; chain < CHAINS; ++chain)
      settle(doc, topics, (double)check, chosen + chain * of_chain, member + chain * of_chain, shares + chain * width);
    double distance = 0.;
    for (int k = lane; k < n_topics; k += 32) distance += fabs(shares[k] - shares[width + k]);
    const double error = sum_of_warp(distance) / 4., now = check * error * error;
    noise = now > noise ? now : noise;
    const double enough = tolerance > 0. ? noise / (tolerance * tolerance) : 0.;
    if (check == kept || (check > FIRST_CHECK && check >= enough)) break;
    const double most = GROWTH * check;
    check = min(kept, max((int)ceil(enough < most ? enough : most), check == FIRST_CHECK ? 2 * check : check + 2));
  }
  for (int k = lane; k < n_topics; k += 32) theta[place * n_topics + k] = (shares[k] + shares[width + k]) / CHAINS;
}

// sum_k share_k phi_wk.
__device__ double sum_of(const Topics& topics, int word, const double* share, double base) {
  double sum = 0.;
  for (long long e = topics.start[word] + threadIdx.x; e < topics.start[word + 1]; e += 32) {
    const int k = topics.topic[e];
    sum += share[k] * (topics.count[e] * topics.inverse[k]);
  }
  return topics.beta[word] * base + sum_of_warp(sum);
}

// Log-likelihood of the held-out tokens of each document, topic shares fitted to the others by EM.
//
// scratch: two numbers a topic for each block.
extern "C" __global__ void __launch_bounds__(32)
    completion(int n_documents, const long long* __restrict__ indptr, const int* __restrict__ columns,
               const int* __restrict__ data, const long long* __restrict__ held_indptr,
               const int* __restrict__ held_columns, const int* __restrict__ held_data,
               const long long* __restrict__ counts_indptr, const int* __restrict__ counts_topics,
               const double* __restrict__ counts, const double* __restrict__ beta, const double* __restrict__ inverse,
               const float* __restrict__ alpha, int n_topics, int n_steps, double* scratch,
               double* __restrict__ likelihood) {
  const Topics topics = {counts_indptr, counts_topics, counts, beta, inverse, alpha, n_topics};
  const int lane = (int)threadIdx.x;
  double *const share = scratch + 2LL * blockIdx.x * n_topics, *const mass = share + n_topics;
  double all = 0.;
  for (int k = lane; k < n_topics; k += 32) all += inverse[k];
  all = sum_of_warp(all);
  for (int d = (int)blockIdx.x; d < n_documents; d += (int)gridDim.x) {
    for (int k = lane; k < n_topics; k += 32) {
      share[k] = 1.;
      mass[k] = 0.;
    }
    double scale = 1. / (double)n_topics, base = all;
    for (int step = 0; step < n_steps; ++step) {
      double rest = 0., total = 0., coming = 0.;
      __syncwarp();
      for (long long j = indptr[d]; j < indptr[d + 1]; ++j) {
        const int w = columns[j];
        const double ratio = (double)data[j] / (scale * sum_of(topics, w, share, base));
        rest += ratio * beta[w];
        for (long long e = counts_indptr[w] + lane; e < counts_indptr[w + 1]; e += 32)
          mass[counts_topics[e]] += ratio * counts[e];
        __syncwarp();
      }
      for (int k = lane; k < n_topics; k += 32) {
        const double next = share[k] * scale * (mass[k] + rest) * inverse[k] + (double)alpha[k];
        share[k] = next;
        mass[k] = 0.;
        total += next;
        coming += next * inverse[k];
      }
      scale = 1. / sum_of_warp(total);
      base = sum_of_warp(coming);
    }
    __syncwarp();
    double sum = 0.;
    for (long long j = held_indptr[d]; j < held_indptr[d + 1]; ++j)
      sum += (double)held_data[j] * log(scale * sum_of(topics, held_columns[j], share, base));
    if (lane == 0) likelihood[d] = sum;
    __syncwarp();
  }
}
