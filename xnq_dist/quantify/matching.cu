// HDy and DyS of all communities of a batch in one launch, a block a community. Compiled
// with NVRTC by xnq_dist/quantify/gpu_matching.py; `histograms` defines what they compute.
//
// A cell of a histogram belongs to one thread, and sums are added up in the CPU's order:
// HDy has the CPU's bits, DyS but for the last bit of a logarithm.

#define MOST_CELLS 1024
#define MOST_HISTOGRAMS 16

// Histograms of a community's members, one behind the other; how many members there are.
__device__ long long count(
    const long long* offsets, const long long* members, const int* places, int channels,
    int cells, double* counts) {
  for (int cell = threadIdx.x; cell < cells; cell += BLOCK) counts[cell] = 0.0;
  long long first = offsets[blockIdx.x], last = offsets[blockIdx.x + 1];
  for (long long at = first; at < last; ++at)
    for (int channel = 0; channel < channels; ++channel) {
      int cell = places[members[at] * channels + channel];
      if (cell % BLOCK == threadIdx.x) counts[cell] = counts[cell] + 1.0;
    }
  __syncthreads();
  return last - first;
}

// The median over histograms of the nearest mixture on a grid (Hellinger).
extern "C" __global__ void hellinger(
    const long long* offsets, const long long* members, const int* places, int channels,
    int cells, const int* bins, const double* roots, int grid, double* prevalence) {
  __shared__ double counts[MOST_CELLS], likeness[BLOCK], found[MOST_HISTOGRAMS];
  if (count(offsets, members, places, channels, cells, counts) == 0) return;
  int begin = 0;
  for (int h = 0; h < channels; ++h) {
    double like = 0.0;
    if (threadIdx.x < grid)
      for (int b = begin; b < begin + bins[h]; ++b)
        if (counts[b] > 0.0) like = like + sqrt(counts[b]) * roots[b * grid + threadIdx.x];
    begin += bins[h];
    likeness[threadIdx.x] = like;
    __syncthreads();
    if (threadIdx.x == 0) {
      int best = 0;
      for (int g = 1; g < grid; ++g)
        if (likeness[g] > likeness[best]) best = g;
      double share = (double)best / (grid - 1);
      int at = h;  // among those before, in order
      for (; at > 0 && found[at - 1] > share; --at) found[at] = found[at - 1];
      found[at] = share;
    }
    __syncthreads();
  }
  if (threadIdx.x) return;
  double middle = channels % 2 ? found[channels / 2]
                               : (found[channels / 2 - 1] + found[channels / 2]) / 2.0;
  prevalence[2 * (long long)blockIdx.x] = 1.0 - middle;
  prevalence[2 * (long long)blockIdx.x + 1] = middle;
}

// Topsoe distance of a sample's counts times scale from a mixture of two.
__device__ double distance(
    const double* counts, const double* shares, int cells, double share, double scale) {
  double total = 0.0;
  for (int b = 0; b < cells; ++b) {
    double mixed = (1.0 - share) * shares[b] + share * shares[cells + b];
    double seen = counts[b] * scale, both = mixed + seen;
    if (mixed > 0.0) total = total + mixed * logarithm(2.0 * mixed / both);
    if (seen > 0.0) total = total + seen * logarithm(2.0 * seen / both);
  }
  return total;
}

// Ternary search for the nearest mixture of two histograms; a thread a side.
extern "C" __global__ void ternary(
    const long long* offsets, const long long* members, const int* places, int cells,
    const double* shares, double tolerance, double* prevalence) {
  __shared__ double counts[MOST_CELLS], sides[2];
  long long size = count(offsets, members, places, 1, cells, counts);
  if (size == 0) return;
  double left = 0.0, right = 1.0;
  while (right - left >= tolerance) {
    double third = (right - left) / 3.0;
    double lower = left + third, upper = right - third;
    if (threadIdx.x < 2)
      sides[threadIdx.x] =
          distance(counts, shares, cells, threadIdx.x ? upper : lower, 1.0 / size);
    __syncthreads();
    if (sides[0] > sides[1])
      left = lower;
    else
      right = upper;
    __syncthreads();
  }
  if (threadIdx.x) return;
  double middle = (left + right) / 2.0;
  prevalence[2 * (long long)blockIdx.x] = 1.0 - middle;
  prevalence[2 * (long long)blockIdx.x + 1] = middle;
}
