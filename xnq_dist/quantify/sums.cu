// Sums and maxima over the threads of a block, in parts of a fixed shape: the same bits
// run to run, and for any grid.

#define BLOCK 128
#define PARTS 16

// The sum of all threads' values, the same for all of them.
__device__ double add_up(double value, double* sums) {
  sums[threadIdx.x] = value;
  __syncthreads();
  if (threadIdx.x < PARTS) {
    double part = 0.0;
    for (int i = 0; i < BLOCK / PARTS; ++i)
      part = part + sums[threadIdx.x * (BLOCK / PARTS) + i];
    sums[BLOCK + threadIdx.x] = part;
  }
  __syncthreads();
  double total = 0.0;
  for (int i = 0; i < PARTS; ++i) total = total + sums[BLOCK + i];
  return total;
}

__device__ double largest_of(double value, double* sums) {
  sums[threadIdx.x] = value;
  __syncthreads();
  if (threadIdx.x < PARTS) {
    double part = sums[threadIdx.x];
    for (int i = 1; i < BLOCK / PARTS; ++i) {
      double other = sums[i * PARTS + threadIdx.x];
      part = other > part ? other : part;
    }
    sums[BLOCK + threadIdx.x] = part;
  }
  __syncthreads();
  double top = sums[BLOCK];
  for (int i = 1; i < PARTS; ++i) top = sums[BLOCK + i] > top ? sums[BLOCK + i] : top;
  return top;
}
