// The kernels of `auto`, a block a community, all communities of a batch in one launch.
// Compiled with NVRTC by xnq_dist/quantify/gpu_auto.py; `intercept` defines what they
// compute and says what each argument is.
//
// A thread has a bin of the histograms, then a point of the grid. Histograms and curves
// are added up in the CPU's order; other sums in parts of a fixed shape, so that a
// community has the same bits in any batch (sums.cu). Exponentials and logarithms are
// those of exponentials.cu.
//
// Defined by the compiler: SLOPES, the most distinct slopes.

#define BINS 121
#define GRID 65
#define MOST_PSEUDO 4
#define LEAST 1e-290
#define NEGLIGIBLE 1e-4
#define TWO_PI 6.283185307179586

struct Curve {
  double start, step;  // of the grid
  double top;          // the largest log-likelihood
};

// Histograms (unlabelled, of others, of the class); the mean logit of all counted ones
// and the number of unlabelled members.
__device__ void fill(
    const long long* offsets, const double* logits, const signed char* codes, int community,
    double* counts, double* mean, long long* size) {
  int bin = threadIdx.x;
  double mine[3] = {0.0, 0.0, 0.0}, total = 0.0, number = 0.0;
  long long free = 0;
  for (long long at = offsets[community]; at < offsets[community + 1]; ++at) {
    int code = codes[at];
    if (code < -1) continue;
    double place = (logits[at] + 9.0) / 0.15;
    place = place < 0.0 ? 0.0 : place > BINS - 1.000001 ? BINS - 1.000001 : place;
    int low = (int)place, row = code + 1;
    if (bin == low) mine[row] = mine[row] + (1.0 - (place - low));
    if (bin == low + 1) mine[row] = mine[row] + (place - low);
    total = total + logits[at];
    number = number + 1.0;
    free += code == -1;
  }
  if (bin < BINS)
    for (int row = 0; row < 3; ++row) counts[row * BINS + bin] = mine[row];
  *mean = number > 0.0 ? total / number : 0.0;
  *size = free;
  __syncthreads();
}

// Log-odds by which SLD, held back by pseudo-nodes, moves the prior.
__device__ double shift_of(
    const double* counts, const double* inverse_odds, double prior, double pseudo,
    double* sums) {
  double mine = threadIdx.x < BINS ? counts[threadIdx.x] : 0.0;
  double beside = threadIdx.x < BINS ? inverse_odds[threadIdx.x] : 1.0;
  double size = add_up(mine, sums), odds = 1.0, before = prior;
  for (int round = 0; round < 60; ++round) {
    double expected = add_up(mine / (odds + beside), sums);
    double share = (odds * expected + pseudo * prior) / (size + pseudo);
    share = share < 1e-9 ? 1e-9 : share > 1.0 - 1e-9 ? 1.0 - 1e-9 : share;
    odds = share / (1.0 - share) * (1.0 - prior) / prior;
    if (fabs(share - before) < 1e-5) break;
    before = share;
  }
  double moved = logarithm(odds);
  return moved < -8.0 ? -8.0 : moved > 8.0 ? 8.0 : moved;
}

// Mean sigmoid of the unlabelled ones, and the labels' likelihood relative to its
// largest, on the grid.
__device__ Curve curves(
    const double* counts, const double* bins, const double* grid, double slope,
    const double* sigmoid, const double* log_sigmoid, double* fraction, double* likelihood) {
  int g = threadIdx.x;
  bool mine = g < GRID;
  double size = 0.0, labels = 0.0, others = 0.0, against = 0.0, share = 0.0, log_own = 0.0;
  for (int b = 0; b < BINS; ++b) {
    double free = counts[b], other = counts[BINS + b], both = other + counts[2 * BINS + b];
    if (free > 0.0) {
      size = size + free;
      if (mine) share = share + free * sigmoid[b * GRID + g];
    }
    if (both > 0.0) {
      labels = labels + both;
      others = others + other;
      against = against + other * slope * bins[b];
      if (mine) log_own = log_own + both * log_sigmoid[b * GRID + g];
    }
  }
  Curve found = {grid[0], 0.3, 0.0};
  if (labels > 0.0) {
    // log sigmoid(-z) = log sigmoid(z) - z
    if (mine) likelihood[g] = others > 0.0 ? log_own - (against + others * grid[g]) : log_own;
    __syncthreads();
    int top = 0;
    for (int i = 1; i < GRID; ++i)
      if (likelihood[i] > likelihood[top]) top = i;
    found.top = likelihood[top];
    top = top < 1 ? 1 : top > GRID - 2 ? GRID - 2 : top;
    double bend = likelihood[top - 1] - 2 * likelihood[top] + likelihood[top + 1];
    double deviation = 0.3 / sqrt(-bend > 1e-12 ? -bend : 1e-12);
    __syncthreads();
    if (deviation < 0.5) {
      found.start = grid[top] - 12.0 * deviation;
      found.step = 2 * 12.0 * deviation / (GRID - 1);
      share = 0.0;
      double logs = 0.0;
      for (int b = 0; b < BINS && mine; ++b) {
        double free = counts[b], other = counts[BINS + b], own = counts[2 * BINS + b];
        if (!(free + other + own > 0.0)) continue;
        double z = slope * bins[b] + found.start + g * found.step;
        double part = z > 0 ? -log_of_more(exponential(-z)) : z - log_of_more(exponential(z));
        share = share + free * exponential(part);
        logs = logs + ((other + own) * part - other * z);
      }
      if (mine) likelihood[g] = logs;
      __syncthreads();
      found.top = likelihood[0];
      for (int i = 1; i < GRID; ++i)
        found.top = likelihood[i] > found.top ? likelihood[i] : found.top;
      __syncthreads();
    }
    if (mine) likelihood[g] = exponential(likelihood[g] - found.top);
  } else if (mine) {
    likelihood[g] = 1.0;
  }
  if (mine) fraction[g] = size > 0.0 ? share / size : share;
  __syncthreads();
  return found;
}

// Normal density at a point of the grid, times the grid's step.
__device__ __forceinline__ double density(Curve curve, double middle, double variance) {
  double off = curve.start + threadIdx.x * curve.step - middle;
  return exponential(-0.5 * off * off / variance) * (curve.step / sqrt(TWO_PI * variance));
}

// A hypothesis' density of the intercept at this thread's point.
__device__ __forceinline__ double density_of(
    const double* hypothesis, const double* shifts, Curve curve, double left_open) {
  double widening = hypothesis[3], spread = hypothesis[4], middle = 0.0;
  if (hypothesis[1] >= 0)
    middle = hypothesis[2] * widening * shifts[(int)hypothesis[1]];
  return density(curve, middle, spread * spread + left_open * widening * widening);
}

// Variance of a community's logit that calibration leaves open.
__device__ __forceinline__ double left_open_by(
    double intercept, double both, double slope, double mean) {
  double found = intercept + 2 * both * mean + slope * mean * mean;
  return found < 0.0 ? 0.0 : found > 9.0 ? 9.0 : found;
}

extern "C" __global__ void evidence(
    const long long* offsets, const double* logits, const signed char* codes,
    const long long* chosen, double prior, double intercept, double both, double slope,
    const double* tables, int n_slopes, const double* slopes, const double* sigmoid,
    const double* log_sigmoid, int n_hypotheses, const double* hypotheses, int n_pseudo,
    const double* pseudo, double* answers) {
  __shared__ double sums[BLOCK + PARTS], counts[3 * BINS], fraction[GRID], likelihood[GRID];
  __shared__ double shifts[MOST_PSEUDO];
  const double *bins = tables, *grid = bins + BINS, *inverse_odds = grid + GRID;
  double mean;
  long long size;
  fill(offsets, logits, codes, (int)chosen[blockIdx.x], counts, &mean, &size);
  double open = left_open_by(intercept, both, slope, mean);
  for (int a = 0; a < n_pseudo; ++a) {
    double moved = shift_of(counts, inverse_odds, prior, pseudo[a], sums);
    if (threadIdx.x == 0) shifts[a] = moved;
  }
  __syncthreads();
  for (int k = 0; k < n_slopes; ++k) {
    long long table = (long long)k * BINS * GRID;
    Curve curve = curves(counts, bins, grid, slopes[k], sigmoid + table, log_sigmoid + table,
                         fraction, likelihood);
    for (int h = 0; h < n_hypotheses; ++h) {
      if ((int)hypotheses[5 * h] != k) continue;
      double mine = 0.0;
      if (threadIdx.x < GRID)
        mine = likelihood[threadIdx.x] * density_of(hypotheses + 5 * h, shifts, curve, open);
      double total = add_up(mine, sums);
      if (threadIdx.x == 0)
        answers[(long long)blockIdx.x * n_hypotheses + h] =
            curve.top + logarithm(total > LEAST ? total : LEAST);
    }
  }
}

__device__ __forceinline__ double normal_below(const double* normal, double x) {
  double place = (x + 6.0) / 0.0078125;
  if (place <= 0.0) return 0.0;
  if (place >= 1536) return 1.0;
  int low = (int)place;
  return normal[low] + (place - low) * (normal[low + 1] - normal[low]);
}

// Least count of the unlabelled ones that a wanted probability lies at or below.
__device__ long long count_quantile(
    long long size, double wanted, int points, const double* weight, const double* value,
    const double* noise, const double* normal, double* sums) {
  long long low = 0, high = size;
  while (low < high) {
    long long middle = (low + high) / 2;
    double edge = (middle + 0.5) / size, below = 0.0;
    for (int i = threadIdx.x; i < points; i += BLOCK)
      if (weight[i] > 0.0)
        below = below + weight[i] * normal_below(normal, (edge - value[i]) / noise[i]);
    if (add_up(below, sums) >= wanted)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

// Median of weights that are spread evenly, each half-way to its neighbours on the grid.
__device__ double median(int points, const double* weight, const double* value, double* sums) {
  double low = 0.0, high = 1.0;
  for (int step = 0; step < 20; ++step) {
    double middle = 0.5 * (low + high), below = 0.0;
    for (int i = threadIdx.x; i < points; i += BLOCK) {
      if (!(weight[i] > 0.0)) continue;
      int g = i % GRID;
      double before = 0.5 * (value[g > 0 ? i - 1 : i] + value[i]);
      double after = 0.5 * (value[i] + value[g < GRID - 1 ? i + 1 : i]);
      if (middle >= after)
        below = below + weight[i];
      else if (middle > before)
        below = below + weight[i] * (middle - before) / (after - before);
    }
    if (add_up(below, sums) >= 0.5)
      high = middle;
    else
      low = middle;
  }
  return 0.5 * (low + high);
}

extern "C" __global__ void answers(
    const long long* offsets, const double* logits, const signed char* codes, double prior,
    double intercept, double both, double slope, const double* tables, int n_slopes,
    const double* slopes, const double* sigmoid, const double* log_sigmoid, int n_hypotheses,
    const double* hypotheses, int n_pseudo, const double* pseudo, const double* weights,
    double tail, double* answers) {
  __shared__ double sums[BLOCK + PARTS], counts[3 * BINS], likelihood[GRID];
  __shared__ double shifts[MOST_PSEUDO];
  __shared__ double value[SLOPES * GRID], weight[SLOPES * GRID], noise[SLOPES * GRID];
  const double *bins = tables, *grid = bins + BINS, *inverse_odds = grid + GRID;
  const double* normal = inverse_odds + BINS;
  double mean;
  long long size;
  fill(offsets, logits, codes, (int)blockIdx.x, counts, &mean, &size);
  double* answer = answers + 4 * (long long)blockIdx.x;
  if (size == 0) {
    if (threadIdx.x < 4) answer[threadIdx.x] = 0.0 / (size * 0.0);
    return;
  }
  double open = left_open_by(intercept, both, slope, mean);
  for (int a = 0; a < n_pseudo; ++a) {
    double moved = shift_of(counts, inverse_odds, prior, pseudo[a], sums);
    if (threadIdx.x == 0) shifts[a] = moved;
  }
  __syncthreads();
  int g = threadIdx.x;
  bool mine = g < GRID;
  double scale = -1e300, total = 0.0;
  for (int k = 0; k < n_slopes; ++k) {
    long long table = (long long)k * BINS * GRID;
    double* fraction = value + k * GRID;
    Curve curve = curves(counts, bins, grid, slopes[k], sigmoid + table, log_sigmoid + table,
                         fraction, likelihood);
    double mixed = 0.0;
    for (int h = 0; h < n_hypotheses && mine; ++h)
      if ((int)hypotheses[5 * h] == k)
        mixed = mixed + weights[h] * density_of(hypotheses + 5 * h, shifts, curve, open);
    if (curve.top > scale) {
      double shrink = exponential(scale - curve.top);
      for (int i = 0; i < k && mine; ++i)
        weight[i * GRID + g] = weight[i * GRID + g] * shrink;
      total = total * shrink;
      scale = curve.top;
    }
    double own = exponential(curve.top - scale), least = LEAST * own;
    if (mine) {
      mixed = mixed * likelihood[g] * own;
      mixed = mixed > least ? mixed : least;
    }
    total = total + add_up(mine ? mixed : 0.0, sums);
    double largest = largest_of(mine ? mixed : 0.0, sums);
    if (mine) {
      int low = g > 0 ? g - 1 : 0, high = g < GRID - 1 ? g + 1 : GRID - 1;
      weight[k * GRID + g] = mixed > NEGLIGIBLE * largest ? mixed : 0.0;
      // Derivative of the curve: the mean of p (1 - p), of which 1 / n is the variance
      // of the share that can be counted.
      double bend = (fraction[high] - fraction[low]) / ((high - low) * curve.step);
      noise[k * GRID + g] = sqrt((bend > 0.0 ? bend : 0.0) / size + 1e-12);
    }
  }
  int points = n_slopes * GRID;
  double top = 0.0, kept = 0.0;
  for (int k = 0; k < n_slopes && mine; ++k)
    top = weight[k * GRID + g] > top ? weight[k * GRID + g] : top;
  top = largest_of(top, sums);
  for (int k = 0; k < n_slopes && mine; ++k) {
    double one = weight[k * GRID + g];
    one = one > NEGLIGIBLE * top ? one : 0.0;
    weight[k * GRID + g] = one;
    kept = kept + one;
  }
  double whole = add_up(kept, sums);
  for (int k = 0; k < n_slopes && mine; ++k)
    weight[k * GRID + g] = weight[k * GRID + g] / whole;
  __syncthreads();
  double middle = median(points, weight, value, sums);
  long long low = count_quantile(size, tail, points, weight, value, noise, normal, sums);
  long long high = count_quantile(size, 1.0 - tail, points, weight, value, noise, normal, sums);
  if (threadIdx.x == 0) {
    answer[0] = middle;
    answer[1] = (double)low / size;
    answer[2] = (double)high / size;
    answer[3] = scale + logarithm(total);
  }
}
