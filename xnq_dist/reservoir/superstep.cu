// Superstep kernels: gather-add, sparse product, tanh. Compiled with NVRTC by
// xnq_dist/reservoir/gpu_kernels.py, which describes the arguments.
//
// Every sum runs in one thread, in the order of the CPU kernels (neighbours ascending,
// non-zeros ascending), without atomics and without fused multiply-add (--fmad=false):
// in float32 gather, sparse product and tanh have the bits of xnq_dist/reservoir/kernels.py,
// for any partition, row block and launch.
//
// Defined by the compiler: STATE (32: float32, 16: float16, 8: bfloat16), ROWS (rows of a
// block of sparse_superstep) and VECTOR (neighbouring columns that a thread of a gather
// loads at once; it divides the width). XNQ_EMULATED: a CPU emulates the GPU.

#define EDGES 4  // edges whose states are loaded together
#define WARP 32

#if STATE == 32
typedef float state_t;
__device__ __forceinline__ float load_state(state_t value) { return value; }
__device__ __forceinline__ state_t store_state(float value) { return value; }
#elif STATE == 8
typedef unsigned short state_t;
__device__ __forceinline__ float load_state(state_t bits) {
  return __uint_as_float(((unsigned int)bits) << 16);
}
__device__ __forceinline__ state_t store_state(float value) {
  unsigned int bits = __float_as_uint(value);
  if (value != value) return (state_t)0x7fff;
  return (state_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);  // nearest, ties even
}
#else
typedef unsigned short state_t;
#ifdef XNQ_EMULATED
__device__ __forceinline__ float load_state(state_t bits) { return half_to_float(bits); }
__device__ __forceinline__ state_t store_state(float value) { return float_to_half(value); }
#else
__device__ __forceinline__ float load_state(state_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
__device__ __forceinline__ state_t store_state(float value) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
#endif
#endif

struct __align__(VECTOR * sizeof(state_t)) states_t { state_t value[VECTOR]; };
struct __align__(VECTOR * sizeof(float)) sums_t { float value[VECTOR]; };

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
    const state_t* owned, const state_t* halo, int n_owned, int width, long long row,
    int column, float* sums) {
  for (int c = 0; c < VECTOR; ++c) sums[c] = 0.0f;
  owned += column;
  halo += column - (long long)n_owned * width;  // its rows are numbered after the owned
  long long last = indptr[row + 1];
  for (long long edge = indptr[row]; edge < last; edge += EDGES) {
    int count = last - edge < EDGES ? (int)(last - edge) : EDGES;
    int source[EDGES];
    float weight[EDGES];
    states_t states[EDGES];
#pragma unroll
    for (int e = 0; e < EDGES; ++e)
      if (e < count) source[e] = indices[edge + e];
#pragma unroll
    for (int e = 0; e < EDGES; ++e)
      if (e < count) weight[e] = weighted ? weights[edge + e] : 1.0f;
#pragma unroll
    for (int e = 0; e < EDGES; ++e)
      if (e < count) {
        const state_t* base = source[e] < n_owned ? owned : halo;
        states[e] = *(const states_t*)(base + (long long)source[e] * width);
      }
#pragma unroll
    for (int e = 0; e < EDGES; ++e)
      if (e < count)
        for (int c = 0; c < VECTOR; ++c)
          sums[c] = sums[c] + weight[e] * load_state(states[e].value[c]);
  }
}

// One warp for a row and WARP * VECTOR columns; block (32, rows of a block), grid (rows,
// columns).
extern "C" __global__ void gather_add(
    const long long* indptr, const int* indices, const float* weights, int weighted,
    const state_t* owned, const state_t* halo, int n_owned, int width, long long first,
    long long last, float* out) {
  long long row = first + (long long)blockIdx.x * blockDim.y + threadIdx.y;
  int column = (blockIdx.y * WARP + threadIdx.x) * VECTOR;
  if (row >= last || column >= width) return;
  float sums[VECTOR];
  gather_row(indptr, indices, weights, weighted, owned, halo, n_owned, width, row, column,
             sums);
  sums_t* to = (sums_t*)(out + (row - first) * width + column);
  for (int c = 0; c < VECTOR; ++c) to->value[c] = sums[c];
}

// The same, rounded to the state's type: what a product in half precision reads.
extern "C" __global__ void gather_round(
    const long long* indptr, const int* indices, const float* weights, int weighted,
    const state_t* owned, const state_t* halo, int n_owned, int width, long long first,
    long long last, state_t* out) {
  long long row = first + (long long)blockIdx.x * blockDim.y + threadIdx.y;
  int column = (blockIdx.y * WARP + threadIdx.x) * VECTOR;
  if (row >= last || column >= width) return;
  float sums[VECTOR];
  gather_row(indptr, indices, weights, weighted, owned, halo, n_owned, width, row, column,
             sums);
  states_t* to = (states_t*)(out + (row - first) * width + column);
  for (int c = 0; c < VECTOR; ++c) to->value[c] = store_state(sums[c]);
}

// out = tanh(product + drive); one thread for each value.
extern "C" __global__ void tanh_add(
    const float* product, const float* drive, long long drive_stride, state_t* out,
    long long out_stride, int width, long long count) {
  long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= count) return;
  long long row = at / width;
  int j = (int)(at - row * width);
  out[row * out_stride + j] =
      store_state(rational_tanh(product[at] + drive[row * drive_stride + j]));
}

// out = tanh(gathered W^T + drive) for a sparse W; one thread for each value. Non-zero k
// of all units lies together, here and below: a warp reads neighbouring values.
extern "C" __global__ void sparse_update(
    const float* gathered, const int* columns, const float* values, int nonzeros,
    const float* drive, state_t* out, int width, long long count) {
  long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= count) return;
  long long row = at / width;
  int unit = (int)(at - row * width);
  const float* sums = gathered + row * width;
  float total = 0.0f;
  for (int k = 0; k < nonzeros; ++k)
    total = total + values[k * width + unit] * sums[columns[k * width + unit]];
  out[at] = store_state(rational_tanh(total + drive[at]));
}

// Gather, sparse product, drive and tanh in one pass: ROWS rows' sums stay in shared
// memory, and a non-zero of W is read once for all of them. Block (32, 8), of which three
// fit on a multiprocessor: more registers would leave it too few warps, fewer spill.
extern "C" __global__ void __launch_bounds__(256, 3) sparse_superstep(
    const long long* indptr, const int* indices, const float* weights, int weighted,
    const state_t* owned, const state_t* halo, int n_owned, int width, long long first,
    long long last, const int* columns, const float* values, int nonzeros,
    const float* drive, state_t* out) {
  SHARED_FLOATS(gathered);
  long long base = first + (long long)blockIdx.x * ROWS;
  int rows = last - base < ROWS ? (int)(last - base) : ROWS;
  int pieces = (width + WARP * VECTOR - 1) / (WARP * VECTOR);
  for (int item = threadIdx.y; item < rows * pieces; item += blockDim.y) {
    int r = item / pieces;
    int column = ((item - r * pieces) * WARP + threadIdx.x) * VECTOR;
    if (column >= width) continue;
    float sums[VECTOR];
    gather_row(indptr, indices, weights, weighted, owned, halo, n_owned, width, base + r,
               column, sums);
    sums_t* to = (sums_t*)(gathered + r * width + column);
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
        out[(base + r) * width + unit] = store_state(rational_tanh(total[r] + pushed[r]));
  }
}
