#pragma once

#include <memory>
#include <variant>

#include "workload/lengths/empirical.h"
#include "workload/lengths/exponential.h"
#include "workload/lengths/fixed.h"
#include "workload/lengths/gaussian.h"
#include "workload/lengths/lognormal.h"
#include "workload/lengths/pareto.h"
#include "workload/lengths/uniform.h"

namespace spillway::workload {

class LengthDistribution;

using Lengths = std::variant<Fixed, Gaussian, Exponential, Lognormal, Empirical, Uniform, Pareto>;

std::unique_ptr<LengthDistribution> make_lengths(const Lengths& lengths);

}  // namespace spillway::workload
