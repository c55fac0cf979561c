// Superstep kernels: gather-add, sparse product, tanh. Compiled with NVRTC by
// xnq_dist/reservoir/device.py, which describes the arguments.
//
// Every sum runs in one thread, in the order of the CPU kernels (neighbours ascending,
// non-zeros ascending), without atomics and without fused multiply-add (--fmad=false):
// gather, sparse product and tanh have the bits of xnq_dist/reservoir/kernels.py,
// for any partition, row block and launch.
//
// Defined by the compiler: ROWS (rows of a block of sparse_superstep) and VECTOR
// (neighbouring columns that a thread of a gather loads at once; it divides the width).
// XNQ_EMULATED: a CPU emulates the GPU.

#define EDGES 4  // edges whose states are loaded together
#define WARP 32

struct __align__(VECTOR * sizeof(float)) floats_t { float value[VECTOR]; };

// x P(x^2) / Q(x^2), the coefficients of the CPU kernels.
__device__ __forceinline__ float rational_tanh(float x) {
  x = x > 9.0f ? 9.0f : x;
  x = x < -9.0f ? -9.0f : x;
  float t = x * x;
  float p = (((P4 * t + P3) * t + P2) * t + P1) * t + P0;
  float q = (((Q4 * t + Q3) * t + Q2) * t + Q1) * t + Q0;
  float y = x * p / q;
  y = y > 1.0f ? 1.0f : y;
  return y < -1.0f ? -1.0f : y;
}

// Sums of VECTOR columns of one row, beginning at column `column`. Loads of EDGES edges
// precede the sums of these edges, predicated instead of in branches: all are in flight.
__device__ __forceinline__ void gather_row(
    const long long* indptr, const int* indices, const float* weights, int weighted,
    const float* owned, const float* halo, int n_owned, int width, long long row,
    int column, float* sums) {
  for (int c = 0; c < VECTOR; ++c) sums[c] = 0.0f;
  owned += column;
  halo += column - (long long)n_owned * width;  // its rows are numbered after the owned
  long long last = indptr[row + 1];
  for (long long edge = indptr[row]; edge < last; edge += EDGES) {
    int count = last - edge < EDGES ? (int)(last - edge) : EDGES;
    int source[EDGES];
    float weight[EDGES];
    floats_t states[EDGES];
#pragma unroll
    for (int e = 0; e < EDGES; ++e)
      if (e < count) source[e] = indices[edge + e];
#pragma unroll
    for (int e = 0; e < EDGES; ++e)
      if (e < count) weight[e] = weighted ? weights[edge + e] : 1.0f;
#pragma unroll
    for (int e = 0; e < EDGES; ++e)
      if (e < count) {
        const float* base = source[e] < n_owned ? owned : halo;
        states[e] = *(const floats_t*)(base + (long long)source[e] * width);
      }
#pragma unroll
    for (int e = 0; e < EDGES; ++e)
      if (e < count)
        for (int c = 0; c < VECTOR; ++c)
          sums[c] = sums[c] + weight[e] * states[e].value[c];
  }
}

// One warp for a row and WARP * VECTOR columns; block (32, rows of a block), grid (rows,
// columns).
extern "C" __global__ void gather_add(
    const long long* indptr, const int* indices, const float* weights, int weighted,
    const float* owned, const float* halo, int n_owned, int width, float* out) {
  long long row = (long long)blockIdx.x * blockDim.y + threadIdx.y;
  int column = (blockIdx.y * WARP + threadIdx.x) * VECTOR;
  if (row >= n_owned || column >= width) return;
  float sums[VECTOR];
  gather_row(indptr, indices, weights, weighted, owned, halo, n_owned, width, row, column,
             sums);
  floats_t* to = (floats_t*)(out + row * width + column);
  for (int c = 0; c < VECTOR; ++c) to->value[c] = sums[c];
}

// Gather, sparse product, drive and tanh in one pass: ROWS rows' sums stay in shared
// memory, and a non-zero of W is read once for all of them; non-zero k of all units lies
// together, so that a warp reads neighbouring values. Block (32, 8), of which three
// fit on a multiprocessor: more registers would leave it too few warps, fewer spill.
extern "C" __global__ void __launch_bounds__(256, 3) sparse_superstep(
    const long long* indptr, const int* indices, const float* weights, int weighted,
    const float* owned, const float* halo, int n_owned, int width, const int* columns,
    const float* values, int nonzeros, const float* drive, float* out) {
  SHARED_FLOATS(gathered);
  long long base = (long long)blockIdx.x * ROWS;
  int rows = n_owned - base < ROWS ? (int)(n_owned - base) : ROWS;
  int pieces = (width + WARP * VECTOR - 1) / (WARP * VECTOR);
  for (int item = threadIdx.y; item < rows * pieces; item += blockDim.y) {
    int r = item / pieces;
    int column = ((item - r * pieces) * WARP + threadIdx.x) * VECTOR;
    if (column >= width) continue;
    float sums[VECTOR];
    gather_row(indptr, indices, weights, weighted, owned, halo, n_owned, width, base + r,
               column, sums);
    floats_t* to = (floats_t*)(gathered + r * width + column);
    for (int c = 0; c < VECTOR; ++c) to->value[c] = sums[c];
  }
  __syncthreads();
  int threads = blockDim.x * blockDim.y;
  for (int unit = threadIdx.y * blockDim.x + threadIdx.x; unit < width; unit += threads) {
    float total[ROWS], pushed[ROWS];
    for (int r = 0; r < ROWS; ++r) {
      total[r] = 0.0f;
      if (r < rows) pushed[r] = drive[(base + r) * width + unit];
    }
    for (int k = 0; k < nonzeros; ++k) {
      float value = values[k * width + unit];
      int column = columns[k * width + unit];
      for (int r = 0; r < ROWS; ++r)  // of the last block, some rows are not used
        total[r] = total[r] + value * gathered[r * width + column];
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
      if (r < rows)
        out[(base + r) * width + unit] = rational_tanh(total[r] + pushed[r]);
  }
}
