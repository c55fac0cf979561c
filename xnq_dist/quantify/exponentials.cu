// Exponentials and logarithms of float64, spelled out: a device's own would be of fused
// operations, and could change with its library. Right to two units in the last place.

__device__ __forceinline__ double power_of_two(int exponent) {
  return __longlong_as_double((long long)(exponent + 1023) << 52);
}

__device__ double exponential(double x) {
  if (x < -708.0) return 0.0;
  if (x > 709.0) return 1.7e308;
  double whole = floor(x * 1.4426950408889634 + 0.5);
  // ln 2 in two parts, the first with zeros at its end: its products are exact.
  double r = (x - whole * 6.93147180369123816490e-01) - whole * 1.90821492927058770002e-10;
  double sum = 1.0;
#pragma unroll
  for (int n = 13; n > 0; --n) sum = 1.0 + sum * (r * (1.0 / n));
  return sum * power_of_two((int)whole);
}

// 2 artanh(f), |f| <= 0.1716.
__device__ __forceinline__ double twice_artanh(double f) {
  double square = f * f, sum = 0.0;
#pragma unroll
  for (int n = 23; n > 0; n -= 2) sum = 1.0 / n + sum * square;
  return 2.0 * f * sum;
}

// Of a normal number above 0.
__device__ double logarithm(double x) {
  long long bits = __double_as_longlong(x);
  int exponent = (int)(bits >> 52) - 1023;
  double m = __longlong_as_double((bits & 0xfffffffffffffLL) | 0x3ff0000000000000LL);
  if (m > 1.4142135623730951) {
    m = m * 0.5;
    exponent = exponent + 1;
  }
  double rest = twice_artanh((m - 1.0) / (m + 1.0)) + exponent * 1.90821492927058770002e-10;
  return exponent * 6.93147180369123816490e-01 + rest;
}

// log(1 + y), y in [0, 1].
__device__ __forceinline__ double log_of_more(double y) {
  return y < 0.4 ? twice_artanh(y / (2.0 + y)) : logarithm(1.0 + y);
}
