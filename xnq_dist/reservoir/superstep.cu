// Superstep kernels: gather-add, sparse product, tanh. Compiled with NVRTC by
// xnq_dist/reservoir/gpu_kernels.py, which describes the arguments.
//
// Every sum runs in one thread, in the order of the CPU kernels (neighbours ascending,
// non-zeros ascending), without atomics and without fused multiply-add (--fmad=false):
// in float32 gather, sparse product and tanh have the bits of xnq_dist/reservoir/kernels.py,
// for any partition, row block and launch.
//
// Defined by the compiler: STATE (32: float32, 16: float16, 8: bfloat16) and ROWS (rows
// of a block of sparse_superstep). XNQ_EMULATED: a CPU emulates the GPU.

#define COLUMNS 4  // columns that a thread of a gather keeps in registers
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

// Sums of COLUMNS columns, WARP apart, beginning at column `column`, of one row.
__device__ __forceinline__ void gather_row(
    const long long* indptr, const int* indices, const float* weights, int weighted,
    const state_t* owned, long long owned_stride, const state_t* halo,
    long long halo_stride, int n_owned, int width, long long row, int column,
    float* sums) {
  for (int c = 0; c < COLUMNS; ++c) sums[c] = 0.0f;
  long long last = indptr[row + 1];
  int left = width - column;
  bool whole = left > (COLUMNS - 1) * WARP;
#pragma unroll 4
  for (long long edge = indptr[row]; edge < last; ++edge) {
    int source = indices[edge];
    const state_t* state = source < n_owned
                               ? owned + source * owned_stride
                               : halo + (source - n_owned) * halo_stride;
    state += column;
    float weight = weighted ? weights[edge] : 1.0f;
    if (whole) {  // no bounds to check: all loads of an edge run in parallel
      for (int c = 0; c < COLUMNS; ++c)
        sums[c] = sums[c] + weight * load_state(state[c * WARP]);
    } else {
      for (int c = 0; c < COLUMNS; ++c)
        if (c * WARP < left) sums[c] = sums[c] + weight * load_state(state[c * WARP]);
    }
  }
}

// One warp for a row and 128 columns; block (32, rows of a block), grid (rows, columns).
extern "C" __global__ void gather_add(
    const long long* indptr, const int* indices, const float* weights, int weighted,
    const state_t* owned, long long owned_stride, const state_t* halo,
    long long halo_stride, int n_owned, int width, long long first, long long last,
    float* out) {
  long long row = first + (long long)blockIdx.x * blockDim.y + threadIdx.y;
  int column = blockIdx.y * (WARP * COLUMNS) + threadIdx.x;
  if (row >= last) return;
  float sums[COLUMNS];
  gather_row(indptr, indices, weights, weighted, owned, owned_stride, halo, halo_stride,
             n_owned, width, row, column, sums);
  for (int c = 0; c < COLUMNS; ++c) {
    int j = column + c * WARP;
    if (j < width) out[(row - first) * width + j] = sums[c];
  }
}

// The same, rounded to the state's type: what a product in half precision reads.
extern "C" __global__ void gather_round(
    const long long* indptr, const int* indices, const float* weights, int weighted,
    const state_t* owned, long long owned_stride, const state_t* halo,
    long long halo_stride, int n_owned, int width, long long first, long long last,
    state_t* out) {
  long long row = first + (long long)blockIdx.x * blockDim.y + threadIdx.y;
  int column = blockIdx.y * (WARP * COLUMNS) + threadIdx.x;
  if (row >= last) return;
  float sums[COLUMNS];
  gather_row(indptr, indices, weights, weighted, owned, owned_stride, halo, halo_stride,
             n_owned, width, row, column, sums);
  for (int c = 0; c < COLUMNS; ++c) {
    int j = column + c * WARP;
    if (j < width) out[(row - first) * width + j] = store_state(sums[c]);
  }
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

// out = tanh(gathered W^T + drive) for a sparse W; one thread for each value.
extern "C" __global__ void sparse_update(
    const float* gathered, const int* columns, const float* values, int nonzeros,
    const float* drive, long long drive_stride, state_t* out, long long out_stride,
    int width, long long count) {
  long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= count) return;
  long long row = at / width;
  int unit = (int)(at - row * width);
  const float* sums = gathered + row * width;
  const int* column = columns + (long long)unit * nonzeros;
  const float* value = values + (long long)unit * nonzeros;
  float total = 0.0f;
  for (int k = 0; k < nonzeros; ++k) total = total + value[k] * sums[column[k]];
  out[row * out_stride + unit] =
      store_state(rational_tanh(total + drive[row * drive_stride + unit]));
}

// Gather, sparse product, drive and tanh in one pass: ROWS rows' sums stay in shared
// memory, and a non-zero of W is read once for all of them. Block (32, any).
extern "C" __global__ void sparse_superstep(
    const long long* indptr, const int* indices, const float* weights, int weighted,
    const state_t* owned, long long owned_stride, const state_t* halo,
    long long halo_stride, int n_owned, int width, long long first, long long last,
    const int* columns, const float* values, int nonzeros, const float* drive,
    long long drive_stride, state_t* out, long long out_stride) {
  SHARED_FLOATS(gathered);
  long long base = first + (long long)blockIdx.x * ROWS;
  int rows = last - base < ROWS ? (int)(last - base) : ROWS;
  int pieces = (width + WARP * COLUMNS - 1) / (WARP * COLUMNS);
  for (int item = threadIdx.y; item < rows * pieces; item += blockDim.y) {
    int r = item / pieces;
    int column = (item - r * pieces) * (WARP * COLUMNS) + threadIdx.x;
    float sums[COLUMNS];
    gather_row(indptr, indices, weights, weighted, owned, owned_stride, halo,
               halo_stride, n_owned, width, base + r, column, sums);
    for (int c = 0; c < COLUMNS; ++c) {
      int j = column + c * WARP;
      if (j < width) gathered[r * width + j] = sums[c];
    }
  }
  __syncthreads();
  int threads = blockDim.x * blockDim.y;
  for (int unit = threadIdx.y * blockDim.x + threadIdx.x; unit < width; unit += threads) {
    float total[ROWS];
    for (int r = 0; r < ROWS; ++r) total[r] = 0.0f;
    for (int k = 0; k < nonzeros; ++k) {
      float value = values[(long long)unit * nonzeros + k];
      int column = columns[(long long)unit * nonzeros + k];
      for (int r = 0; r < rows; ++r)
        total[r] = total[r] + value * gathered[r * width + column];
    }
    for (int r = 0; r < rows; ++r) {
      long long row = base + r;
      out[row * out_stride + unit] = store_state(
          rational_tanh(total[r] + drive[row * drive_stride + unit]));
    }
  }
}
