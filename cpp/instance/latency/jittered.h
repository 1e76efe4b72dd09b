#pragma once

#include <memory>
#include <string_view>

#include "instance/latency/linear.h"
#include "sim/ids.h"
#include "sim/schema/range.h"

namespace spillway::instance {

class LatencyModel;

/// Step times of the linear model, each multiplied by a random factor with mean 1.
struct Jittered {
  Linear mean;
  double cv = 0.05;

  static constexpr std::string_view kind = "jittered", type_name = "Jittered";
  static constexpr std::string_view doc =
      "Step times of the linear model, each multiplied by a lognormal factor with mean 1: the "
      "noise of a real server. Steps cannot be combined, so runs take several times as long.";
  static void fields(auto field) {
    field("mean", &Jittered::mean, "Mean step time, and the overheads outside the step.");
    field("cv", &Jittered::cv, "Coefficient of variation of the factor.")
        .dimensionless()
        .range(sim::between(0, 10))
        .search(0, 0.5);
  }
  bool draws() const { return cv > 0; }
};

std::unique_ptr<LatencyModel> make(const Jittered& config, std::uint64_t seed, sim::InstanceId id);

}  // namespace spillway::instance
