// Convex problems over the simplex, a block a community, all communities of a batch in one
// launch. Compiled with NVRTC by xnq_dist/quantify/gpu_simplex.py; `simplex` defines what
// they compute: Newton steps of a quadratic programme, which one thread solves, damped by
// halving, until no point of the simplex is better by more than the tolerance.
//
// Defined by the compiler: CLASSES.

#define C CLASSES
#define PAIRS (C * (C + 1) / 2)
#define MOST_CELLS 1024
#define SHORTEST 1e-12
#define NOISE 1e-14
#define IMPOSSIBLE 1e300
#define LOG_2 0.6931471805599453

struct Model {
  double gradient[C], hessian[C * C], at[C], target[C], tried[C], slope;
  double linear[C], system[(C + 1) * (C + 1)], right[C + 1];  // of the programme
};

// Gaussian elimination with partial pivoting in place; the answer in `right`.
__device__ void solve(double* system, double* right, int size) {
  const int row = C + 1;
  for (int k = 0; k < size; ++k) {
    int pivot = k;
    for (int i = k + 1; i < size; ++i)
      if (fabs(system[i * row + k]) > fabs(system[pivot * row + k])) pivot = i;
    if (pivot != k) {
      for (int j = k; j < size; ++j) {
        double kept = system[k * row + j];
        system[k * row + j] = system[pivot * row + j];
        system[pivot * row + j] = kept;
      }
      double kept = right[k];
      right[k] = right[pivot];
      right[pivot] = kept;
    }
    for (int i = k + 1; i < size; ++i) {
      double factor = system[i * row + k] / system[k * row + k];
      if (factor == 0.0) continue;
      for (int j = k; j < size; ++j)
        system[i * row + j] = system[i * row + j] - factor * system[k * row + j];
      right[i] = right[i] - factor * right[k];
    }
  }
  for (int k = size - 1; k >= 0; --k) {
    double value = right[k];
    for (int j = k + 1; j < size; ++j) value = value - system[k * row + j] * right[j];
    right[k] = value / system[k * row + k];
  }
}

// Move p to where p' hessian p / 2 - linear' p is least over the simplex.
__device__ void quadratic(Model* model, double* p) {
  double *system = model->system, *right = model->right;
  bool is_free[C];
  int free[C];
  for (int i = 0; i < C; ++i) is_free[i] = p[i] > 0.0;
  for (int turn = 0; turn < 50 + 10 * C; ++turn) {
    int size = 0;
    for (int i = 0; i < C; ++i)
      if (is_free[i]) free[size++] = i;
    for (int a = 0; a < size; ++a) {
      for (int b = 0; b < size; ++b)
        system[a * (C + 1) + b] = model->hessian[free[a] * C + free[b]];
      system[a * (C + 1) + size] = 1.0;
      system[size * (C + 1) + a] = 1.0;
      right[a] = model->linear[free[a]];
    }
    system[size * (C + 1) + size] = 0.0;
    right[size] = 1.0;
    solve(system, right, size + 1);
    // How far towards that optimum before a class reaches 0, and which one.
    double length = 1.0;
    int blocking = -1;
    for (int a = 0; a < size; ++a) {
      int i = free[a];
      if (right[a] < 0.0 && p[i] < length * (p[i] - right[a])) {
        length = p[i] / (p[i] - right[a]);
        blocking = i;
      }
    }
    for (int a = 0; a < size; ++a)
      p[free[a]] = p[free[a]] + length * (right[a] - p[free[a]]);
    if (blocking >= 0) {
      p[blocking] = 0.0;
      is_free[blocking] = false;
      continue;
    }
    // At the optimum of the free classes: does freeing another one pay?
    double worst = -1e-12;
    int freed = -1;
    for (int i = 0; i < C; ++i) {
      if (is_free[i]) continue;
      double slope = right[size] - model->linear[i];
      for (int j = 0; j < C; ++j) slope = slope + model->hessian[i * C + j] * p[j];
      if (slope < worst) {
        worst = slope;
        freed = i;
      }
    }
    if (freed < 0) return;
    is_free[freed] = true;
  }
}

// Least point over the simplex of the model at `at`, and its slope; by one thread.
__device__ void newton_target(Model* model) {
  double trace = 0.0;
  for (int i = 0; i < C; ++i) trace = trace + model->hessian[i * C + i];
  for (int i = 0; i < C; ++i) {
    model->hessian[i * C + i] =
        model->hessian[i * C + i] + (trace > 0.0 ? 1e-12 * trace : 1e-9);
    for (int j = 0; j < i; ++j) model->hessian[i * C + j] = model->hessian[j * C + i];
  }
  for (int i = 0; i < C; ++i) {
    double value = -model->gradient[i];
    for (int j = 0; j < C; ++j) value = value + model->hessian[i * C + j] * model->at[j];
    model->linear[i] = value;
    model->target[i] = model->at[i];
  }
  quadratic(model, model->target);
  model->slope = 0.0;
  for (int i = 0; i < C; ++i)
    model->slope = model->slope + model->gradient[i] * (model->target[i] - model->at[i]);
}

// How much better than `at` any point of the simplex can be, at most.
__device__ double gap(const Model* model) {
  double at = 0.0, least = model->gradient[0];
  for (int i = 0; i < C; ++i) {
    at = at + model->gradient[i] * model->at[i];
    least = model->gradient[i] < least ? model->gradient[i] : least;
  }
  return at - least;
}

// The threads' gradients and curvatures added up into the model.
__device__ void put_together(
    const double* gradient, const double* hessian, double scale, Model* model, double* sums) {
  int pair = 0;
  for (int y = 0; y < C; ++y) {
    double total = add_up(gradient[y], sums);
    if (threadIdx.x == 0) model->gradient[y] = total * scale;
    for (int x = 0; x <= y; ++x) {
      total = add_up(hessian[pair++], sums);
      if (threadIdx.x == 0) model->hessian[x * C + y] = total * scale;
    }
  }
  __syncthreads();
}

__device__ void begin_evenly(Model* model) {
  if (threadIdx.x < C) model->at[threadIdx.x] = 1.0 / C;
  __syncthreads();
}

__device__ void try_step(Model* model, double length) {
  int y = threadIdx.x;
  if (y < C) model->tried[y] = model->at[y] + length * (model->target[y] - model->at[y]);
  __syncthreads();
}

__device__ void take_step(Model* model) {
  if (threadIdx.x < C) model->at[threadIdx.x] = model->tried[threadIdx.x];
  __syncthreads();
}

__device__ void write(
    const Model* model, int steps, bool done, double* prevalence, int* iterations,
    unsigned char* converged) {
  if (threadIdx.x) return;
  double mass = 0.0;
  for (int i = 0; i < C; ++i) mass = mass + (model->at[i] > 0.0 ? model->at[i] : 0.0);
  for (int i = 0; i < C; ++i)
    prevalence[(long long)blockIdx.x * C + i] = (model->at[i] > 0.0 ? model->at[i] : 0.0) / mass;
  iterations[blockIdx.x] = steps;
  converged[blockIdx.x] = done;
}

// This thread's part of a community's sum of -log mixture.
__device__ double minus_log(
    const long long* members, const double* ratios, long long first, long long last,
    const double* q) {
  double total = 0.0;
  for (long long at = first + threadIdx.x; at < last; at += BLOCK) {
    const double* row = ratios + members[at] * C;
    double mixture = 0.0;
    for (int y = 0; y < C; ++y) mixture = mixture + q[y] * row[y];
    total = mixture > 1e-307 ? total - logarithm(mixture) : IMPOSSIBLE;
    if (total >= IMPOSSIBLE) return IMPOSSIBLE;
  }
  return total;
}

// The q that maximises a community's mean of log sum_y q(y) ratio(y).
extern "C" __global__ void likelihood(
    const long long* offsets, const long long* members, const double* ratios,
    double tolerance, int most_steps, double* prevalence, int* iterations,
    unsigned char* converged) {
  __shared__ double sums[BLOCK + PARTS];
  __shared__ Model model;
  long long first = offsets[blockIdx.x], last = offsets[blockIdx.x + 1];
  if (first == last) return;
  double size = (double)(last - first);
  begin_evenly(&model);
  double cost = add_up(minus_log(members, ratios, first, last, model.at), sums) / size;
  bool done = false;
  int steps = 0;
  while (true) {
    double gradient[C], hessian[PAIRS];
    for (int y = 0; y < C; ++y) gradient[y] = 0.0;
    for (int pair = 0; pair < PAIRS; ++pair) hessian[pair] = 0.0;
    for (long long at = first + threadIdx.x; at < last; at += BLOCK) {
      const double* row = ratios + members[at] * C;
      double mixture = 0.0, scaled[C];
      for (int y = 0; y < C; ++y) mixture = mixture + model.at[y] * row[y];
      double inverse = 1.0 / mixture;
      for (int y = 0, pair = 0; y < C; ++y) {
        scaled[y] = row[y] * inverse;
        gradient[y] = gradient[y] - scaled[y];
        for (int x = 0; x <= y; ++x, ++pair)
          hessian[pair] = hessian[pair] + scaled[x] * scaled[y];
      }
    }
    put_together(gradient, hessian, 1.0 / size, &model, sums);
    done = gap(&model) <= tolerance;
    if (done || steps == most_steps) break;
    __syncthreads();  // all have seen the gradient's gap
    if (threadIdx.x == 0) newton_target(&model);
    __syncthreads();
    double length = 1.0, slope = model.slope, value = 0.0;
    for (; length > SHORTEST; length = length * 0.5) {
      try_step(&model, length);
      value = add_up(minus_log(members, ratios, first, last, model.tried), sums) / size;
      if (value <= cost + 0.1 * length * slope + NOISE) break;
    }
    if (length <= SHORTEST) break;
    take_step(&model);
    cost = value;
    ++steps;
  }
  write(&model, steps, done, prevalence, iterations, converged);
}

// This thread's part of the Topsoe distance of a sample from p' shares.
__device__ double topsoe_part(
    const double* sample, const double* shares, int cells, const double* p) {
  double total = 0.0;
  for (int b = threadIdx.x; b < cells; b += BLOCK) {
    double value = 0.0, seen = sample[b];
    for (int i = 0; i < C; ++i) value = value + p[i] * shares[i * cells + b];
    if (seen > 0.0 && value > 0.0) {
      double middle = (seen + value) / 2.0;
      total = total + (value * logarithm(value / middle) + seen * logarithm(seen / middle));
    } else {
      total = total + (seen + value) * LOG_2;
    }
  }
  return total;
}

// The p whose mixture of the classes' histograms is nearest to a community's (Topsoe).
extern "C" __global__ void topsoe(
    const long long* offsets, const long long* members, const int* places, int channels,
    int cells, const double* shares, double tolerance, int most_steps, double* prevalence,
    int* iterations, unsigned char* converged) {
  __shared__ double sums[BLOCK + PARTS], sample[MOST_CELLS];
  __shared__ Model model;
  long long first = offsets[blockIdx.x], last = offsets[blockIdx.x + 1];
  if (first == last) return;
  for (int cell = threadIdx.x; cell < cells; cell += BLOCK) sample[cell] = 0.0;
  for (long long at = first; at < last; ++at)
    for (int channel = 0; channel < channels; ++channel) {
      int cell = places[members[at] * channels + channel];
      if (cell % BLOCK == threadIdx.x) sample[cell] = sample[cell] + 1.0;
    }
  double whole = (double)(last - first) * channels;
  for (int cell = threadIdx.x; cell < cells; cell += BLOCK) sample[cell] = sample[cell] / whole;
  begin_evenly(&model);
  double cost = add_up(topsoe_part(sample, shares, cells, model.at), sums);
  bool done = false;
  int steps = 0;
  while (true) {
    double gradient[C], hessian[PAIRS];
    for (int y = 0; y < C; ++y) gradient[y] = 0.0;
    for (int pair = 0; pair < PAIRS; ++pair) hessian[pair] = 0.0;
    for (int b = threadIdx.x; b < cells; b += BLOCK) {
      double mixture = 0.0, slope = LOG_2, curve = 0.0;
      for (int i = 0; i < C; ++i) mixture = mixture + model.at[i] * shares[i * cells + b];
      if (sample[b] > 0.0 && mixture > 0.0) {
        double both = sample[b] + mixture;
        slope = logarithm(2.0 * mixture / both);
        curve = sample[b] / (mixture * both);
      }
      for (int y = 0, pair = 0; y < C; ++y) {
        gradient[y] = gradient[y] + shares[y * cells + b] * slope;
        for (int x = 0; x <= y; ++x, ++pair)
          hessian[pair] =
              hessian[pair] + curve * shares[x * cells + b] * shares[y * cells + b];
      }
    }
    put_together(gradient, hessian, 1.0, &model, sums);
    done = gap(&model) <= tolerance;
    if (done || steps == most_steps) break;
    __syncthreads();  // all have seen the gradient's gap
    if (threadIdx.x == 0) newton_target(&model);
    __syncthreads();
    // The longest step, up to 1, that leaves each of the sample's cells a tenth.
    double most = 1.0, slope = model.slope, value = 0.0;
    for (int b = threadIdx.x; b < cells; b += BLOCK) {
      if (!(sample[b] > 0.0)) continue;
      double mixture = 0.0, ahead = 0.0;
      for (int i = 0; i < C; ++i) {
        mixture = mixture + model.at[i] * shares[i * cells + b];
        ahead = ahead + model.target[i] * shares[i * cells + b];
      }
      double fall = mixture - ahead;
      if (most * fall > 0.9 * mixture) most = 0.9 * mixture / fall;
    }
    double length = -largest_of(-most, sums);
    for (; length > SHORTEST; length = length * 0.5) {
      try_step(&model, length);
      value = add_up(topsoe_part(sample, shares, cells, model.tried), sums);
      if (value <= cost + 0.1 * length * slope + NOISE) break;
    }
    if (length <= SHORTEST) break;
    take_step(&model);
    cost = value;
    ++steps;
  }
  write(&model, steps, done, prevalence, iterations, converged);
}
