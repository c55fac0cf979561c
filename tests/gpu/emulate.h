// The words of CUDA that our kernels use, for g++. Blocks run one after the other; the
// threads of a block are fibers that switch at barriers, so that shared memory and
// barriers mean what they mean on a device. Barriers that threads of a block or warp do
// not all reach are reported.
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#define XNQ_EMULATED 1
#define __global__
#define __device__ static
#define __forceinline__ inline
#define __align__ alignas
#define __launch_bounds__(...)
#define __shared__ static
#define SHARED_FLOATS(name) float* name = reinterpret_cast<float*>(shared_bytes.data())

struct Index {
  unsigned int x, y, z;
};
static Index threadIdx, blockIdx, blockDim, gridDim;
static std::vector<unsigned char> shared_bytes;

enum { RUNNING, BLOCK_BARRIER, WARP_BARRIER, DONE };
struct Fiber {
  ucontext_t context;
  std::vector<char> stack;
  int state;
};
static ucontext_t scheduler;
static Fiber* current;
static void (*body)(void**);
static void** body_args;

static void wait_at(int barrier) {
  current->state = barrier;
  swapcontext(&current->context, &scheduler);
}
static void __syncthreads() { wait_at(BLOCK_BARRIER); }
static void __syncwarp() { wait_at(WARP_BARRIER); }
static void enter() {
  body(body_args);
  current->state = DONE;
  swapcontext(&current->context, &scheduler);
}

static Index thread_of(unsigned int number) {
  return {number % blockDim.x, number / blockDim.x % blockDim.y,
          number / (blockDim.x * blockDim.y)};
}

// 0, or 1 when threads came to different barriers.
static int run_block(std::vector<Fiber>& fibers) {
  unsigned int count = blockDim.x * blockDim.y * blockDim.z;
  for (unsigned int t = 0; t < count; ++t) {
    Fiber& fiber = fibers[t];
    if (fiber.stack.empty()) fiber.stack.resize(1 << 16);
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.data();
    fiber.context.uc_stack.ss_size = fiber.stack.size();
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, enter, 0);
    fiber.state = RUNNING;
  }
  for (unsigned int done = 0; done < count;) {
    for (unsigned int t = 0; t < count; ++t) {
      if (fibers[t].state == DONE) continue;
      threadIdx = thread_of(t);
      current = &fibers[t];
      swapcontext(&scheduler, &fibers[t].context);
      done += fibers[t].state == DONE;
    }
    bool block = fibers[0].state == BLOCK_BARRIER;
    for (unsigned int t = 0; t < count; ++t) {
      if ((fibers[t].state == BLOCK_BARRIER) != block) return 1;
      if (fibers[t].state != fibers[t - t % 32].state) return 1;
    }
  }
  return 0;
}

static int launch(const unsigned int* grid, const unsigned int* block, long shared,
                  bool barriers, void (*kernel)(void**), void** args) {
  gridDim = {grid[0], grid[1], grid[2]};
  blockDim = {block[0], block[1], block[2]};
  body = kernel;
  body_args = args;
  unsigned int count = block[0] * block[1] * block[2];
  std::vector<Fiber> fibers(barriers ? count : 0);
  for (unsigned int z = 0; z < grid[2]; ++z)
    for (unsigned int y = 0; y < grid[1]; ++y)
      for (unsigned int x = 0; x < grid[0]; ++x) {
        blockIdx = {x, y, z};
        shared_bytes.assign(static_cast<std::size_t>(shared), 0xff);  // NaN, as if left over
        if (barriers) {
          if (run_block(fibers)) return 1;
          continue;
        }
        for (unsigned int t = 0; t < count; ++t) {
          threadIdx = thread_of(t);
          kernel(args);
        }
      }
  return 0;
}
