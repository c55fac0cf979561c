// Quantifiers of all communities of a batch in one launch. Compiled with NVRTC by
// xnq_dist/quantify/gpu/sets.py, which documents the arguments.
//
// A large community gets a block, a small one a warp, depending only on its size. Each
// thread adds up every width-th member in order, then the threads' sums are added as a
// tree of fixed shape: a community has the same bits in every batch and run.
//
// Defined by the compiler: CLASSES.

#define BLOCK 256
#define WARP 32
#define FEWEST_ITERATIONS 12  // minimum number of M-steps

__device__ __forceinline__ void wait_for_group(int width) {
  if (width == WARP)
    __syncwarp();
  else
    __syncthreads();
}

// The sum of a group's values, the same for all its threads.
__device__ __forceinline__ double add_up(double value, double* sums, int lane, int width) {
  sums[lane] = value;
  wait_for_group(width);
  for (int half = width / 2; half > 0; half /= 2) {
    if (lane < half) sums[lane] = sums[lane] + sums[lane + half];
    wait_for_group(width);
  }
  double total = sums[0];
  wait_for_group(width);
  return total;
}

struct Group {
  int width;  // threads that share a community
  int lane;   // of this thread among them
  int base;   // of the group in its block
  long long place;  // of the community in `order`
};

__device__ __forceinline__ Group group_of(int large) {
  Group group;
  bool whole = blockIdx.x < large;
  group.width = whole ? BLOCK : WARP;
  group.lane = threadIdx.x % group.width;
  group.base = threadIdx.x - group.lane;
  group.place = whole ? (long long)blockIdx.x
                      : large + (long long)(blockIdx.x - large) * (BLOCK / WARP) +
                            threadIdx.x / WARP;
  return group;
}

// EM for every community (Saerens, Latinne, Decaestecker 2002), as `sld_kernel` of the CPU.
extern "C" __global__ void sld(
    const long long* offsets, const long long* members, const unsigned char* unlabelled,
    const float* posteriors, const double* prior, double tolerance, int max_iterations,
    const int* order, int count, int large, double* prevalence, int* iterations,
    unsigned char* converged) {
  __shared__ double scratch[BLOCK];
  Group group = group_of(large);
  if (group.place >= count) return;
  double* sums = scratch + group.base;
  int community = order[group.place];
  long long first = offsets[community], last = offsets[community + 1];
  double mine_seen = 0.0, mine_rows = 0.0;
  for (long long k = first + group.lane; k < last; k += group.width) {
    long long node = members[k];
    if (!unlabelled[node]) continue;
    double mass = 0.0;
    for (int y = 0; y < CLASSES; ++y) mass = mass + (double)posteriors[node * CLASSES + y];
    mine_seen += 1.0;
    if (mass > 0.0) mine_rows += 1.0;  // a row of zeros has no information
  }
  double seen = add_up(mine_seen, sums, group.lane, group.width);
  double rows = add_up(mine_rows, sums, group.lane, group.width);
  double q[CLASSES], weights[CLASSES], total[CLASSES];
  for (int y = 0; y < CLASSES; ++y) q[y] = prior[y];
  bool done = false;
  int steps = 0;
  while (seen > 0.0 && !done && steps < max_iterations) {
    for (int y = 0; y < CLASSES; ++y) {
      weights[y] = q[y] / prior[y];
      total[y] = 0.0;
    }
    for (long long k = first + group.lane; k < last; k += group.width) {
      long long node = members[k];
      if (!unlabelled[node]) continue;
      const float* row = posteriors + node * CLASSES;
      double mixture = 0.0;
      for (int y = 0; y < CLASSES; ++y) mixture = mixture + weights[y] * (double)row[y];
      double inverse = mixture > 0.0 ? 1.0 / mixture : 0.0;
      for (int y = 0; y < CLASSES - 1; ++y) total[y] = total[y] + (double)row[y] * inverse;
    }
    double left = rows, change = 0.0;
    for (int y = 0; y < CLASSES - 1; ++y) {
      total[y] = weights[y] * add_up(total[y], sums, group.lane, group.width);
      left = left - total[y];
    }
    total[CLASSES - 1] = left > 0.0 ? left : 0.0;
    if (rows > 0.0)
      for (int y = 0; y < CLASSES; ++y) {
        double updated = total[y] / rows;
        change = change + (updated > q[y] ? updated - q[y] : q[y] - updated);
        q[y] = updated;
      }
    ++steps;
    done = steps >= FEWEST_ITERATIONS && change / CLASSES < tolerance;
  }
  if (group.lane) return;
  double mass = 0.0;
  for (int y = 0; y < CLASSES; ++y) mass = mass + q[y];
  double* answer = prevalence + (long long)community * CLASSES;
  for (int y = 0; y < CLASSES; ++y)
    answer[y] = seen > 0.0 ? q[y] / mass : 0.0 / (seen * 0.0);
  iterations[community] = steps;
  converged[community] = done || seen == 0.0;
}

// Mean vote (hard) or posterior of every community, as `mean_kernel` of the CPU.
extern "C" __global__ void means(
    const long long* offsets, const long long* members, const unsigned char* unlabelled,
    const float* posteriors, int hard, const int* order, int count, int large,
    double* answers) {
  __shared__ double scratch[BLOCK];
  Group group = group_of(large);
  if (group.place >= count) return;
  double* sums = scratch + group.base;
  int community = order[group.place];
  double mine = 0.0, total[CLASSES];
  for (int y = 0; y < CLASSES; ++y) total[y] = 0.0;
  long long last = offsets[community + 1];
  for (long long k = offsets[community] + group.lane; k < last; k += group.width) {
    long long node = members[k];
    if (!unlabelled[node]) continue;
    mine += 1.0;
    const float* row = posteriors + node * CLASSES;
    int best = 0;
    for (int y = 1; y < CLASSES; ++y)
      if (row[y] > row[best]) best = y;
    for (int y = 0; y < CLASSES; ++y)
      total[y] = total[y] + (!hard ? (double)row[y] : (y == best && row[y] > 0.0f) ? 1.0 : 0.0);
  }
  double seen = add_up(mine, sums, group.lane, group.width), mass = 0.0;
  for (int y = 0; y < CLASSES; ++y) {
    total[y] = add_up(total[y], sums, group.lane, group.width);
    mass = mass + total[y];
  }
  if (group.lane) return;
  double* answer = answers + (long long)community * CLASSES;
  for (int y = 0; y < CLASSES; ++y)
    answer[y] = seen == 0.0 ? 0.0 / (seen * 0.0)
                            : (mass > 0.0 ? total[y] / mass : 1.0 / CLASSES);
}
