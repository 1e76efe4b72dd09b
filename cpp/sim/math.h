#pragma once

#include <cstdint>

namespace spillway::sim {

// Elementary functions of products, sums and tables alone: the same bits with every compiler and on
// every processor, which those of the C library do not give. Within 1 ulp, and special values as in
// C, unless stated otherwise.

double exp(double x);
double exp2(double x);
double expm1(double x);
double log(double x);
double log1p(double x);
/// Precondition: x >= 0.
double pow(double x, double y);

/// Sine. Precondition: |x| <= 1.
double sin(double x);
/// Gamma function, within 16 ulp. Precondition: 1 <= x <= 22.
double gamma(double x);
/// Distribution function of the standard normal distribution, within 16 ulp; 0 below −9.5.
double normal_probability(double z);
/// Number of decimal digits before the point, minus 1: ⌊log10 x⌋. 0 if x < 10.
std::int64_t decimal_exponent(double x);

}  // namespace spillway::sim
